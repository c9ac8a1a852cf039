"""What a store has: its runs in short, deleting them, and giving back the space of what is gone."""

# ruff: noqa: S608 - every part of these statements is a constant of this package
from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """One run in short. None: it is not known, or there is none."""

    run_id: str
    begun: str
    """UTC, ISO 8601."""
    ended: str | None
    """None: it never ended, or is at work."""
    stop: str | None
    """The stop reason."""
    error: str | None
    strategy: str | None
    task: str | None
    """What was asked for, in short."""
    models: tuple[str, ...]
    seed: int | None
    drafts: int
    score: float | None
    """The best draft's."""
    calls: int
    tokens: int
    most_tokens: int
    """Where calls did not report theirs, the truth lies between `tokens` and this. Money likewise, in dollars."""
    cost: float | None
    """None: the price of a model is unknown."""
    most_cost: float | None
    budget: Any
    """The limits, as JSON values."""
    version: int | None
    """Of its events."""

    @property
    def failed(self) -> bool:
        """True if an error ended it."""
        return self.stop == "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What `gc` did."""

    messages: int
    """That no call of a run uses any more."""
    events: int
    """That a writer added to a run after it was deleted."""
    bytes: int
    """By which the file is shorter."""
    refused: tuple[Path, ...]
    """Files beside the database with events of dead processes that it could not take: there still, or removed."""


_COLUMNS = ", ".join(field.name for field in fields(KeptRun))
_NEWEST = f"""SELECT {_COLUMNS} FROM runs WHERE run_id IN (
    SELECT run_id FROM run_ids ORDER BY run DESC LIMIT ?)
    ORDER BY (SELECT run FROM run_ids WHERE run_id = runs.run_id) DESC"""
_ONE = f"SELECT {_COLUMNS} FROM runs WHERE run_id = ?"
_DELETED = (
    "UPDATE state SET deletions = deletions + 1, last_run = max(last_run, ifnull((SELECT max(run) FROM run_ids), 0))"
)
_LEFT_OVER = """DELETE FROM messages WHERE message NOT IN (
    SELECT part.value FROM events, json_each(parts) AS part WHERE parts IS NOT NULL AND part.type = 'integer')"""


def ids(db: sqlite3.Connection) -> list[str]:
    """The ids of all runs, the newest first."""
    return [run_id for (run_id,) in db.execute("SELECT run_id FROM run_ids ORDER BY run DESC")]


def newest(db: sqlite3.Connection, limit: int | None = None) -> list[KeptRun]:
    """The newest runs, the newest first."""
    return _selected(db, _NEWEST, -1 if limit is None else limit)


def one(db: sqlite3.Connection, run_id: str) -> KeptRun | None:
    """One run."""
    return next(iter(_selected(db, _ONE, run_id)), None)


def delete(db: sqlite3.Connection, run_ids: Sequence[str]) -> int:
    """Delete runs with their events; how many there were."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        db.execute(_DELETED)
        there = 0
        for run_id in run_ids:
            db.execute("DELETE FROM events WHERE run = (SELECT run FROM run_ids WHERE run_id = ?)", (run_id,))
            there += db.execute("DELETE FROM run_ids WHERE run_id = ?", (run_id,)).rowcount
    return there


def gc(db: sqlite3.Connection, path: Path, *, refused: bool) -> Collected:
    """Drop what belongs to no run, and shorten the file. `refused`: remove the files of `Collected.refused`, too."""
    before = _size(path)
    with db:
        db.execute("BEGIN IMMEDIATE")
        db.execute(_DELETED)
        events = db.execute("DELETE FROM events WHERE run NOT IN (SELECT run FROM run_ids)").rowcount
        db.execute("DELETE FROM run_ids WHERE run NOT IN (SELECT run FROM events)")
        messages = db.execute(_LEFT_OVER).rowcount
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    left = leftovers(path)
    if refused:
        for file in left:
            file.unlink(missing_ok=True)
    return Collected(messages=messages, events=events, bytes=max(0, before - _size(path)), refused=tuple(left))


def leftovers(path: Path) -> list[Path]:
    """The files beside a database with events of dead processes that it could not take."""
    ours = re.compile(re.escape(path.name) + r"-\d+-[0-9a-f]{6}\.refused")
    return sorted(file for file in path.parent.iterdir() if ours.fullmatch(file.name))


def _size(path: Path) -> int:
    """Of the database and its write-ahead log."""
    total = 0
    for file in (path, path.with_name(f"{path.name}-wal")):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def _selected(db: sqlite3.Connection, statement: str, value: object) -> list[KeptRun]:
    db.text_factory = _text  # JSON can say half a surrogate pair, and SQLite takes that out of it as it is
    try:
        return [_kept(row) for row in db.execute(statement, (value,))]
    finally:
        db.text_factory = str


def _text(utf8: bytes) -> str:
    return utf8.decode("utf-8", "surrogatepass")


def _kept(row: Sequence[Any]) -> KeptRun:
    values = {field.name: value for field, value in zip(fields(KeptRun), row, strict=True)}
    budget = values["budget"]
    values["models"] = tuple(sorted(values["models"].split(","))) if values["models"] else ()
    values["budget"] = json.loads(budget) if isinstance(budget, str) else budget
    return KeptRun(**values)
