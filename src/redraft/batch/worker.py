"""A worker of a cluster: an actor that does rows, and has all that is common from its driver.

The driver fetches what the worker wants, in the order in which that was said, so that a reply's settlement and its record
arrive together or not at all. A worker sends nothing to a model before the driver has said that the intent is on record.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from itertools import count
from typing import Any

from redraft import __version__
from redraft.batch.item import Row
from redraft.batch.one import Doing, Outcome
from redraft.batch.portable import packed, sendable, sendable_error, unpacked
from redraft.budget import Ask, Budget, Meter, Price, Reservation, _Tally
from redraft.config import configure
from redraft.errors import BudgetExceeded, RunFailed, StoreError, UsageError
from redraft.turns import Gate, Upstream, gates_elsewhere
from redraft.types import Event, Usage

Want = tuple[str, int | None, tuple[Any, ...]]
"""A kind, a number for its answer (None: there is none), and what goes with the kind."""
NOTHING = Usage()


class Line:
    """The way to the driver. Wants may come from any thread and loop; they are fetched from the actor's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wants: deque[Want] = deque()
        self._some = asyncio.Event()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count()

    def tell(self, kind: str, *what: Any) -> None:
        """Say what needs no answer."""
        self._put((kind, None, what))

    def ask(self, kind: str, *what: Any) -> tuple[int, asyncio.Future[Any]]:
        """Say what needs one; it comes as the future's result."""
        number = next(self._numbers)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        self._put((kind, number, what))
        return number, future

    async def granted(self, kind: str, *what: Any) -> tuple[int, Any]:
        """What the driver grants, and its number. Whoever is cancelled meanwhile has nothing: the driver takes it back."""
        number, future = self.ask(kind, *what)
        try:
            return number, await future
        except asyncio.CancelledError:
            self._open.pop(number, None)
            self.tell("forget", number, kind, what)
            raise

    def _put(self, want: Want) -> None:
        self._wants.append(want)
        if len(self._wants) == 1:
            self._loop.call_soon_threadsafe(self._some.set)

    async def fetch(self) -> list[Want]:
        """All wants since the last time; waits for one."""
        while not self._wants:
            self._some.clear()
            if not self._wants:  # a thread may have put one meanwhile
                await self._some.wait()
        await asyncio.sleep(0)  # whoever is ready has his say
        return [self._wants.popleft() for _ in range(len(self._wants))]

    def answer(self, answers: Sequence[tuple[int, bool, Any]]) -> None:
        """Hand out what came: a number, whether it went well, and the value or the error's bytes."""
        for number, well, what in answers:
            future = self._open.pop(number, None)
            if future is not None:
                _resolve(future, well, what)


def _resolve(future: asyncio.Future[Any], well: bool, what: Any) -> None:
    def do() -> None:
        if not future.done():
            if well:
                future.set_result(what)
            else:
                future.set_exception(unpacked(what))

    home = future.get_loop()
    if home is asyncio.get_running_loop():
        do()
    elif not home.is_closed():
        home.call_soon_threadsafe(do)


class FarStore:
    """The driver's store. Only the driver writes; of each run it has sent the record along."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.records: dict[str, list[Event]] = {}

    def append(self, run_id: str, events: Sequence[Event]) -> Awaitable[None]:
        """See `Store`: durable in the driver's."""
        try:
            data = pickle.dumps(tuple(events))
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError):
            try:
                data = packed(tuple(events), f"run {run_id}, its events")
            except UsageError as error:
                raise StoreError(str(error)) from error
        return self._line.ask("append", run_id, data)[1]

    def read(self, run_id: str) -> list[Event]:
        """See `Store`: what the driver had of the run when it was sent here."""
        return list(self.records.get(run_id, ()))

    def close(self) -> None:
        """Nothing is open here."""


