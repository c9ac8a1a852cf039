"""A batch's own record in the store: which items were begun, and what those that ended have spent.

With it a resumed batch knows what it has spent before it has read its input again. One event speaks of many items.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from redraft.journal import Claim, Journal
from redraft.protocols import Store
from redraft.record import digest, used
from redraft.types import Event, Usage

VERSION = 1
"""Of the kinds of events here, and their data."""


class Log:
    """Lives on the batch's loop."""

    def __init__(self, store: Store | None, batch_id: str) -> None:
        self._store = store
        self._batch_id = batch_id
        self._seq = 0
        self._ended: dict[str, dict[str, Any]] = {}
        self.usage = Usage()
        """What earlier processes spent."""
        self.seconds = 0.0
        """How long they worked."""
        self.spec: Mapping[str, Any] | None = None
        """What the batch was made of when it was begun; None for a new one."""
        self.seed = 0
        self._times = self._least = 0
        self._claim: Claim | None = None
        self._known: set[int] = set()
        """Of the runs that were begun before."""
        self._unread = None if store is None else _Unread(store)
        if store is not None:
            self._read(store)

    @property
    def name(self) -> str:
        """How the ids of its items' runs begin: one that was begun afresh shall not find those from before."""
        times = max(self._times, self._least)
        return self._batch_id if times < 2 else f"{self._batch_id}~{times}"

    def known_as(self, name: str) -> None:
        """Its items' runs were named so before: where the store that knew of it is lost, they still are."""
        times = name.removeprefix(f"{self._batch_id}~")
        self._least = int(times) if times.isdecimal() and times != name else 0

    @property
    def resumed(self) -> bool:
        """There was a record."""
        return self.spec is not None

    def _read(self, store: Store) -> None:
        open_: set[str] = set()
        spent: dict[str, Usage] = {}
        before, latest = None, 0.0
        for event in store.read(self._batch_id):
            self._seq = event.seq + 1
            if event.kind == "batch":
                self.spec, self.seed = event.data["spec"], event.data["seed"]
                self._times = event.data.get("times", self._times + 1)
                open_, spent, self.seconds, before = set(), {}, 0.0, None  # it was begun afresh
            open_.update(event.data.get("begun", ()))
            self._known.update(map(number, event.data.get("begun", ())))
            for run_id, usage in event.data.get("ended", {}).items():
                open_.discard(run_id)
                spent[run_id] = Usage(**usage)
            if before is not None and event.kind != "resumed":
                self.seconds += max(0.0, event.time - before)
            before = event.time
        for run_id in open_:
            journal = Journal(store, run_id)
            spent[run_id] = journal.spent()
            latest = max([latest, *(e.time for e in journal.events[-1:])])
        self.seconds += max(0.0, latest - before) if before is not None else 0.0
        for usage in spent.values():
            self.usage += usage

    def store_for(self, run_id: str) -> Store | None:
        """The store, which is not asked for what it has of a run that was never begun: for thousands that takes its time."""
        return self._store if number(run_id) in self._known else self._unread

    async def begin(self, seed: int | None, spec: Mapping[str, Any], *, afresh: bool = False) -> None:
        """Record that the batch is begun, anew if `afresh`, or gone on with.

        Raises `StoreError` if a batch of that id is at work, in this process or another one.
        """
        if self._store is not None:
            self._claim = Claim(self._store, self._batch_id)
        if self.resumed and not afresh:
            await self._append("resumed")
            return
        self.seed = int.from_bytes(os.urandom(4), "big") >> 1 if seed is None else seed
        self.spec, self._times = dict(spec), max(self._times + 1, self._least)
        self.usage, self.seconds = Usage(), 0.0
        await self._append("batch", seed=self.seed, spec=dict(spec), version=VERSION, times=self._times)

    async def begun(self, run_ids: Sequence[str]) -> None:
        """Record, before anything is spent on them, that these are begun; and which have ended meanwhile."""
        ended, self._ended = self._ended, {}
        await self._append("items", begun=list(run_ids), ended=ended)

    def ended(self, run_id: str, usage: Usage) -> None:
        """An item has ended; written with the next ones that are begun, or at the end."""
        if self._store is not None:
            self._ended[run_id] = used(usage)

    async def close(self, reason: str | None) -> None:
        """Write what has ended, and why the batch does; None: it was left, and has not."""
        try:
            if self._ended:
                await self.begun(())
            if reason is not None:
                await self._append("stop", reason=reason, error=None)
        finally:
            if self._claim is not None:
                self._claim.release()

    async def _append(self, kind: str, **data: Any) -> None:
        if self._store is None:
            return
        event = Event(seq=self._seq, kind=kind, time=time.time(), data=data)
        self._seq += 1
        await self._store.append(self._batch_id, (event,))


class _Unread:
    """A store for runs that it has nothing of."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.append = store.append
        self.close = store.close

    def read(self, run_id: str) -> list[Event]:
        """Nothing."""
        del run_id
        return []


def number(run_id: str) -> int:
    """What is remembered of a run id: a set of many then stays small."""
    return int(digest(run_id)[:16], 16)
