"""Replies kept for other runs, in an SQLite file that several processes may use at once."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from redraft.config import say_once
from redraft.store.database import enter_wal

CACHE_VERSION = 1
"""`PRAGMA user_version` of the files that this code writes."""

_APPLICATION_ID = 0x72646361
"""`PRAGMA application_id`, "rdca"."""

_BUSY_SECONDS = 0.1  # a call waits no longer than this for another process: the reply is bought instead
_PATIENCE = 3
"""How often in a row the file may be busy before it is given up."""

_SCHEMA = (
    "CREATE TABLE replies (key TEXT NOT NULL UNIQUE, text TEXT NOT NULL)",  # rowids tell which one came first
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {CACHE_VERSION}",
)
_IDENTITY = """SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)
    FROM pragma_user_version, pragma_application_id"""
_USED = """SELECT (page_count - freelist_count) * page_size
    FROM pragma_page_count, pragma_freelist_count, pragma_page_size"""
_OLDEST = "DELETE FROM replies WHERE rowid IN (SELECT rowid FROM replies ORDER BY rowid LIMIT ?)"

T = TypeVar("T")


class SqliteCache:
    """Replies by what was asked, for `configure(cache=...)`; keys are hashes, so no prompt is in the file.

    Above `max_bytes` the oldest go. Never raises: a file that cannot be used is said once on stderr, and every reply is
    bought, as without a cache. Safe in threads and processes.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = 1 << 29) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._owner = 0
        self._inherited: list[sqlite3.Connection] = []
        self._busy = 0
        self._off = False

    def get(self, key: str) -> str | None:
        """What was put there, or None."""
        row = self._do(lambda db: db.execute("SELECT text FROM replies WHERE key = ?", (key,)).fetchone())
        return None if row is None else str(row[0])

    def put(self, key: str, text: str) -> None:
        """Keep a text; what is there already stays."""

        def insert(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, text))
            self._shrink(db)

        self._do(insert)

    def forget(self, begin: str) -> None:
        """Let go of all keys that begin so."""
        self._do(lambda db: db.execute("DELETE FROM replies WHERE key >= ? AND key < ?", (begin, begin + "\uffff")))

    def close(self) -> None:
        """Let go of the file; it is opened again when it is needed."""
        if self._owner != os.getpid():  # what is open is a parent's, as may be the lock: not ours
            return
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        with self._lock:
            if self._off:
                return None
            try:
                done = work(self._opened())
                self._busy = 0
                return done
            except (sqlite3.Error, OSError, ValueError) as error:
                self._failed(error)
                return None

    def _failed(self, error: Exception) -> None:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            self._busy += 1
            if self._busy < _PATIENCE:
                return
        elif isinstance(error, UnicodeEncodeError):  # half a surrogate pair: this one text only
            return
        self._off = True
        say_once(f"redraft: the cache {self.path} is not used, every reply is bought: {error or type(error).__name__}")

    def _opened(self) -> sqlite3.Connection:
        if self._db is not None and self._owner != os.getpid():
            self._inherited.append(self._db)  # a parent's: not ours to use, nor to close
            self._db = None
        if self._db is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            with ExitStack() as failed:
                failed.callback(db.close)
                self._prepare(db)
                failed.pop_all()
            self._db, self._owner = db, os.getpid()
        return self._db

    def _prepare(self, db: sqlite3.Connection) -> None:
        version = self._version(db)
        enter_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        if version:
            return
        with db:
            db.execute("BEGIN IMMEDIATE")
            if self._version(db) == 0:  # else another process was faster
                for statement in _SCHEMA:
                    db.execute(statement)

    def _version(self, db: sqlite3.Connection) -> int:
        version, owner, tables = db.execute(_IDENTITY).fetchone()
        if owner != _APPLICATION_ID and (version or tables):
            raise ValueError("it is a database of another kind; choose another path")
        if version > CACHE_VERSION:
            raise ValueError(
                f"it has version {version}, and this redraft knows {CACHE_VERSION}; upgrade redraft, or choose another path"
            )
        return int(version)

    def _shrink(self, db: sqlite3.Connection) -> None:
        while db.execute(_USED).fetchone()[0] > self.max_bytes:
            (kept,) = db.execute("SELECT count(*) FROM replies").fetchone()
            if not kept:
                return
            db.execute(_OLDEST, (kept // 8 + 1,))
