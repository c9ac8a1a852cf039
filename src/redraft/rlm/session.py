"""The REPL of one call: cells that are run once, and run again only to bring their variables back.

What a cell came to is on record as a step. A resumed run shows the model what it saw before and runs nothing; only when
the first cell without a record has to run are those before it run again, with the recorded answers of what they asked
for. The same brings variables back when the sandbox ended with a cell.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redraft.frame import Advice, Frame, recorded
from redraft.modules.calls import cut
from redraft.protocols import CellResult, HostFunction, Interpreter
from redraft.record import digest
from redraft.rlm.answers import Cell, Limit, Outcome, Work, added
from redraft.rlm.variables import stamp
from redraft.sync import leave_behind

_GRACE = 1.0  # seconds for a cell to end by itself once nothing of it is wanted
_GOODBYE = 2.0  # seconds for a sandbox to close

Step = dict[str, Any]
"""One turn as the trajectory shows it: JSON."""


@dataclass(frozen=True, slots=True)
class _Past:
    """A cell that has been run: what has to be done again to have its variables back."""

    name: str
    """Of its record: its place and a hash of its code, so that other code is another cell."""
    code: str
    error: str
    lost: bool
    before: int
    """Sub-calls made before it."""


class Session:
    """One call's sandbox, which shows at most `most` characters of a cell. `close` it when the call ends."""

    def __init__(
        self,
        interpreter: Interpreter,
        frame: Frame,
        variables: Mapping[str, Any],
        limit: Limit,
        *,
        most: int,
    ) -> None:
        self.interpreter, self.variables, self.limit = interpreter, variables, limit
        # What the author is told is no business of a cell's.
        self.frame = replace(frame, advice=Advice(lm=frame.advice.lm))
        self.functions: dict[str, HostFunction] = {}
        self.cell: Cell | None = None
        """The one at work."""
        self.history: list[dict[str, str]] | None = None
        """Once old turns are not shown in full any more: all of them, for the variable `history`."""
        self.history_name = "history"
        self._most = most
        self._known: dict[tuple[int, str, int], Outcome] = {}
        self._past: list[_Past] = []
        self._live = 0
        """Cells whose variables the sandbox has, once it was started."""
        self._started = False
        self._files = {name: stamp(name, value) for name, value in variables.items() if isinstance(value, Path)}

    def offer(self, works: Mapping[str, Work]) -> None:
        """The functions that the code may call."""
        for name, work in works.items():
            self.functions[name] = self._function(name, work)

    def _function(self, name: str, work: Work) -> HostFunction:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.cell is None:
                raise RuntimeError(f"{name} was called when no cell was at work")
            return await self.cell.ask(name, work, args, kwargs)

        return call

    async def start(self) -> None:
        """Begin with the inputs alone. Raises `SandboxError`."""
        self._started = False
        await self._timed(self.interpreter.start(self.variables, self.functions))
        self._started, self._live = True, 0

    async def run(self, reply: Mapping[str, str], status: Callable[[Step], Mapping[str, Any]], *, last: bool) -> Step:
        """Run one cell, or find what it came to on record. `reply` holds the code and what was thought; `status` adds to
        the step what has to be recorded with it.
        """
        index = len(self._past)
        before = self.limit.used

        async def live() -> Step:
            step = {**reply, **await self._ran(index, name, reply["code"], last=last)}
            return {**step, **status(step)}

        name = f"cell[{index}]:{digest(reply['code'])}"
        fresh = False

        def ready() -> None:
            nonlocal fresh
            fresh = True
            self.frame.run.check_open()
            self.frame.meter.check_time()

        step = dict(await recorded(self.frame, name, live, ready=ready))
        if not fresh:
            self.limit.count(int(step["sub_calls"]))
        self._past.append(_Past(name, reply["code"], step["error"], step["lost"], before))
        if fresh and self._started:
            self._live = len(self._past)  # a lost cell left nothing, and what was before it is back
        return step

    async def _ran(self, index: int, name: str, code: str, *, last: bool) -> Step:
        trouble = await self._caught_up(index)
        began, before = time.perf_counter(), self.limit.used
        cell = self._cell(index, name, self.limit)
        result = await self._executed(cell, code)
        output = "\n".join(filter(None, (trouble, result.output)))
        if result.lost:
            self._started = False
        if result.lost and cell.submitted is None:
            output = f"{output}\n{await self._after_loss(index, result.error, last=last)}".lstrip("\n")
        step: Step = {
            "output": cut(output, self._most),
            "error": result.error,
            "lost": result.lost,
            "calls": cell.listed(),
            "usage": added([entry["usage"] for entry in cell.entries if "usage" in entry]),
            "seconds": round(time.perf_counter() - began, 3),
            "sub_calls": self.limit.used - before,
        }
        return step if cell.submitted is None else {**step, "submitted": cell.submitted}

    def _cell(self, index: int, name: str, limit: Limit) -> Cell:
        inside = self.frame.step(f"{self.frame.scope}|step:{name}|1")
        return Cell(index, inside, limit, self._known)

    async def _executed(self, cell: Cell, code: str) -> CellResult:
        """Run code as a cell until it ends, or nothing of it is wanted. Raises what ended the run in it."""
        self.cell = cell
        work = asyncio.ensure_future(self.interpreter.execute(code))
        over = asyncio.ensure_future(cell.over.wait())
        try:
            left = self.frame.meter.seconds_left
            await asyncio.wait({work, over}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and over.done():
                await asyncio.wait({work}, timeout=_GRACE)
            if not work.done() and not over.done():
                raise self.frame.meter.out_of_time(", while a cell was at work")
            if work.done() and cell.ended is None:
                result = work.result()
                await cell.settle()
                if cell.ended is None:
                    return result
            if cell.ended is not None:
                raise cell.ended
            return CellResult(error="", lost=True)  # it went on after its SUBMIT: cut off
        finally:
            over.cancel()
            cell.over.set()
            if not work.done():
                self._started = False
                await leave_behind(work, _GOODBYE)
            await cell.settle()
            self.cell = None

    # Bringing variables back

    async def _caught_up(self, index: int) -> str:
        """Have the variables of the cells before this one; what could not be had, in words for the model."""
        if self._started and self._live == index:
            return ""
        if not index:
            if not self._started:
                await self.start()
            return ""
        return await self._restored(index)

    async def _after_loss(self, index: int, why: str, *, last: bool) -> str:
        said = f"[The cell was ended: {why}." if why else "[The cell was ended."
        if last:
            return f"{said}]"
        trouble = await self._restored(index)
        return f"{said} {trouble or 'Your variables are what they were before it.'}]"

    async def _restored(self, index: int) -> str:
        """Start anew and run again all cells before this one; empty, or what is not as it was."""
        await self.start()
        odd = [
            f"the file of `{name}` has changed"
            for name, was in self._files.items()
            if stamp(name, self.variables[name]) != was
        ]
        for at, past in enumerate(self._past[:index]):
            if past.lost:
                continue
            # What it asks anew, it asks within the bounds it had: on record is what it was answered.
            bounds = Limit(self.limit.most)
            bounds.used = past.before
            result = await self._executed(self._cell(at, past.name, bounds), past.code)
            if result.lost:
                await self.start()
                self._live = index
                return (
                    f"Your variables are gone: bringing them back failed in turn {at + 1} ({result.error}). "
                    "Only the inputs are there; define again what you need."
                )
            if result.error != past.error:
                odd.append(f"turn {at + 1} ({result.error or 'no error'}, before: {past.error or 'none'})")
        self._live = index
        if self.history is not None:
            await self._put_history()
        if odd:
            return f"Your variables were made again, but not all is as it was: {'; '.join(odd)}. Check them."
        return ""

    async def remember(self, history: list[dict[str, str]]) -> None:
        """Give the code all turns so far as the variable `history`, now and after each loss."""
        self.history = history
        if self._started:
            await self._put_history()

    async def _put_history(self) -> None:
        code = f"{self.history_name} = {self.history!r}"
        result = await self._executed(Cell(-1, self.frame, Limit(0), {}), code)
        if result.lost:
            self._started = False

    async def _timed(self, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self.frame.meter.seconds_left):
                await work
        except TimeoutError as late:
            left = self.frame.meter.seconds_left
            if left is None or left > 0:
                raise
            raise self.frame.meter.out_of_time(", while the sandbox was started") from late

    async def close(self) -> None:
        """End the sandbox; waits for it even if the call is being cancelled."""
        self._started = False
        work = asyncio.ensure_future(self.interpreter.close())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work}, timeout=_GOODBYE)
            raise
