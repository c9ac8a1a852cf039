"""The interpreter monty: the contract, and what is its own. Where its library is installed."""

import asyncio
import subprocess
import sys

import pytest

from redraft import RLM
from redraft.errors import SandboxError, UsageError
from redraft.protocols import CellEnd
from redraft.sandbox import interpreter
from redraft.sandbox.monty import Monty
from redraft.testing import ScriptedLM, interpreter_contract

pytestmark = pytest.mark.doors

LACKS = {"threads", "classes", "generators", "containment"}
"""What its dialect says that it has not; code in it cannot end a process."""


def monty():
    return Monty(seconds=1.0)


@pytest.fixture
async def started():
    made = []

    async def start(variables=None, *, seconds=5.0, **functions):
        one = Monty(seconds=seconds)
        made.append(one)
        await one.start(variables or {}, functions)
        return one

    yield start
    for one in made:
        await one.close()


@pytest.mark.parametrize("promise", [pytest.param(c, id=n) for n, c in interpreter_contract(monty, lacks=LACKS)])
async def test_monty(promise):
    await promise()


async def test_what_it_lacks_is_an_error_that_says_so(started):
    one = await started()
    for code in ("def g():\n    yield 1", "x = 1\ndel x", "class A(dict):\n    pass", "import threading", "open('f')"):
        result = await one.execute(code)
        assert result.error, code
        assert not result.lost
    assert (await one.execute("print(1)")).output == "1\n"


async def test_the_helpers_are_the_jails(started):
    async def llm_query_batched(prompts, schema=None):
        return [f"{schema}:{prompt}" for prompt in prompts]

    one = await started({"text": "one\ntwo\nthree\n"}, llm_query_batched=llm_query_batched)
    result = await one.execute(
        "print(peek(text, 0, 3), grep('t', text, limit=1), chunk(text, 8))\nllm_map('{i} {chunk}', ['a', 'b'], schema='s')"
    )
    assert result.output == (
        "[0:3 of 14] one [{'position': 4, 'line': 2, 'match': 't', 'text': 'one\\ntwo\\nthree\\n'}] ['one\\ntwo\\n', 'three\\n']\n"
        "['s:0 a', 's:1 b']\n"
    )
    assert "NameError" in (await (await started()).execute("llm_map('x', ['a'])")).error


async def test_the_awaitable_twins_are_asked_at_the_same_time(started):
    under_way = 0
    everybody = asyncio.Event()

    async def ask(n):
        nonlocal under_way
        under_way += 1
        if under_way == 8:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), 30)
        if n == 3:
            raise ValueError("not three")
        return n

    one = await started(ask=ask)
    code = "import asyncio\nasync def safe(n):\n    try:\n        return await ask_async(n)\n    except ValueError as e:\n        return str(e)\n"
    result = await one.execute(f"{code}print(await asyncio.gather(*[safe(n) for n in range(8)]))")
    assert result.output == "[0, 1, 2, 'not three', 4, 5, 6, 7]\n"


async def test_a_cell_ended_from_among_several_calls_is_no_error(started):
    async def submit():
        raise CellEnd

    one = await started(submit=submit)
    code = "import asyncio\ntry:\n    await asyncio.gather(submit_async(), submit_async())\nexcept Exception:\n    print('caught')\nprint('after')"
    assert await one.execute(code) == await one.execute("submit()")


async def test_memory_is_limited(started):
    one = Monty(memory=64 << 20)
    await one.start({}, {})
    result = await one.execute("print('begun')\nx = 'a' * 10**9")
    assert result.error.startswith("MemoryError")
    assert result.output.startswith("begun\n")
    result = await one.execute("y = []\nwhile True:\n    y.append(list(range(10_000)))")
    assert result.error.startswith(("MemoryError", "TimeoutError"))
    await one.close()


async def test_the_last_expression_stands_on_its_own_line_in_a_traceback(started):
    one = await started()
    result = await one.execute("def f():\n    return 1 / 0\nx = 1\n(f())  # said")
    assert "line 4" in result.output
    assert "_redraft" not in result.output
    assert (await one.execute("1, 2")).output == "(1, 2)\n"
    assert (await one.execute("(\n    'é' +\n    'b'\n)")).output == "'éb'\n"


async def test_a_cancelled_cell_ends_the_sandbox(started):
    one = await started(seconds=60)
    work = asyncio.ensure_future(one.execute("while True:\n    pass"))
    await asyncio.sleep(0.2)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    with pytest.raises(SandboxError, match="not running"):
        await one.execute("1")
    await one.start({"x": 1}, {})
    assert (await one.execute("x")).output == "1\n"


async def test_a_flood_ends_the_sandbox_and_its_head_and_tail_are_kept(started):
    one = Monty(seconds=30, output=1000)
    await one.start({}, {})
    short = await one.execute("print('a' * 5000)\nprint('end')")
    assert "bytes of output not shown" in short.output
    assert short.output.endswith("end\n")
    result = await one.execute("while True:\n    print('x' * 1_000_000)")
    assert result.lost
    assert result.error.startswith("OverflowError")
    await one.close()


async def test_cells_run_again_do_the_same(started):
    code = "import random, time\ntime.sleep(3600)\nrandom.random()"
    outputs = {(await (await started()).execute(code)).output for _ in range(2)}
    assert len(outputs) == 1


async def test_a_big_value_does_not_hold_up_the_loop(started):
    rows = [{"a": i, "b": str(i)} for i in range(100_000)]
    loop = asyncio.get_running_loop()
    longest, last = 0.0, loop.time()

    async def look():
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.001)
            longest, last = max(longest, loop.time() - last), loop.time()

    looking = asyncio.ensure_future(look())
    one = await started({"rows": rows, "text": "line\n" * 4_000_000}, seconds=60)
    looking.cancel()
    assert (
        await one.execute("len(rows), rows[-1], len(text)")
    ).output == "(100000, {'a': 99999, 'b': '99999'}, 20000000)\n"
    assert longest < 0.5, "the loop stood still while the variables were handed over"


def test_limits_that_limit_nothing_are_refused():
    for options in ({"seconds": 0}, {"memory": 5}, {"output": 1}):
        with pytest.raises(UsageError, match="seconds > 0"):
            Monty(**options)


def test_auto_falls_to_it_where_there_is_no_jail_and_says_so_once():
    code = (
        "import sys\nsys.platform = 'darwin'\nfrom redraft.sandbox import interpreter\n"
        "for _ in range(2):\n    print(type(interpreter(seconds=5)).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Monty\nMonty\n"
    assert done.stderr.count("monty") == 2, "one line, which names it twice"
    assert done.stderr.count("\n") == 1


def test_it_is_known_by_name():
    assert isinstance(interpreter("monty", seconds=3), Monty)


def test_an_rlm_is_told_the_dialect_and_works_in_it():
    lm = ScriptedLM(
        [
            "Count them.\n```python\nhits = grep('ERROR', log)\nprint(len(hits))\n```",
            "Ask about both.\n```python\nimport asyncio\nsaid = await asyncio.gather(*[llm_query_async(h['text']) for h in hits])\nSUBMIT(len([s for s in said if s == 'yes']))\n```",
            "yes",
            "no",
        ]
    )
    rlm = RLM("log -> answer: int", lm=lm, interpreter="monty", bypass=0)
    result = rlm(log="ok\nERROR a\nok\nERROR b\n")
    assert result.answer == 1
    assert "Monty, a small Python" in lm.requests[0].messages[0]["content"]
