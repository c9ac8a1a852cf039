"""python_tests: a draft's code runs in a jail, one test at a time."""

from __future__ import annotations

import asyncio
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft import BestOfN, Predict, Prediction, Refine
from redraft.checks import parse, python_tests
from redraft.checks.code import code_of
from redraft.errors import SandboxError, UsageError
from redraft.sandbox import Jail
from redraft.testing import ScriptedLM

TESTS = """
import math
assert add(2, 3) == 5
assert add(1, 1) == 2, "one and one"
assert add(0, 0) == 0
def test_negative():
    assert add(-1, 1) == 0
"""
GOOD = "def add(a, b):\n    return a + b\n"


def judged(code, **options):
    check = python_tests(TESTS, **{"timeout": 1.0, **options})
    verdict = asyncio.run(check.verdict({}, Prediction(code=code)))
    return verdict.score, verdict.explanation


@pytest.mark.parametrize(
    "code",
    [
        GOOD,
        f"```python\n{GOOD}```",
        f"Here you are:\n\n~~~\n{GOOD}~~~\nDone.",
        f"Install it:\n```bash\npip install add\n```\n```py\n{GOOD}```",
        f"1. So:\n   ```python\n   {GOOD.replace(chr(10), chr(10) + '   ')}\n   ```",
        f"print('x' * 10**6)\n{GOOD}",
    ],
)
def test_code_that_passes(code):
    assert judged(code) == (1.0, "")


@pytest.mark.parametrize(
    ("code", "score", "says"),
    [
        (GOOD.replace("+ b", "+ b + (a == 2)"), 0.75, "3 of 4 tests pass; in `assert add(2, 3) == 5`: got 6"),
        (
            GOOD.replace("return", "assert a != 1, 'no ones'\n    return"),
            0.75,
            "AssertionError: no ones (line 2 of the code)",
        ),
        (GOOD.replace("return", "while a == 1: pass\n    return"), 0.25, "takes longer than 1 s"),
        ("", 0.0, "NameError: name 'add' is not defined"),
        ("def add(", 0.0, "does not run: SyntaxError: '(' was never closed (line 1 of the code)"),
        ("x = 1\nboom", 0.0, "does not run: NameError: name 'boom' is not defined (line 2 of the code)"),
        ("x = 'a' * 10**10", 0.0, "MemoryError"),
        ("open('f', 'w')", 0.0, "PermissionError"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", 0.0, "does not run"),
        ("import os\nos.fork()", 0.0, "PermissionError"),
        ("import os\nos._exit(0)", 0.0, "ended the sandbox's own process"),
        ("exit()", 0.0, "SystemExit"),
        ("while True: pass", 0.0, "does not run: it takes longer than 1 s"),
        ("def add(a, b): return 'x' * 10**6", 0.0, "got 'xxx"),
    ],
)
def test_the_first_fault_is_explained_and_what_passes_counts(code, score, says):
    found, why = judged(code)
    assert found == score
    assert says in why
    assert len(why) < 600


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 2\n", "assert P().x == 2"),
        ("def f(x: int): return x", "assert f.__annotations__ == {'x': int}"),
        ("def f(x: 'int') -> str: return x", "import typing\nassert typing.get_type_hints(f)['x'] is int"),
        (
            "from functools import singledispatch\n@singledispatch\ndef f(x): return 0\n@f.register\ndef _(x: int): return 1",
            "assert f(2) == 1",
        ),
        (
            "from enum import Enum\nclass E(Enum):\n    A = 1\n",
            "import pickle\nassert pickle.loads(pickle.dumps(E.A)) is E.A",
        ),
        ("from __future__ import annotations\ndef f(x: Late): return x\n", "assert f.__annotations__ == {'x': 'Late'}"),
    ],
)
def test_code_runs_as_a_module_of_its_own(code, tests):
    verdict = asyncio.run(python_tests(tests).verdict({}, Prediction(code=code)))
    assert (verdict.score, verdict.explanation) == (1.0, "")


FORGED = """
import threading, sys
def forge():
    told = sys.modules["__main__"].told
    for i in range(5):
        told("", i, "")
        told("guess", i, "")
forge()
import __main__
__main__._faults = __main__._hold = lambda *a: ""
__main__.run_tests = lambda *a: None
def add(a, b): return 7
"""


def test_what_the_code_tells_in_the_name_of_the_tests_is_no_result():
    """It may find the function that reports, and what runs the tests, but it does not know the mark."""
    score, why = judged(FORGED)
    assert score == 0.0
    assert why.startswith("0 of 4 tests pass; in `assert add(2, 3) == 5`: got 7; in ")


