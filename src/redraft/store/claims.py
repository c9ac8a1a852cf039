"""One writer for a run, whatever process it is in: a locked file beside the database while the run is open.

Nothing in it but the writer's process id, for people. A process that dies lets go of the lock; the file that it leaves is
taken by whoever goes on with the run, or removed by `gc`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from redraft.errors import StoreError
from redraft.locks import lock

_held: dict[int, Path] = {}
"""Descriptors of this process, with their files."""


def claim(database: Path, run_id: str) -> Callable[[], None]:
    """Claim a run; returns what gives it back. Raises `StoreError` if somebody else has it.

    Where files cannot be locked or made nothing is claimed: two writers then meet at an event of one number.
    """
    code = blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    path = database.with_name(f"{database.name}-{code}.run")
    try:
        descriptor = _locked(path)
    except (BlockingIOError, PermissionError) as error:
        raise StoreError(
            f"run {run_id!r} is at work in another process{_whose(path)}, so nothing was bought for it here: wait for its "
            "end, or end that process, and go on with it then"
        ) from error
    except OSError:
        return lambda: None
    _held[descriptor] = path
    return lambda: _give_back(descriptor, path)


def _locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock(descriptor)
            if sys.platform != "win32":  # where a locked file cannot be read
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
            if os.fstat(descriptor).st_nlink:  # else its owner has just given it back
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _whose(path: Path) -> str:
    try:
        return f" ({path.read_text()})"
    except OSError:
        return ""


def _give_back(descriptor: int, path: Path) -> None:
    if _held.pop(descriptor, None) != path:  # given back before, or a parent's
        return
    if sys.platform == "win32":  # where an open file stays
        os.close(descriptor)
    with suppress(OSError):
        path.unlink()
    if sys.platform != "win32":
        os.close(descriptor)


def remove_left(database: Path) -> None:
    """Remove the files that dead processes have left beside a database."""
    ours = re.compile(re.escape(database.name) + r"-[0-9a-f]{20}\.run")
    for path in [path for path in database.parent.iterdir() if ours.fullmatch(path.name)]:
        with suppress(OSError):
            descriptor = _locked(path)
            _held[descriptor] = path
            _give_back(descriptor, path)


def _in_child() -> None:
    """A forked child would go on holding what its dead parent has claimed."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
