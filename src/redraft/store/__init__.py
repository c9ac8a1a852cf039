"""Stores: where a run's journal is kept, and replies for other runs."""

from redraft.store.cache import SqliteCache
from redraft.store.sqlite import SqliteStore

__all__ = ["SqliteCache", "SqliteStore"]
