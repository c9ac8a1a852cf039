"""The SQLite journal: what was appended is what is read, in order, whoever else writes, and after a kill."""

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft.errors import StoreError
from redraft.journal import DONE
from redraft.protocols import Store
from redraft.store.database import SCHEMA_VERSION
from redraft.store.sqlite import SqliteStore
from redraft.types import Event

WRITER = """
import asyncio, sys
from redraft.store.sqlite import SqliteStore
from redraft.types import Event

async def main(path, run_id, count):
    store = SqliteStore(path)
    for i in range(int(count)):
        store.append(run_id, [Event(seq=2 * i, kind="aside", time=1.0, data={"i": i})])
        await store.append(run_id, [Event(seq=2 * i + 1, kind="reply", time=1.0, data={"text": "x" * 200})])
        print(2 * i + 1, flush=True)
    store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def event(seq, **data):
    return Event(seq=seq, kind="note", time=1.5 + seq, scope="a.b[0]", key="k", data=data)


def writer(path, run_id, count):
    command = [sys.executable, "-c", WRITER, str(path), run_id, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def commits(path):
    """How many transactions the write-ahead log holds: its frames that carry a database size."""
    log = Path(f"{path}-wal").read_bytes()
    page = int.from_bytes(log[8:12], "big")
    return sum(log[at + 4 : at + 8] != bytes(4) for at in range(32, len(log), 24 + page))


async def test_round_trip(store, path):
    events = [event(0, text="naïve ☕", n=[1, 2.5, None, True, {"k": []}]), Event(seq=1, kind="end", time=2.0)]
    await store.append("run", events)
    await store.append("other", [event(0)])
    assert store.read("run") == events
    assert store.read("unknown") == []
    store.close()
    again = SqliteStore(path)
    assert again.read("run") == events
    again.close()


def test_is_a_store_and_constructing_touches_nothing(tmp_path):
    store = SqliteStore(tmp_path / "missing" / "deep" / "runs.db")
    assert isinstance(store, Store)
    assert list(tmp_path.iterdir()) == []
    assert store.read("run") == []
    assert store.path.exists()
    store.close()
    store.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def one_store(tmp_path_factory):
    store = SqliteStore(tmp_path_factory.mktemp("json") / "runs.db")
    yield store
    store.close()


FRESH = itertools.count()


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4), st.text(), st.text(), st.floats(0, 1e12))
def test_any_json_comes_back(one_store, datas, scope, run_id, time):
    run_id += str(next(FRESH))
    events = [Event(seq=i, kind="note", time=time, scope=scope, data=data) for i, data in enumerate(datas)]
    one_store.append(run_id, events)
    assert one_store.read(run_id) == events


async def test_half_a_surrogate_pair_comes_back(store):
    await store.append("run", [event(0, text="cut \ud83d off")])
    assert store.read("run") == [event(0, text="cut \ud83d off")]


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes", object()])
async def test_what_is_not_json_is_refused_at_once(store, value):
    with pytest.raises(StoreError, match=r"Event 0 \(note\) of run 'run' .* is not JSON"):
        store.append("run", [event(0, value=value)])
    assert store.read("run") == []


async def test_appends_of_one_iteration_are_one_transaction(store, path):
    await store.append("run 0", [event(0)])
    before = commits(path)

    async def task(number):
        await store.append(f"run {number}", [event(1), event(2)])
        store.append(f"run {number}", [event(3)])

    await asyncio.gather(*(task(number) for number in range(64)))
    assert commits(path) == before + 1  # what they left behind waits for a later transaction
    assert [e.seq for e in store.read("run 63")] == [1, 2, 3]


async def test_events_that_nobody_awaits_are_committed_by_the_loop(store, path):
    for seq in range(3):
        store.append("run", [event(seq)])
    await asyncio.sleep(0.1)
    other = SqliteStore(path)
    assert [e.seq for e in other.read("run")] == [0, 1, 2]
    other.close()


async def test_read_and_close_include_what_is_queued(store, path):
    first = store.append("run", [event(0)])
    assert store.read("run") == [event(0)]
    second = store.append("run", [event(1)])
    store.close()
    await first
    await second
    other = SqliteStore(path)
    assert [e.seq for e in other.read("run")] == [0, 1]
    other.close()


async def test_a_cancelled_waiter_takes_nothing_back_and_hurts_no_neighbour(store):
    async def task(seq):
        await store.append("run", [event(seq)])

    tasks = [asyncio.create_task(task(seq)) for seq in range(3)]
    asyncio.get_running_loop().call_soon(tasks[1].cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [t.cancelled() for t in tasks] == [False, True, False]
    assert [e.seq for e in store.read("run")] == [0, 1, 2]


def test_without_a_loop_append_commits_before_it_returns(store, path):
    done = store.append("run", [event(0)])
    other = SqliteStore(path)
    assert other.read("run") == [event(0)]
    other.close()

    async def wait():
        await done

    asyncio.run(wait())
    with pytest.raises(StoreError):
        store.append("run", [event(0)])


def test_a_loop_that_died_with_its_queue_holds_nobody_up(store):
    async def queue():
        store.append("run", [event(0)])

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(queue())
    loop.close()
    asyncio.set_event_loop(None)
    store.append("run", [event(1)])
    assert [e.seq for e in store.read("run")] == [0, 1]


def test_threads_tasks_and_loops_are_kept_in_the_order_of_append(store, path):
    numbers = iter(range(10_000))
    turn = threading.Lock()

    def append():
        with turn:
            return store.append("shared", [event(next(numbers))])

    async def task():
        for _ in range(20):
            await append()

    async def tasks():
        await asyncio.gather(*(task() for _ in range(8)))

    def plain():
        for _ in range(50):
            append()

    targets = [lambda: asyncio.run(tasks())] * 2 + [plain] * 2
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.read("shared")) == 2 * 160 + 100
    db = sqlite3.connect(path)
    assert [seq for (seq,) in db.execute("SELECT seq FROM events ORDER BY rowid")] == list(range(2 * 160 + 100))
    db.close()


async def test_a_first_append_of_a_number_that_exists_is_refused_and_its_neighbours_are_not(store, path):
    before = SqliteStore(path)
    await before.append("run", [event(0, by="first")])
    results = await asyncio.gather(
        store.append("other", [event(0)]),
        store.append("run", [event(1), event(0, by="second")]),
        store.append("another", [event(0)]),
        return_exceptions=True,
    )
    assert [type(r) for r in results] == [type(None), StoreError, type(None)]
    assert "run 'run'" in str(results[1])
    assert "two writers share one run" in str(results[1])
    assert store.read("run") == [event(0, by="first")]
    assert store.read("other") == store.read("another") == [event(0)]
    await store.append("run", [event(1)])  # its writer was told, and may know better now
    before.close()


async def test_an_insured_append_that_is_refused_is_said_and_ends_its_run_only(store, path, caplog):
    await asyncio.gather(*(store.append(name, [event(0)]) for name in ("run", "other")))
    rival = SqliteStore(path)
    await rival.append("run", [event(1, by="rival")])
    for seq in (1, 2, 3):
        await store.append("run", [event(seq, by="us")])
        await store.append("other", [event(seq)])
    await asyncio.sleep(0.1)
    assert [r.name for r in caplog.records] == ["redraft"]
    assert "two writers share one run" in caplog.text
    (left,) = path.parent.glob("*.open")
    assert str(left) in caplog.text
    assert store.read("run") == [event(0), event(1, by="rival")]  # nothing of ours behind the gap
    for _ in range(2):
        with pytest.raises(StoreError, match="two writers share one run"):
            await store.append("run", [event(4)])
    await store.append("other", [event(4)])
    store.close()
    assert [e.seq for e in rival.read("other")] == list(range(5))
    assert rival.read("run") == [event(0), event(1, by="rival")]
    refused = left.with_suffix(".refused")
    assert refused.read_text().count('"by":"us"') == 3
    assert str(refused) in caplog.text
    assert not list(path.parent.glob("*.open"))
    rival.close()


async def test_two_stores_that_write_one_run_collide(store, path):
    other = SqliteStore(path)
    await store.append("run", [event(0)])
    with pytest.raises(StoreError, match="two writers share one run"):
        await other.append("run", [event(0)])
    await other.append("run", [event(1)])
    other.close()
    assert [e.seq for e in store.read("run")] == [0, 1]


async def test_a_full_disk_spares_what_is_there_and_loses_nothing_awaited(store, caplog):
    await store.append("run", [event(0)])
    db = store._connection()
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    big = "x" * 100_000
    results = await asyncio.gather(
        store.append("run", [event(1, big=big)]),  # in its own file by now
        store.append("other", [event(0)]),
        store.append("run", [event(2)]),
        return_exceptions=True,
    )
    assert [type(r) for r in results] == [type(None), StoreError, StoreError]
    assert "2 runs" in str(results[1])
    assert "Free some disk space" in str(results[1])
    with pytest.raises(StoreError, match="Free some disk space"):
        await store.append("run", [event(2)])
    assert len(caplog.records) == 1
    assert store.read("run") == [event(0), event(1, big=big)]
    db.execute("PRAGMA max_page_count = 100000")
    await store.append("run", [event(2)])
    db.execute("BEGIN")  # whether it is the database that says so
    assert [seq for seq, *_ in db.execute("SELECT seq FROM events ORDER BY rowid")] == [0, 1, 2]
    db.execute("COMMIT")


async def test_a_lock_that_another_process_keeps(store, path, caplog):
    await store.append("run", [event(0)])
    store._connection().execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    await store.append("run", [event(1)])
    await asyncio.sleep(0.1)
    assert "Another process" in caplog.text
    for events in ([event(2)], [event(2), event(3)]):
        with pytest.raises(StoreError, match="Another process"):
            await store.append("run", events)
    assert store.read("run") == [event(0), event(1)]  # readers wait for no writer
    other.close()
    await store.append("run", [event(2)])
    assert store.read("run") == [event(0), event(1), event(2)]
    assert not store._queue


async def test_nothing_overtakes_what_waits_for_its_transaction(store):
    await store.append("old", [event(0)])
    waits = [store.append("new", [event(0)]), store.append("old", [event(1)]), store.append("new", [event(1)])]
    assert DONE not in waits  # whatever is in the plain file, is in it with all that was appended before
    await asyncio.gather(*waits)
    assert store.append("old", [event(2)]) is store.append("new", [event(2)]) is DONE


@pytest.mark.parametrize("fate", ["moved", "deleted", "replaced"])
async def test_a_file_that_is_moved_or_deleted_in_use(store, path, tmp_path, fate, caplog):
    await store.append("run", [event(0)])
    await store.append("run", [event(1)])
    for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
        if fate == "moved":
            (tmp_path / name).rename(tmp_path / f"elsewhere{name[4:]}")
        else:
            (tmp_path / name).unlink()
    other = SqliteStore(path)
    if fate == "replaced":
        await other.append("run", [event(0, of="another life")])
    await asyncio.sleep(0.1)
    assert "moved or deleted while it was in use" in caplog.text
    with pytest.raises(StoreError, match="moved or deleted"):
        await store.append("run", [event(2)])
    with pytest.raises(StoreError, match="moved or deleted"):
        store.read("run")
    if fate == "moved":
        (tmp_path / "elsewhere.db").rename(path)
        (tmp_path / "elsewhere.db-wal").rename(f"{path}-wal")
        await store.append("run", [event(2)])
        assert store.read("run") == [event(0), event(1), event(2)]
    else:
        with pytest.raises(StoreError, match="moved or deleted"):
            store.close()
        assert other.read("run")[:1] == ([event(0, of="another life")] if fate == "replaced" else [])
        assert len(list(tmp_path.glob("*.refused"))) == (fate == "deleted")
    other.close()


async def test_a_path_means_what_it_meant_at_first(tmp_path, monkeypatch):
    real, link = tmp_path / "real.db", tmp_path / "link.db"
    link.symlink_to(real)
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("link.db")
    await store.append("run", [event(0)])
    monkeypatch.chdir("/")
    await store.append("run", [event(1)])
    assert [p.name.split("-")[0] for p in tmp_path.glob("*.open")] == ["real.db"]
    store.close()
    assert {p.name for p in tmp_path.iterdir()} == {"real.db", "link.db"}


@pytest.mark.parametrize("place", ["directory", "under a file", "no such folder", "not sqlite", "foreign", "newer"])
async def test_a_path_that_cannot_be_a_run_store(tmp_path, place):
    file = tmp_path / "file"
    path, says = {
        "directory": (tmp_path, "unable to open.*file in a writable folder"),
        "under a file": (file / "runs.db", "file in a writable folder"),
        "no such folder": (Path("/proc/nowhere/runs.db"), "file in a writable folder"),
        "not sqlite": (file, "not a database.*left as it is"),
        "foreign": (tmp_path / "foreign.db", "another program"),
        "newer": (tmp_path / "newer.db", f"schema version {SCHEMA_VERSION + 1}.*upgrade redraft"),
    }[place]
    file.write_text("no database\n" * 100)
    if place == "newer":
        with SqliteStore(path) as made:
            made.read("")
    if place in ("foreign", "newer"):
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE theirs (x)")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        db.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=f"(?s){says}"):
        await store.append("run", [event(0)])
    with pytest.raises(StoreError, match=f"(?s){says}"):
        store.read("run")
    store.close()
    assert file.read_text() == "no database\n" * 100


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_or_file_that_may_not_be_written(store, path, tmp_path):
    await store.append("run", [event(0)])
    store.close()
    for locked, mode in ((path, 0o400), (tmp_path, 0o500)):
        locked.chmod(mode)
    refused = [SqliteStore(path), SqliteStore(tmp_path / "new.db")]
    for other in refused:
        with pytest.raises(StoreError, match="writable"):
            await other.append("run", [event(1)])
        other.close()
    tmp_path.chmod(0o700)


async def test_a_damaged_file(store, path):
    await store.append("run", [event(seq, text="x" * 500) for seq in range(100)])
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xff" * (len(content) - 4096 * 3)
    path.write_bytes(content)
    damaged = SqliteStore(path)
    with pytest.raises(StoreError, match=r"damaged.*\.recover"):
        damaged.read("run")
    damaged.close()


@pytest.mark.parametrize("spoilt", ["no JSON", "[1]"])
async def test_an_event_that_another_program_has_spoilt(store, path, spoilt):
    await store.append("run", [event(0), event(1)])
    await store.append("other", [event(0)])
    await asyncio.sleep(0.05)
    db = sqlite3.connect(path)
    db.execute("UPDATE events SET data = ? WHERE seq = 1", (spoilt,))
    db.commit()
    db.close()
    with pytest.raises(StoreError, match=r"read run 'run' in .*runs.db: event 1 .* is no JSON.* damaged"):
        store.read("run")
    assert store.read("other") == [event(0)]


async def test_a_closed_store_refuses(store):
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.append("run", [event(0)])
    with pytest.raises(StoreError, match="is closed"):
        store.read("run")


def test_processes_that_write_different_runs_at_once(path):
    children = [writer(path, f"run {number}", 150) for number in range(3)]
    for child in children:
        child.communicate()
    assert [child.returncode for child in children] == [0, 0, 0]
    store = SqliteStore(path)
    for number in range(3):
        assert [e.seq for e in store.read(f"run {number}")] == list(range(300))
    store.close()


async def test_a_store_is_closed_by_its_block(path):
    with SqliteStore(path) as store:
        await store.append("run", [event(0)])
    with pytest.raises(StoreError, match="closed"):
        store.read("run")
