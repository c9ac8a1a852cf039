"""python_tests: a draft's code runs in a child with limits, one test at a time."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft import Prediction
from redraft.checks import python_tests
from redraft.checks.code import code_of
from redraft.errors import UsageError

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
        ("open('f', 'w').write('x' * 10**8)", 0.0, "File too large"),
        ("import os\nos._exit(0)", 0.0, "it ended the process"),
        ("exit()", 0.0, "SystemExit"),
        ("while True: pass", 0.0, "does not run: it takes longer than 1 s"),
        ("def add(a, b): return 'x' * 10**6", 0.0, "got 'xxx"),
    ],
)
def test_the_first_fault_is_explained_and_what_passes_counts(code, score, says):
    found, why = judged(code)
    assert found == score
    assert says in why
    assert len(why) < 300


def test_the_child_has_no_environment_and_a_folder_of_its_own(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = f"import os\nopen('mine', 'w').close()\nassert os.listdir() == ['mine']\nassert 'OPENAI_API_KEY' not in os.environ\n{GOOD}"
    assert judged(code) == (1.0, "")
    assert not Path("mine").exists()


def test_no_process_outlives_its_judgement(tmp_path):
    alive = tmp_path / "alive"
    code = f"import os, time\nif os.fork() == 0:\n    time.sleep(1.2)\n    open({str(alive)!r}, 'w').close()\n    os._exit(0)\n{GOOD}"
    assert judged(code) == (1.0, "")
    time.sleep(1.5)
    assert not alive.exists()


async def test_the_loop_goes_on_and_cancelling_kills_the_child(tmp_path):
    pid = tmp_path / "pid"
    code = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    task = asyncio.ensure_future(python_tests(TESTS, timeout=60).verdict({}, Prediction(code=code)))
    while not (pid.exists() and pid.read_text()):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def test_many_at_once():
    check = python_tests(TESTS, timeout=5)
    verdicts = await asyncio.gather(*(check.verdict({}, Prediction(code=GOOD)) for _ in range(8)))
    assert all(v.passed for v in verdicts)


def test_hidden_tests_are_not_quoted():
    assert TESTS.strip() in python_tests(TESTS).tell()
    _, why = judged("def add(a, b): return 0", tell=False)
    assert why == "1 of 4 tests pass; in hidden test 2: got 0" or "hidden test" in why
    assert "add(2, 3)" not in why


@pytest.mark.parametrize("tests", ["", "x = 1", "assert (", "def helper(a): pass", "class T: pass", 5])
def test_tests_that_test_nothing_are_refused(tests):
    with pytest.raises(UsageError, match="python_tests"):
        python_tests(tests)
    with pytest.raises(UsageError, match="memory"):
        python_tests(TESTS, memory_mb=1)


def test_prose_around_code_is_cut_by_the_fix():
    check = python_tests(TESTS)
    assert check.fix(f"Here is the code:\n\n{GOOD}\nHope this helps!") == GOOD.rstrip()
    assert check.fix(f"```python\n{GOOD}```") == GOOD.rstrip()
    assert check.fix(GOOD.rstrip()) is None
    assert check.fix("I cannot do that.") is None


@given(
    st.lists(st.sampled_from(["```", "```python\n", "```\n", "x = 1\n", "  ", "~~~\n", "text\n"]), max_size=12).map(
        "".join
    )
)
def test_any_draft_has_some_code(text):
    assert set(code_of(text)) <= set(text) | {"\n"}
