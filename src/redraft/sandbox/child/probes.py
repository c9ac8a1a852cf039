"""What the jailed process tries right after it was closed: each of these must fail.

A probe is harmless where it does not fail. An exec names no file, a signal is 0, a fork ends at once.
"""

# pathlib is slow to load, and a jail starts often:
# ruff: noqa: PTH108, PTH110, PTH208

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from redraft.sandbox.child import lockdown, syscalls

_HELD = (1, 13, 38)  # EPERM, EACCES, ENOSYS
# name -> (x86-64, aarch64), arguments that do nothing where the call is allowed
_RAW: dict[str, tuple[int, int, tuple[int | bytes | None, ...]]] = {
    "socket": (41, 198, (2, 1, 0)),
    "a unix socket": (41, 198, (1, 1, 0)),
    "connect": (42, 203, (-1, None, 0)),
    "execve": (59, 221, (b"", None, None)),
    "execveat": (322, 281, (-1, b"", None, None, 0)),
    "ptrace": (101, 117, (16, -1, 0, 0)),
    "process_vm_readv": (310, 270, (-1, None, 0, None, 0, 0)),
    "memfd_create": (319, 279, (None, 0)),
    "io_uring_setup": (425, 425, (0, None)),
    "bpf": (321, 280, (-1, None, 0)),
    "unshare": (272, 97, (0,)),
    "mount": (165, 40, (None, None, None, 0, None)),
    "pidfd_open": (434, 434, (-1, 0)),
    "setns": (308, 268, (-1, 0)),
    "keyctl": (250, 219, (-1,)),
    "perf_event_open": (298, 241, (None, 0, -1, -1, 0)),
    "a file by its handle": (304, 265, (-1, None, 0)),
    "clone3": (435, 435, (None, 0)),
}


def failed(machine: str) -> list[tuple[str, bool, str]]:
    """(what was tried, did the jail hold, what came of it), one for each probe."""
    column = list(syscalls.ARCHES).index(machine)
    tried = [_tried(name, probe) for name, probe in _IN_PYTHON.items()]
    for name, (*numbers, arguments) in _RAW.items():
        tried.append(_tried(name, lambda n=numbers[column], a=arguments: _raw(n, a)))  # type: ignore[misc]
    return tried


def _tried(name: str, probe: Callable[[], object]) -> tuple[str, bool, str]:
    try:
        got = probe()
    except OSError as error:
        return name, error.errno in _HELD, os.strerror(error.errno or 0)
    return name, False, f"it worked: {got!r}"


def _raw(number: int, arguments: tuple[int | bytes | None, ...]) -> int:
    got = lockdown.call(number, *arguments)
    if got < 0:
        why = ctypes.get_errno()
        raise OSError(why, os.strerror(why))
    return got


def _forked() -> str:
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    return "a child process"


def _opened(path: str, flags: int = os.O_RDONLY) -> str:
    os.close(os.open(path, flags))
    return path


def _made() -> str:
    path = f"/var/tmp/redraft-{os.getpid()}"  # noqa: S108 - it must not come into being
    try:
        return _opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    finally:
        if os.path.exists(path):
            os.unlink(path)


def _signalled() -> str:
    os.kill(os.getppid(), 0)
    return "a signal to the host"


_IN_PYTHON: dict[str, Callable[[], object]] = {
    "list /": lambda: os.listdir("/"),
    "open the interpreter's own file": lambda: _opened(sys.executable or "/proc/self/exe"),
    "open /proc/self/environ": lambda: _opened("/proc/self/environ"),
    "open /dev/null to write": lambda: _opened("/dev/null", os.O_WRONLY),
    "make a file": _made,
    "fork": _forked,
    "signal the host": _signalled,
}
