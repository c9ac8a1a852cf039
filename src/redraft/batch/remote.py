"""One worker as the driver sees it: takes what it wants, in order, and keeps the books of what it holds.

When the worker dies, what it held is given back, and each call that was on record as begun is charged.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redraft.batch.item import Row
from redraft.batch.one import Outcome
from redraft.batch.portable import sendable_error, unpacked
from redraft.budget import Ask, Meter, Price, Reservation
from redraft.errors import RedraftError, RunFailed, StoreError
from redraft.journal import _ENDS, INTENT, Journal
from redraft.protocols import Store
from redraft.sync import seen
from redraft.turns import Upstream, gate_of
from redraft.types import Event, Usage

_GOODBYE = 5.0
"""Seconds for a row that is given up to end in its worker."""


class WorkerDied(Exception):
    """The worker's process is gone, or cannot be reached; the row may be done by another one."""


@dataclass(slots=True)
class Job:
    """A row on its way."""

    row: Row
    events: list[Event]
    """The record of its run."""
    deaths: int = 0
    """Of workers that had it."""
    open: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What was reserved for calls that this worker has begun and not ended, by the intent's `seq`."""
    ended: asyncio.Future[Outcome | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def record(self, events: tuple[Event, ...]) -> None:
        """They were added to the run."""
        self.events.extend(events)
        for event in events:
            if event.kind == INTENT:
                self.open[event.seq] = event.data["reserved"]
            elif event.kind in _ENDS:
                self.open.pop(event.data["intent"], None)

    def spent(self) -> Usage:
        """By the run, in all workers that had it."""
        journal = Journal(None, self.row.run_id)
        journal.events = self.events
        return journal.spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all workers share; it is the driver's."""

    whole: Meter
    store: Store | None
    tell: Callable[[Event], None]


class Remote:
    """Lives on the batch's loop. `listen` ends when the worker does."""

    def __init__(self, actor: Any, common: Common) -> None:
        self.actor = actor
        self.jobs: dict[str, Job] = {}
        self.pid = 0
        self.dead = False
        self._common = common
        self._held: dict[int, Reservation] = {}
        self._inside: Counter[Upstream] = Counter()
        self._prices: dict[int, Price] = {}
        self._waiting: dict[int, asyncio.Task[None]] = {}
        self._answers: list[tuple[int, bool, Any]] = []
        self._appended: asyncio.Queue[tuple[int, Any, tuple[Event, ...]]] = asyncio.Queue()
        self._takes: dict[str, Callable[..., None]] = {
            "append": self._append,
            "reserve": self._reserve,
            "settle": self._settle,
            "charge": lambda _, usage: common.whole.charge(usage),
            "price": self._price,
            "enter": self._enter,
            "leave": self._leave,
            "refused": self._refused,
            "forget": self._forget,
            "ended": self._ended,
        }

    async def do(self, job: Job, data: bytes) -> Outcome:
        """Have a row done. Raises `WorkerDied`, or what ended the batch; cancelled, it is given up there, too."""
        if self.dead:
            raise WorkerDied("it died before the row came to it")
        job.open, job.ended = {}, asyncio.get_running_loop().create_future()
        job.ended.add_done_callback(seen)
        run_id = job.row.run_id
        self.jobs[run_id] = job
        self.actor.do.remote(run_id, data)
        try:
            outcome = await asyncio.shield(job.ended)
            assert outcome is not None, "nobody but the driver gives a row up"
            return outcome
        except asyncio.CancelledError:
            if not job.ended.done():
                self.actor.cancel.remote(run_id)
                await asyncio.wait({job.ended}, timeout=_GOODBYE)
            raise
        finally:
            self.jobs.pop(run_id, None)

    async def listen(self, failures: tuple[type[Exception], ...]) -> Exception:
        """Serve the worker until it dies; returns how."""
        writing = asyncio.ensure_future(self._acknowledge())
        try:
            while True:
                for kind, number, what in await self.actor.wants.remote():
                    self._takes[kind](number, *what)
        except failures as error:
            self._died(error)
            return error
        finally:
            writing.cancel()
            for task in self._waiting.values():
                task.cancel()

    def _died(self, error: Exception) -> None:
        self.dead = True
        for task in self._waiting.values():
            task.cancel()  # first: nothing may be granted to it after its books are closed
        for job in self.jobs.values():
            for reserved in job.open.values():
                self._common.whole.charge(Usage(**reserved))
        for held in self._held.values():
            held.settle(Usage())
        for upstream, times in self._inside.items():
            for _ in range(times):
                gate_of(upstream).leave()
        for job in self.jobs.values():
            if not job.ended.done():
                job.ended.set_exception(WorkerDied(str(error)))

    # What a worker may want

    def _append(self, number: int, run_id: str, data: bytes) -> None:
        events: tuple[Event, ...] = unpacked(data)
        if (job := self.jobs.get(run_id)) is not None:
            job.record(events)
        store = self._common.store
        try:
            durable = None if store is None else store.append(run_id, events)
        except StoreError as error:
            self._answer(number, error=error)
            return
        self._appended.put_nowait((number, durable, events))

    async def _acknowledge(self) -> None:
        while True:
            number, durable, events = await self._appended.get()
            try:
                if durable is not None:
                    await durable
            except StoreError as error:
                self._answer(number, error=error)
                continue
            self._answer(number)
            for event in events:
                self._common.tell(event)

    def _reserve(self, number: int, prompt: int, cap: int | None, n: int, price: int | None) -> None:
        ask = Ask(prompt=prompt, cap=cap, n=n, price=None if price is None else self._prices[price])

        async def reserve() -> int | None:
            held = self._held[number] = await self._common.whole.reserve(ask)
            return held.cap

        self._later(number, reserve)

    def _settle(self, _: None, number: int, usage: Usage) -> None:
        self._held.pop(number).settle(usage)

    def _price(self, _: None, number: int, data: bytes) -> None:
        self._prices[number] = unpacked(data)

    def _enter(self, number: int, upstream: Upstream) -> None:
        async def enter() -> int:
            entered = await gate_of(upstream).enter()
            self._inside[upstream] += 1
            return entered

        self._later(number, enter)

    def _leave(self, _: None, upstream: Upstream, entered: int | None) -> None:
        self._inside[upstream] -= 1
        gate_of(upstream).leave(entered)

    def _refused(self, number: int, upstream: Upstream, entered: int, wait: float) -> None:
        self._later(number, lambda: gate_of(upstream).refused(entered, wait))

    def _forget(self, _: None, number: int, kind: str, what: tuple[Any, ...]) -> None:
        """Whoever asked was cancelled: what was granted goes back."""
        if (task := self._waiting.pop(number, None)) is not None:
            task.cancel()
        elif kind == "enter":
            self._leave(None, what[0], None)
        elif (held := self._held.pop(number, None)) is not None:
            held.settle(Usage())

    def _ended(self, _: None, run_id: str, how: str, data: bytes) -> None:
        job = self.jobs.get(run_id)
        if job is None or job.ended.done():
            return
        if how == "done":
            job.ended.set_result(self._read(data))
        elif how == "raised":
            job.ended.set_exception(unpacked(data))
        else:
            job.ended.set_result(None)

    def _read(self, data: bytes) -> Outcome:
        try:
            outcome: Outcome = unpacked(data)
        except Exception as error:  # noqa: BLE001 - user code: what its result does when it is unpickled
            failed = RunFailed(f"its result cannot be read here: {type(error).__name__}: {error}; return plain data")
            return Outcome(error=failed)
        if outcome.reached is not None:
            outcome.reached.of = self._common.whole
        return outcome

    def _later(self, number: int, make: Callable[[], Any]) -> None:
        """Answer when it is there."""

        async def whole() -> None:
            try:
                value = await make()
            except RedraftError as error:
                self._waiting.pop(number, None)
                self._answer(number, error=error)
                return
            self._waiting.pop(number, None)
            self._answer(number, value)

        self._waiting[number] = asyncio.ensure_future(whole())

    def _answer(self, number: int, value: Any = None, *, error: Exception | None = None) -> None:
        """What is answered in one turn of the loop goes together."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._send)
        self._answers.append((number, True, value) if error is None else (number, False, sendable_error(error)))

    def _send(self) -> None:
        answers, self._answers = self._answers, []
        if not self.dead:
            self.actor.answered.remote(answers, *standing(self._common.whole))


def standing(whole: Meter) -> tuple[Usage, float]:
    """What the batch has spent, and how many seconds it works: its meter, for a worker."""
    return whole.usage, time.monotonic() - whole._started
