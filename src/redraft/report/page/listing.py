"""All runs of a store, as rows for people: batches as groups, and each run beside single shots of its task."""

from __future__ import annotations

import glob
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from redraft.errors import StoreError
from redraft.jsonable import as_text
from redraft.record import digest
from redraft.report.page.redact import Redactor
from redraft.report.page.shown import asked
from redraft.report.page.standing import Shot, Standing, shot_of, standing, totals
from redraft.report.page.story import readable
from redraft.store.kept import KeptRun
from redraft.store.sqlite import SqliteStore
from redraft.types import Event

_NOT_YET = Standing(outcome=None, text="not ended")
_ITSELF = Standing(outcome=None, text="a single shot itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run."""

    run: KeptRun
    task: str
    stands: Standing
    single: bool

    @property
    def state(self) -> str:
        """`passed`, another stop reason, or `not ended`."""
        return self.run.stop or "not ended"

    @property
    def tone(self) -> str:
        """How it ended, at a glance."""
        return {"passed": "good", "threshold": "good", "critic_ok": "good", "error": "bad"}.get(self.state, "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that belong together."""

    name: str
    """Of the batch; empty for runs that are part of none."""
    text: str
    """How far it has come."""
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the list shows."""

    store: str
    """The file."""
    groups: tuple[Group, ...]
    limit: int
    """How many were asked for."""
    shown: int
    kept: int
    """How many runs the store has."""
    totals: tuple[tuple[str, Counter[str]], ...]
    """(strategy, how often it won, tied and lost against single shots of equal cost, or could not be compared)."""
    mark: str
    """It changes when there is something new."""


class Lister:
    """Makes listings of one store. What it has read of a run that has ended it does not read again."""

    def __init__(self, store: SqliteStore, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor
        self._shots: dict[str, Shot] = {}

    def mark(self) -> str:
        """It changes with each write to the store, whoever writes; looking costs no query."""
        path = self._store.path
        found: list[tuple[str, int, int]] = []
        for file in sorted(path.parent.glob(f"{glob.escape(path.name)}*")):
            with suppress(FileNotFoundError):  # it went meanwhile
                if not file.name.endswith("-shm"):  # readers write there, too
                    found.append((file.name, file.stat().st_size, file.stat().st_mtime_ns))
        return digest(found)

    def listing(self, limit: int) -> Listing:
        """The newest runs."""
        mark = self.mark()
        runs = self._store.runs(limit)
        batches = {run.run_id for run in runs if run.strategy in (None, "batch") and not run.drafts and not run.calls}
        logs = {run_id: events for run_id in batches if (events := self._batch(run_id))}
        single = [run for run in runs if run.run_id not in logs]
        stands = self._standings(single)
        rows = [self._row(run, *stands[run.run_id]) for run in single]
        return Listing(
            store=str(self._store.path),
            groups=tuple(self._groups(rows, logs)),
            limit=limit,
            shown=len(runs),
            kept=len(self._store.run_ids()),
            totals=tuple(totals((row.run.strategy or "", row.stands) for row in rows if _counts(row))),
            mark=mark,
        )

    def _row(self, run: KeptRun, stands: Standing, single: bool) -> Row:
        return Row(run=run, task=self._redactor.text(_asked(run.task or "")), stands=stands, single=single)

    def _batch(self, run_id: str) -> list[Event]:
        """The record of a batch; nothing for another run."""
        events = self._store.read(run_id)
        return events if any(e.kind == "batch" for e in events) else []

    def _groups(self, rows: Sequence[Row], logs: dict[str, list[Event]]) -> list[Group]:
        batch_of = {row.run.run_id: _batch_of(row.run.run_id, logs) for row in rows}
        found = [Group(name="", text="", rows=tuple(r for r in rows if not batch_of[r.run.run_id]))]
        for name, events in logs.items():
            inside = tuple(r for r in rows if batch_of[r.run.run_id] == name)
            found.append(Group(name=name, text=_progress(events), rows=inside))
        return [group for group in found if group.rows or group.name]

    def _standings(self, runs: Sequence[KeptRun]) -> dict[str, tuple[Standing, bool]]:
        """Only runs of tasks that have several are read: alone, none can be compared."""
        tasks = Counter(run.task for run in runs)
        several = (run for run in runs if _can_be_compared(run) and tasks[run.task] > 1)
        shots = {run.run_id: shot for run in several if (shot := self._shot(run)) is not None}
        singles = [shot for shot in shots.values() if shot.single]
        found: dict[str, tuple[Standing, bool]] = {}
        for run in runs:
            shot = shots.get(run.run_id)
            if run.ended is None:
                found[run.run_id] = _NOT_YET, False
            elif shot is None:
                found[run.run_id] = Standing(outcome=None, text="no single shot of this task is kept"), False
            else:
                found[run.run_id] = (_ITSELF if shot.single else standing(shot, singles)), shot.single
        return found

    def _shot(self, run: KeptRun) -> Shot | None:
        """None for a run that cannot be read."""
        if run.run_id not in self._shots:
            try:
                with readable(run.run_id):
                    self._shots[run.run_id] = shot_of(run.run_id, self._store.read(run.run_id))
            except StoreError:
                return None
        return self._shots[run.run_id]


def _asked(task: str) -> str:
    """Named inputs, which the store gives as JSON, as words; as it is, where it was cut."""
    if not task.startswith("{"):
        return task
    try:
        inputs = json.loads(task)
    except ValueError:
        return task
    return asked({str(name): as_text(value) for name, value in inputs.items()})


def _can_be_compared(run: KeptRun) -> bool:
    return run.ended is not None and run.stop != "unreadable"


def _counts(row: Row) -> bool:
    return not row.single and row.run.ended is not None


def _batch_of(run_id: str, logs: dict[str, list[Event]]) -> str:
    """The batch that a run is an item of: `BATCH:key`, or `BATCH~2:key` where it was begun afresh."""
    name = run_id.partition(":")[0].partition("~")[0] if ":" in run_id else ""
    return name if name in logs else ""


def _progress(events: Sequence[Event]) -> str:
    begun: set[str] = set()
    ended: set[str] = set()
    for event in events:
        if event.kind == "batch":
            begun, ended = set(), set()
        begun.update(event.data.get("begun", ()))
        ended.update(event.data.get("ended", {}))
    return f"{len(begun):,} items begun, {len(ended):,} ended"
