"""What went wrong with a run store, and what to do about it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from redraft.errors import StoreError

BUSY_SECONDS = 1.0
"""How long a commit waits for another process. Theirs take well under a millisecond; meanwhile the loop stands."""


class DamagedError(ValueError):
    """For what stands in the file and was never written so."""


_DAMAGED = (
    "The file is damaged, or another program has changed it: keep a copy, and take a backup; or, if one run is to blame, "
    "delete it with `redraft runs delete --yes` and begin it anew."
)
_OTHER_ADVICE = "What was committed before is unharmed."
_ADVICE = {
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: "An event of this number exists already, so two writers share one run: end the "
    "other one, or use another run id.",
    sqlite3.SQLITE_FULL: "Free some disk space and resume the run; what was committed before is unharmed.",
    sqlite3.SQLITE_BUSY: f"Another process has held its write lock for {BUSY_SECONDS:.0f} s: end that transaction and "
    "resume the run.",
    sqlite3.SQLITE_READONLY: "Make the file and its folder writable, or choose another path.",
    sqlite3.SQLITE_CANTOPEN: "The path must be a file in a writable folder: choose another one.",
    sqlite3.SQLITE_NOTADB: "It is no SQLite file, and was left as it is: choose another path.",
    sqlite3.SQLITE_CORRUPT: "The file is damaged: keep a copy, rescue what is readable with `sqlite3 FILE .recover`, "
    "and choose another path.",
}


def explained(error: Exception, what: str, path: Path) -> StoreError:
    """What failed, where, and what to do about it."""
    if isinstance(error, StoreError):
        return error
    unopened = sqlite3.SQLITE_CANTOPEN if isinstance(error, OSError) else 0  # its folder could not be made
    code: int = getattr(error, "sqlite_errorcode", unopened)
    advice = _ADVICE.get(code) or _ADVICE.get(code & 0xFF, _OTHER_ADVICE)  # the extended code, then the primary one
    if isinstance(error, DamagedError) or "malformed JSON" in str(error):  # SQLite has no code of its own for it
        advice = _DAMAGED
    failure = StoreError(f"Could not {what} in the run store {path}: {error}. {advice}")
    failure.__cause__ = error
    return failure


def moved(path: Path) -> StoreError:
    """For a file that is not where it was opened."""
    return StoreError(
        f"The run store {path} was moved or deleted while it was in use, so nothing more is written to it: put it "
        f"back, or open it anew with SqliteStore({str(path)!r})."
    )
