"""The seccomp program, run here by a small machine: both architectures, without being on either."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.sandbox.child import syscalls
from redraft.sandbox.child.syscalls import ALLOW, ARCHES, ASKED, ERRNO, FREE, MISSING, NEWEST

PID = 4321
DENIED, ABSENT = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
# How the kernel's headers number what must never be allowed: (x86-64, aarch64).
NEVER = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "accept": (43, 202),
    "sendmsg": (46, 211),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "memfd_create": (319, 279),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "seccomp": (317, 277),
    "setuid": (105, 146),
    "setresuid": (117, 147),
    "chroot": (161, 51),
    "unlinkat": (263, 35),
    "renameat": (264, 38),
    "mkdirat": (258, 34),
    "linkat": (265, 37),
    "symlinkat": (266, 36),
    "fchmodat": (268, 53),
    "fchownat": (260, 54),
    "truncate": (76, 45),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "reboot": (169, 142),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "add_key": (248, 217),
    "kexec_load": (246, 104),
    "swapon": (167, 224),
    "sched_setaffinity": (203, 122),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setrlimit": (160, 164),
}


def run(program, number, arguments=(), arch=0):
    """What the kernel would do with this call."""
    words = [number & 0xFFFFFFFF, arch, 0, 0]
    for value in (*arguments, *[0] * (6 - len(arguments))):
        words += [value & 0xFFFFFFFF, (value >> 32) & 0xFFFFFFFF]
    at = accumulator = 0
    while True:
        code, yes, no, constant = struct.unpack_from("HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            accumulator = words[constant // 4]
        elif code == 0x15:
            at += yes if accumulator == constant else no
        elif code == 0x35:
            at += yes if accumulator >= constant else no
        elif code == 0x54:
            accumulator &= constant
        else:
            assert code == 0x06, code
            return constant


@pytest.fixture(params=ARCHES)
def machine(request):
    column = list(ARCHES).index(request.param)
    program = syscalls.program(request.param, PID)

    def verdict(name_or_number, *arguments, arch=ARCHES[request.param]):
        number = name_or_number
        if isinstance(number, str):
            known = {**FREE, **{name: of[:2] for name, of in ASKED.items()}, **MISSING, **NEVER}
            number = known[number][column]
        return None if number is None else run(program, number, arguments, arch)

    return verdict


def test_the_list_is_allowed(machine):
    assert {machine(name) for name in FREE} - {None} == {ALLOW}


@pytest.mark.parametrize("name", NEVER)
def test_what_must_never_be_is_not(machine, name):
    assert machine(name) == DENIED
    assert machine(name, *[2**64 - 1] * 6) == DENIED


def test_calls_with_a_seen_substitute_are_absent(machine):
    assert {machine(name) for name in MISSING} == {ABSENT}
    assert machine(NEWEST + 1) == machine(0x40000000 | 2) == machine(0xFFFFFFFF) == ABSENT


def test_another_convention_is_denied(machine):
    for arch in (0x40000003, 0x40000028, 0, 0xFFFFFFFF):
        assert machine("read", arch=arch) == DENIED


def test_files_are_opened_to_read_only(machine):
    assert machine("openat", -100, 0, 0o2000000) == ALLOW  # O_CLOEXEC
    for flags in (1, 2, 3, 0o100, 0o1001, 0o1000, 0o10000000, 0o20200000, 0o2000002):
        assert machine("openat", -100, 0, flags) == DENIED, oct(flags)
        assert machine("open", 0, flags) in (DENIED, None)


def test_a_thread_may_be_made_and_no_process(machine):
    thread = 0x3D0F00  # as glibc makes one
    assert machine("clone", thread) == ALLOW
    for flags in (17, 0x4111, 0x100, thread & ~0x10000, thread | 0x10000000, thread | 0x20000, thread | 0x40000000):
        assert machine("clone", flags) == DENIED, hex(flags)


def test_signals_go_to_itself_only(machine):
    assert machine("kill", PID, 9) == machine("tgkill", PID, PID + 1, 2) == ALLOW
    for pid in (1, 0, -1, -PID, PID + 1):
        assert machine("kill", pid, 9) == machine("tgkill", pid, pid, 9) == DENIED, pid


def test_sockets_are_pairs_and_send_to_their_peer(machine):
    assert machine("socketpair", 1, 1, 0) == ALLOW
    assert machine("socketpair", 2, 1, 0) == DENIED
    assert machine("sendto", 3, 1, 1, 0, 0, 0) == ALLOW
    assert machine("sendto", 3, 1, 1, 0, 1 << 40, 16) == machine("sendto", 3, 1, 1, 0, 8, 16) == DENIED


def test_limits_are_read_and_not_set(machine):
    assert machine("prlimit64", 0, 9, 0, 4096) == ALLOW
    assert machine("prlimit64", 0, 9, 1 << 33, 0) == machine("prlimit64", 77, 9, 0, 4096) == DENIED


def test_only_harmless_requests_to_descriptors_and_itself(machine):
    assert machine("fcntl", 0, 3) == machine("ioctl", 0, 0x5421) == machine("prctl", 15) == ALLOW
    for call, value in (("fcntl", 8), ("fcntl", 1031), ("ioctl", 0x5412), ("ioctl", 0x8933)):
        assert machine(call, 0, value) == DENIED
    for option in (1, 4, 22, 23, 38, 47):
        assert machine("prctl", option) == DENIED


@given(number=st.integers(0, 2**32 - 1), arguments=st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_every_call_ends_and_nothing_off_the_list_is_allowed(number, arguments):
    for column, (name, arch) in enumerate(ARCHES.items()):
        said = run(syscalls.program(name, PID), number, arguments, arch)
        assert said in (ALLOW, DENIED, ABSENT)
        listed = {of[column] for of in (*FREE.values(), *ASKED.values())}
        assert said != ALLOW or number in listed


def test_no_two_names_share_a_number():
    for column in (0, 1):
        numbers = [of[column] for of in (*FREE.values(), *ASKED.values(), *MISSING.values()) if of[column] is not None]
        assert len(numbers) == len(set(numbers))
