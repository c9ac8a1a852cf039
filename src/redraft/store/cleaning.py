"""Giving back the space of what is gone: in short transactions, between which others write."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from redraft.store.claims import remove_left
from redraft.store.database import DELETIONS

_AT_ONCE = 1000
"""Messages, or pages, that one step takes away: a few milliseconds."""
_INCREMENTAL = 2
"""`PRAGMA auto_vacuum` of the files that can be shortened in steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What `gc` did."""

    messages: int
    """That no call of a run uses any more."""
    events: int
    """That a writer added to a run after it was deleted."""
    bytes: int
    """By which the file is shorter."""
    free: int
    """Bytes in the file that later runs will use; only `vacuum` gives them back to the disk."""
    refused: tuple[Path, ...]
    """Files beside the database with events of dead processes that it could not take: there still, or removed."""


# Whoever writes looks at this number in each transaction: it tells that runs, and messages, may be gone.
DELETED = (
    "UPDATE state SET deletions = deletions + 1, last_run = max(last_run, ifnull((SELECT max(run) FROM run_ids), 0))"
)
_USED = """SELECT part.value FROM events, json_each(parts) AS part
    WHERE parts IS NOT NULL AND part.type = 'integer'"""
_UNUSED = f"SELECT message FROM messages WHERE message NOT IN ({_USED})"  # noqa: S608 - constants


def gc(db: sqlite3.Connection, path: Path, *, refused: bool, vacuum: bool) -> Collected:
    """Drop what belongs to no run, and shorten the file. `refused`: remove the files of `Collected.refused`, too."""
    before = _size(path)
    events = _drop_events(db)
    messages = _drop_messages(db)
    _shorten(db, vacuum=vacuum)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    remove_left(path)
    left = leftovers(path)
    if refused:
        for file in left:
            file.unlink(missing_ok=True)
    shorter = max(0, before - _size(path))
    (page,) = db.execute("PRAGMA page_size").fetchone()
    return Collected(messages=messages, events=events, bytes=shorter, free=_free(db) * page, refused=tuple(left))


def _drop_events(db: sqlite3.Connection) -> int:
    """Those of runs that were deleted before, and runs without any."""
    dropped = 0
    for run in db.execute("SELECT DISTINCT run FROM events WHERE run NOT IN (SELECT run FROM run_ids)").fetchall():
        with _writing(db):
            db.execute(DELETED)
            dropped += db.execute("DELETE FROM events WHERE run = ?", run).rowcount
    with _writing(db):
        db.execute("DELETE FROM run_ids WHERE NOT EXISTS (SELECT 1 FROM events WHERE run = run_ids.run)")
    return dropped


def _drop_messages(db: sqlite3.Connection) -> int:
    """Those of no event. Which ones is found out while others write, so each step looks at what is new."""
    dropped, done = 0, False
    while not done:
        with _writing(db, "DEFERRED"):  # all of one moment
            (deletions,) = db.execute(DELETIONS).fetchone()
            (last,) = db.execute("SELECT ifnull(max(rowid), 0) FROM events").fetchone()
            unused = [number for (number,) in db.execute(_UNUSED)]
        done = True
        for some in _parts(unused):
            with _writing(db):
                if db.execute(DELETIONS).fetchone() != (
                    deletions,
                ):  # rows were deleted: their numbers may be given again
                    done = False
                    break
                db.execute(DELETED)
                deletions += 1
                new = {number for (number,) in db.execute(f"{_USED} AND events.rowid > ?", (last,))}
                gone = [(number,) for number in some if number not in new]
                dropped += db.executemany("DELETE FROM messages WHERE message = ?", gone).rowcount if gone else 0
    return dropped


def _shorten(db: sqlite3.Connection, *, vacuum: bool) -> None:
    if vacuum:
        db.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        db.execute("VACUUM")
    elif db.execute("PRAGMA auto_vacuum").fetchone() == (_INCREMENTAL,):
        free = _free(db)
        while free:
            db.execute(f"PRAGMA incremental_vacuum({_AT_ONCE})").fetchall()
            before, free = free, _free(db)
            if free >= before:  # others free pages as fast
                return


def _free(db: sqlite3.Connection) -> int:
    """Pages that hold nothing."""
    return int(db.execute("PRAGMA freelist_count").fetchone()[0])


@contextmanager
def _writing(db: sqlite3.Connection, how: str = "IMMEDIATE") -> Iterator[None]:
    with db:  # commits, or rolls back whatever is raised
        db.execute(f"BEGIN {how}")
        yield


def _parts(numbers: Sequence[int]) -> Iterator[list[int]]:
    rest = iter(numbers)
    while part := list(islice(rest, _AT_ONCE)):
        yield part


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
