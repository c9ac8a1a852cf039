"""A forked child starts with its stores closed, and opens them for itself.

It must not use what its parent has open: a new SQLite connection beside an inherited one loses what it writes once
the parent closes. Nor may it hold that: a lock that it inherits would say of its dead parent that it lives.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.store.sqlite import SqliteStore

_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_one_fork = threading.Lock()
_held: list[SqliteStore] = []


def watch(store: SqliteStore) -> None:
    """Hold the store still during a fork, and start it anew in the child."""
    _stores.add(store)


def _before() -> None:
    _one_fork.acquire()
    for store in tuple(_stores):
        store._lock.acquire()
        store._insurance.lock.acquire()
        _held.append(store)


def _in_parent() -> None:
    while _held:
        store = _held.pop()
        store._insurance.lock.release()
        store._lock.release()
    _one_fork.release()


def _in_child() -> None:
    while _held:
        _held.pop()._start_anew()
    _one_fork.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
