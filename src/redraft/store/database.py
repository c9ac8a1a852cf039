"""The run store's file: its tables, how it is opened, and how it comes into what dead processes left beside it."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from redraft.config import DEFAULT_STORE
from redraft.errors import StoreError
from redraft.store import messages
from redraft.store.advice import BUSY_SECONDS
from redraft.store.insurance import of_the_dead
from redraft.store.messages import Messages
from redraft.store.rows import Row, event
from redraft.store.views import VIEWS

SCHEMA_VERSION = 3
"""`PRAGMA user_version` of the files that this code writes; a newer one is refused, an older one is brought up to it."""

_APPLICATION_ID = 0x72647266
"""`PRAGMA application_id`, "rdrf": tells a run store from another program's database."""

# A rowid table takes appends at its end only, however many runs interleave. Keeping the rows themselves in (run, seq)
# order instead of this one narrow index costs 15 us an event against 5, with 50 runs in one transaction.
_RUNS_AND_EVENTS = (
    "CREATE TABLE run_ids (run INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE)",
    """CREATE TABLE events (
        run INTEGER NOT NULL REFERENCES run_ids, seq INTEGER NOT NULL, time REAL NOT NULL,
        kind TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, data TEXT NOT NULL, parts TEXT,
        UNIQUE (run, seq))""",
)
# Version 1 had no messages apart; its rows stay as they are, and are read as they are.
_FROM_1 = ("ALTER TABLE runs RENAME TO run_ids", "ALTER TABLE events ADD COLUMN parts TEXT")
_NEW_IN_2 = (
    "CREATE TABLE messages (message INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, json TEXT NOT NULL)",
    "CREATE TABLE state (deletions INTEGER NOT NULL, last_run INTEGER NOT NULL)",
    "INSERT INTO state VALUES (0, 0)",
    *VIEWS,
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# Version 3 has other views, and its calls out of the cache say what was asked.
_FROM_2 = (
    *(f"DROP VIEW {view}" for view in ("runs", "attempts", "calls")),
    *VIEWS,
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_STEPS = {0: (*_RUNS_AND_EVENTS, *_NEW_IN_2), 1: (*_FROM_1, *_NEW_IN_2), 2: _FROM_2}

INSERT = "INSERT INTO events (run, seq, time, kind, scope, key, data, parts) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
DELETIONS = "SELECT deletions FROM state"
_SELECT = "SELECT seq, time, kind, scope, key, data, parts FROM events WHERE run = ?"
_NUMBER = "SELECT run FROM run_ids WHERE run_id = ?"
# A deleted run's number is not given again: a writer that has not heard of the deletion may still use it.
_NEW_NUMBER = """INSERT OR IGNORE INTO run_ids (run, run_id)
    SELECT max(ifnull((SELECT max(run) FROM run_ids), 0), last_run) + 1, ? FROM state"""
_IDENTITY = """SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)
    FROM pragma_user_version, pragma_application_id"""

OWN_FAULTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, ValueError, OverflowError)
"""Raised for what one append holds: a `seq` that exists, text that is not UTF-8, a number or text too big."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or make it with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == Path(DEFAULT_STORE).parent.name and not path.exists():
        with suppress(OSError):  # runs are full of prompts: nobody wants them in a repository unasked
            path.with_name(".gitignore").write_text("*\n", encoding="utf-8")
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    with ExitStack() as failed:
        failed.callback(db.close)
        _prepare(db, path)
        take_over(db, path)
        failed.pop_all()
    return db


def run_number(db: sqlite3.Connection, run_id: str) -> int:
    """The number of a run, new or known."""
    db.execute(_NEW_NUMBER, (run_id,))
    return int(db.execute(_NUMBER, (run_id,)).fetchone()[0])


def rows_of(db: sqlite3.Connection, run_id: str) -> list[Row]:
    """What the database has of a run, by `seq`."""
    run = db.execute(_NUMBER, (run_id,)).fetchone()
    if run is None:
        return []
    with db:
        db.execute("BEGIN")  # messages and events of one moment
        found = db.execute(f"{_SELECT} ORDER BY seq", run).fetchall()
        texts = messages.of_run(db, *run)
    return [row if row[6] is None else messages.joined(row, texts) for row in found]


def take_over(db: sqlite3.Connection, path: Path) -> None:
    """Commit what dead processes left behind; what cannot be is set aside, and logged."""
    for left, records in of_the_dead(path):
        refused: set[object] = set()
        try:
            with db:
                db.execute("BEGIN IMMEDIATE")
                kept = Messages()
                for run_id, row in records:
                    if run_id in refused or row is None or not _inherited(db, kept, run_id, row):
                        refused.add(run_id)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
                return  # whoever may write will do it
            raise
        with suppress(OSError):  # another process was faster
            if not refused:
                left.unlink()
                continue
            logging.getLogger("redraft").error(
                "%s holds events of a process that died, and some are not in the run store %s: another process has "
                "written to the same run since, the run was deleted, the database is another one, or a line cannot be read.",
                left.rename(left.with_suffix(".refused")),
                path,
            )


def _inherited(db: sqlite3.Connection, kept: Messages, run_id: object, row: Row) -> bool:
    """True if the database has the row, now or before. Its run is known, or the row is another database's."""
    try:
        run = db.execute(_NUMBER, (run_id,)).fetchone()
        if run is None:
            return False
        stored = row if row[6] is None else kept.stored(db, row)
        old = db.execute(f"{_SELECT} AND seq = ?", (*run, row[0])).fetchone()
        if old is None:
            db.execute(INSERT, (*run, *stored))
        elif old != stored:  # a row of version 1 has its messages in the data
            texts = {} if old[6] is None else messages.of_run(db, *run)
            return event(messages.joined(old, texts)) == event(row)
    except OWN_FAULTS:
        return False
    return True


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Check that the file is ours and not newer than this code, before anything in it is changed."""
    version = _version(db, path)
    if version == 0:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file only: `gc` then shortens it in steps
    enter_wal(db)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 4000")  # pages, 16 MB: a checkpoint is the one place that fsyncs
    if version < SCHEMA_VERSION:
        with db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _STEPS.get(_version(db, path), ()):  # none: another process was faster
                db.execute(statement)


def _version(db: sqlite3.Connection, path: Path) -> int:
    version, owner, tables = db.execute(_IDENTITY).fetchone()
    if owner != _APPLICATION_ID and (version or tables):
        raise StoreError(f"{path} is a database of another program, so nothing was written to it: choose another path.")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"The run store {path} has schema version {version}, and this redraft knows {SCHEMA_VERSION}, so "
            "nothing was written to it: upgrade redraft, or choose another path."
        )
    return int(version)


def enter_wal(db: sqlite3.Connection) -> None:
    """SQLite does not wait where two processes make the same file at once, so this does."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.002)
