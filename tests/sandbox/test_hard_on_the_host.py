"""What would tire the host or make it wait: heavy arguments and answers, work while it waits, functions that do not end."""

import asyncio
import json
import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft.sandbox import Jail
from redraft.sandbox.child import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def count(value):
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inside))


@given(JSON)
def test_a_frame_weighs_no_less_than_its_values(value):
    body = json.dumps(value).encode()
    assert wire.weight(body) >= len(body) + 100 * (count(value) - 1)


@settings(deadline=None, max_examples=10)
@given(st.text(alphabet='",[{\\\n a'), st.integers(0, 3))
def test_what_stands_in_texts_is_not_counted(text, more):
    """However it is written; the values around it are."""
    many = [text * (1 + 600_000 // (1 + len(text))), ",[{" * 100_000, "x"]
    body = json.dumps(many).encode()
    assert wire.weight(body) < len(body) + 100 * 10
    much = json.dumps([*many, *[more] * 200_000]).encode()
    with pytest.raises(wire.TooLarge, match="more than 200000 values"):
        wire.weight(much)


@pytest.fixture(scope="module")
def busy(share):
    async def ask(*args):
        return list(args)

    async def slow(*args):
        await asyncio.sleep(60)

    async def big(n):
        return "x" * n

    async def gives_up():
        raise asyncio.CancelledError

    async def leaves():
        raise SystemExit(3)

    functions = {"ask": ask, "slow": slow, "big": big, "gives_up": gives_up, "leaves": leaves}
    return share(Jail(seconds=5), functions=functions)


async def test_arguments_of_too_many_values_are_an_error_in_the_code(busy):
    code = """
try:
    ask([0] * 300_000)
except ValueError as e:
    print(e)
text = ", [" * 500_000
print(ask(text)[0] == text)
"""
    result = await busy.run(code)
    assert (
        result.output
        == "ask: more than 200000 values in one frame: pass fewer, or one text of them (json.dumps)\nTrue\n"
    )


async def test_the_calls_under_way_hold_a_bounded_amount(busy):
    code = """
import threading
said = []
def call():
    try:
        slow([0] * 150_000)
    except RuntimeError as e:
        said.append(str(e))
threads = [threading.Thread(target=call, daemon=True) for _ in range(8)]
for t in threads: t.start()
while len(said) < 4: pass
print(said[0])
print(ask(5))
"""
    result = await busy.run(code)
    assert result.output.startswith("calls with 64 MB of arguments are under way, no more can be\n[5]\n")
    assert not result.lost


async def test_an_answer_that_is_too_large_is_an_error_in_the_code(busy):
    result = await busy.run("print(len(big(1_000_000)))\nbig(34_000_000)")
    assert result.output.startswith("1000000\n")
    assert re.fullmatch(r"ValueError: big returned 340000\d\d bytes, at most 33554432 can be passed: .*", result.error)
    assert not result.lost


@pytest.mark.parametrize(
    ("code", "says"), [("gives_up()", "was cancelled from inside"), ("leaves()", "user code called sys.exit(3)")]
)
async def test_a_function_that_ends_past_every_handler_is_answered(busy, code, says):
    result = await busy.run(code)
    assert result.error.startswith("RuntimeError: ")
    assert says in result.error


async def test_work_counts_while_another_thread_waits_for_the_host():
    """Else a cell could work for ever, as long as one call or another is under way."""

    async def nap():
        await asyncio.sleep(0.2)

    jail = Jail(seconds=0.3)
    await jail.start({}, {"nap": nap})
    code = """
import threading
kept = 1
def naps():
    while True:
        try: nap()
        except RuntimeError: pass
for _ in range(3): threading.Thread(target=naps, daemon=True).start()
while True: pass
"""
    result = await asyncio.wait_for(jail.execute(code), 60)
    assert result.error == "TimeoutError: the cell ran longer than 0.3 s and was stopped; its variables are kept"
    assert (await jail.execute("kept")).output == "1\n"
    await jail.close()


async def test_a_cell_that_waits_for_the_host_has_the_time_it_needs():
    async def nap():
        await asyncio.sleep(0.6)
        return "rested"

    jail = Jail(seconds=0.2)
    await jail.start({}, {"nap": nap})
    assert (await jail.execute("nap()")).output == "'rested'\n"
    await jail.close()


async def test_a_function_that_ignores_its_cancellation_is_left_behind():
    enough = threading.Event()

    async def stubborn():
        while not enough.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    jail = Jail(seconds=5)
    await jail.start({}, {"stubborn": stubborn})
    code = "import threading, time\nthreading.Thread(target=stubborn, daemon=True).start()\ntime.sleep(0.1)\nx = 1"
    result = await asyncio.wait_for(jail.execute(code), 60)
    assert (result.error, result.lost) == ("", False)
    assert (await jail.execute("x")).output == "1\n"
    enough.set()
    await jail.close()
