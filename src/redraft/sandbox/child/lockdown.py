"""Closing the process for good: Landlock, capabilities, ids, rlimits, seccomp. Nothing here can be undone.

`Missing` says which hold this system does not offer; the process must not run anybody's code then.
"""

# pathlib is slow to load, and a jail starts often:
# ruff: noqa: PTH110, PTH112, PTH116, PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import ctypes
import errno
import os
import resource
import stat
import struct
import sys

from redraft.sandbox.child import syscalls

NOBODY = 65534
THREADS = 64
"""How many threads the code may have, where the kernel counts them a jail (in a user namespace, not as root)."""
_FILES = 128
_ZONES = "/usr/share/zoneinfo"  # names of time zones: public, and `zoneinfo` reads them
_NOT_OURS = {"site-packages", "dist-packages"}
_NO_USE = {"ensurepip", "idlelib", "lib2to3", "test", "tkinter", "turtledemo", "venv"}

_SECCOMP, _FILTER, _NO_NEW_PRIVS, _DUMPABLE, _DEATH, _CAP_DROP, _AMBIENT = 22, 2, 38, 4, 1, 24, 47
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_CAPSET = {"x86_64": 126, "aarch64": 91}
_NEW_USER = 0x10000000
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_O_PATH = 0o10000000


class Missing(Exception):
    """The system lacks a hold that the jail needs; the message says which."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


_libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: int | bytes | None) -> int:
    """A system call by its number; -1 and `errno` as in C."""
    known = [argument if isinstance(argument, bytes) else ctypes.c_long(argument or 0) for argument in arguments]
    return int(_libc.syscall(ctypes.c_long(number), *known))


def close_all_but(kept: set[int]) -> None:
    """Close every descriptor that is not in `kept`."""
    low = 0
    for fd in [*sorted(kept), 1 << 20]:
        os.closerange(low, fd)
        low = fd + 1


def lock(memory: int, own: int) -> dict[str, object]:
    """Close this process: at most `memory` bytes of address space more than `own`. Says what was used.

    It must have one thread only. Raises `Missing`.
    """
    machine = os.uname().machine
    if machine not in syscalls.ARCHES or sys.maxsize < 1 << 32:
        raise Missing(f"no table of system calls for {machine}, {8 * struct.calcsize('P')} bit: x86_64 or aarch64")
    _must(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    abi = _landlock()
    user = _drop_ids()
    counted = os.getuid() != 0 and _libc.unshare(_NEW_USER) == 0  # there the kernel counts this jail's threads alone
    _drop_capabilities(machine)
    _must(_libc.prctl(_DUMPABLE, 0, 0, 0, 0), "dumpable off")
    _must(_libc.prctl(_DEATH, 9, 0, 0, 0), "the signal at the host's death")  # a change of ids would clear it
    _limit(own + memory, counted=counted)
    _filter(machine)
    return {"landlock": abi, "user": user, "threads": THREADS if counted else 0, "machine": machine}


def _must(code: int, what: str) -> None:
    if code != 0:
        why = ctypes.get_errno()
        raise Missing(f"{what} was refused ({errno.errorcode.get(why, why)})")


# Landlock: which files can be opened. From ABI 1 on; a newer kernel is asked for all that it can hold.


def _landlock() -> int:
    abi = call(_CREATE_RULESET, None, 0, 1)
    if abi < 1:
        why = ctypes.get_errno()
        raise Missing(
            f"Landlock is not there ({errno.errorcode.get(why, why)}): Linux 5.13 or newer, and `landlock` in lsm="
        )
    rights = (1 << 13) - 1  # all of ABI 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):  # REFER, TRUNCATE, IOCTL_DEV
        rights |= (abi >= since) << bit
    network = 3 if abi >= 4 else 0  # binding and connecting
    scoped = 3 if abi >= 6 else 0  # abstract sockets and signals end at the jail
    described = struct.pack("QQQ", rights, network, scoped)
    ruleset = call(
        _CREATE_RULESET,
        described[: 8 if abi < 4 else 16 if abi < 6 else 24],
        8 if abi < 4 else 16 if abi < 6 else 24,
        0,
    )
    _must(min(ruleset, 0), "a Landlock ruleset")
    for path in _readable():
        _allow(ruleset, path)
    _must(call(_RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)
    return abi


def _readable() -> list[str]:
    """The standard library, part by part: its own directory holds other people's packages, too."""
    parts = [_ZONES]
    for home in sys.path:
        within = os.listdir(home) if os.path.isdir(home) else []
        if _NOT_OURS.isdisjoint(within):
            parts.append(home)
        else:
            parts += [os.path.join(home, name) for name in within if name not in _NOT_OURS | _NO_USE]
    return parts


def _allow(ruleset: int, path: str) -> None:
    try:
        fd = os.open(path, _O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rights = _READ_FILE | (_READ_DIR if stat.S_ISDIR(os.fstat(fd).st_mode) else 0)
    _must(call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, fd), 0), f"a Landlock rule for {path}")
    os.close(fd)


# Who it is: nobody, where the standard library can still be read then; without capabilities in any case.


def _drop_ids() -> str:
    if os.geteuid() != 0 or not all(map(_public, sys.path)):
        return str(os.getuid())
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:  # a user namespace that knows no such id
        return str(os.getuid())
    return str(NOBODY)


def _public(path: str) -> bool:
    """Everybody may go there and read."""
    if not os.path.exists(path):
        return True
    while os.stat(path).st_mode & 0o5 == (0o5 if os.path.isdir(path) else 0o4):
        if path == "/":
            return True
        path = os.path.dirname(path)
    return False


def _drop_capabilities(machine: str) -> None:
    for capability in range(64):
        _libc.prctl(_CAP_DROP, capability, 0, 0, 0)  # refused to who has none: nothing to drop
    _libc.prctl(_AMBIENT, 4, 0, 0, 0)
    _must(call(_CAPSET[machine], struct.pack("Ii", 0x20080522, 0), bytes(24)), "dropping capabilities")


def _limit(address_space: int, *, counted: bool) -> None:
    limits = {
        resource.RLIMIT_AS: address_space,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if counted:
        limits[resource.RLIMIT_NPROC] = THREADS
    for which, most in limits.items():
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # noqa: PLW2901 - a tighter one stays
        try:
            resource.setrlimit(which, (most, most))
        except (OSError, ValueError) as error:
            raise Missing(f"resource limit {which} was refused ({error})") from error


def _filter(machine: str) -> None:
    code = syscalls.program(machine, os.getpid())
    kept = ctypes.create_string_buffer(code, len(code))
    wanted = _Program(len(code) // 8, ctypes.addressof(kept))
    _must(_libc.prctl(_SECCOMP, _FILTER, ctypes.byref(wanted), 0, 0), "a seccomp filter")


def address_space() -> int:
    """Bytes of address space that this process has now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as numbers:
            return int(numbers.read().split()[0]) * resource.getpagesize()
    except OSError:  # no /proc: about what an interpreter maps
        return 256 << 20
