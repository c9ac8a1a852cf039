"""Code that wants out, or wants the host down: nothing gets out, the host answers, and the error can be used."""

import asyncio
import os
import re
import secrets
import socket
import sysconfig
import threading

import pytest
from hostile_cells import BEFORE, BOMBS, DENIED, escaped

from redraft.sandbox import Jail

SECRET = secrets.token_hex(16)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A file, an environment variable and three listening sockets that code in the jail would like to have."""
    home = tmp_path_factory.mktemp("host")
    home.chmod(0o755)
    file = home / "secret"
    file.write_text(SECRET)
    abstract = f"redraft-{secrets.token_hex(8)}"
    tcp, unix, named = socket.socket(), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    tcp.bind(("127.0.0.1", 0))
    tcp.listen()
    unix.bind(str(home / "sock"))
    unix.listen()
    named.bind(f"\0{abstract}")
    os.environ["REDRAFT_SECRET"] = SECRET
    names = {"SECRET": str(file), "PORT": tcp.getsockname()[1], "UNIX": str(home / "sock"), "ABSTRACT": abstract}
    yield {**names, "PACKAGES": sysconfig.get_paths()["purelib"]}
    del os.environ["REDRAFT_SECRET"]
    named.setblocking(False)
    with pytest.raises(BlockingIOError):
        named.recv(1)  # nothing has come
    for open_socket in (tcp, unix, named):
        open_socket.close()
    assert file.read_text() == SECRET
    assert sorted(path.name for path in home.iterdir()) == ["secret", "sock"]


@pytest.fixture(scope="module")
def hostile(world, share):
    return share(before="\n".join([BEFORE, *(f"{name} = {value!r}" for name, value in world.items())]))


@pytest.fixture(scope="module")
def hasty(share):
    return share(Jail(seconds=0.6, memory=160 << 20))


@pytest.fixture(scope="module")
def patient(share):
    return share(Jail(seconds=30, memory=100 << 20))


@pytest.mark.parametrize("name", DENIED)
async def test_what_is_denied_is_an_error_and_the_jail_goes_on(hostile, name):
    pid = os.getpid()
    result = await hostile.run(DENIED[name])
    assert not escaped(result.output), result.output
    assert SECRET not in result.output
    assert result.error, f"no error: {result.output}"
    assert re.match(r"\w+: .|AssertionError|ZeroDivisionError", result.error), result.error
    assert not result.lost
    assert (await hostile.run("print('alive')")).output == "alive\n"
    assert os.getpid() == pid


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_goes_off_inside(hasty, patient, name):
    code, says = BOMBS[name]
    bombed = hasty if "TimeoutError" in says else patient
    result = await bombed.run(code)
    assert re.search(says, result.error), (result.error, result.output[-500:])
    assert bool(result.error) == bool(says) or "$" in says
    assert len(result.output) < 250_000
    assert "\n" not in result.error
    alive = await bombed.run("import sys\nprint(1 + 1)")
    if alive.error:  # what it broke inside of the sandbox stays broken; a new one is whole
        await bombed.start()
        alive = await bombed.run("print(1 + 1)")
    assert alive.output == "2\n"


async def test_a_thread_bomb_by_hand_is_ended(hasty):
    """Threads with tiny stacks, made by system calls that no memory limit stops: the kernel or the host counts them."""
    code = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
stacks = mmap.mmap(-1, 32 << 20)
base = ctypes.addressof(ctypes.c_char.from_buffer(stacks))
pause = ctypes.cast(libc.pause, ctypes.c_void_p)
made = 0
for i in range(1, 4000):
    if libc.clone(pause, ctypes.c_void_p(base + i * 8192), 0x10F00, None) < 0: break
    made += 1
print(made)
while True: pass
"""
    result = await hasty.run(code)
    assert "256 are allowed" in result.error or "TimeoutError" in result.error
    if "TimeoutError" in result.error:
        assert int(re.search(r"\d+", result.output)[0]) <= 256
    assert threading.active_count() < 100


async def test_the_descriptors_of_the_host_do_not_come_along(hostile):
    """All that is open inside: stdin at its end, the output twice, the wire."""
    readable, writable = os.pipe()
    os.set_inheritable(readable, True)
    jail = Jail()
    await jail.start({"text": "x" * 10}, {})
    code = """
import os
found = []
for fd in range(4096):
    try:
        os.fstat(fd)
        found.append(fd)
    except OSError:
        pass
print(len(found), os.read(0, 10))
"""
    assert (await jail.execute(code)).output == "4 b''\n"
    await jail.close()
    os.close(readable)
    os.close(writable)


async def test_many_at_once_and_none_is_left(tmp_path):
    """Jails end with what they were told, several at a time."""
    jails = [Jail(seconds=5) for _ in range(4)]
    await asyncio.gather(*(jail.start({"n": n}, {}) for n, jail in enumerate(jails)))
    results = await asyncio.gather(*(jail.execute("print(n)\nimport os\nprint(os.getpid())") for jail in jails))
    await asyncio.gather(*(jail.close() for jail in jails))
    pids = [int(result.output.split()[1]) for result in results]
    assert [result.output.split()[0] for result in results] == ["0", "1", "2", "3"]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
