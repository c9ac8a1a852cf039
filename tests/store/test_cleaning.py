"""`gc`: what goes, what stays, and that others write while it works; files of older versions."""

import sqlite3
import threading

import pytest

from redraft.journal import INTENT
from redraft.jsonable import canonical
from redraft.store import SqliteStore, cleaning
from redraft.store.database import SCHEMA_VERSION
from redraft.types import Event


def asked(seq, text, run="r"):
    content = canonical({"model": "m", "messages": [{"role": "user", "content": text}]})
    return Event(seq=seq, kind=INTENT, time=1.0, key=f"{run}{seq}", data={"content": content, "reserved": {"calls": 1}})


def filled(store, runs, text="x" * 3000):
    for run in range(runs):
        store.append(f"run{run}", [asked(seq, f"{text} {run} {seq}", str(run)) for seq in range(20)])


def size(path):
    return cleaning._size(path)


def test_a_file_gets_shorter_without_being_rewritten(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaning, "_AT_ONCE", 50)
    path = tmp_path / "runs.db"
    with SqliteStore(path) as store:
        filled(store, 30)
        store.delete(*[f"run{n}" for n in range(25)])
        before = size(path)
        done = store.gc()
        assert (done.messages, done.free) == (25 * 20, 0)
        assert size(path) < before / 3
        assert len(store.read("run29")) == 20


def test_others_write_while_it_works_and_lose_nothing(tmp_path, monkeypatch):
    """The other one brings back texts that are being taken away, between any two steps."""
    monkeypatch.setattr(cleaning, "_AT_ONCE", 7)
    path = tmp_path / "runs.db"
    with SqliteStore(path) as store, SqliteStore(path) as other:
        filled(store, 10)
        texts = [f"{'x' * 3000} {run} {seq}" for run in range(8) for seq in range(20)]
        store.delete(*[f"run{n}" for n in range(8)])
        steps = []
        parts = cleaning._parts

        def between(numbers):
            for part in parts(numbers):
                seq = len(steps)
                steps.append(part)
                other.append("new", [asked(seq, texts[seq * 5 % len(texts)])])
                yield part

        monkeypatch.setattr(cleaning, "_parts", between)
        store.gc()
        assert len(steps) > 20
        with SqliteStore(path) as third:
            found = third.read("new")
        assert [texts[n * 5 % len(texts)] in event.data["content"] for n, event in enumerate(found)] == [True] * len(
            steps
        )


def test_runs_that_are_deleted_meanwhile_make_it_look_again(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaning, "_AT_ONCE", 7)
    path = tmp_path / "runs.db"
    with SqliteStore(path) as store, SqliteStore(path) as other:
        filled(store, 10)
        store.delete("run0", "run1")
        parts, looked = cleaning._parts, []

        def between(numbers):
            looked.append(len(numbers))
            for part in parts(numbers):
                if len(looked) == 1:
                    other.delete("run2")
                yield part

        monkeypatch.setattr(cleaning, "_parts", between)
        assert store.gc().messages == 3 * 20
        assert looked == [40, 60]


def test_a_thread_of_this_process_does_not_wait_for_all_of_it(tmp_path, monkeypatch):
    with SqliteStore(tmp_path / "runs.db") as store:
        filled(store, 4)
        store.delete("run0")
        inside, wrote = threading.Event(), threading.Event()
        shorten = cleaning._shorten

        def held(db, **options):
            inside.set()
            assert wrote.wait(20)
            shorten(db, **options)

        monkeypatch.setattr(cleaning, "_shorten", held)
        worker = threading.Thread(target=store.gc)
        worker.start()
        assert inside.wait(20)
        store.append("new", [asked(0, "hello")])
        wrote.set()
        worker.join(20)
        assert not worker.is_alive()
        assert len(store.read("new")) == 1


@pytest.fixture
def old(tmp_path):
    """A file as version 2 made it: other views, and no way to be shortened in steps."""
    path = tmp_path / "old.db"
    with SqliteStore(path) as store:
        filled(store, 10)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DROP VIEW runs")
    db.execute("CREATE VIEW runs AS SELECT run_id FROM run_ids")
    db.execute("PRAGMA user_version = 2")
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("PRAGMA auto_vacuum = NONE")
    db.execute("VACUUM")
    db.close()
    return path


def test_an_older_file_is_brought_up_to_date_and_shortened_once_it_may_be_rewritten(old):
    with SqliteStore(old) as store:
        assert len(store.runs()) == 10
        store.delete(*[f"run{n}" for n in range(9)])
        before = size(old)
        done = store.gc()
        assert (done.messages, done.bytes < before / 5) == (180, True)
        assert done.free > before / 2
        done = store.gc(vacuum=True)
        assert (done.free, size(old) < before / 3) == (0, True)
        filled(store, 9)
        store.delete(*[f"run{n}" for n in range(9)])
        assert store.gc().bytes > 0, "in steps from here on"
    db = sqlite3.connect(old)
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    db.close()
