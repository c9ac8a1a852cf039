"""A store in a folder of its own."""

import pytest

from redraft.store import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


@pytest.fixture
def store(path):
    store = SqliteStore(path)
    yield store
    store.close()
