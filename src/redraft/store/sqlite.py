"""The journal in one SQLite file (WAL mode), for any number of tasks, threads, event loops and processes.

An append joins one queue for the whole store, and a line in a plain file makes it outlive the process at once,
`kill -9` included (`insurance.py`). Rows follow within `_LAZY_SECONDS`, many to a transaction, in queue order. A run's
first append ends only with its transaction, and so does every one where there is no such file or the last
transaction failed.

`synchronous=NORMAL` leaves out the fsync per commit: losing power may lose the last moments, never the file.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import Future as SyncFuture
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from redraft.errors import StoreError
from redraft.journal import DONE
from redraft.store.insurance import Insurance, of_the_dead
from redraft.types import Event

if TYPE_CHECKING:
    from os import PathLike

SCHEMA_VERSION = 1
"""`PRAGMA user_version` of the files that this code writes; a newer one is refused."""

_APPLICATION_ID = 0x72647266
"""`PRAGMA application_id`, "rdrf": tells a run store from another program's database."""

_BUSY_SECONDS = 1.0
"""How long a commit waits for another process. Theirs take well under a millisecond; meanwhile the loop stands."""

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
_INSERT = "INSERT INTO events (run, seq, time, kind, scope, key, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
_SELECT = """SELECT seq, time, kind, scope, key, data FROM events
    WHERE run = (SELECT run FROM runs WHERE run_id = ?) ORDER BY seq"""

_IDENTITY = """SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)
    FROM pragma_user_version, pragma_application_id"""

_FAILURES = (sqlite3.Error, OSError, ValueError, OverflowError, StoreError)
_OWN_FAULTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, ValueError, OverflowError)
"""Raised for what one append holds: a `seq` that exists, text that is not UTF-8, a number or text too big."""

_OTHER_ADVICE = "What was committed before is unharmed."
_ADVICE = {
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: "An event of this number exists already, so two writers share one run: end the "
    "other one, or use another run id.",
    sqlite3.SQLITE_FULL: "Free some disk space and resume the run; what was committed before is unharmed.",
    sqlite3.SQLITE_BUSY: f"Another process has held its write lock for {_BUSY_SECONDS:.0f} s: end that transaction and "
    "resume the run.",
    sqlite3.SQLITE_READONLY: "Make the file and its folder writable, or choose another path.",
    sqlite3.SQLITE_CANTOPEN: "The path must be a file in a writable folder: choose another one.",
    sqlite3.SQLITE_NOTADB: "It is no SQLite file, and was left as it is: choose another path.",
    sqlite3.SQLITE_CORRUPT: "The file is damaged: keep a copy, rescue what is readable with `sqlite3 FILE .recover`, "
    "and choose another path.",
}

_LAZY_SECONDS = 0.02
"""How long what nobody awaits may stay in the queue."""

_Row = tuple[int, float, str, str, str, str]
_Waiter = asyncio.Future[None] | SyncFuture[None]


class _Entry(NamedTuple):
    """One append in the queue. `waiter` belongs to `loop`, or to no loop; None: nobody waits, it is insured."""

    run_id: str
    rows: list[_Row]
    waiter: _Waiter | None
    loop: asyncio.AbstractEventLoop | None


