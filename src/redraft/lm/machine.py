"""What this machine has for a model: memory and cores. What cannot be found out is None, never a guess.

Memory of graphics cards is not counted.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Memory:
    """Main memory in bytes, as far as this process may use it."""

    total: int
    free: int
    """What can be had without pushing anything out: free now, or only caching files."""


def memory(root: Path = Path("/")) -> Memory | None:
    """The memory of this machine, or less where the process is held to less (containers). `root` is for tests."""
    if sys.platform == "win32":
        return _windows()
    if sys.platform == "darwin":
        return _mac()
    return _linux(root)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _linux(root: Path) -> Memory | None:
    try:
        said = (root / "proc/meminfo").read_text()
    except OSError:
        return None
    kilobytes = {name: int(number) for name, number in re.findall(r"^(\w+):\s+(\d+) kB", said, re.MULTILINE)}
    total, free = kilobytes.get("MemTotal"), kilobytes.get("MemAvailable", kilobytes.get("MemFree"))
    if total is None or free is None:
        return None
    whole = Memory(total * 1024, free * 1024)
    for limit, used in _cgroup_limits(root):
        if limit < whole.total:
            whole = Memory(limit, max(0, min(whole.free, limit - used)))
    return whole


def _cgroup_limits(root: Path) -> list[tuple[int, int]]:
    """(limit, used) of the process's control group and those around it, of version 2 and version 1."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in groups:
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        here = top / path.strip("/")
        # Inside a container the path may be the host's, which is not mounted: then only the top is there.
        for folder in {here, *(parent for parent in here.parents if parent.is_relative_to(top)), top}:
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                limit = int((folder / names[0]).read_text())
                found.append((limit, int((folder / names[1]).read_text()) - _cached(folder, names[2])))
    return found


def _cached(folder: Path, name: str) -> int:
    """Bytes of file cache that count as used, and are given up when they are needed."""
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            key, _, number = line.partition(" ")
            if key == name:
                return int(number)
    return 0


def _mac() -> Memory | None:
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        size = subprocess.run(["/usr/sbin/sysctl", "-n", "hw.memsize"], capture_output=True, check=True, timeout=5)
        pages = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, check=True, timeout=5, text=True).stdout
        page = int(re.findall(r"page size of (\d+) bytes", pages)[0]) if "page size of" in pages else 4096
        counts = re.findall(r"^Pages (?:free|inactive|speculative|purgeable):\s+(\d+)", pages, re.MULTILINE)
        return Memory(int(size.stdout), page * sum(map(int, counts)))
    return None


def _windows() -> Memory | None:
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "free", "c", "d", "e", "f", "g")),
        )

    status = Status()
    status.length = ctypes.sizeof(Status)
    library = getattr(ctypes, "windll", None)
    if library is None or not library.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return Memory(int(status.total), int(status.free))
