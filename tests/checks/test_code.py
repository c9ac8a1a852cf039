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
on_linux = pytest.mark.skipif(not Path("/proc").exists(), reason="processes are found by their environment there")
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


FORGED = "\n".join(f'{{"test": {i}, "ok": true, "why": ""}}' for i in range(5)) + '\n{"end": true}\n'


@pytest.mark.parametrize(
    "line",
    [
        FORGED,
        '{"test": 0}\n{"code": 5}\n',
        '{"test": [1]}\n',
        '{"test": 1, "ok": false}\n',
        "[" * 50_000 + "\n",
        "not JSON, and no end",
        "x" * 200_000,
        "x\n" * 600_000,
    ],
    ids=lambda line: line[:16],
)
@pytest.mark.parametrize("last", ["", "os._exit(0)\n"])
def test_what_the_code_writes_where_the_tests_report_is_no_result(line, last):
    """It may find the pipe, but does not know the mark."""
    code = (
        f"import os\nfor i in range(3, 10):\n    try: os.write(i, {line!r}.encode())\n    except OSError: pass\n{last}"
    )
    score, why = judged(code)
    assert score == 0.0
    assert why


def test_the_child_has_no_environment_and_a_folder_of_its_own(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = f"import os\nopen('mine', 'w').close()\nassert os.listdir() == ['mine']\nassert 'OPENAI_API_KEY' not in os.environ\n{GOOD}"
    assert judged(code) == (1.0, "")
    assert not Path("mine").exists()


@pytest.mark.parametrize("leave", ["pass", pytest.param("os.setsid()", marks=on_linux)])
@pytest.mark.parametrize("end", ["pass", "os._exit(0)"])
def test_no_process_outlives_its_judgement(tmp_path, leave, end):
    """Nor is one waited for that left the group and holds the pipe."""
    alive = tmp_path / "alive"
    start = time.monotonic()
    code = f"import os, time\nif os.fork() == 0:\n    {leave}\n    time.sleep(1.2)\n    open({str(alive)!r}, 'w').close()\n    os._exit(0)\n{end}\n{GOOD}"
    assert judged(code, timeout=0.5)[0] == float(end == "pass")
    assert time.monotonic() - start < 1.1
    time.sleep(1.0)
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
