"""All runs of a store, as rows for people: batches as groups, and each run beside single shots of its task."""

from __future__ import annotations

import glob
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from redraft.errors import StoreError
from redraft.jsonable import as_text
from redraft.record import digest
from redraft.report.page.evaluation import KIND, item_ids
from redraft.report.page.redact import Redactor
from redraft.report.page.shown import asked
from redraft.report.page.standing import Shot, Standing, shot_of, standing, totals
from redraft.report.page.story import readable
from redraft.store.kept import KeptRun
from redraft.store.sqlite import SqliteStore
from redraft.types import Event, Usage

_NOT_YET = Standing(outcome=None, text="not ended")
_MANY = Standing(outcome=None, text="an evaluation compares many runs: see its page")
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
        return {"passed": "good", "complete": "good", "threshold": "good", "critic_ok": "good", "error": "bad"}.get(
            self.state, "open"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that belong together."""

    name: str
    """Of the batch or evaluation; empty for runs that are part of none."""
    text: str
    """How far it has come."""
    rows: tuple[Row, ...]
    kind: str = "Batch"
    page: bool = False
    """It has a page of its own."""


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
        self._evaluations: dict[tuple[str, str | None], Evaluated | None] = {}

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
        found = {run.run_id: told for run in runs if (told := self._evaluated(run)) is not None}
        single = [found[run.run_id].run if run.run_id in found else run for run in runs if run.run_id not in logs]
        stands = self._standings([run for run in single if run.run_id not in found])
        rows = [self._row(run, *stands.get(run.run_id, (_MANY, False))) for run in single]
        return Listing(
            store=str(self._store.path),
            groups=tuple(self._groups(rows, logs, found)),
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

    def _evaluated(self, run: KeptRun) -> Evaluated | None:
        """The evaluation whose report the run holds; None for another run, and for one that cannot be read."""
        if run.strategy != KIND or run.drafts:
            return None
        key = run.run_id, run.ended
        if key not in self._evaluations:
            try:
                with readable(run.run_id):
                    self._evaluations[key] = evaluated(run, self._store.read(run.run_id))
            except StoreError:
                return None
        return self._evaluations[key]

    def _groups(
        self, rows: Sequence[Row], logs: dict[str, list[Event]], evaluations: dict[str, Evaluated]
    ) -> list[Group]:
        """An item of several evaluations stands with the newest one."""
        item_of = {item: name for name, told in reversed(evaluations.items()) for item in told.items}
        of = {r.run.run_id: item_of.get(r.run.run_id) or _batch_of(r.run.run_id, logs) for r in rows}
        inside = {name: tuple(r for r in rows if of[r.run.run_id] == name) for name in ("", *evaluations, *logs)}
        found = [Group(name="", text="", rows=inside[""])]
        for name, told in evaluations.items():
            text = f"{len(told.items):,} items"
            found.append(Group(name=name, text=text, rows=inside[name], kind="Evaluation", page=True))
        for name, events in logs.items():
            found.append(Group(name=name, text=_progress(events), rows=inside[name]))
        return [group for group in found if group.rows or (group.name and not group.page)]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An evaluation in the list."""

    run: KeptRun
    """With what its items used, and how it ended."""
    items: frozenset[str]
    """The ids of their runs."""


def evaluated(run: KeptRun, events: Sequence[Event]) -> Evaluated | None:
    """The same of its events; None while there is no report. Its items' calls are the strategies', not the metric's."""
    report = next((event.data["report"] for event in reversed(events) if event.kind == KIND), None)
    if report is None:
        return None
    used = sum((Usage(**s["usage"]) for s in report["strategies"]), Usage())
    whole = replace(
        run,
        stop="complete" if report["complete"] else "partial",
        calls=used.calls,
        tokens=used.tokens,
        most_tokens=used.tokens + used.uncertain_tokens,
        cost=None if used.unpriced else used.cost,
        most_cost=None if used.unpriced else used.cost + used.uncertain_cost,
        models=(str(report["model"]),) if report.get("model") else (),
    )
    return Evaluated(run=whole, items=frozenset(item_ids(events)))


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
    return not row.single and row.run.ended is not None and row.run.strategy != KIND


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
