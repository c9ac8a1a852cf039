"""Stores: where a run's journal is kept."""

from redraft.store.sqlite import SqliteStore

__all__ = ["SqliteStore"]