def test_the_child_sees_no_environment_and_no_file_of_this_machine(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = f"import os\nassert 'OPENAI_API_KEY' not in os.environ\ntry:\n    os.listdir('/')\nexcept PermissionError:\n    pass\nelse:\n    raise ValueError\n{GOOD}"
    assert judged(code) == (1.0, "")


def test_no_draft_sees_what_another_one_did():
    check = python_tests(TESTS)

    async def both():
        for code in (
            "import builtins, math\nbuiltins.add = lambda a, b: a + b\nmath.pi = 3",
            "import math\nassert math.pi > 3",
        ):
            yield await check.verdict({}, Prediction(code=code))

    async def verdicts():
        return [verdict async for verdict in both()]

    first, second = asyncio.run(verdicts())
    assert first.passed
    assert "NameError: name 'add' is not defined" in second.explanation


def test_the_first_failures_are_told_not_all():
    tests = "".join(f"assert f({i}) == 1\n" for i in range(9))
    verdict = asyncio.run(python_tests(tests).verdict({}, Prediction(code="def f(i): return i")))
    assert verdict.explanation == (
        "1 of 9 tests pass; in `assert f(0) == 1`: got 0; in `assert f(2) == 1`: got 2; in `assert f(3) == 1`: got 3"
    )


def test_tests_may_be_several_texts():
    assert python_tests("assert f(1)", "assert f(2)").tests == python_tests("assert f(1)\nassert f(2)").tests


async def test_the_loop_goes_on_and_cancelling_ends_what_runs(monkeypatch):
    jails = []
    start = Jail.start

    async def seen(self, *args):
        await start(self, *args)
        jails.append(self._process.popen)

    monkeypatch.setattr(Jail, "start", seen)
    code = "import time\ntime.sleep(60)"
    task = asyncio.ensure_future(python_tests(TESTS, timeout=60).verdict({}, Prediction(code=code)))
    async with asyncio.timeout(30):
        while not jails:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert jails[0].returncode is not None


async def test_without_a_jail_nothing_is_run(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="the jail does not run on darwin"):
        await python_tests(TESTS).verdict({}, Prediction(code=GOOD))


def test_it_leads_refine_to_code_that_passes():
    lm = ScriptedLM(["def add(a, b):\n    return a - b", f"```python\n{GOOD}```"])
    result = Refine(Predict("task -> code", lm=lm), N=2, checks=[python_tests(TESTS)])(task="add two numbers")
    assert result.passed
    assert code_of(result.code).strip() == GOOD.strip()
    assert [a.score.passed for a in result.attempts][:1] == [False]


async def test_many_at_once():
    check = python_tests(TESTS, timeout=5)
    verdicts = await asyncio.gather(*(check.verdict({}, Prediction(code=GOOD)) for _ in range(8)))
    assert all(v.passed for v in verdicts)


def test_hidden_tests_are_not_quoted():
    assert TESTS.strip() in python_tests(TESTS).tell()
    _, why = judged("def add(a, b): return 0", tell=False)
    assert why == "1 of 4 tests pass; in hidden test 2: got 0" or "hidden test" in why
    assert "add(2, 3)" not in why


def test_it_ranks_in_best_of_n_and_is_named_on_the_command_line(tmp_path):
    (tmp_path / "tests.py").write_text(TESTS)
    check = parse(f"python_tests:{tmp_path / 'tests.py'}")
    half = GOOD.replace("+ b", "+ b + (a == 2)")
    lm = ScriptedLM([half, GOOD.replace("+", "*"), half])
    result = BestOfN(Predict("task -> code", lm=lm), N=3, checks=[check], fix=False)(task="add")
    assert (result.score, result.best.index) == (0.75, 0)


@pytest.mark.parametrize("tests", ["", "x = 1", "assert (", "def helper(a): pass", "class T: pass", 5])
def test_tests_that_test_nothing_are_refused(tests):
    with pytest.raises(UsageError, match="python_tests"):
        python_tests(tests)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "x", True, None, 1e300])
@pytest.mark.parametrize("memory", [1, "x", 2**60, float("nan")])
def test_limits_that_limit_nothing_are_refused(timeout, memory):
    with pytest.raises(UsageError, match="timeout="):
        python_tests(TESTS, timeout=timeout)
    with pytest.raises(UsageError, match="memory_mb="):
        python_tests(TESTS, memory_mb=memory)


def test_prose_around_code_is_cut_by_the_fix():
    check = python_tests(TESTS)
    assert check.fix(f"Here is the code:\n\n{GOOD}\nHope this helps!") == GOOD.rstrip()
    assert check.fix(f"```python\n{GOOD}```") == GOOD.rstrip()
    assert check.fix(GOOD.rstrip()) is None
    assert check.fix("I cannot do that.") is None
    assert check.fix(f"```\n{GOOD * 10_000}```") is None, "so long a text is left as it is"


@given(
    st.lists(st.sampled_from(["```", "```python\n", "```\n", "x = 1\n", "  ", "~~~\n", "text\n"]), max_size=12).map(
        "".join
    )
)
def test_any_draft_has_some_code(text):
    assert set(code_of(text)) <= set(text) | {"\n"}
