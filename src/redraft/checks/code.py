"""python_tests: a draft's Python is run, and tests after it, in a child process with limits.

The limits (time, memory, size of files, an empty environment, a temporary folder, processes that are killed at the end)
keep a model's mistakes from doing harm. They are no sandbox: hostile code has the user's rights and the network.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any

from redraft.checks.base import Check
from redraft.checks.mend import fences
from redraft.errors import ScoreError, UsageError
from redraft.types import Inputs, Prediction, Verdict

_HARNESS = Path(__file__).with_name("harness.py")
_FILE_SIZE = 2**24
_SAID = 2**20  # bytes that the child may say
_STARTUP = 10.0  # seconds for an interpreter to start, on a busy machine; not counted as the code's
_LONGEST = 86_400.0  # seconds
_MARK = "REDRAFT_DRAFT"
"""The one variable of the child's environment: what it started bears it, too, and is found by it."""
_FORMS: tuple[dict[str, type], ...] = (
    {"start": bool},
    {"end": bool},
    {"code": str},
    {"test": int, "ok": bool, "why": str},
)
"""What the harness says."""
_QUOTED = 160
_FIXED = 200_000  # characters
_TRIMMED = 40  # lines of prose, before or after code without a fence, that `fix` cuts at most


class PythonTests(Check):
    """Python code that passes tests, run in a child process. No sandbox: see the module."""

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
        """The share of tests that pass. The child is killed when its time is up, or when this is cancelled."""
        del inputs
        value = self.value_of(prediction)
        if not isinstance(value, str):
            return self._as_verdict(0.0, f"the code is no text but {type(value).__name__}")
        return self._as_verdict(*self._sum_up(*await self._run(code_of(value))))

    def fix(self, value: Any) -> Any:
        """The code without its fence, or without the prose before and after it; of at most 200,000 characters."""
        if not isinstance(value, str) or len(value) > _FIXED:
            return None
        code = code_of(value)
        if not _parses(code):
            code = _without_prose(code)
        return code if code and code != value and _parses(code) else None

    async def _run(self, code: str) -> tuple[list[dict[str, Any]], str]:
        """What the child said, and how it ended early."""
        mark, own = secrets.token_hex(16), secrets.token_hex(16)
        task = {"code": code, "tests": self.tests, "seconds": self.timeout, "memory": self.memory}
        given = json.dumps({**task, "file_size": _FILE_SIZE, "mark": mark}).encode()
        needed = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # by Windows
        with tempfile.TemporaryDirectory(prefix="redraft-", ignore_cleanup_errors=True) as folder:
            try:
                child = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-B", str(_HARNESS)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    cwd=folder,
                    env={**needed, _MARK: own},
                    start_new_session=True,
                )
            except OSError as error:
                raise ScoreError(f"python_tests could not start {sys.executable}: {error}") from error
            try:
                return await self._listen(child, given, mark.encode())
            finally:
                _kill(child, f"{_MARK}={own}".encode())
                # Else `wait` waits for all who hold the pipe, and a process that got away may do so for ever.
                child._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
                await child.wait()

    async def _listen(
        self, child: asyncio.subprocess.Process, given: bytes, mark: bytes
    ) -> tuple[list[dict[str, Any]], str]:
        assert child.stdin is not None
        assert child.stdout is not None
        said: list[dict[str, Any]] = []
        left = _SAID
        try:
            async with asyncio.timeout(_STARTUP) as clock:
                with contextlib.suppress(ConnectionError):
                    child.stdin.write(given)
                    await child.stdin.drain()
                    child.stdin.close()
                while (line := await child.stdout.readline()) and left > 0:
                    left -= len(line)
                    event = _event(line, mark)
                    said += [event] if event else []
                    if "start" in event:
                        clock.reschedule(asyncio.get_running_loop().time() + self.timeout)
                    if "end" in event:
                        return said, ""
        except TimeoutError:
            return said, f"it takes longer than {self.timeout:g} s"
        except ValueError:  # a line without an end: the code found the pipe and wrote to it
            left = 0
        if left <= 0:
            return said, "it wrote where only the tests report"
        return said, "it ended the process, or ran out of its memory or time"

    def _sum_up(self, said: list[dict[str, Any]], cut: str) -> tuple[float, str]:
        broken = next((line["code"] for line in said if "code" in line), "")
        results = {line["test"]: line for line in said if "test" in line}
        if broken or (cut and not results):
            return 0.0, f"the code does not run: {broken or cut}"
        passed = sum(1 for i in self._counted if results.get(i, {}).get("ok"))
        failed = [i for i in range(len(self._parts)) if not results.get(i, {}).get("ok")]
        if not failed:
            return 1.0, ""
        total = len(self._counted)
        why = results[failed[0]]["why"] if failed[0] in results else cut
        place = f"`{self._quote(failed[0])}`" if self.told else f"hidden test {failed[0] + 1}"
        return min(passed / total, 0.99), f"{passed} of {total} tests pass; in {place}: {why}"

    def _quote(self, number: int) -> str:
        text = " ".join((ast.get_source_segment(self.tests, self._parts[number]) or "").split())
        return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def _event(line: bytes, mark: bytes) -> dict[str, Any]:
    """What the harness says in a line; nothing in one that is not the harness's."""
    if not line.startswith(mark):
        return {}
    try:
        event = json.loads(line[len(mark) :])
    except (ValueError, RecursionError):
        return {}
    form = {name: type(value) for name, value in event.items()} if isinstance(event, dict) else None
    return event if form in _FORMS else {}


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


def _kill(child: asyncio.subprocess.Process, mark: bytes) -> None:
    """End the child with its process group and, on Linux, those who left the group but bear the mark."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    for process in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in process.read_bytes().split(b"\0"):
                os.kill(int(process.parent.name), signal.SIGKILL)


def python_tests(tests: str, *, timeout: float = 5.0, memory_mb: int = 512, **options: Any) -> PythonTests:
    """The draft is Python (in a code fence or not) that passes `tests`: asserts, calls and functions named `test_...`,
    each run by itself after the draft's code. No sandbox for hostile code. Options: `field`, `hard`, `tell`.
    """
    return PythonTests(tests, timeout=timeout, memory_mb=memory_mb, **options)
