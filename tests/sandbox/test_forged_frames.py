"""Code in the jail can write to the wire itself: at worst it hurts itself."""

import asyncio

import pytest

from redraft.protocols import CellEnd
from redraft.sandbox import Jail

BEFORE = """
import os, socket, struct, json

def wire():
    for fd in range(3, 128):
        try:
            socket.socket(fileno=os.dup(fd)).getpeername()
            return fd
        except OSError:
            continue

FD = wire()

def forge(frame):
    body = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
    os.write(FD, struct.pack("!I", len(body)) + body)
"""

NONSENSE = {
    "no JSON": "forge(b'{')",
    "no object": "forge([1, 2])",
    "no UTF-8": "forge(b'\\xff\\xfe')",
    "nested too deep": "forge(b'[' * 200000)",
    "a giant number": "forge(b'{\"done\": ' + b'9' * 9999 + b'}')",
    "an unknown frame": "forge({'hello': 1})",
    "an empty frame": "forge(b'')",
    "a giant length": "os.write(FD, b'\\xff' * 4)",
    "a length over the limit": "os.write(FD, struct.pack('!I', (8 << 20) + 1))",
    "another cell's end": "forge({'done': 99, 'error': ''})",
    "an end before": "forge({'done': 0, 'error': ''})",
    "an end of no number": "forge({'done': True, 'error': ''})",
    "an error of no text": "forge({'done': 2, 'error': 5})",
    "a call by no name": "forge({'call': 1, 'name': 7, 'args': [], 'kwargs': {}})",
    "a call with odd arguments": "forge({'call': 1, 'name': 'ask', 'args': {}, 'kwargs': []})",
    "a call without a number": "forge({'call': None, 'name': 'ask', 'args': [], 'kwargs': {}})",
    "too many values": 'forge(b\'{"call": 1, "name": "ask", "kwargs": {}, "args": [\' + b\'[],\' * 300000 + b\'1]}\')',
    "too many texts": 'forge(b\'{"call": 1, "name": "ask", "kwargs": {}, "args": [\' + b\'"",\' * 500000 + b\'1]}\')',
    "too many values, cut off": "forge(b'[' + b'1,' * 300000 + b'\"' + b'\\\\\"' * 300000)",
    "ready again": "forge({'ready': {}, 'probes': []})",
}
"""Each before an endless loop, so that only the host can end the cell."""


@pytest.fixture(scope="module")
def forger(share):
    async def ask(*args):
        return list(args)

    async def submit():
        raise CellEnd

    async def slow():
        await asyncio.sleep(60)

    return share(before=BEFORE, functions={"ask": ask, "submit": submit, "slow": slow})


@pytest.mark.parametrize("name", NONSENSE)
async def test_nonsense_ends_the_sandbox(forger, name):
    result = await forger.run(f"print('said')\n{NONSENSE[name]}\nwhile True: pass")
    assert result.lost
    assert "makes no sense" in result.error
    assert result.output == "said\n"
    assert (await forger.run("print('alive')")).output == "alive\n"


async def test_a_call_of_an_unknown_function_is_refused(forger):
    code = "forge({'call': 10**9, 'name': 'os.system', 'args': ['id'], 'kwargs': {}})\nprint(ask(1))"
    result = await forger.run(code)
    assert (result.output, result.error, result.lost) == ("[1]\n", "", False)


async def test_a_call_under_another_calls_number_is_refused(forger):
    code = """
import threading
forge({'call': 10**9, 'name': 'slow', 'args': [], 'kwargs': {}})
forge({'call': 10**9, 'name': 'slow', 'args': [], 'kwargs': {}})
print(ask(2))
"""
    result = await forger.run(code)
    assert (result.output, result.error, result.lost) == ("[2]\n", "", False)


async def test_no_more_calls_at_once_than_the_host_takes(forger):
    code = """
for n in range(400):
    forge({'call': 10**6 + n, 'name': 'slow', 'args': [], 'kwargs': {}})
try:
    ask(3)
except RuntimeError as e:
    print(e)
"""
    result = await forger.run(code)
    assert (result.output, result.error) == ("256 calls are under way, no more can be\n", "")


async def test_an_early_end_leaves_the_cell_behind(forger):
    """The cell is over for the host; when its code then speaks for it again, nobody believes it."""
    await forger.start()
    result = await forger.run("forge({'done': 2, 'error': 'NameError: forged'})\nimport time\ntime.sleep(0.05)\nx = 1")
    assert result.error == "NameError: forged"
    later = await forger.run("print('next')")
    assert later.lost
    assert (await forger.run("print('alive')")).output == "alive\n"


async def test_a_flood_of_calls_is_answered_until_it_is_stopped(share):
    async def ask():
        return "x" * 100_000

    forger = share(Jail(seconds=1), before=BEFORE, functions={"ask": ask})
    code = "n = 0\nwhile True:\n    n += 1\n    forge({'call': 10**6 + n, 'name': 'ask', 'args': [], 'kwargs': {}})"

    result = await forger.run(code)

    assert result.error  # it reads no answer: they are too many, or its time is over
    assert (await forger.run("print('alive')")).output == "alive\n"


async def test_the_wire_closed_by_its_own_code(forger):
    result = await forger.run("print('said', end='')\nos.close(FD)\nask(1)")
    assert result.lost or result.error
    assert result.output.startswith("said")
    assert (await forger.run("print('alive')")).output == "alive\n"


async def test_frames_sent_between_cells_are_heard_with_the_next(forger):
    """A thread that outlives its cell asks later; it is answered when the host listens again."""
    code = """
import threading
go, got = threading.Event(), []
def later():
    go.wait()
    try:
        got.append(ask(4))
    except RuntimeError as e:
        got.append(str(e))
t = threading.Thread(target=later)
t.start()
"""
    await forger.start()
    assert (await forger.run(code)).error == ""
    await forger.run("go.set()")
    result = await forger.run("t.join()\nprint(got)")
    assert result.error == ""
    assert result.output in ("[[4]]\n", "['the cell that made this call has ended']\n")
