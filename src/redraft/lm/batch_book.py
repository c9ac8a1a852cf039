"""Which request is in which job of a provider. Kept in a file, it outlives the process: no job is made twice."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from redraft.errors import StoreError

_APPLICATION_ID = 0x72647062
"""`PRAGMA application_id`, "rdpb"."""
_BUSY_SECONDS = 30.0
_TABLES = f"""
CREATE TABLE rounds (
    round TEXT PRIMARY KEY, begun REAL NOT NULL, file_id TEXT, job_id TEXT, ended INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE lines (
    custom_id TEXT PRIMARY KEY, round TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL DEFAULT 0, reply TEXT
);
CREATE INDEX lines_by_key ON lines (key);
CREATE INDEX lines_by_round ON lines (round);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = 1;
"""
_OPEN, _REPLIED, _DELIVERED, _LOST = range(4)
# What nobody has had yet comes first. What was handed out may have been lost with its process before it was recorded.
_CLAIM = """SELECT custom_id, round, reply FROM lines WHERE key = ? AND state != ?
    ORDER BY state = ?, state DESC, rowid"""
_HAS = "SELECT 1 FROM lines WHERE key = ? AND state != ?"


@dataclass(frozen=True, slots=True)
class Round:
    """One job, or what was to become one."""

    name: str
    begun: float
    file_id: str | None
    job_id: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """One request of a round; `reply` is its line of the output, once that is there."""

    custom_id: str
    round: str
    reply: str | None


class Book:
    """The rounds and their lines, in an SQLite file or, without a path, in memory. Thread-safe.

    Raises `StoreError` where the file cannot be read or written.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._claimed: set[str] = set()
        self._handed_out: list[str] = []
        with self._faults():
            self._db = sqlite3.connect(
                path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._open()

    def _open(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._db.close)
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (kind,) = self._db.execute("PRAGMA application_id").fetchone()
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if tables and (kind != _APPLICATION_ID or version > 1):
                raise StoreError(
                    f"{self._path} is no list of provider batches that this version can read; give another file"
                )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # a job that a power failure forgets would be paid twice
            with self._transaction():
                (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                for statement in filter(str.strip, [] if tables else _TABLES.split(";")):
                    self._db.execute(statement)
            closing.pop_all()

    def claim(self, key: str, may_take: Callable[[str], bool]) -> Line | None:
        """A line of an earlier round with this key that nobody in this process has had. `may_take`: told its round."""
        with self._lock, self._faults():
            for custom_id, name, reply in self._db.execute(_CLAIM, (key, _LOST, _DELIVERED)):
                if custom_id not in self._claimed and may_take(name):
                    self._claimed.add(custom_id)
                    return Line(custom_id, name, reply)
        return None

    def has(self, key: str) -> bool:
        """There is a line with this key that was not lost."""
        with self._lock, self._faults():
            return self._db.execute(_HAS, (key, _LOST)).fetchone() is not None

    def release(self, custom_id: str) -> None:
        """Whoever claimed it has left without it."""
        with self._lock:
            self._claimed.discard(custom_id)

    def handed_out(self, custom_id: str) -> None:
        """Its reply was given to its caller; written with what is written next, as losing it costs nothing."""
        with self._lock:
            self._handed_out.append(custom_id)

    def begin(self, name: str, lines: Iterable[tuple[str, str]]) -> None:
        """A round of lines (custom id, key) is about to be sent."""
        with self._transaction():
            self._db.execute("INSERT INTO rounds (round, begun) VALUES (?, ?)", (name, time.time()))
            rows = [(custom_id, name, key) for custom_id, key in lines]
            self._db.executemany("INSERT INTO lines (custom_id, round, key) VALUES (?, ?, ?)", rows)
            self._claimed.update(custom_id for custom_id, _, _ in rows)

    def uploaded(self, name: str, file_id: str) -> None:
        """Its requests are with the provider."""
        with self._transaction():
            self._db.execute("UPDATE rounds SET file_id = ? WHERE round = ?", (file_id, name))

    def created(self, name: str, job_id: str) -> None:
        """It is a job from here on."""
        with self._transaction():
            self._db.execute("UPDATE rounds SET job_id = ? WHERE round = ?", (job_id, name))

    def round(self, name: str) -> Round:
        """What is known of it."""
        with self._lock, self._faults():
            found = self._db.execute("SELECT begun, file_id, job_id FROM rounds WHERE round = ?", (name,)).fetchone()
        return Round(name, *found)

    def collected(self, name: str, replies: Mapping[str, str]) -> None:
        """The round has ended with these replies, by custom id; its other lines are lost."""
        with self._transaction():
            self._db.executemany(
                "UPDATE lines SET state = ?, reply = ? WHERE custom_id = ? AND round = ?",
                [(_REPLIED, reply, custom_id, name) for custom_id, reply in replies.items()],
            )
            self._db.execute("UPDATE lines SET state = ? WHERE round = ? AND state = ?", (_LOST, name, _OPEN))
            self._db.execute("UPDATE rounds SET ended = 1 WHERE round = ?", (name,))

    def close(self) -> None:
        """Write what is left, and let go of the file."""
        with self._transaction():
            pass
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, self._faults():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                handed, self._handed_out = self._handed_out, []
                self._hand_out(handed)
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _hand_out(self, handed: list[str]) -> None:
        if self._path is not None:
            rows = [(_DELIVERED, custom_id) for custom_id in handed]
            self._db.executemany("UPDATE lines SET state = ? WHERE custom_id = ?", rows)
            return
        # nobody comes back to a list in memory
        self._db.executemany("DELETE FROM lines WHERE custom_id = ?", [(custom_id,) for custom_id in handed])
        self._claimed.difference_update(handed)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"the list of provider batches {self._path} cannot be used: {error}") from error