class SqliteStore:
    """A `Store` in the file `path`, made with its folder on first use; several processes may use it at once.

    (run, seq) is an event's identity: an append that repeats one fails and writes nothing. Every failure is a
    `StoreError` that says what to do, and what was committed before it stays.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        """Held while the connection is used; the queue needs none."""
        self._queue: deque[_Entry] = deque()
        self._flushing: set[asyncio.AbstractEventLoop] = set()
        """Loops that will run a flush. Each loop flushes for itself: another one may never turn again."""
        self._lazy: set[asyncio.AbstractEventLoop] = set()
        """Loops that will look after the queue a little later."""
        self._insurance = Insurance(self.path)
        self._failed = False
        """The last transaction failed: until one succeeds, appends wait for theirs and hear what is wrong."""
        self._db: sqlite3.Connection | None = None
        self._runs: dict[str, int] = {}
        self._closed = False

    def append(self, run_id: str, events: Sequence[Event]) -> Awaitable[None]:
        """Queue the events; the awaitable ends when they are committed, which happens whether it is awaited or not.

        Without a running loop they are committed before this returns. Events that are not JSON are refused at once.
        """
        rows = [(e.seq, e.time, e.kind, e.scope, e.key, _encode(run_id, e)) for e in events]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._append_now(run_id, rows)
        # A run's first append waits for its transaction: there two processes that write one run find out.
        if run_id in self._runs and not self._failed and self._insured(run_id, rows):
            if loop not in self._lazy:
                self._lazy.add(loop)
                loop.call_later(_LAZY_SECONDS, self._flush_late, loop)
            return DONE
        waiter = loop.create_future()
        self._queue.append(_Entry(run_id, rows, waiter, loop))
        self._flush_soon(loop)
        return waiter

    def read(self, run_id: str) -> list[Event]:
        """All events of a run by `seq`, those still queued in this process included."""
        with self._lock:
            self._flush(None)
            try:
                return [_event(row) for row in self._connection().execute(_SELECT, (run_id,)).fetchall()]
            except _FAILURES as error:
                raise self._explained(error, f"read run {run_id!r}") from error

    def close(self) -> None:
        """Commit what is queued and close the file. Closing twice is harmless; a closed store refuses to be used."""
        with self._lock:
            failure = self._flush(None)
            self._closed = True
            self._insurance.close()
            if self._db is not None:
                self._db.close()
                self._db = None
        if failure is not None:
            raise failure

    def _append_now(self, run_id: str, rows: list[_Row]) -> Awaitable[None]:
        waiter: SyncFuture[None] = SyncFuture()
        self._queue.append(_Entry(run_id, rows, waiter, None))
        with self._lock:
            self._flush(None)
        waiter.result(timeout=0)  # done: by this flush, or by the one that held the lock before it
        return DONE

    def _insured(self, run_id: str, rows: list[_Row]) -> bool:
        """Queue the rows and make them outlive the process; False, with nothing queued, if that cannot be had."""
        with self._insurance.lock:
            if self._closed or not self._insurance.write([(run_id, *row) for row in rows]):
                return False
            self._queue.append(_Entry(run_id, rows, None, None))
            return True

    def _flush_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop not in self._flushing:
            self._flushing.add(loop)
            loop.call_soon(self._flush_on, loop)

    def _flush_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lazy.discard(loop)
        if self._queue:
            self._flush_on(loop)

    def _flush_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._flushing.discard(loop)
        with self._lock:
            self._flush(loop)

    def _flush(self, here: asyncio.AbstractEventLoop | None) -> StoreError | None:
        """Commit the queue, whoever filled it, and wake those who wait. `here` is the loop that runs this, if any."""
        batch = []
        while self._queue:
            batch.append(self._queue.popleft())
        return self._commit(batch, here) if batch else None

    def _commit(self, batch: list[_Entry], here: asyncio.AbstractEventLoop | None) -> StoreError | None:
        failure: StoreError | None = None
        try:
            self._write(batch)
        except _FAILURES as error:
            if len(batch) > 1 and isinstance(error, _OWN_FAULTS):
                for entry in batch:  # one append's mistake is not its neighbours'
                    failure = self._commit([entry], here) or failure
                return failure
            runs = {entry.run_id for entry in batch}
            what = f"run {batch[0].run_id!r}" if len(runs) == 1 else f"{len(runs)} runs"
            failure = self._explained(error, f"append to {what}")
            failure.__cause__ = error
        self._failed = failure is not None
        self._after(failure, insured=any(entry.waiter is None for entry in batch))
        for _, _, waiter, loop in batch:
            if waiter is None:
                continue
            if loop is here or loop is None:
                _settle(waiter, failure)
            else:
                with suppress(RuntimeError):  # a closed loop: nobody waits there any more
                    loop.call_soon_threadsafe(_settle, waiter, failure)
        return failure

    def _after(self, failure: StoreError | None, *, insured: bool) -> None:
        """What was insured and is refused stays in its file, and is said: nobody waits for it."""
        if failure is not None and insured:
            self._insurance.keep()
            logging.getLogger("redraft").error("%s", failure)
        with self._insurance.lock:
            if not self._queue:
                self._insurance.start_over()

    def _write(self, batch: list[_Entry]) -> None:
        """The batch in one transaction, or nothing of it."""
        db, runs = self._connection(), self._runs
        run_id, rows, _, _ = batch[0]
        if len(batch) == len(rows) == 1 and run_id in runs:
            db.execute(_INSERT, (runs[run_id], *rows[0]))  # a transaction by itself, without BEGIN and COMMIT
            return
        with db:  # commits, or rolls back whatever is raised
            db.execute("BEGIN IMMEDIATE")
            new = {run_id: _run_number(db, run_id) for run_id in {e.run_id for e in batch if e.run_id not in runs}}
            numbered = [(new.get(run_id) or runs[run_id], rows) for run_id, rows, _, _ in batch]
            db.executemany(_INSERT, [(run, *row) for run, rows in numbered for row in rows])
        runs.update(new)

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"The run store {self.path} is closed: open it anew with SqliteStore({str(self.path)!r}).")
        if self._db is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            with ExitStack() as failed:
                failed.callback(db.close)
                self._prepare(db)
                failed.pop_all()
            self._db = db
        return self._db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Check that the file is ours and not newer than this code, before anything in it is changed."""
        version = self._version(db)
        _enter_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 4000")  # pages, 16 MB: a checkpoint is the one place that fsyncs
        if version == 0:
            with db:
                db.execute("BEGIN IMMEDIATE")
                if self._version(db) == 0:  # else another process was faster
                    for statement in _SCHEMA:
                        db.execute(statement)
        for path, records in of_the_dead(self.path):
            with db:
                db.execute("BEGIN IMMEDIATE")
                for run_id, *row in records:
                    db.execute(_INSERT.replace("INSERT", "INSERT OR IGNORE", 1), (_run_number(db, run_id), *row))
            path.unlink(missing_ok=True)

    def _version(self, db: sqlite3.Connection) -> int:
        version, owner, tables = db.execute(_IDENTITY).fetchone()
        if owner != _APPLICATION_ID and (version or tables):
            raise StoreError(
                f"{self.path} is a database of another program, so nothing was written to it: choose another path."
            )
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"The run store {self.path} has schema version {version}, and this redraft knows {SCHEMA_VERSION}, so "
                "nothing was written to it: upgrade redraft, or choose another path."
            )
        return int(version)

    def _explained(self, error: BaseException, what: str) -> StoreError:
        """What failed, where, and what to do about it."""
        if isinstance(error, StoreError):
            return error
        unopened = sqlite3.SQLITE_CANTOPEN if isinstance(error, OSError) else 0  # its folder could not be made
        code: int = getattr(error, "sqlite_errorcode", unopened)
        advice = _ADVICE.get(code) or _ADVICE.get(code & 0xFF, _OTHER_ADVICE)  # the extended code, then the primary one
        return StoreError(f"Could not {what} in the run store {self.path}: {error}. {advice}")


