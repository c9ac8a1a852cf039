"""A batch at work: items are read as they are needed, done by a fixed number of workers, and handed out as they end.

Of an item nothing stays but what is handed out: its journal goes with its run. One meter stands over all.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from dataclasses import replace
from itertools import count, islice
from typing import Any

from redraft.batch.item import BatchItem, Row, Rows
from redraft.batch.log import Log
from redraft.budget import Budget, Meter
from redraft.config import check_fits, settings, store_in_force
from redraft.errors import BudgetExceeded, DivergedError, InputError, StoreError
from redraft.frame import current_frame, entered
from redraft.journal import Journal, new_run_id
from redraft.jsonable import showable
from redraft.protocols import Store
from redraft.record import derived_seed, spec_of
from redraft.result import Result
from redraft.run import Run
from redraft.sync import run_sync
from redraft.types import Event, Prediction, Usage

Items = Iterable[Any] | AsyncIterable[Any]
"""Mappings of a module's inputs, or examples."""

_READ_AHEAD = 64
_Outcome = tuple[int, BatchItem] | Exception | None


class Batch:
    """Many items through one module, each a run of its own: `async for item in Batch(module).as_completed(items)`.

    `concurrency` items are worked on at once. `budget` is for all together, `item_budget` for each. With a `store`, a
    batch of the same `batch_id` goes on where it was, in another process too, and buys no committed reply again. Inside
    another run, it is part of that one. `fields`: which of an item's fields are inputs (default: all but `id`). `skip`:
    told the id of an item's run, it says whether that item is left out.
    """

    def __init__(
        self,
        module: Any,
        *,
        concurrency: int = 32,
        budget: Budget | None = None,
        item_budget: Budget | None = None,
        store: Store | None = None,
        batch_id: str | None = None,
        fields: Collection[str] | None = None,
        skip: Callable[[str], bool] | None = None,
    ) -> None:
        check_fits({"budget": budget or Budget(), "store": store})
        check_fits({"budget": item_budget or Budget()})
        if not isinstance(concurrency, int) or concurrency < 1:
            raise InputError(f"concurrency={concurrency!r}: give how many items are worked on at once, 1 or more")
        if batch_id is not None and not re.fullmatch(r"[^:~\s][^:~]*", batch_id):
            raise InputError(f"batch_id={batch_id!r}: give a name without ':' and '~'")
        self.module = module
        self._steps = inspect.iscoroutinefunction(getattr(module, "steps", None)) and hasattr(module, "bind")
        self.concurrency = concurrency
        self.item_budget = _tighter(item_budget, getattr(module, "budget", None))
        frame = current_frame()
        self._outer = Run(budget=budget) if frame else None
        self.store = None if frame else store_in_force(store)
        self.batch_id = batch_id or new_run_id()
        self.log = Log(self.store, self.batch_id)
        self.whole = self._outer.meter if self._outer else Meter(budget)
        self._rows: Callable[[], Rows] = lambda: Rows(module, self.log.name, fields)
        self._skip = skip
        self._stopped = self._begun = False
        self._over: BudgetExceeded | None = None

    @property
    def usage(self) -> Usage:
        """What all items spent so far, in earlier processes too."""
        return self.whole.usage

    @property
    def over(self) -> BudgetExceeded | None:
        """The whole batch's limit, once it has ended the batch."""
        return self._over

    def stop(self) -> None:
        """Begin no further items; from any thread. Those that are under way go on to their end."""
        self._stopped = True

    async def begin(self, spec: Mapping[str, Any] | None = None, *, afresh: bool = False) -> None:
        """Record that the batch begins, and count what it has spent before. `spec`: JSON values that say what it is made
        of; `afresh` forgets what there was. `as_completed` does it where it was not done.
        """
        self._begun = True
        await self.log.begin(settings().seed, spec or {}, afresh=afresh)
        if not self._outer:
            self.whole.preload(self.log.usage, self.log.seconds)

    async def as_completed(self, items: Items, *, ordered: bool = False) -> AsyncGenerator[BatchItem]:
        """The items in the order in which they end, or, `ordered`, in the input's: then few more than `concurrency` are held
        back behind one that takes long.

        An item's error is part of it. Once the whole batch's budget has ended, the rest comes as "not_begun". Closing the
        iterator cancels what is under way. Raises what reading the items raises, and `StoreError`, after what had begun.
        """
        if not self._begun:
            await self.begin()
        source = _Source(items, self, min(_READ_AHEAD, max(1, self.concurrency // 4)))
        room = asyncio.Semaphore(self.concurrency + max(self.concurrency, _READ_AHEAD))
        ended: asyncio.Queue[_Outcome] = asyncio.Queue()
        workers = [asyncio.ensure_future(self._work(source, room, ended)) for _ in range(self.concurrency)]
        try:
            async for item in _in_order(ended, len(workers), ordered=ordered):
                room.release()
                yield item
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            if self._outer:
                self._outer._close()
            await self.log.close()

    async def _work(self, source: _Source, room: asyncio.Semaphore, ended: asyncio.Queue[_Outcome]) -> None:
        try:
            while True:
                await room.acquire()
                if self._stopped or (row := await source.next()) is None:
                    break
                ended.put_nowait((row.place, await self._item(row)))
        except Exception as error:  # noqa: BLE001 - reading the items is user code: it is raised to the caller
            self.stop()
            ended.put_nowait(error)
        finally:
            ended.put_nowait(None)

    async def _item(self, row: Row) -> BatchItem:
        if row.wrong is not None:
            return _ended(row, "failed", error=row.wrong)
        if self._over is not None:
            return _ended(row, "not_begun", error=self._over)
        run = self._run(row)
        value, error = await self._tried(run, row)
        reached = self.whole.ended_by(error) if error is not None else None
        if isinstance(reached, BudgetExceeded) and reached.of in self.whole._chain:
            self._over = self._over or reached
            return _ended(row, "cut_off", value, error, run.usage)
        self.log.ended(row.run_id, run.usage)
        return _ended(row, "failed" if value is None else "done", value, error, run.usage)

    def _run(self, row: Row) -> Run:
        if self._outer:
            with entered(self._outer._frame):
                return Run(budget=self.item_budget)
        seed = derived_seed(self.log.seed, row.key)
        store = self.log.store_for(row.run_id)
        run = Run(budget=self.item_budget, store=store, run_id=row.run_id, seed=seed, around=self.whole)
        run.journal.spec = {**spec_of(self.module, row.inputs), "batch": self.batch_id}
        return run

    async def _tried(self, run: Run, row: Row) -> tuple[Prediction | None, Exception | None]:
        """What comes of it: a value, an error, or the best so far and what ended it early."""
        try:
            if self._steps:
                result: Any = await run.execute(self.module, self.module.bind(row.inputs))
                return _without_events(result), result.error
            async with run:
                return await self.module.acall(**row.inputs), None
        except DivergedError as error:
            return None, error
        except StoreError:
            raise  # no other item fares better
        except Exception as error:  # noqa: BLE001 - user code: an item's error is a row
            return None, showable(error)


class _Source:
    """The rows, read when they are needed: all workers' one place to take from."""

    def __init__(self, items: Items, batch: Batch, at_once: int) -> None:
        self._items: Iterator[Any] | AsyncIterator[Any]
        self._items = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        self._rows, self._log, self._skip = batch._rows(), batch.log, batch._skip
        self._at_once = at_once
        self._places = count()
        self._ahead: deque[Row] = deque()
        self._reading = asyncio.Lock()
        self._end = False
        self._failure: Exception | None = None

    async def next(self) -> Row | None:
        while not self._ahead:
            async with self._reading:
                if self._ahead:
                    continue
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._end:
                    return None
                await self._read()
        return self._ahead.popleft()

    async def _read(self) -> None:
        """Read on, and put on record what was read before anybody works on it: as many as are there at once, but one of those
        that come by and by.
        """
        read: list[Row] = []
        try:
            if isinstance(self._items, AsyncIterator):
                read.append(self._rows.row(await anext(self._items)))
            else:
                read.extend(map(self._rows.row, islice(self._items, self._at_once)))
                self._end = not read
        except StopAsyncIteration:
            self._end = True
        except Exception as error:  # noqa: BLE001 - user code reads: what came before it failed is worked on first
            self._end, self._failure = True, error
        wanted = [row for row in read if self._skip is None or not self._skip(row.run_id)]
        if wanted:
            await self._log.begun([row.run_id for row in wanted if row.wrong is None])
        self._ahead.extend(replace(row, place=next(self._places)) for row in wanted)


async def _in_order(ended: asyncio.Queue[_Outcome], workers: int, *, ordered: bool) -> AsyncIterator[BatchItem]:
    """Items until all workers have ended, then the first error of theirs."""
    failure: Exception | None = None
    held: dict[int, BatchItem] = {}
    at = 0
    while workers:
        outcome = await ended.get()
        if outcome is None:
            workers -= 1
        elif isinstance(outcome, Exception):
            failure = failure or outcome
        elif not ordered:
            yield outcome[1]
        else:
            held[outcome[0]] = outcome[1]
            while at in held:
                yield held.pop(at)
                at += 1
    for _, item in sorted(held.items()):  # behind one that was lost to a failure
        yield item
    if failure is not None:
        raise failure


def _ended(
    row: Row, status: Any, result: Prediction | None = None, error: Exception | None = None, usage: Usage | None = None
) -> BatchItem:
    return BatchItem(
        index=row.index,
        key=row.key,
        item=row.item,
        inputs=row.inputs,
        run_id=row.run_id,
        status=status,
        result=result,
        error=error,
        usage=usage or Usage(),
    )


def _without_events(result: Result) -> Result:
    parts = {name: getattr(result, name) for name in ("attempts", "stop_reason", "usage", "run_id", "error")}
    return Result(result.best, events=(), **parts)


def _tighter(a: Budget | None, b: Budget | None) -> Budget | None:
    """Both budgets' limits in one; None for neither."""
    if a is None or b is None:
        return a or b
    both = {name: (getattr(a, name), getattr(b, name)) for name in Budget.__dataclass_fields__}
    return Budget(**{name: min((v for v in two if v is not None), default=None) for name, two in both.items()})


async def batch_as_completed(
    module: Any, items: Items, *, ordered: bool = False, **options: Any
) -> AsyncIterator[BatchItem]:
    """See `Module.abatch_as_completed`."""
    async with aclosing(Batch(module, **options).as_completed(items, ordered=ordered)) as ended:
        async for item in ended:  # closing this one closes that one: nothing is under way then
            yield item


def batch(
    module: Any,
    items: Items,
    *,
    ordered: bool = True,
    on_result: Callable[[BatchItem], None] | None = None,
    **options: Any,
) -> list[BatchItem]:
    """See `Module.batch`."""

    async def collect() -> list[BatchItem]:
        # As a journal's listener, so that one that fails is dropped and said, and hurts nothing.
        told = Journal(None, "batch", [lambda event: on_result(event.data["item"])] if on_result else [])
        done: list[BatchItem] = []
        async for item in Batch(module, **options).as_completed(items, ordered=ordered):
            done.append(item)
            told.tell(Event(seq=-1, kind="item", time=0.0, data={"item": item}))
        return done

    frame = current_frame()
    return run_sync(collect, home=frame.run.loop if frame else None)
