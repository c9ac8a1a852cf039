"""Several attempts at the same time: each is settled as it ends, and the first that is good enough cancels the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from redraft.errors import BudgetExceeded, RunClosed
from redraft.run import Run
from redraft.sync import leave_behind
from redraft.types import Attempt, StopReason

Start = Callable[[int], Coroutine[Any, Any, Attempt]]
Settle = Callable[[Attempt], Awaitable[StopReason | None]]

_GOODBYE = 0.05  # seconds for a cancelled attempt to close its connection


async def together(run: Run, starts: Sequence[Start], settle: Settle, *, width: int) -> StopReason | None:
    """Begin the attempts in order, at most `width` under way at once; returns the reason if one was good enough.

    On a resume those on record are settled first, one by one in their old order, before anything new is begun.
    A limit that ends one attempt begins no more, waits for those under way, and is raised when they are settled.
    """
    numbers, on_record = run.reserve(len(starts))
    first = min(numbers)
    waiting = [(n, starts[n - first]) for n in numbers]
    alone = len(waiting) if width == 1 else on_record
    if (stop := await _one_by_one(waiting[:alone], settle)) is not None:
        return stop
    return await _Crowd(run, settle).work_off(waiting[alone:], width)


async def _one_by_one(waiting: Sequence[tuple[int, Start]], settle: Settle) -> StopReason | None:
    for number, start in waiting:
        if (stop := await settle(await start(number))) is not None:
            return stop
    return None


class _Crowd:
    def __init__(self, run: Run, settle: Settle) -> None:
        self.run = run
        self.settle = settle
        self.under_way: dict[asyncio.Task[Attempt], int] = {}
        self.ended: BudgetExceeded | RunClosed | None = None

    async def work_off(self, waiting: list[tuple[int, Start]], width: int) -> StopReason | None:
        """Begin, wait for any, settle, until one is good enough or none is left."""
        try:
            while (waiting and self.ended is None) or self.under_way:
                while waiting and len(self.under_way) < width and self.ended is None:
                    number, start = waiting.pop(0)
                    self.under_way[asyncio.ensure_future(start(number))] = number
                done, _ = await asyncio.wait(self.under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=self.under_way.__getitem__):
                    if (stop := await self._settled(task)) is not None:
                        return stop
        finally:
            await self._cancel_rest()
        if self.ended is not None:
            raise self.ended
        return None

    async def _settled(self, task: asyncio.Task[Attempt]) -> StopReason | None:
        del self.under_way[task]
        try:
            attempt = task.result()
        except (BudgetExceeded, RunClosed) as error:
            self.ended = error
            return None
        return await self.settle(attempt)

    async def _cancel_rest(self) -> None:
        if not self.under_way:
            return
        await asyncio.gather(*(leave_behind(task, _GOODBYE) for task in self.under_way))
        best = self.run.best
        why = f"cancelled: draft {best.index + 1} was good enough first" if best is not None else "cancelled"
        losers = set(self.under_way.values())
        for attempt in self.run.attempts:
            if attempt.index in losers and not attempt.reason:
                self.run.reject(attempt, why)
        self.under_way.clear()
