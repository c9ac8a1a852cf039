"""The run store's file: its tables, how it is opened, and how it comes into what dead processes left beside it."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from redraft.errors import StoreError
from redraft.store.advice import BUSY_SECONDS
from redraft.store.insurance import of_the_dead

SCHEMA_VERSION = 1
"""`PRAGMA user_version` of the files that this code writes; a newer one is refused."""

_APPLICATION_ID = 0x72647266
"""`PRAGMA application_id`, "rdrf": tells a run store from another program's database."""

# A rowid table takes appends at its end only, however many runs interleave. Keeping the rows themselves in (run, seq)
# order instead of this one narrow index costs 15 us an event against 5, with 50 runs in one transaction.
_SCHEMA = (
    "CREATE TABLE runs (run INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE)",
    """CREATE TABLE events (
        run INTEGER NOT NULL REFERENCES runs, seq INTEGER NOT NULL, time REAL NOT NULL,
        kind TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, data TEXT NOT NULL,
        UNIQUE (run, seq))""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
INSERT = "INSERT INTO events (run, seq, time, kind, scope, key, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
SELECT = """SELECT seq, time, kind, scope, key, data FROM events
    WHERE run = (SELECT run FROM runs WHERE run_id = ?) ORDER BY seq"""
_NUMBER = "SELECT run FROM runs WHERE run_id = ?"
_HAS = "SELECT 1 FROM events WHERE (run, seq, time, kind, scope, key, data) = (?, ?, ?, ?, ?, ?, ?)"
_IDENTITY = """SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)
    FROM pragma_user_version, pragma_application_id"""

OWN_FAULTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, ValueError, OverflowError)
"""Raised for what one append holds: a `seq` that exists, text that is not UTF-8, a number or text too big."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or make it with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    with ExitStack() as failed:
        failed.callback(db.close)
        _prepare(db, path)
        take_over(db, path)
        failed.pop_all()
    return db


def run_number(db: sqlite3.Connection, run_id: str) -> int:
    """The number of a run, new or known."""
    db.execute("INSERT OR IGNORE INTO runs (run_id) VALUES (?)", (run_id,))
    return int(db.execute(_NUMBER, (run_id,)).fetchone()[0])


def take_over(db: sqlite3.Connection, path: Path) -> None:
    """Commit what dead processes left behind; what cannot be is set aside, and logged."""
    for left, records in of_the_dead(path):
        refused: set[object] = set()
        try:
            with db:
                db.execute("BEGIN IMMEDIATE")
                for run_id, *row in records:
                    if run_id in refused or not _inherited(db, run_id, row):
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
                "written to the same run since, or the database is another one, or a line cannot be read.",
                left.rename(left.with_suffix(".refused")),
                path,
            )


def _inherited(db: sqlite3.Connection, run_id: object, row: list[object]) -> bool:
    """True if the database has the row, now or before. Its run is known, or the row is another database's."""
    try:
        run = db.execute(_NUMBER, (run_id,)).fetchone() or (None,)
        if db.execute(_HAS, (*run, *row)).fetchone() is None:
            db.execute(INSERT, (*run, *row))
    except OWN_FAULTS:
        return False
    return True


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Check that the file is ours and not newer than this code, before anything in it is changed."""
    version = _version(db, path)
    enter_wal(db)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 4000")  # pages, 16 MB: a checkpoint is the one place that fsyncs
    if version == 0:
        with db:
            db.execute("BEGIN IMMEDIATE")
            if _version(db, path) == 0:  # else another process was faster
                for statement in _SCHEMA:
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
