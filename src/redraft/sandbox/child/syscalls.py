"""The seccomp filter: which system calls the jailed process may make, as a BPF program made by hand.

An allow-list. What is not on it fails with EPERM, or with ENOSYS where libraries then fall back to an older call;
nothing kills, so code in the jail gets an `OSError` it can read. Numbers: Linux's unistd tables of x86-64 and aarch64.
"""

from __future__ import annotations

import errno
import struct

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""`uname` machine -> AUDIT_ARCH, which the filter compares first: a call by another convention has other numbers."""

# Allowed with any arguments: name -> (x86-64, aarch64); None where an architecture has no such call.
FREE: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "pipe": (22, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "dup2": (33, None),
    "pause": (34, None),
    "nanosleep": (35, 101),
    "getitimer": (36, 102),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "recvfrom": (45, 207),
    "shutdown": (48, 210),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
    "exit": (60, 93),
    "uname": (63, 160),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "getgroups": (115, 158),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "time": (201, None),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "epoll_create": (213, None),
    "set_tid_address": (218, 96),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "epoll_wait": (232, None),
    "epoll_ctl": (233, 21),
    "newfstatat": (262, 79),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "get_robust_list": (274, 100),
    "epoll_pwait": (281, 22),
    "eventfd2": (290, 19),
    "epoll_create1": (291, 20),
    "dup3": (292, 24),
    "pipe2": (293, 59),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "rseq": (334, 293),
    "close_range": (436, 436),
}

_READ_ONLY = 0o3 | 0o100 | 0o1000 | 0o10000000 | 0o20000000  # O_ACCMODE, O_CREAT, O_TRUNC, O_PATH, the bit of O_TMPFILE
_THREAD = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000  # CLONE_VM, FS, FILES, SIGHAND, THREAD
_NO_THREAD = 0x2000 | 0x4000 | 0x800000 | 0x20000 | 0x7E000000  # CLONE_PTRACE, VFORK, UNTRACED, NEWNS, the other NEW*
_ALL = 0xFFFFFFFF
_LOW, _HIGH = 0, 4

Test = tuple[int, int, int, tuple[int, ...]]
"""Argument, half of it (the kernel reads only the low one of an int), mask, values: `(half & mask)` is one of them."""

# Allowed if every test holds. `OWN` stands for the process's own id.
OWN = -1
ASKED: dict[str, tuple[int | None, int | None, tuple[Test, ...]]] = {
    "open": (2, None, ((1, _LOW, _READ_ONLY, (0,)),)),
    "openat": (257, 56, ((2, _LOW, _READ_ONLY, (0,)),)),
    # isatty, non-blocking, bytes waiting, close-on-exec: never a device's own requests
    "ioctl": (16, 29, ((1, _LOW, _ALL, (0x5401, 0x5421, 0x541B, 0x5450, 0x5451)),)),
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC: not F_SETOWN, which sends signals
    "fcntl": (72, 25, ((1, _LOW, _ALL, (0, 1, 2, 3, 4, 1030)),)),
    # to what it is connected to, no address; no MSG_OOB, whose queue on unix sockets has let code into kernels
    "sendto": (44, 206, ((3, _LOW, 1, (0,)), (4, _LOW, _ALL, (0,)), (4, _HIGH, _ALL, (0,)))),
    # SOL_SOCKET: SO_TYPE, ERROR, SNDBUF, RCVBUF, ACCEPTCONN, PROTOCOL, DOMAIN; not SO_PEERPIDFD, a handle of the host
    "getsockopt": (55, 209, ((1, _LOW, _ALL, (1,)), (2, _LOW, _ALL, (3, 4, 7, 8, 30, 38, 39)))),
    "socketpair": (53, 199, ((0, _LOW, _ALL, (1,)),)),  # AF_UNIX: asyncio wakes its loop by one
    "clone": (56, 220, ((0, _LOW, _THREAD | _NO_THREAD, (_THREAD,)),)),  # a thread, never a process
    "kill": (62, 129, ((0, _LOW, _ALL, (OWN,)),)),
    "tgkill": (234, 131, ((0, _LOW, _ALL, (OWN,)),)),
    # PR_GET_DUMPABLE, SET_NAME, GET_NAME, GET_NO_NEW_PRIVS, SET_VMA (malloc names its memory)
    "prctl": (157, 167, ((0, _LOW, _ALL, (3, 15, 16, 39, 0x53564D41)),)),
    "prlimit64": (302, 261, ((0, _LOW, _ALL, (0,)), (2, _LOW, _ALL, (0,)), (2, _HIGH, _ALL, (0,)))),  # reads its own
}

# Not there, so that libraries fall back to calls whose arguments can be seen.
MISSING = {"clone3": (435, 435), "openat2": (437, 437), "faccessat2": (439, 439), "epoll_pwait2": (441, 441)}
NEWEST = 462
"""Numbers above it are of no call that was known when this was written: ENOSYS, as on the kernel of that day."""

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, ERRNO = 0x7FFF0000, 0x00050000

Instruction = tuple[int, int, int, int]


def program(machine: str, pid: int) -> bytes:
    """The filter for this machine and this process, as an array of `struct sock_filter`. KeyError: unknown machine."""
    column = list(ARCHES).index(machine)
    steps: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, ARCHES[machine]),
        _ends(ERRNO | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, NEWEST + 1),  # the x32 convention is up there, too
        _ends(ERRNO | errno.ENOSYS),
    ]
    for numbers in FREE.values():
        steps += _case(numbers[column], [_ends(ALLOW)])
    for *of, tests in ASKED.values():
        steps += _case(of[column], _tested(tests, pid))
    for numbers in MISSING.values():
        steps += _case(numbers[column], [_ends(ERRNO | errno.ENOSYS)])
    steps.append(_ends(ERRNO | errno.EPERM))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _case(number: int | None, then: list[Instruction]) -> list[Instruction]:
    return [] if number is None else [(_EQUAL, 0, len(then), number), *then]


def _tested(tests: tuple[Test, ...], pid: int) -> list[Instruction]:
    """Load and mask each word; one that is none of its values ends in EPERM."""
    steps: list[Instruction] = []
    for argument, half, mask, values in tests:
        steps.append((_LOAD, 0, 0, _ARGUMENTS + 8 * argument + half))
        if mask != _ALL:
            steps.append((_AND, 0, 0, mask))
        for left, value in enumerate(reversed(values)):  # the first of `values` comes last; a hit jumps over the rest
            steps.append((_EQUAL, len(values) - left, 0, pid if value == OWN else value))
        steps.append(_ends(ERRNO | errno.EPERM))
    return [*steps, _ends(ALLOW)]


def _ends(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)
