"""Peak memory of a process and of what it started, read from /proc while it runs (Linux)."""

from __future__ import annotations

import threading
from pathlib import Path

_EVERY = 0.02


class Watch:
    """`with Watch(pid) as w:` then `w.host` and `w.children`, MB: of the process, and of the largest that it started.

    The kernel's own high-water marks are read, so only a process that lives shorter than a look is missed.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.host = self.children = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(_EVERY):
            self.host = max(self.host, _peak(self.pid))
            for pid in _below(self.pid):
                self.children = max(self.children, _peak(pid))


def _below(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(task).split()):
            found += [child, *_below(child)]
    return found


def _peak(pid: int) -> float:
    lines = _read(Path(f"/proc/{pid}/status")).splitlines()
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM:")), 0.0)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""
