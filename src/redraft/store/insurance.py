"""Why an awaited append costs one `write` to a plain file instead of a transaction.

What outlives `kill -9` is what the kernel has: a line in a file beside the database is as safe from that as a
transaction, at a twentieth of its price. So an append is durable once its line is written, and its row follows in a
transaction that many appends share. Whoever next opens the database takes over the files of processes that have
died: (run, seq) tells which rows the database has already.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":  # which has no such locks: there an intent pays for its transaction
    import fcntl

_TOO_LONG = 1 << 20

Record = tuple[str, int, float, str, str, str, str]
"""Run id, seq, time, kind, scope, key, and the data as JSON text."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Insurance:
    """One process's file. Its lock on the file says that the owner lives."""

    def __init__(self, database: Path) -> None:
        self.lock = threading.Lock()
        """Hold it to append to the queue and write, and to look at the queue and start over."""
        self._database = database
        self._fd: int | None = None
        self._path: Path | None = None
        self._size = 0
        self._kept = False

    def write(self, records: Iterable[Record]) -> bool:
        """True once the records outlive the process; False if this file cannot be had (then use a transaction)."""
        # The data is JSON already: it holds no line break, and must not be encoded twice on every call's path.
        lines = "".join(
            f"{_encode((run_id, seq, at, kind, scope, key))}\t{data}\n"
            for run_id, seq, at, kind, scope, key, data in records
        ).encode()
        try:
            if self._fd is None and not self._open():
                return False
            assert self._fd is not None
            if os.write(self._fd, lines) != len(lines):
                return False
        except OSError:
            return False
        self._size += len(lines)
        return True

    def start_over(self) -> None:
        """All that was written is in the database: forget it, once the file is long."""
        if self._fd is not None and self._size > _TOO_LONG and not self._kept:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
                self._size = 0

    def keep(self) -> None:
        """The database refused what is in the file: leave it for whoever opens the database next."""
        self._kept = True

    def close(self) -> None:
        """Remove the file, unless it is to be kept."""
        if self._fd is not None and self._path is not None:
            if not self._kept:
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None

    def _open(self) -> bool:
        if sys.platform == "win32":
            return False
        path = self._database.with_name(f"{self._database.name}-{os.getpid()}-{os.urandom(3).hex()}.open")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._fd, self._path = fd, path
        return True


def of_the_dead(database: Path) -> Iterator[tuple[Path, list[Record]]]:
    """The files that processes left beside this database when they died, and what is in them. Yields each locked."""
    if sys.platform == "win32":
        return
    for path in sorted(database.parent.glob(f"{database.name}-*.open")):
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path, list(_records(path))
        finally:
            os.close(fd)


def _records(path: Path) -> Iterator[Record]:
    for line in path.read_bytes().splitlines():
        with suppress(ValueError):  # the last line of a process that died while writing it
            head, _, data = line.decode().partition("\t")
            json.loads(data)
            run_id, seq, at, kind, scope, key = json.loads(head)
            yield run_id, seq, at, kind, scope, key, data
