"""A batch at work: items are read as they are needed, done by a fixed number of workers, and handed out as they end.

Of an item nothing stays but what is handed out: its journal goes with its run. One meter stands over all.
"""

from __future__ import annotations

import asyncio
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
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from itertools import count, islice
from typing import Any

from redraft.batch.cluster import Cluster, Pool
from redraft.batch.item import BatchItem, Row, Rows
from redraft.batch.log import Log
from redraft.batch.one import Doing, Outcome
from redraft.batch.remote import Common
from redraft.budget import Budget, Meter
from redraft.config import check_fits, settings, store_in_force
from redraft.errors import BudgetExceeded, InputError, RunFailed, UsageError
from redraft.frame import current_frame, entered
from redraft.journal import Journal, new_run_id
from redraft.protocols import Store
from redraft.run import Run
from redraft.sync import being_cancelled, run_sync, to_its_end
from redraft.types import Event, Prediction, Usage

Items = Iterable[Any] | AsyncIterable[Any]
"""Mappings of a module's inputs, or examples."""

_READ_AHEAD = 64
_Placed = tuple[int, BatchItem] | Exception | None


class Batch:
    """Many items through one module, each a run of its own: `async for item in Batch(module).as_completed(items)`.

    `concurrency` items are worked on at once. `budget` is for all together, `item_budget` for each. With a `store`, a
    batch of the same `batch_id` goes on where it was, in another process too, and buys no committed reply again. Inside
    another run, it is part of that one. `fields`: which of an item's fields are inputs (default: all but `id`). With a
    `cluster`, or its address, the items are done by the workers of a Ray cluster.

    Raises `UsageError` for what cannot be: on a cluster, a module that cannot be pickled (it names the part).
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
        cluster: Cluster | str | None = None,
    ) -> None:
        check_fits({"budget": budget or Budget(), "store": store})
        check_fits({"budget": item_budget or Budget()})
        if not isinstance(concurrency, int) or concurrency < 1:
            raise InputError(f"concurrency={concurrency!r}: give how many items are worked on at once, 1 or more")
        if batch_id is not None and not re.fullmatch(r"[^:~\s][^:~]*", batch_id):
            raise InputError(f"batch_id={batch_id!r}: give a name without ':' and '~'")
        self.module = module
        self.concurrency = concurrency
        self.item_budget = _tighter(item_budget, getattr(module, "budget", None))
        frame = current_frame()
        self._outer = Run(budget=budget) if frame else None
        self.store = None if frame else store_in_force(store)
        self.batch_id = batch_id or new_run_id()
        self.log = Log(self.store, self.batch_id)
        self.whole = self._outer.meter if self._outer else Meter(budget)
        self._rows: Callable[[], Rows] = lambda: Rows(module, self.log.name, fields)
        self._pool = None if cluster is None else self._on(Cluster(cluster) if isinstance(cluster, str) else cluster)
        self._stopped = self._begun = False
        self.retry = False
        """Ask again for what the model has refused for good, or never answered in the form that was asked for."""
        self._over: BudgetExceeded | None = None

    def _on(self, cluster: Cluster) -> Pool:
        if self._outer:
            raise UsageError("a batch inside a run is part of that run, in its process: leave out the cluster")
        cluster.check(self.module)
        told = Journal(None, "batch", settings().listeners)
        return Pool(cluster, Common(whole=self.whole, store=self.store, tell=told.tell))

    @property
    def usage(self) -> Usage:
        """What all items spent so far, in earlier processes too."""
        return self.whole.usage

    @property
    def over(self) -> BudgetExceeded | None:
        """The whole batch's limit, once it has ended the batch."""
        return self._over

    @property
    def workers(self) -> list[int]:
        """The process numbers of the cluster's workers that are up, each on its own machine; empty without a cluster."""
        return [] if self._pool is None else self._pool.pids

    def stop(self) -> None:
        """Begin no further items; from any thread. Those that are under way go on to their end."""
        self._stopped = True

    def connect(self) -> None:
        """Find the cluster, or start one; nothing without. `begin` does it where it was not done. Raises `ConfigError`.

        A cluster that is started ends with the thread that called this.
        """
        if self._pool is not None:
            self._pool.connect()

    async def begin(self, spec: Mapping[str, Any] | None = None, *, afresh: bool = False) -> None:
        """Record that the batch begins, and count what it has spent before. `spec`: JSON values that say what it is made
        of; `afresh` forgets what there was. `as_completed` does it where it was not done.
        """
        self._begun = True
        self.connect()
        await self.log.begin(settings().seed, spec or {}, afresh=afresh)
        if not self._outer:
            self.whole.preload(self.log.usage, self.log.seconds)

    async def as_completed(
        self, items: Items, *, ordered: bool = False, skip: Callable[[str], bool] | None = None
    ) -> AsyncGenerator[BatchItem]:
        """The items in the order in which they end, or, `ordered`, in the input's: then few more than `concurrency` are held
        back behind one that takes long. `skip`: told the id of an item's run, it says whether that item is left out.

        An item's error is part of it. Once the whole batch's budget has ended, the rest comes as "not_begun". Closing the
        iterator cancels what is under way. Raises what reading the items raises, `StoreError` and `ClusterError`, after what
        had begun.
        """
        if not self._begun:
            await self.begin()
        if self._pool is not None:
            self._pool.open(self._doing())
        source = _Source(items, self, skip, min(_READ_AHEAD, max(1, self.concurrency // 4)))
        room = asyncio.Semaphore(self.concurrency + max(self.concurrency, _READ_AHEAD))
        ended: asyncio.Queue[_Placed] = asyncio.Queue()
        workers = [asyncio.ensure_future(self._work(source, room, ended)) for _ in range(self.concurrency)]
        how: str | None = None
        try:
            async for item in _in_order(ended, len(workers), ordered=ordered):
                room.release()
                yield item
            how = "budget" if self._over else "cancelled" if self._stopped else "done"
        except Exception:
            how = "error"
            raise
        finally:
            await to_its_end(self._close(workers, how))

    async def _close(self, workers: Sequence[asyncio.Future[None]], how: str | None) -> None:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        if self._outer:
            self._outer._close()
        if self._pool is not None:
            await self._pool.close()
        await self.log.close(how)

    async def _work(self, source: _Source, room: asyncio.Semaphore, ended: asyncio.Queue[_Placed]) -> None:
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
        outcome = await self._outcome(row)
        value, error, usage = outcome.value, outcome.error, outcome.usage
        if outcome.reached is not None:
            self._over = self._over or outcome.reached
            return _ended(row, "cut_off", value, error, usage)
        self.log.ended(row.run_id, usage)
        return _ended(row, "failed" if value is None else "done", value, error, usage)

    async def _outcome(self, row: Row) -> Outcome:
        store = self.log.store_for(row.run_id)
        if self._pool is not None:
            return await self._pool.do(row, store.read(row.run_id) if store else [])
        doing = self._doing()
        if self._outer:
            with entered(self._outer._frame):
                run = Run(budget=self.item_budget)
        else:
            run = doing.run(row, store, self.whole)
        return await doing.outcome(run, row, self.whole)

    def _doing(self) -> Doing:
        return Doing(
            module=self.module,
            batch_id=self.batch_id,
            budget=self.item_budget,
            seed=self.log.seed,
            retry=self.retry,
        )


class _Source:
    """The rows, read when they are needed: all workers' one place to take from."""

    def __init__(self, items: Items, batch: Batch, skip: Callable[[str], bool] | None, at_once: int) -> None:
        self._items: Iterator[Any] | AsyncIterator[Any]
        self._items = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        self._rows, self._log, self._skip = batch._rows(), batch.log, skip
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
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            self._end, self._failure = True, RunFailed("reading the items was cancelled from inside; not all were read")
        except Exception as error:  # noqa: BLE001 - user code reads: what came before it failed is worked on first
            self._end, self._failure = True, error
        wanted = [row for row in read if self._skip is None or not self._skip(row.run_id)]
        if wanted:
            await self._log.begun([row.run_id for row in wanted if row.wrong is None])
        self._ahead.extend(replace(row, place=next(self._places)) for row in wanted)


async def _in_order(ended: asyncio.Queue[_Placed], workers: int, *, ordered: bool) -> AsyncIterator[BatchItem]:
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
