"""Why an awaited append costs one `write` to a plain file instead of a transaction.

What outlives `kill -9` is what the kernel has: a line in a file beside the database is as safe from that as a
transaction, at a twentieth of its price. So an append is durable once its line is written, and its row follows in a
transaction that many appends share. Whoever next reads the database takes over the files of processes that have
died: (run, seq) tells which rows the database has already.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from redraft.errors import StoreError
from redraft.jsonable import encoder
from redraft.store.rows import Row, parsed, whole

if sys.platform != "win32":  # which has no such locks: there an append pays for its transaction
    import fcntl

_TOO_LONG = 1 << 20

_encode = encoder(ensure_ascii=False)


class Insurance:
    """One store's file, made with its first line. Its lock on the file says that the owner lives."""

    def __init__(self, database: Path) -> None:
        self.lock = threading.Lock()
        """Held to add to the queue and the file, and to take from them, so that both have the same order."""
        self.path: Path | None = None
        self.stale = False
        """It may hold events of a run that was deleted: whoever took it over would bring them back."""
        self._database = database
        self._fd = -1
        self._let_go: weakref.finalize[[int], Insurance] | None = None
        self._size = 0
        self._kept = False

    def write(self, run_id: str, rows: Sequence[Row]) -> bool:
        """True once the rows outlive the process; False, with nothing written, where that cannot be had."""
        try:
            # The data is JSON already: it holds no line break, and must not be encoded twice on every call's path.
            lines = "".join(
                [f"{_encode((run_id, *row[:5]))}\t{row[5] if row[6] is None else whole(row)}\n" for row in rows]
            ).encode()
            if self.path is None:
                self._open()
            if os.write(self._fd, lines) == len(lines):
                self._size += len(lines)
                return True
            os.ftruncate(self._fd, self._size)  # or the next line would continue half a one
        except (OSError, UnicodeEncodeError):  # a name with half a surrogate pair: SQLite will say so
            pass
        return False

    def start_over(self) -> None:
        """All that was written is in the database: forget it, once the file is long or stale."""
        if (self.stale or self._size > _TOO_LONG) and not self._kept and self.path is not None:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
                self._size, self.stale = 0, False

    def keep(self) -> None:
        """The database refused what is in the file for good: leave it for people."""
        self._kept = True

    def close(self, *, keep: bool = False) -> None:
        """Remove the file, unless it is to be kept: then whoever next reads the database takes it over."""
        if self.path is not None and not (keep or self._kept):
            with suppress(OSError):
                self.path.unlink()
        self.let_go()

    def let_go(self) -> None:
        """Unlock the file. It happens by itself when the owner is forgotten or dies."""
        if self._let_go is not None:
            self._let_go()
        self.path = None

    def _open(self) -> None:
        if sys.platform == "win32":
            raise OSError
        path = self._database.with_name(f"{self._database.name}-{os.getpid()}-{os.urandom(3).hex()}.open")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            os.fchmod(fd, self._database.stat().st_mode & 0o666)  # for whoever may use the database
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(fd).st_nlink:
                raise FileNotFoundError  # somebody took it for a dead one's, before it was locked
        except OSError:
            path.unlink(missing_ok=True)
            os.close(fd)
            raise
        self._let_go = weakref.finalize(self, os.close, fd)
        self._let_go.atexit = False  # a thread may outlive that hook, and the number be another file's by then
        self.path, self._fd, self._size = path, fd, 0


def of_the_dead(database: Path) -> Iterator[tuple[Path, list[tuple[object, Row | None]]]]:
    """The files that dead owners left beside this database, and what they hold: run ids and rows.

    For a line that nobody can read the row is None. One without an end is left out: its append never ended either.
    """
    if sys.platform == "win32":
        return
    ours = re.compile(re.escape(database.name) + r"-\d+-[0-9a-f]{6}\.open")  # not those of a database "NAME-2"
    with os.scandir(database.parent) as entries:  # a third of what `iterdir` costs in a full folder, for every read
        names = sorted(entry.name for entry in entries if ours.fullmatch(entry.name))
    for path in map(database.with_name, names):
        with suppress(OSError), path.open("rb") as file:
            # Refused while the owner lives. Two heirs may have it: neither reads before it has committed the rows.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_nlink:  # else one of them is done
                yield path, [_record(line) for line in file if line.endswith(b"\n")]


def _record(line: bytes) -> tuple[object, Row | None]:
    try:
        head, _, data = line.decode().rstrip("\n").partition("\t")
        run_id, *values = json.loads(head)
        return run_id, parsed(values, data)
    except (ValueError, TypeError, RecursionError, StoreError):
        return None, None
