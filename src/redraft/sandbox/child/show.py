"""What a cell shows: its prints, the value of a last expression, a traceback without frames of ours."""

from __future__ import annotations

import io
import os

TYPE_CHECKING = False  # `typing` is slow to load, and type checkers know the name
if TYPE_CHECKING:
    import traceback
    from typing import Any

OURS = "<redraft "
"""How the file names of the sandbox's own code begin."""
LONGEST = 20_000
"""Characters of an echoed value."""
_ITEMS = 2_000
_LINE = 500


class Output(io.RawIOBase):
    """What the code writes, sent at once: what is printed before a kill is not lost.

    Of one cell, the first half of `cap` bytes and the last half; what lies between is counted and named.
    """

    def __init__(self, fd: int, cap: int) -> None:
        self._fd = fd
        self._half = cap // 2
        self.fresh()

    def fresh(self) -> None:
        """A new cell begins."""
        self._left = self._half
        self._tail = bytearray()
        self._cut = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """Where it goes to."""
        return self._fd

    def write(self, data: Any) -> int:
        """Send what fits, keep the tail of the rest."""
        size = len(data)
        if size <= self._left:
            self._left -= size
            self._send(data)
            return size
        if self._left:
            self._send(data[: self._left])
            data = data[self._left :]
            self._left = 0
        self._tail += data
        if len(self._tail) > 4 * self._half:
            self._cut += len(self._tail) - self._half
            del self._tail[: -self._half]
        return size

    def end(self) -> None:
        """The cell has ended: send the tail."""
        over = len(self._tail) - self._half
        if over > 0:
            self._cut += over
            del self._tail[:over]
        if self._cut:
            self._send(f"\n[... {self._cut} bytes of output not shown ...]\n".encode())
        self._send(bytes(self._tail))
        self.fresh()

    def _send(self, data: Any) -> None:
        sent = os.write(self._fd, data) if data else 0
        while sent < len(data):
            sent += os.write(self._fd, data[sent:])


def text_of(raw: Output) -> io.TextIOWrapper:
    """The stream that stands for stdout and stderr: nothing waits in it."""
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True)  # type: ignore[arg-type]


def echo(value: object) -> str:
    """`repr`, of a long value its beginning and its size."""
    if isinstance(value, str | bytes) and len(value) > LONGEST:
        return f"{value[:LONGEST]!r}... ({len(value)} {'characters' if isinstance(value, str) else 'bytes'})"
    if type(value) in (list, tuple) and len(value) > _ITEMS:  # type: ignore[arg-type]
        return f"{_cut(repr(value[:_ITEMS]))}... ({len(value)} items)"  # type: ignore[index, arg-type]
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def line_of(error: BaseException) -> str:
    """`ValueError: what it says`, on one line."""
    try:
        said = str(error).strip()
    except Exception:  # noqa: BLE001 - user code: an exception whose own message cannot be made
        said = "<its message cannot be made>"
    first = " ".join(said[: 2 * _LINE].split())
    name = type(error).__name__
    return (f"{name}: {first}" if first else name)[:_LINE]


def remember(sources: dict[str, str]) -> None:
    """Tracebacks shall show these texts' lines, by their file names; empties `sources`."""
    import linecache

    for name, text in sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    sources.clear()


def failure(error: BaseException, sources: dict[str, str]) -> str:
    """The traceback, as Python shows it, without frames of ours; empty if it cannot be made, for want of memory, say."""
    try:
        import traceback

        remember(sources)
        told = traceback.TracebackException.from_exception(error)
        _without_ours(told, set())
        return "".join(told.format())
    except Exception:  # noqa: BLE001 - user code: its messages are made here; out of memory, too
        return ""


def _without_ours(told: traceback.TracebackException, seen: set[int]) -> None:
    if id(told) in seen:
        return
    seen.add(id(told))
    told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(OURS)]
    for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        if other is not None:
            _without_ours(other, seen)
