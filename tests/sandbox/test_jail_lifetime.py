"""A jail ends with its host, however that ends, and leaves nothing behind."""

import asyncio
import contextlib
import fcntl
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from redraft.errors import SandboxError
from redraft.sandbox import Jail, spawn

HOST = Path(__file__).with_name("host_that_leaves.py")


def gone(pid):
    """Wait until there is no such process; False if it stays."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            said = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
            if said.rpartition(")")[2].split()[0] in "ZX":
                return True  # dead; whoever took it over collects it
        except (FileNotFoundError, ProcessLookupError):
            return True
        os.sched_yield()
    return False


@pytest.mark.parametrize(
    ("way", "code", "lines"), [("forgets", 0, 1), ("raises", 3, 1), ("thread", 0, 2), ("forks", 0, 3), ("copies", 0, 2)]
)
def test_it_is_gone_when_its_host_has_ended(way, code, lines):
    host = subprocess.run([sys.executable, str(HOST), way], capture_output=True, text=True, timeout=60, check=False)
    assert (host.returncode, host.stderr) == (code, "")
    said = host.stdout.split()
    assert len(said) == lines
    assert gone(said[0])
    assert lines == 1 or said[-1] == "1"


@pytest.mark.crash
def test_it_is_killed_with_its_host():
    with subprocess.Popen([sys.executable, str(HOST), "hangs"], stdout=subprocess.PIPE, text=True) as host:
        pid = host.stdout.readline().strip()
        host.kill()
    assert gone(pid)


async def test_a_forgotten_jail_is_collected():
    jail = Jail()
    await jail.start({}, {})
    await jail.execute("1")
    pid = jail._process.popen.pid
    del jail
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_no_descriptor_and_no_process_is_left(open_descriptors):
    def counts():
        with contextlib.suppress(ChildProcessError):
            assert os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None  # no zombie
        return open_descriptors()

    async def once():
        jail = Jail(seconds=5)
        await jail.start({"x": "y" * 1000}, {})
        await jail.execute("import os\nos._exit(0)")
        await jail.start({}, {})
        await jail.execute("1")
        await jail.start({}, {})
        await jail.close()

    await once()
    before = counts()
    for _ in range(3):
        await once()
    assert counts() == before


async def test_it_starts_among_many_threads():
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(50)]
    for thread in threads:
        thread.start()
    jail = Jail()
    await jail.start({}, {})
    assert (await jail.execute("1")).output == "1\n"
    await jail.close()
    stop.set()
    for thread in threads:
        thread.join()


async def test_closing_while_a_cell_runs_ends_the_cell():
    async def says():
        running.set()

    running = asyncio.Event()
    jail = Jail(seconds=60)
    await jail.start({}, {"says": says})
    cell = asyncio.create_task(jail.execute("says()\nwhile True: pass"))
    await running.wait()
    await jail.close()
    result = await cell
    assert result.lost
    assert result.error


async def test_a_start_that_is_cancelled_leaves_nothing(open_descriptors):
    before = open_descriptors()
    for turns in range(6):
        jail = Jail()
        start = asyncio.create_task(jail.start({}, {}))
        for _ in range(turns * 3):
            await asyncio.sleep(0.002)
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await start
        await jail.close()
    gc.collect()
    until = time.monotonic() + 20
    while open_descriptors() > before + 1 and time.monotonic() < until:  # the code's own descriptor stays
        await asyncio.sleep(0.01)
        gc.collect()
    assert open_descriptors() <= before + 1


async def test_a_start_that_is_cancelled_closes_what_it_would_have_handed_over(open_descriptors):
    values = {"text": "x" * 20_000_000, "rows": [["y" * 1000]] * 1000}
    jail = Jail()
    await jail.start({}, {})
    await jail.close()
    before = open_descriptors()
    for wait in (0.001, 0.005, 0.02, 0.04):
        start = asyncio.create_task(jail.start(values, {}))
        await asyncio.sleep(wait)
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await start
        await jail.close()
    until = time.monotonic() + 20
    while open_descriptors() > before and time.monotonic() < until:
        await asyncio.sleep(0.01)
        gc.collect()
    assert open_descriptors() <= before


@pytest.mark.parametrize("prefix", [(1,), ("a\0b",), (None, "x")])
async def test_a_command_that_is_none_is_an_error_and_other_jails_go_on(prefix):
    """The thread that starts jails must outlive it: the kernel ends them with that thread."""
    other = Jail()
    await other.start({"x": 1}, {})
    with pytest.raises(SandboxError, match="could not be started"):
        await asyncio.wait_for(Jail(prefix=prefix).start({}, {}), 60)
    assert (await other.execute("x")).output == "1\n"
    await other.close()


@pytest.mark.skipif(not hasattr(fcntl, "F_GET_SEALS"), reason="needs seals")
async def test_no_jail_can_write_to_the_code_that_others_start_from():
    jail = Jail()
    await jail.start({}, {})
    await jail.close()
    ours = [fd for (pid, _), fd in spawn._bundles.items() if pid == os.getpid()]
    assert ours
    for fd in ours:
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)


@pytest.mark.parametrize("prefix", [("env",), ("env", "A=b"), ("nice", "-n", "1")])
async def test_a_command_may_stand_in_front(prefix):
    async def ask():
        return "answer"

    jail = Jail(seconds=1, prefix=prefix)
    await jail.start({"x": "text"}, {"ask": ask})
    assert (await jail.execute("print(x, ask())")).output == "text answer\n"
    result = await jail.execute("print('said')\nwhile True: pass")
    assert (result.output, result.lost) == ("said\n", True)  # a signal might not reach the code: it is ended
    await jail.close()


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        (("no-such-command",), "could not be started: no-such-command"),
        (("false",), "ended while it started .status 1.: it said nothing"),
        (("sh", "-c", "echo no room here >&2; exit 7"), "status 7.: no room here"),
        (("echo", "hello"), "ended while it started"),
    ],
)
async def test_a_command_that_fails_is_said(prefix, says):
    jail = Jail(prefix=prefix)
    with pytest.raises(SandboxError, match=says):
        await jail.start({}, {})
    await jail.close()


async def test_another_python_gets_the_code_as_text():
    jail = Jail(python=os.path.realpath(sys.executable))
    await jail.start({"x": 1}, {})
    result = await jail.execute("def f(): return x / 0\nf()")
    assert result.error == "ZeroDivisionError: division by zero"
    assert "redraft" not in result.output
    await jail.close()