class FarMeter(Meter):
    """The whole batch's meter, which is the driver's: nothing is limited here, each reservation is granted there."""

    def __init__(self, budget: Budget, line: Line) -> None:
        super().__init__(budget)
        self._above = self
        self._line = line
        self._prices: dict[int, Any] = {}
        """Whose prices the driver knows; kept, so that their numbers stay theirs."""

    def known(self, spent: Usage, seconds: float) -> None:
        """What the driver had spent a moment ago, and since when it works."""
        tally = _Tally()
        tally.add(spent)
        with self._lock:
            self._spent, self._started = tally, time.monotonic() - seconds

    def _rooms(self, ask: Ask) -> list[tuple[str, int]]:
        del ask
        return []

    async def granted(self, held: Reservation, ask: Ask) -> Reservation:
        """See `Above`."""
        if not self._limited:
            return held
        try:
            held.above, cap = await self._line.granted(
                "reserve", ask.prompt, held.cap, ask.n, self._known_price(ask.price)
            )
        except BudgetExceeded as error:
            error.of = self
            raise
        finally:
            if held.above is None:
                held.settle(NOTHING)
        if cap != held.cap:
            held._meter.shrink(held, ask, cap)
        return held

    def settled(self, held: Reservation, usage: Usage) -> None:
        """See `Above`."""
        if held.above is not None:
            self._line.tell("settle", held.above, usage)
        else:
            self.charged(usage)

    def charged(self, usage: Usage) -> None:
        """See `Above`."""
        if usage != NOTHING:
            self._line.tell("charge", usage)

    def _known_price(self, price: Price | None) -> int | None:
        """A number for it. The function itself goes to the driver once."""
        if price is None:
            return None
        owner = getattr(price, "__self__", price)
        if id(owner) not in self._prices:
            self._prices[id(owner)] = owner
            self._line.tell("price", id(owner), packed(price, f"the price function of {getattr(owner, 'name', owner)}"))
        return id(owner)


class FarGate(Gate):
    """One of the driver's gates."""

    def __init__(self, upstream: Upstream, line: Line) -> None:
        super().__init__(upstream[1])
        self._upstream = upstream
        self._line = line

    async def enter(self) -> int:
        """See `Gate`."""
        entered: int = (await self._line.granted("enter", self._upstream))[1]
        return entered

    def leave(self, entered: int | None = None) -> None:
        """See `Gate`."""
        self._line.tell("leave", self._upstream, entered)

    async def refused(self, entered: int, wait: float) -> tuple[bool, int, int]:
        """See `Gate`."""
        told: tuple[bool, int, int] = (await self._line.granted("refused", self._upstream, entered, wait))[1]
        return told


class Worker:
    """The actor. Its methods are what the driver calls."""

    async def begin(self, told: bytes) -> tuple[str, int]:
        """Learn what is done with each row. Returns this side's version, and the process's number."""
        paths, environment, chosen, doing, budget = unpacked(told)
        sys.path.extend(path for path in paths if path not in sys.path)
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        self._line = Line()
        self._store = FarStore(self._line)
        self._whole = FarMeter(budget, self._line)
        self._rows: dict[str, asyncio.Task[tuple[str, bytes]]] = {}
        self._given_up: set[str] = set()
        gates_elsewhere(lambda upstream: FarGate(upstream, self._line))
        configure(**unpacked(chosen), store=None, cache=None, listeners=())
        self._doing: Doing = unpacked(doing)
        return __version__, os.getpid()

    async def do(self, run_id: str, row: bytes) -> None:
        """Begin a row."""
        task = self._rows[run_id] = asyncio.ensure_future(self._do(run_id, row))
        task.add_done_callback(
            lambda done: self._ended(run_id, done)
        )  # also where it is given up before its first step
        if run_id in self._given_up:
            task.cancel()

    async def wants(self) -> list[Want]:
        """What this worker wants of the driver since the last time; waits for something."""
        return await self._line.fetch()

    async def answered(self, answers: Sequence[tuple[int, bool, Any]], spent: Usage, seconds: float) -> None:
        """The driver's answers, and where its meter stands."""
        self._whole.known(spent, seconds)
        self._line.answer(answers)

    async def cancel(self, run_id: str) -> None:
        """Give a row up: what is in flight is cut off and charged."""
        self._given_up.add(run_id)  # it may come before the row does
        if (task := self._rows.get(run_id)) is not None:
            task.cancel()

    def _ended(self, run_id: str, done: asyncio.Task[tuple[str, bytes]]) -> None:
        self._rows.pop(run_id, None)
        self._store.records.pop(run_id, None)
        self._line.tell("ended", run_id, *(("cancelled", b"") if done.cancelled() else done.result()))

    async def _do(self, run_id: str, data: bytes) -> tuple[str, bytes]:
        try:
            key, inputs, events, spent, seconds = unpacked(data)
            self._whole.known(spent, seconds)
            self._store.records[run_id] = events
            row = Row(index=0, key=key, item=None, inputs=inputs, run_id=run_id)
            run = self._doing.run(row, self._store, self._whole)
            return "done", sendable(await self._doing.outcome(run, row, self._whole))
        except StoreError as error:
            return "raised", sendable_error(error)
        except Exception as error:  # noqa: BLE001 - user code: what its inputs do when they are unpickled
            failed = RunFailed(f"the row cannot be worked on in another process: {type(error).__name__}: {error}")
            return "done", sendable(Outcome(error=failed))
