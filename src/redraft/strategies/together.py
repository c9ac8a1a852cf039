"""Several attempts at the same time: each is settled as it ends, and the first that is good enough cancels the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from redraft.errors import BudgetExceeded, RunClosed, RunFailed
from redraft.run import Run
from redraft.sync import leave_behind
from redraft.types import Attempt, StopReason

Start = Callable[[int], Coroutine[Any, Any, Attempt]]

_GOODBYE = 0.05  # seconds for a cancelled attempt to close its connection


class Settler(Protocol):
    """What becomes of an attempt that has ended."""

    async def settle(self, tried: Attempt) -> StopReason | None:
        """Keep it or not, and mend it where that helps. A reason if it is good enough; raises if too many have failed."""

    def keep(self, tried: Attempt) -> StopReason | None:
        """Keep it or not, at once."""


async def together(run: Run, starts: Sequence[Start], settler: Settler, *, width: int) -> StopReason | None:
    """Begin the attempts in order, at most `width` under way at once; returns the reason if one was good enough.

    They are settled in the order in which they end. On a resume those on record are settled first, one by one in their
    old order, before anything new is begun. What ends one attempt (a limit, one failure too many) begins no more, waits
    for those under way, and is raised when they are settled.
    """
    numbers, on_record = run.reserve(len(starts))
    first = min(numbers)
    waiting = [(n, starts[n - first]) for n in numbers]
    alone = len(waiting) if width == 1 else on_record
    for number, start in waiting[:alone]:
        if (stop := await settler.settle(await start(number))) is not None:
            return stop
    return await _Crowd(run, settler).work_off(waiting[alone:], width)


class _Crowd:
    def __init__(self, run: Run, settler: Settler) -> None:
        self.run = run
        self.settler = settler
        self.under_way: dict[int, asyncio.Task[Attempt]] = {}
        self.over: list[int] = []
        """Those that have ended and are not settled, in the order in which they ended: on a resume it is the same."""
        self.ended: Exception | None = None

    async def work_off(self, waiting: list[tuple[int, Start]], width: int) -> StopReason | None:
        """Begin, wait for any, settle, until one is good enough or none is left."""
        stop: StopReason | None = None
        try:
            while stop is None and ((waiting and self.ended is None) or self.under_way):
                while waiting and len(self.under_way) < width and self.ended is None:
                    self._begin(*waiting.pop(0))
                await asyncio.wait(self.under_way.values(), return_when=asyncio.FIRST_COMPLETED)
                while self.over and stop is None:
                    stop = await self._settled(self.over.pop(0))
        finally:
            await self._let_go(good=stop is not None)
        if stop is None and self.ended is not None:
            raise self.ended
        return stop

    def _begin(self, number: int, start: Start) -> None:
        task = asyncio.ensure_future(start(number))
        task.add_done_callback(lambda _: self.over.append(number))
        self.under_way[number] = task

    async def _settled(self, number: int) -> StopReason | None:
        task = self.under_way.pop(number)
        if task.cancelled():
            self.ended = RunFailed(f"attempt {number + 1} was cancelled from inside")
            return None
        try:
            attempt = task.result()
        except (BudgetExceeded, RunClosed) as error:
            self.ended = error
            return None
        own = () if attempt.error is None else (type(attempt.error),)
        try:
            return await self.settler.settle(attempt)
        except own as error:
            if error is not attempt.error:
                raise
            self.ended = error  # one failure too many; what is under way is paid for
            return None

    async def _let_go(self, *, good: bool) -> None:
        """Cancel what is under way. What has ended is kept if it is better, unless another was good enough before."""
        if not self.under_way:
            return
        losers = set(self.under_way)
        late = {n for n, task in self.under_way.items() if task.done()}
        await asyncio.gather(*(leave_behind(task, _GOODBYE) for task in self.under_way.values()))
        best = self.run.best
        first = f": draft {best.index + 1} was good enough first" if good and best is not None else ""
        for attempt in self.run.attempts:
            if attempt.index not in losers or attempt.reason:
                continue
            if attempt.index not in late:
                self.run.reject(attempt, f"cancelled{first}")
            elif good or attempt.error is not None:
                self.run.reject(attempt, f"not looked at{first}")
            else:
                self.settler.keep(attempt)
        self.under_way.clear()
