"""The journal in one SQLite file (WAL mode), for any number of tasks, threads, event loops and processes.

An append joins one queue for the whole store, and a line in a plain file makes it outlive the process at once,
`kill -9` included (`insurance.py`). Rows follow within `_LAZY_SECONDS`, many to a transaction, in queue order. A run's
first append ends only with its transaction, and so does every one behind it in the queue, or where there is no such
file, or while transactions fail. So what outlives the process is always a prefix of what was appended, short of an
append that failed.

`synchronous=NORMAL` leaves out the fsync per commit. What was acknowledged survives whatever ends the process; where
the machine itself dies (power, kernel), the last moments may be lost, and the file stays whole.

A message that many calls send is in the file once (`messages.py`); what people see in it is in `views.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future as SyncFuture
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from redraft.errors import StoreError
from redraft.journal import DONE
from redraft.store import claims, cleaning, forks, kept, rows
from redraft.store.advice import BUSY_SECONDS, explained, moved
from redraft.store.cleaning import Collected
from redraft.store.database import DELETIONS, INSERT, OWN_FAULTS, connect, rows_of, run_number, take_over
from redraft.store.insurance import Insurance
from redraft.store.kept import KeptRun
from redraft.store.messages import Messages
from redraft.store.rows import Row
from redraft.types import Event

if TYPE_CHECKING:
    from os import PathLike


class _RefusedError(StoreError):
    """For an append to a run of which an insured append was refused: its writer has to hear of it."""


_FAILURES = (sqlite3.Error, OSError, ValueError, OverflowError, StoreError)
_OWN_FAULTS = (*OWN_FAULTS, _RefusedError)

_LAZY_SECONDS = 0.02
"""How long the row of an insured append may take, while its loop turns."""

_log = logging.getLogger("redraft")

_Waiter = asyncio.Future[None] | SyncFuture[None]


class _Entry(NamedTuple):
    """One append in the queue. `waiter` belongs to `loop`, or to no loop; None: nobody waits, it is insured."""

    run_id: str
    rows: list[Row]
    waiter: _Waiter | None
    loop: asyncio.AbstractEventLoop | None


class _Turn:
    """A flush that a loop was asked for. One that is closed before drops it, which is when it flushes."""

    __slots__ = ("_asked", "_loop", "_store")

    def __init__(
        self, store: SqliteStore, loop: asyncio.AbstractEventLoop, asked: set[asyncio.AbstractEventLoop]
    ) -> None:
        self._store, self._loop, self._asked = store, loop, asked
        asked.add(loop)

    def __call__(self) -> None:
        self._asked.discard(self._loop)
        with self._store._lock:
            self._store._flush(self._loop)

    def __del__(self) -> None:
        if self._loop.is_closed() and self._loop in self._asked:
            self._asked.discard(self._loop)
            if not self._store._in_use():  # by this thread even, if it is the garbage collector that calls
                with self._store._lock:
                    self._store._flush(None)


class SqliteStore:
    """A `Store` in the file `path`, made with its folder on first use; several processes may use it at once.

    (run, seq) is an event's identity: an append that repeats one fails and writes nothing. Every failure is a
    `StoreError` that says what to do, and what was committed before it stays. An append that is refused after it was
    awaited stays in a file beside the database and is logged, and its run takes no further ones.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).resolve()  # as SQLite does: neither a link nor a later chdir leads elsewhere
        self._closed = False
        self._db: sqlite3.Connection | None = None
        self._file: os.stat_result
        """Where the connection is: a file may be moved or deleted under it."""
        self._insurance = Insurance(self.path)
        self._start_anew()
        forks.watch(self)

    def _start_anew(self) -> None:
        """As in the beginning; nothing that is queued here is written. For a forked child: `forks.py`."""
        if self._db is not None:
            self._db.close()
            self._db = None
        self._insurance.let_go()
        self._insurance = Insurance(self.path)
        """Its lock is for the queue too. Both: first `_lock`, then this one."""
        self._lock = threading.Lock()
        """Held while the connection is used."""
        self._queue: deque[_Entry] = deque()
        """What is not committed. The insured ones stay through a failed transaction; who waits is told of it."""
        self._soon: set[asyncio.AbstractEventLoop] = set()
        """Loops that will run a flush. Each loop flushes for itself: another one may never turn again."""
        self._later: set[asyncio.AbstractEventLoop] = set()
        """Loops that will look after the queue a little later."""
        self._failing = False
        """The last transaction failed: until one succeeds, appends wait for theirs and hear what is wrong."""
        self._refused: dict[str, str] = {}
        """Runs of which an insured append was refused for good, and why."""
        self._runs: dict[str, int] = {}
        self._messages = Messages()
        self._deletions = 0
        """How often runs had been deleted when these two were right."""

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, run_id: str, events: Sequence[Event]) -> Awaitable[None]:
        """Queue the events; the awaitable ends when they outlive the process, whether it is awaited or not.

        Without a running loop they are committed before this returns. Events that are not JSON are refused at once.
        """
        made = [rows.made(run_id, event) for event in events]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._append_now(run_id, made)
        with self._insurance.lock:
            waiter = None if self._insured(run_id, made) else loop.create_future()
            self._queue.append(_Entry(run_id, made, waiter, loop))
        if waiter is None:
            if loop not in self._later:
                loop.call_later(_LAZY_SECONDS, _Turn(self, loop, self._later))
            return DONE
        if loop not in self._soon:
            loop.call_soon(_Turn(self, loop, self._soon))
        return waiter

    def read(self, run_id: str) -> list[Event]:
        """All events of a run by `seq`: those still queued in this process, and what dead processes left, included."""
        with self._used(f"read run {run_id!r}") as db:
            found = rows_of(db, run_id)
            with self._insurance.lock:
                found += [row for entry in self._queue if entry.run_id == run_id for row in entry.rows]
            return [rows.event(row) for row in found]

    def claim(self, run_id: str) -> Callable[[], None]:
        """Be the one who writes a run, until what is returned is called or the process ends. Raises `StoreError` if somebody
        else is, in whatever process.
        """
        give_back = claims.claim(self.path, run_id)

        def release() -> None:
            # Whoever has the run next reads the database: what is queued here has to be there.
            if not self._closed and self._comes_free(self._lock) and self._comes_free(self._insurance.lock):
                with self._lock:
                    self._flush(None)
            give_back()

        return release

    @staticmethod
    def _comes_free(held: threading.Lock) -> bool:
        """False if it is held by this very thread, where the garbage collector calls."""
        free = held.acquire(timeout=BUSY_SECONDS)
        if free:
            held.release()
        return free

    def run_ids(self) -> list[str]:
        """The ids of all runs, the newest first."""
        with self._used("list the runs") as db:
            return kept.ids(db)

    def runs(self, limit: int | None = None) -> list[KeptRun]:
        """All runs in short, or the newest ones; the newest first."""
        with self._used("list the runs") as db:
            return kept.newest(db, limit)

    def run(self, run_id: str) -> KeptRun | None:
        """One run in short; None if there is none of that id."""
        with self._used(f"look for run {run_id!r}") as db:
            return kept.one(db, run_id)

    def delete(self, *run_ids: str) -> int:
        """Delete runs for good; how many there were. What a run that is at work writes later begins a new one."""
        with self._used("delete runs") as db:
            return kept.delete(db, run_ids)

    def gc(self, *, refused: bool = False, vacuum: bool = False) -> Collected:
        """Give the space of deleted runs back to the disk, in steps of milliseconds between which others write.

        `refused`: delete, too, what dead processes wrote and this store could not take (two writers of one run); it is in
        files of its own beside the database. `vacuum`: rewrite the file, which takes up to its size of further space, and
        300 MB in about 1.5 s; whoever writes meanwhile may be told that it is locked. A file of an older redraft gets shorter
        in no other way, and is collected in steps from then on.
        """
        with self._used("clean up"):
            pass
        try:
            with closing(connect(self.path)) as db:  # of its own: nobody here waits for all of it
                return cleaning.gc(db, self.path, refused=refused, vacuum=vacuum)
        except _FAILURES as error:
            raise explained(error, "clean up", self.path) from error

    @contextmanager
    def _used(self, what: str) -> Iterator[sqlite3.Connection]:
        """The connection, once all that is queued and all that dead processes left is in the database."""
        with self._lock:
            self._flush(None)
            try:
                db = self._connection()
                take_over(db, self.path)
                yield db
            except _FAILURES as error:
                raise explained(error, what, self.path) from error

    def close(self) -> None:
        """Commit what is queued and close the file. Closing twice is harmless; a closed store refuses to be used."""
        with self._lock:
            failure = self._flush(None)
            with self._insurance.lock:
                self._closed = True
                self._insurance.close(keep=bool(self._queue))
                self._queue = deque(entry for entry in self._queue if entry.waiter is not None)
            if self._db is not None:
                self._db.close()
                self._db = None
        if failure is not None:
            raise failure

    def _append_now(self, run_id: str, made: list[Row]) -> Awaitable[None]:
        waiter: SyncFuture[None] = SyncFuture()
        with self._insurance.lock:
            self._queue.append(_Entry(run_id, made, waiter, None))
        with self._lock:
            self._flush(None)
        waiter.result(timeout=0)  # done: by this flush, or by the one that held the lock before it
        return DONE

    def _insured(self, run_id: str, made: list[Row]) -> bool:
        """Make the rows outlive the process now; False, with nothing written, if they have to wait."""
        if run_id not in self._runs or run_id in self._refused or self._failing or self._closed:
            return False  # a run's first append waits: there two processes that write one run find out
        if self._queue and self._queue[-1].waiter is not None:
            return False  # or this one might outlive what was appended before it
        return self._insurance.write(run_id, made)

    def _in_use(self) -> bool:
        return self._lock.locked() or self._insurance.lock.locked()

    def _flush(self, here: asyncio.AbstractEventLoop | None) -> StoreError | None:
        """Commit the queue, whoever filled it, and wake those who wait. `here` is the loop that runs this, if any."""
        with self._insurance.lock:
            parts = deque([list(self._queue)] if self._queue else ())
        failure: StoreError | None = None
        while parts:
            part = parts.popleft()
            error = self._commit(part)
            if isinstance(error, _OWN_FAULTS) and len(part) > 1:
                parts.extend([entry] for entry in part)  # one append's mistake is not its neighbours'
                continue
            if error is not None and not isinstance(error, _OWN_FAULTS):
                part.extend(entry for later in parts for entry in later)  # nothing overtakes what failed
                parts.clear()
            failure = self._end(part, error, here) or failure
        return failure

    def _commit(self, batch: list[_Entry]) -> Exception | None:
        """What keeps the batch from being committed, if anything does."""
        try:
            self._write(batch)
        except _FAILURES as error:
            self._messages.forget()  # those of a transaction that was rolled back
            return error
        return None

    def _end(
        self, batch: list[_Entry], error: Exception | None, here: asyncio.AbstractEventLoop | None
    ) -> StoreError | None:
        """Take the batch from the head of the queue, and tell whoever has to know how it ended."""
        failure = None if error is None else self._judged(batch, error)
        lasting = error is not None and not isinstance(error, _OWN_FAULTS)
        with self._insurance.lock:
            for _ in batch:
                self._queue.popleft()
            if lasting:
                self._queue.extendleft([entry for entry in reversed(batch) if entry.waiter is None])
            self._failing = lasting
            if not self._queue:
                self._insurance.start_over()
        for _, _, waiter, loop in batch:
            if waiter is None:
                continue
            if loop is here or loop is None:
                _settle(waiter, failure)
            else:
                with suppress(RuntimeError):  # a closed loop: nobody waits there any more
                    loop.call_soon_threadsafe(_settle, waiter, failure)
        return failure

    def _judged(self, batch: list[_Entry], error: Exception) -> StoreError:
        """The failure in words. Of what is insured it is logged: nobody waits for that."""
        runs = {entry.run_id for entry in batch}
        what = f"run {batch[0].run_id!r}" if len(runs) == 1 else f"{len(runs)} runs"
        failure = explained(error, f"append to {what}", self.path)
        if isinstance(error, _RefusedError) or all(entry.waiter is not None for entry in batch):
            return failure
        if isinstance(error, _OWN_FAULTS):
            self._insurance.keep()
            self._refused[batch[0].run_id] = str(failure)
        elif self._failing:
            return failure  # it has been said
        _log.error("%s What was awaited already is kept in %s.", failure, self._insurance.path)
        return failure

    def _write(self, batch: list[_Entry]) -> None:
        """The batch in one transaction, or nothing of it."""
        db, runs, messages = self._connection(), self._runs, self._messages
        names = {entry.run_id for entry in batch}
        for run_id in self._refused.keys() & names:
            raise _RefusedError(self._refused[run_id])
        first = batch[0]
        if len(batch) == len(first.rows) == 1 and first.rows[0][6] is None and self._knows(db, names):
            db.execute(INSERT, (runs[first.run_id], *first.rows[0]))  # a transaction without BEGIN and COMMIT
            return
        with db:  # commits, or rolls back whatever is raised
            db.execute("BEGIN IMMEDIATE")
            self._knows(db, names)
            new = {run_id: run_number(db, run_id) for run_id in names - runs.keys()}
            numbered = [(new.get(run_id) or runs[run_id], rows) for run_id, rows, _, _ in batch]
            made = [(n, *(row if row[6] is None else messages.stored(db, row))) for n, rows in numbered for row in rows]
            db.executemany(INSERT, made)
        runs.update(new)

    def _knows(self, db: sqlite3.Connection, names: set[str]) -> bool:
        """True if all these runs have numbers. Where runs were deleted meanwhile, by whatever process, none has."""
        (deletions,) = db.execute(DELETIONS).fetchone()
        if deletions != self._deletions:
            self._deletions = deletions
            self._insurance.stale = True
            self._runs.clear()
            self._messages.forget()
        return names <= self._runs.keys()

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"The run store {self.path} is closed: open it anew with SqliteStore({str(self.path)!r}).")
        if self._db is None:
            db, self._file = connect(self.path), self.path.stat()
            self._db = db
        if not self._in_place():
            raise moved(self.path)
        return self._db

    def _in_place(self) -> bool:
        try:
            return os.path.samestat(self._file, self.path.stat())
        except OSError:
            return False


def _settle(waiter: _Waiter, failure: StoreError | None) -> None:
    if waiter.done():  # its task was cancelled
        return
    if failure is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(failure)
