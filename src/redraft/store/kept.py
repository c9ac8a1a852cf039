"""What a store has: its runs in short, and deleting them."""

# ruff: noqa: S608 - every part of these statements is a constant of this package
from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from redraft.store.cleaning import DELETED


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """One run in short. None: it is not known, or there is none."""

    run_id: str
    begun: str
    """UTC, ISO 8601."""
    ended: str | None
    """None: it never ended, or is at work."""
    stop: str | None
    """The stop reason; "done" for a block, an item or a batch that came to its end, "unreadable" for a run that is damaged."""
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

    @property
    def unreadable(self) -> bool:
        """True if its events cannot be read; `error` says why, the figures are none."""
        return self.stop == UNREADABLE


_COLUMNS = ", ".join(field.name for field in fields(KeptRun))
_NEWEST = f"""SELECT {_COLUMNS} FROM runs WHERE run_id IN (
    SELECT run_id FROM run_ids ORDER BY run DESC LIMIT ?)
    ORDER BY (SELECT run FROM run_ids WHERE run_id = runs.run_id) DESC"""
_BEGUN = """SELECT strftime('%Y-%m-%dT%H:%M:%fZ', min(time), 'unixepoch') FROM events
    WHERE run = (SELECT run FROM run_ids WHERE run_id = ?)"""
UNREADABLE = "unreadable"
_SPOILT = (sqlite3.OperationalError, ValueError, TypeError, AttributeError)
_NOTHING: dict[str, Any] = {"models": (), "drafts": 0, "calls": 0, "tokens": 0, "most_tokens": 0}
_UNREAD = KeptRun(**{**dict.fromkeys((field.name for field in fields(KeptRun)), None), **_NOTHING, "stop": UNREADABLE})
_ONE = f"SELECT {_COLUMNS} FROM runs WHERE run_id = ?"


def ids(db: sqlite3.Connection) -> list[str]:
    """The ids of all runs, the newest first."""
    return [run_id for (run_id,) in db.execute("SELECT run_id FROM run_ids ORDER BY run DESC")]


def newest(db: sqlite3.Connection, limit: int | None = None) -> list[KeptRun]:
    """The newest runs, the newest first. A damaged one is among them, and hides no other."""
    try:
        return _selected(db, _NEWEST, -1 if limit is None else limit)
    except _SPOILT as error:
        if not _is_spoilt(error):
            raise
    return [run for run_id in ids(db)[:limit] if (run := one(db, run_id)) is not None]


def one(db: sqlite3.Connection, run_id: str) -> KeptRun | None:
    """One run."""
    try:
        return next(iter(_selected(db, _ONE, run_id)), None)
    except _SPOILT as error:
        if not _is_spoilt(error):
            raise
        begun = db.execute(_BEGUN, (run_id,)).fetchone()[0] or ""
        return replace(_UNREAD, run_id=run_id, begun=begun, error=f"its events cannot be read: {error}")


def _is_spoilt(error: Exception) -> bool:
    """True for what one run's events say, false for what is wrong with the file."""
    return not isinstance(error, sqlite3.Error) or any(what in str(error) for what in ("malformed JSON", "UTF-8"))


def delete(db: sqlite3.Connection, run_ids: Sequence[str]) -> int:
    """Delete runs with their events; how many there were."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        db.execute(DELETED)
        there = 0
        for run_id in run_ids:
            db.execute("DELETE FROM events WHERE run = (SELECT run FROM run_ids WHERE run_id = ?)", (run_id,))
            there += db.execute("DELETE FROM run_ids WHERE run_id = ?", (run_id,)).rowcount
    return there


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
