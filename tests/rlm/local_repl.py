"""A REPL in this process, for tests of what stands around a sandbox: no safety, no limits, all of the contract."""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import io
import traceback
from pathlib import Path

from redraft.errors import SandboxError
from redraft.protocols import CellEnd, CellResult


class _Over(BaseException):
    """No `except Exception` of the cell's catches the end of the cell."""


class LocalRepl:
    """A cell that holds `DIE` ends the sandbox; one that holds `BREAK` breaks it. `cells` counts what was run."""

    dialect = "No generators here."
    helpers = "- peek(text): a piece of it"

    def __init__(self, *, broken=False):
        self.broken = broken
        self.cells: list[str] = []
        self.starts = self.closed = 0
        self.deaths = 0

    async def start(self, variables, functions):
        if self.broken:
            raise SandboxError("the sandbox cannot start here")
        self.starts += 1
        loop = asyncio.get_running_loop()

        def host(fn):
            def call(*args, **kwargs):
                try:
                    return asyncio.run_coroutine_threadsafe(fn(*args, **kwargs), loop).result()
                except CellEnd:
                    raise _Over from None

            return call

        values = {k: v.read_text() if isinstance(v, Path) else v for k, v in variables.items()}
        self.space = {"__name__": "__main__", **values, **{name: host(fn) for name, fn in functions.items()}}

    async def execute(self, code):
        self.cells.append(code)
        if "BREAK" in code:
            raise SandboxError("the sandbox stopped answering")
        if "DIE" in code:
            self.deaths += 1
            self.space = {}
            return CellResult(output="so far\n", error="TimeLimit: 2 s", lost=True)
        return await asyncio.to_thread(self._run, code)

    def _run(self, code):
        out = io.StringIO()
        error = ""
        self.space["print"] = lambda *a, **k: builtins.print(*a, **{**k, "file": out})
        try:
            tree = ast.parse(code)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<cell>", "exec"), self.space)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.space)
                if value is not None:
                    out.write(f"{value!r}\n")
        except _Over:
            pass
        except Exception as caught:  # noqa: BLE001 - a cell's code
            error = f"{type(caught).__name__}: {caught}"
            with contextlib.suppress(Exception):
                out.write("".join(traceback.format_exception_only(caught)))
        return CellResult(output=out.getvalue(), error=error)

    async def close(self):
        self.closed += 1


def cell(code, thought="Let me look."):
    """A reply as a model writes it."""
    return f"{thought}\n```python\n{code}\n```"


def told(lm, at=-1):
    """The last message of a request."""
    return lm.requests[at].messages[-1]["content"]


def everything(lm, at=-1):
    """All that a request says."""
    return "\n".join(str(message["content"]) for message in lm.requests[at].messages)