def _enter_wal(db: sqlite3.Connection) -> None:
    """SQLite does not wait where two processes make the same file at once, so this does."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.002)


def _run_number(db: sqlite3.Connection, run_id: str) -> int:
    db.execute("INSERT OR IGNORE INTO runs (run_id) VALUES (?)", (run_id,))
    return int(db.execute("SELECT run FROM runs WHERE run_id = ?", (run_id,)).fetchone()[0])


def _settle(waiter: _Waiter, failure: StoreError | None) -> None:
    if waiter.done():  # its task was cancelled
        return
    if failure is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(failure)


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_json = partial(json.JSONEncoder, separators=(",", ":"), check_circular=False, allow_nan=False, default=_plain)
_encode_readable = _json(ensure_ascii=False).encode
_encode_escaped = _json(ensure_ascii=True).encode


def _encode(run_id: str, event: Event) -> str:
    """The event's data as JSON: text as people read it, except where UTF-8 cannot hold it (half a surrogate pair)."""
    try:
        text = _encode_readable(event.data)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return _encode_escaped(event.data)
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"Event {event.seq} ({event.kind}) of run {run_id!r} was not stored: its data is not JSON ({error}). "
            "Events hold JSON values only: text, finite numbers, booleans, null, lists, and mappings with text keys."
        ) from error


def _event(row: _Row) -> Event:
    seq, at, kind, scope, key, data = row
    return Event(seq=seq, kind=kind, time=at, scope=scope, key=key, data=json.loads(data))
