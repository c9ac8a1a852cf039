"""Locks on files: one process at a time has one, and lets go of it when it dies."""

from __future__ import annotations

import sys


def lock(descriptor: int) -> None:
    """Lock an open file for this descriptor. Raises `BlockingIOError` or `PermissionError` if another one has it, another
    `OSError` where there are no locks.
    """
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
