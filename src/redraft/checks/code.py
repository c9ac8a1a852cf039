"""python_tests: a draft's Python is run in a sandbox, and tests after it. Without one nothing is run.

The sandbox is the jail (`redraft.sandbox.Jail`): no files, no network, no other process, and limits of time and memory.
Every draft gets one of its own, which its tests share: what one draft did to Python's own modules must not judge the
next. Inside of it the code is not held: a draft can return objects that equal anything.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import secrets
import warnings
from functools import cache
from textwrap import dedent
from typing import Any

from redraft.checks.base import Check
from redraft.checks.mend import fences
from redraft.errors import UsageError
from redraft.turns import Gate
from redraft.types import Inputs, Prediction, Verdict

_LONGEST = 86_400.0  # seconds
_QUOTED = 100
_FIRST = 3  # failures that are told
_FIXED = 200_000  # characters
_TRIMMED = 40  # lines of prose, before or after code without a fence, that `fix` cuts at most
_places = Gate(max(2, os.cpu_count() or 1))
"""Drafts that are tested at the same time: more would take each other's seconds."""


class PythonTests(Check):
    """Python code that passes tests, run in a jail: see the module."""

    name = "python_tests"

    def __init__(self, tests: str, *, timeout: float = 5.0, memory_mb: int = 512, **options: Any) -> None:
        super().__init__(**options)
        try:
            body = ast.parse(tests).body
        except (SyntaxError, ValueError, TypeError) as error:
            raise UsageError(f"python_tests: the tests are no Python: {error}") from error
        self.tests, self._parts = tests, body
        self._counted = {i for i, node in enumerate(body) if _is_test(node)}
        if not self._counted:
            raise UsageError("python_tests: no test; write `assert f(2) == 4`, a call, or functions named test_...")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= _LONGEST:
            raise UsageError(
                f"python_tests: timeout={timeout!r}; give seconds, more than 0 and at most {_LONGEST:,.0f}"
            )
        if not isinstance(memory_mb, int) or not 64 <= memory_mb <= 2**30:
            raise UsageError(f"python_tests: memory_mb={memory_mb!r}; give whole MB, 64 or more")
        self.timeout, self.memory = timeout, memory_mb * 2**20

    def tell_text(self) -> str:
        """See `Check`."""
        return f"Answer with Python code alone. It must pass these tests:\n{self.tests.strip()}"

    async def verdict(self, inputs: Inputs, prediction: Prediction) -> Verdict:
        """The share of tests that pass. Raises `SandboxError` where there is no jail. Cancelling ends what runs."""
        del inputs
        value = self.value_of(prediction)
        if not isinstance(value, str):
            return self._as_verdict(0.0, f"the code is no text but {type(value).__name__}")
        await _places.enter()
        try:
            faults, cut = await self._run(code_of(value))
        finally:
            _places.leave()
        return self._as_verdict(*self._sum_up(faults, cut))

    def fix(self, value: Any) -> Any:
        """The code without its fence, or without the prose before and after it; of at most 200,000 characters."""
        if not isinstance(value, str) or len(value) > _FIXED:
            return None
        code = code_of(value)
        if not _parses(code):
            code = _without_prose(code)
        return code if code and code != value and _parses(code) else None

    async def _run(self, code: str) -> tuple[dict[int, str], str]:
        """Each test's fault by its number (-1: the code's own), and how it ended early."""
        from redraft.sandbox import Jail

        faults: dict[int, str] = {}
        mark = secrets.token_hex(16)

        async def told(given: str, number: int, why: str) -> None:
            if number < 0 or given == mark:  # which the code does not know while it runs
                faults.setdefault(number, str(why)[:1000])

        jail = Jail(self.timeout, self.memory, output=1000)
        try:
            await jail.start({}, {"told": told})
            for cell in (f"run_code({code!r}, told)", f"run_tests({self.tests!r}, {mark!r}, told)"):
                result = await jail.execute(f"{_harness()}\n{cell}")
                if result.lost or result.error:
                    return faults, self._cut(result.error)
                if -1 in faults:
                    break
            return faults, ""
        finally:
            await jail.close()

    def _cut(self, error: str) -> str:
        if error.startswith("TimeoutError"):
            return f"it takes longer than {self.timeout:g} s"
        return error or "it ended the process, or ran out of its memory"

    def _sum_up(self, faults: dict[int, str], cut: str) -> tuple[float, str]:
        results = {number: why for number, why in faults.items() if number >= 0}
        if -1 in faults or (cut and not results):
            return 0.0, f"the code does not run: {faults.get(-1) or cut}"
        passed = sum(1 for i in self._counted if results.get(i) == "")
        failed = [i for i in range(len(self._parts)) if results.get(i) != ""]
        if not failed:
            return 1.0, ""
        first = "; ".join(
            f"in {self._place(i)}: {results.get(i) or cut or 'not run'}" for i in self._told_of(failed, results)
        )
        total = len(self._counted)
        return min(passed / total, 0.99), f"{passed} of {total} tests pass; {first}"

    def _told_of(self, failed: list[int], results: dict[int, str]) -> list[int]:
        """The first failures; of tests that were not reached only the first."""
        reached = [i for i in failed if i in results]
        return [*reached, *[i for i in failed if i not in results][:1]][:_FIRST]

    def _place(self, number: int) -> str:
        return f"`{self._quote(number)}`" if self.told else f"hidden test {number + 1}"

    def _quote(self, number: int) -> str:
        text = " ".join((ast.get_source_segment(self.tests, self._parts[number]) or "").split())
        return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def _is_test(node: ast.stmt) -> bool:
    """Asserts, calls, functions named test..., and loops and blocks with an assert in them; the rest prepares."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("test") and not node.args.args
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.ClassDef | ast.AsyncFunctionDef):
        return False
    return any(isinstance(inner, ast.Assert) for inner in ast.walk(node))


def code_of(text: str) -> str:
    """The Python in a draft: its code fences one after another (those marked as Python, if any is), or all of it."""
    return "\n\n".join(dedent(block).rstrip() for block in fences(text, "python", "py", "python3")) or text


def _parses(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is the author's affair
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _without_prose(text: str) -> str:
    """The text without its first and last lines, as few as make it Python."""
    lines = text.splitlines()
    begins = (
        i for i, line in enumerate(lines[:_TRIMMED]) if line.startswith(("def ", "class ", "import ", "from ", "@"))
    )
    start = next(begins, None)
    if start is None:
        return ""
    ends = range(len(lines), max(start, len(lines) - _TRIMMED), -1)
    return next((code for end in ends if _parses(code := "\n".join(lines[start:end]).rstrip())), "")


@cache
def _harness() -> str:
    spec = importlib.util.find_spec("redraft.checks.harness")
    assert spec is not None
    text: str = spec.loader.get_source(spec.name)  # type: ignore[union-attr]
    return text


def python_tests(tests: str, *more: str, timeout: float = 5.0, memory_mb: int = 512, **options: Any) -> PythonTests:
    """The draft is Python (in a code fence or not) that passes the tests: asserts, calls and functions named `test_...`,
    each run by itself after the draft's code, in a jail (Linux; elsewhere `SandboxError`). `timeout`: seconds for the code,
    and again for its tests. Options: `field`, `hard`, `tell`.
    """
    if more:
        tests = "\n".join(map(str, (tests, *more)))
    return PythonTests(tests, timeout=timeout, memory_mb=memory_mb, **options)
