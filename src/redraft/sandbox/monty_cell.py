"""One cell of the interpreter monty: sent, answered when it calls the host, and seen to its end."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from typing import Any, get_args

from redraft.protocols import CellEnd, CellResult, HostFunction
from redraft.sandbox.child.bridge import plain
from redraft.sandbox.output import Kept

AT_ONCE = "_async"
"""How the awaitable twin of a host function ends."""
_FLOOD = 64 << 20  # bytes of output of one cell after which it is ended
_OUT_OF_TIME = ("TimeoutError: feed time limit exceeded", "TimeoutError: turn time limit exceeded")
_OUT_OF_ROOM = "MemoryError: the worker exceeded its memory limit"


class Cell:
    """One run of one cell."""

    def __init__(
        self, library: Any, session: Any, functions: Mapping[str, HostFunction], seconds: float, output: int
    ) -> None:
        self._library, self._session, self._functions = library, session, functions
        self._seconds = seconds
        self._kept = Kept(output)
        self._pid: int | None = session.worker_pid  # unknown while it is at work
        self._ended = False
        """A host function has raised CellEnd."""
        self._flooded = False
        self._calls: dict[int, asyncio.Task[dict[str, Any]]] = {}
        self._kinds = {name for name in get_args(library.ExcType) if name.isidentifier()}

    async def run(self, code: str) -> CellResult:
        """Send it and see it through. Cancelling ends the sandbox."""
        work = asyncio.ensure_future(self._driven(code))
        try:
            await asyncio.wait({work})  # its own cancellation would leave the worker at work
            return work.result()
        finally:
            if not work.done():
                self.kill()
                await asyncio.wait({work}, timeout=5)
            await self._cancel_calls()

    def kill(self) -> None:
        """End the worker; what waits for it hears of that."""
        for task in self._calls.values():
            task.cancel()
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    async def _driven(self, code: str) -> CellResult:
        library = self._library
        try:
            snapshot = await self._session.feed_start(code, print_callback=self._print)
            while not isinstance(snapshot, library.MontyComplete):
                snapshot = await self._answered(snapshot)
        except library.MontyCrashedError as error:
            return self._result(self._why_lost(error), lost=True)
        except library.MontyError as error:
            return self._failed(error)
        return self._result("")

    def _failed(self, error: Any) -> CellResult:
        said = error.display("type-msg") if hasattr(error, "display") else str(error)
        if said.startswith(_OUT_OF_TIME):
            return self._result(f"{self._limit()}; the sandbox was ended", lost=True)
        if said.startswith(_OUT_OF_ROOM):
            return self._result("MemoryError: the cell took more memory than it may; the sandbox was ended", lost=True)
        if self._ended:
            return self._result("")
        self._kept.add(f"{_without_echo(error.display('traceback'))}\n".encode("utf-8", "replace"))
        return self._result(" ".join(said.split())[:500])

    def _why_lost(self, error: Any) -> str:
        if self._flooded:
            return f"OverflowError: the cell wrote more than {_FLOOD >> 20} MB; the sandbox was ended"
        return f"{self._limit()}; the sandbox was ended" if error.timed_out else "SystemError: the sandbox ended"

    def _limit(self) -> str:
        return f"TimeoutError: the cell ran longer than {self._seconds:g} s"

    def _result(self, error: str, *, lost: bool = False) -> CellResult:
        return CellResult(output=self._kept.text(), error="" if self._ended else error, lost=lost)

    def _print(self, _stream: str, text: str) -> None:
        self._kept.add(text.encode("utf-8", "replace"))
        if self._kept.seen > _FLOOD and not self._flooded:
            self._flooded = True
            self.kill()

    # Calls of the host

    async def _answered(self, snapshot: Any) -> Any:
        library = self._library
        if isinstance(snapshot, library.AsyncNameLookupSnapshot):
            return await snapshot.resume()  # undefined: all that there is was given
        if isinstance(snapshot, library.AsyncFutureSnapshot):
            return await snapshot.resume(await self._some(snapshot.pending_call_ids))
        if snapshot.is_os_function:
            return await snapshot.resume_not_handled()
        name, at_once = snapshot.function_name, False
        if name not in self._functions and name.removesuffix(AT_ONCE) in self._functions:
            name, at_once = name.removesuffix(AT_ONCE), True
        if name not in self._functions:
            return await snapshot.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        work = asyncio.ensure_future(self._called(name, snapshot.args, snapshot.kwargs))
        self._calls[snapshot.call_id] = work
        if at_once:
            return await snapshot.resume({"future": ...})
        await asyncio.wait({work})
        return await snapshot.resume(self._taken(snapshot.call_id))

    async def _some(self, numbers: list[int]) -> dict[int, dict[str, Any]]:
        """What came of those calls that have ended first."""
        waited = [self._calls[number] for number in numbers]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        return {number: self._taken(number) for number in numbers if self._calls[number].done()}

    def _taken(self, number: int) -> dict[str, Any]:
        work = self._calls.pop(number)
        return {"exception": KeyboardInterrupt()} if work.cancelled() else work.result()

    async def _called(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if self._ended:
            return {"exception": KeyboardInterrupt()}
        try:
            sent = json.loads(json.dumps([args, dict(kwargs)], default=plain))
        except (TypeError, ValueError, RecursionError) as error:
            said = f"{name}: arguments are what JSON can hold (text, numbers, lists, dicts): {error}"
            return {"exc_type": "TypeError", "message": said}
        try:
            value = await self._functions[name](*sent[0], **sent[1])
            return {"return_value": json.loads(json.dumps(value))}
        except CellEnd:
            self._ended = True
            return {"exception": KeyboardInterrupt()}  # `except Exception` does not stop it
        except Exception as error:  # noqa: BLE001 - the boundary to the host's functions: the code is told
            kinds = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in self._kinds)
            return {"exc_type": next(kinds, "RuntimeError"), "message": str(error)}

    async def _cancel_calls(self) -> None:
        calls, self._calls = self._calls, {}
        for task in calls.values():
            task.cancel()
        if calls:
            await asyncio.wait(calls.values())


_CALL = "_redraft_echo(("


def echoed(code: str) -> str:
    """The cell with its last expression shown, on the lines that it had."""
    try:
        last = ast.parse(code).body[-1:]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code  # the sandbox says what is wrong
    if not last or not isinstance(last[0], ast.Expr):
        return code
    value = last[0].value
    if value.end_lineno is None or value.end_col_offset is None:
        return code
    lines = code.encode().splitlines(keepends=True)
    first, end = value.lineno - 1, value.end_lineno - 1
    lines[end] = lines[end][: value.end_col_offset] + b"))" + lines[end][value.end_col_offset :]
    lines[first] = lines[first][: value.col_offset] + _CALL.encode() + lines[first][value.col_offset :]
    return b"".join(lines).decode()


def _without_echo(traceback: str) -> str:
    """A traceback with the code as it was written, its marks below what they mark."""
    lines = traceback.splitlines()
    for i, line in enumerate(lines):
        if _CALL not in line:
            continue
        at = line.index(_CALL)
        lines[i] = line.replace(_CALL, "", 1).removesuffix("))")
        below = lines[i + 1] if i + 1 < len(lines) else ""
        if below.strip(" ~^") == "" and len(below) > at + len(_CALL):
            lines[i + 1] = below[:at] + below[at + len(_CALL) :]
    return "\n".join(lines)


ECHO = """
def _redraft_echo(value):
    if value is not None:
        said = repr(value)
        print(said if len(said) <= 20_000 else said[:20_000] + '... (' + str(len(said)) + ' characters)')
"""
