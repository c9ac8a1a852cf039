"""What an intent costs: one `write` to a plain file instead of a transaction of its own.

An intent must outlive `kill -9` before its call is sent, but nobody reads it unless that happens. So it is appended
to a file beside the database (the page cache outlives the process), and its row rides in the transaction of the
reply. Whoever next opens the database takes over the files of processes that have died: (run, seq) tells which
intents the database has already.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

if sys.platform != "win32":  # which has no such locks: there an intent pays for its transaction
    import fcntl

_TOO_LONG = 1 << 20

Record = tuple[str, int, float, str, str, str]
"""Run id, seq, time, scope, key, data: what is written of an intent; the prompt is left out."""


class Insurance:
    """One process's file. Its lock says that the owner lives."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._fd: int | None = None
        self._path: Path | None = None
        self._size = 0

    def write(self, record: Record) -> bool:
        """True once the record outlives the process; False if this file cannot be had (then use a transaction)."""
        line = json.dumps(record).encode() + b"\n"
        try:
            if self._fd is None and not self._open():
                return False
            assert self._fd is not None
            if os.write(self._fd, line) != len(line):
                return False
        except OSError:
            return False
        self._size += len(line)
        return True

    def all_committed(self) -> None:
        """Nothing written here is missing in the database: start over once the file is long."""
        if self._fd is not None and self._size > _TOO_LONG:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
                self._size = 0

    def close(self) -> None:
        """Remove the file; call it only when all is committed."""
        if self._fd is not None and self._path is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._fd)
            self._fd = None

    def leave(self) -> None:
        """Let go of the file and keep it for whoever opens the database next."""
        if self._fd is not None:
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
            fields: Any = json.loads(line)
            if isinstance(fields, list) and len(fields) == 6:
                yield tuple(fields)
