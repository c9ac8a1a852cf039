"""SqliteCache: a file of replies that several processes share, and that cannot hurt a run."""

import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from redraft import config
from redraft.store import SqliteCache, SqliteStore


@pytest.fixture(autouse=True)
def said(monkeypatch):
    """What was said once on stderr, by this test."""
    lines = []
    monkeypatch.setattr("redraft.store.cache.say_once", lines.append)
    return lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "cache.db"


@pytest.fixture
def cache(path):
    cache = SqliteCache(path)
    yield cache
    cache.close()


def test_what_was_put_first_stays_and_outlives_the_process(cache, path, said):
    assert cache.get("k") is None
    cache.put("k", "één")
    cache.put("k", "two")
    assert cache.get("k") == "één"
    cache.close()
    assert cache.get("k") == "één", "opened again when it is needed"
    script = f"from redraft.store import SqliteCache; print(SqliteCache({str(path)!r}).get('k') == 'één')"
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "True\n"
    assert said == []


def test_it_forgets_by_the_beginning_of_keys(cache):
    for key in ("a|1", "a|2", "ab|1", "b|1"):
        cache.put(key, key)
    cache.forget("a|")
    assert [cache.get(key) for key in ("a|1", "a|2", "ab|1", "b|1")] == [None, None, "ab|1", "b|1"]


def test_the_oldest_go_first_and_the_file_keeps_its_size(cache, path):
    cache.max_bytes = 200_000
    for at in range(300):
        cache.put(f"k{at}", "x" * 2000)
    cache.close()
    assert path.stat().st_size < 300_000
    kept = [at for at in range(300) if cache.get(f"k{at}") is not None]
    assert kept == list(range(kept[0], 300))
    assert len(kept) > 40
    cache.put("big", "x" * 1_000_000)
    assert cache.get("big") is None, "more than the whole"


def test_threads_and_processes_share_one_file(cache, path, said):
    def write(name):
        cache = SqliteCache(path)
        for at in range(50):
            while cache.get(f"{name}{at}") is None:
                cache.put(f"{name}{at}", name)
        cache.close()

    script = (
        "import sys; from redraft.store import SqliteCache; c = SqliteCache(sys.argv[1])\n"
        "for at in range(50):\n"
        "    while c.get(f'p{at}') is None: c.put(f'p{at}', 'p')"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)])
    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process.wait(30) == 0
    assert all(cache.get(f"{name}{at}") == name for name in "abp" for at in range(50))
    assert said == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_process_opens_it_for_itself(cache):
    cache.put("parent", "1")
    child = os.fork()
    if not child:
        cache.put("child", "2")
        os._exit(0 if cache.get("parent") == "1" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (cache.get("parent"), cache.get("child")) == ("1", "2")


def corrupt(path):
    path.write_bytes(b"SQLite format 3\x00" + os.urandom(5000))


def not_sqlite(path):
    path.write_text("dear diary, " * 500)


def newer(path):
    cache = SqliteCache(path)
    cache.put("k", "v")
    cache.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()


def foreign(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine (x)")
    db.close()


def store(path):
    with SqliteStore(path) as store:
        store.read("r")


def folder(path):
    path.mkdir()


@pytest.mark.parametrize(
    "spoil", [corrupt, not_sqlite, newer, foreign, store, folder], ids=lambda spoil: spoil.__name__
)
def test_a_file_that_cannot_be_used_is_said_once_and_left_as_it_is(cache, path, said, spoil):
    path.parent.mkdir()
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    for _ in range(3):
        assert cache.get("k") is None
        cache.put("k", "v")
        cache.forget("k")
    (line,) = said
    assert str(path) in line
    assert "every reply is bought" in line
    assert before is None or path.read_bytes() == before


def test_a_folder_that_cannot_be_made(tmp_path, said):
    (tmp_path / "file").write_text("")
    cache = SqliteCache(tmp_path / "file" / "cache.db")
    assert (cache.get("k"), len(said)) == (None, 1)


def test_a_file_that_became_read_only_is_given_up_at_the_first_write(cache, said):
    cache.put("k", "v")
    cache._db.execute("PRAGMA query_only = ON")  # as SQLite itself says it, also to root
    assert cache.get("k") == "v"
    cache.put("l", "w")
    assert (len(said), cache.get("k")) == (1, None)


def test_a_file_that_stays_locked_is_waited_for_a_moment_only(cache, path, said):
    cache.put("k", "v")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    cache.put("l", "w")
    assert (cache.get("k"), cache.get("l"), said) == ("v", None, []), "readers do not wait for a writer"
    other.execute("ROLLBACK")
    cache.put("l", "w")
    assert cache.get("l") == "w"
    other.execute("BEGIN IMMEDIATE")
    for at in range(3):
        cache.put(f"m{at}", "x")
    assert len(said) == 1
    other.close()


def test_what_is_no_text_is_left_out(cache, said):
    cache.put("k", "half \ud83d")
    assert (cache.get("k"), said) == (None, [])


def test_no_such_setting():
    with pytest.raises(config.ConfigError, match="give a path, or a SqliteCache"):
        config.configure(cache=3)
