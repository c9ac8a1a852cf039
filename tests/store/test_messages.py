"""Messages of calls are kept once, and what is read equals what was appended: after reopening, migration, deleting, gc."""

import asyncio
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redraft.errors import StoreError
from redraft.record import content
from redraft.store import messages, rows
from redraft.store.database import SCHEMA_VERSION
from redraft.store.sqlite import SqliteStore
from redraft.types import Event, Request

VERSION_1 = Path(__file__).with_name("version1.sql").read_text(encoding="utf-8")
"""Made by the code of that version: a whole run, the same one killed in its second call, and odd events."""

SYSTEM = "You are a careful writer. " * 8
SNARES = [
    SYSTEM,
    "",
    'a"},{"content":"b',
    '}],"model":"x',
    "\\",
    "ü 語 \u2028\n\0",
    "\ud83d",
    '{"messages":[{"content":',
]
TEXTS = st.sampled_from(SNARES) | st.text(max_size=20)
MESSAGES = st.builds(
    lambda role, text, more: {"role": role, "content": text, **more},
    st.sampled_from(["system", "user", "assistant"]),
    TEXTS | st.none() | st.lists(st.builds(lambda t: {"type": "text", "text": t}, TEXTS), max_size=2),
    st.sampled_from([{}, {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"a":[{"b":1}]}'}}]}]),
)
REQUESTS = st.builds(
    Request,
    messages=st.lists(MESSAGES, max_size=4).map(tuple),
    temperature=st.none() | st.just(0.5),
    effort=st.none() | st.just("low"),
    prefill=st.none() | TEXTS,
    schema=st.none() | st.just({"messages": [{"content": 1}], "model": {"a": [{"content": {}}], "model": 1}}),
    tools=st.just(()) | st.just(({"function": {"name": "f", "parameters": {"x": [{"y": 1}], "model": 2}}},)),
)
CONTENTS = st.builds(content, st.sampled_from(["openai/gpt-4o", 'odd"name']), REQUESTS)
INTENTS = st.builds(
    lambda said, rest, first: {"content": said, **rest} if first else {**rest, "content": said},
    CONTENTS | TEXTS | st.none() | st.lists(st.integers(), max_size=3),
    st.sampled_from([{}, {"role": "author", "cap": None, "reserved": {"calls": 1}}]),
    st.booleans(),
)
DATA = st.tuples(st.sampled_from(["intent", "intent", "note"]), INTENTS)


def events(datas, first=0):
    return [
        Event(seq=seq, kind=kind, time=1.5, scope="a", key="k", data=data)
        for seq, (kind, data) in enumerate(datas, first)
    ]


def asked(*texts, **more):
    messages = tuple({"role": "user", "content": text} for text in texts)
    return {"content": content("m", Request(messages=messages, **more)), "role": "author"}


def intent(seq, *texts, **more):
    return Event(seq=seq, kind="intent", time=1.5, key="k", data=asked(*texts, **more))


def number_of(path, table):
    db = sqlite3.connect(path)
    try:
        return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    finally:
        db.close()


def version_1(path, script=VERSION_1):
    db = sqlite3.connect(path)
    db.executescript(script)
    db.commit()
    db.close()


def kept_in_1(path):
    """What a file of version 1 says, read by nothing of ours."""
    db = sqlite3.connect(path)
    found = db.execute(
        "SELECT run_id, seq, kind, scope, key, time, data FROM events JOIN runs USING (run) ORDER BY seq"
    )
    kept = {}
    for run_id, seq, kind, scope, key, time, data in found:
        event = Event(seq=seq, kind=kind, scope=scope, key=key, time=time, data=json.loads(data))
        kept.setdefault(run_id, []).append(event)
    db.close()
    return kept


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(DATA, max_size=6), min_size=1, max_size=4), st.data())
def test_what_is_read_is_what_was_appended(tmp_path_factory, pieces, data):
    path = tmp_path_factory.mktemp("any") / "runs.db"
    old = data.draw(st.booleans(), label="begins as version 1")
    expected = {"a": [], "b": [], "gone": []}
    if old:
        version_1(path)
        expected |= kept_in_1(path)
    with SqliteStore(path) as other, ExitStack() as opened:
        store = opened.enter_context(SqliteStore(path))
        for piece in pieces:
            for run_id in expected:
                more = events(piece, first=len(expected[run_id]))
                asyncio.run(appended(data.draw(st.sampled_from([store, other]), label="who"), run_id, more))
                expected[run_id] += more
            match data.draw(st.sampled_from(["", "reopen", "delete", "gc"]), label="then"):
                case "reopen":
                    store.close()
                    store = opened.enter_context(SqliteStore(path))
                case "delete":
                    other.delete("gone")
                    expected["gone"] = []
                case "gc":
                    other.gc()
            assert {run_id: store.read(run_id) for run_id in expected} == expected
    with SqliteStore(path) as again:
        assert {run_id: again.read(run_id) for run_id in expected} == expected
        for run_id, kept in expected.items():
            assert [list(e.data) for e in again.read(run_id)] == [list(e.data) for e in kept], "in the same order, too"


async def appended(store, run_id, events):
    for event in events:
        await store.append(run_id, [event])


@given(CONTENTS)
def test_a_line_of_the_plain_file_is_the_whole_event(said):
    event = Event(seq=0, kind="intent", time=1.5, data={"content": said, "role": "author"})
    row = rows.made("run", event)
    assert json.loads(rows.whole(row)) == event.data
    assert "\n" not in rows.whole(row)
    assert rows.parsed(row[:5], rows.whole(row)) == row


def test_each_message_is_kept_once_however_often_it_is_sent(store, path):
    turns = [f"turn {n}: {'x' * 1000}" for n in range(40)]
    for seq in range(40):
        store.append("talk", [intent(seq, SYSTEM, *turns[: seq + 1])])
        store.append("other", [intent(seq, SYSTEM, *turns[: seq + 1], temperature=seq / 100)])
    assert store.read("talk")[-1].data == asked(SYSTEM, *turns)
    store.close()
    assert number_of(path, "messages") == 41
    assert path.stat().st_size < 400_000, "80 conversations of up to 40,000 characters"


async def test_a_message_of_a_transaction_that_failed_is_kept_with_the_next_one(store, path):
    before = SqliteStore(path)
    await before.append("run", [intent(0, "first")])
    before.close()
    results = await asyncio.gather(
        store.append("run", [intent(1, "new"), intent(0, "a number that exists")]),
        store.append("next", [intent(0, "new")]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [StoreError, type(None)]
    await store.append("last", [intent(0, "new"), intent(1, "first")])
    assert store.read("next") == [intent(0, "new")]
    assert store.read("last") == [intent(0, "new"), intent(1, "first")]


async def test_a_message_that_another_program_took_away_is_said(store, path):
    await store.append("run", [intent(0, "hello")])
    db = sqlite3.connect(path)
    db.execute("DELETE FROM messages")
    db.commit()
    db.close()
    with pytest.raises(StoreError, match=r"message 1 of event 0 is not in .*damaged"):
        store.read("run")


# migration


def test_a_file_of_version_1_is_brought_up_and_says_the_same(path):
    version_1(path)
    before = kept_in_1(path)
    with SqliteStore(path) as store:
        assert {run_id: store.read(run_id) for run_id in store.run_ids()} == before
        run = store.run("refine")
        assert (run.stop, run.score, run.calls, run.drafts) == ("passed", 1.0, 2, 2)
        killed = store.run("killed")
        assert (killed.ended, killed.calls, killed.tokens < killed.most_tokens) == (None, 2, True)
        last = before["refine"][-1].seq
        store.append("refine", [intent(last + 1, "more")])
        assert store.read("refine") == [*before["refine"], intent(last + 1, "more")]
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert not db.execute("PRAGMA foreign_key_check").fetchall()
    db.close()


def test_what_a_process_of_version_1_left_is_taken_over(path):
    """A line that its database has already, and one that it has not."""
    version_1(path)
    kept = kept_in_1(path)["killed"]
    lines = [[e.seq, e.time, e.kind, e.scope, e.key, e.data] for e in [*kept[2:], intent(len(kept), "in flight")]]
    file = path.with_name("runs.db-4711-abcdef.open")
    said = [json.dumps(["killed", *head]) + "\t" + json.dumps(data) + "\n" for *head, data in lines]
    file.write_text("".join(said), encoding="utf-8")
    with SqliteStore(path) as store:
        assert store.read("killed") == [*kept, intent(len(kept), "in flight")]
    assert not list(path.parent.glob("*.refused"))


def test_taking_over_a_long_file_of_version_1_is_not_square(path, monkeypatch):
    version_1(path)
    kept = kept_in_1(path)["refine"]
    lines = [json.dumps(["refine", e.seq, e.time, e.kind, e.scope, e.key]) + "\t" + json.dumps(e.data) for e in kept]
    path.with_name("runs.db-4711-abcdef.open").write_text("\n".join(lines) + "\n", encoding="utf-8")
    looked_for = []
    of_run = messages.of_run
    monkeypatch.setattr(messages, "of_run", lambda db, run: looked_for.append(run) or of_run(db, run))
    with SqliteStore(path) as store:
        assert store.read("refine") == kept
    assert len(looked_for) == 1, "for the reading itself"


def test_a_process_of_version_1_that_still_has_the_file_open_reads_the_right_run(path):
    """Its `runs` was a table; a view without the column `run` would give it the events of all runs."""
    version_1(path)
    kept = kept_in_1(path)["killed"]
    old = sqlite3.connect(path)
    with SqliteStore(path) as store:
        store.read("killed")
    found = old.execute(
        "SELECT seq, data FROM events WHERE run = (SELECT run FROM runs WHERE run_id = ?) ORDER BY seq", ("killed",)
    ).fetchall()
    old.close()
    assert [(seq, json.loads(data)) for seq, data in found] == [(e.seq, e.data) for e in kept]


@pytest.mark.parametrize("obstacle", ["locked", "full"])
def test_a_migration_that_cannot_be_done_now_changes_nothing(path, obstacle, monkeypatch):
    version_1(path)
    before = kept_in_1(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA journal_mode = WAL")
    connect = sqlite3.connect

    def limited(*args, **more):
        db = connect(*args, **{**more, "timeout": 0.05})
        if obstacle == "full":
            db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        return db

    if obstacle == "locked":
        holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sqlite3, "connect", limited)
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="Another process" if obstacle == "locked" else "Free some disk space"):
        store.read("refine")
    assert kept_in_1(path) == before
    monkeypatch.undo()
    holder.close()
    assert store.read("refine") == before["refine"]
    store.close()


def test_two_that_open_a_file_of_version_1_at_once(path):
    version_1(path)
    before = kept_in_1(path)
    stores = [SqliteStore(path) for _ in range(4)]

    async def read(store):
        return await asyncio.to_thread(store.read, "refine")

    async def all_of_them():
        return await asyncio.gather(*map(read, stores))

    assert asyncio.run(all_of_them()) == [before["refine"]] * 4
    for store in stores:
        store.close()


# deleting


async def test_a_deleted_run_is_gone_and_gc_keeps_what_others_use(store, path):
    await store.append("one", [intent(0, SYSTEM, "of one")])
    await store.append("two", [intent(0, SYSTEM, "of two")])
    assert store.delete("one", "unknown") == 1
    assert store.run_ids() == ["two"]
    assert store.read("one") == []
    assert number_of(path, "messages") == 3
    done = store.gc()
    assert (done.messages, done.events, done.refused) == (1, 0, ())
    assert store.read("two") == [intent(0, SYSTEM, "of two")]


async def test_a_writer_hears_that_another_process_deleted_its_run_and_dropped_its_messages(store, path):
    """What it writes from then on is kept, and meets no other run under the same number."""
    await store.append("run", [intent(0, SYSTEM, "hello")])
    await store.append("run", [intent(1, SYSTEM, "hello")])
    other = SqliteStore(path)
    other.read("run")
    await asyncio.sleep(0.05)
    other.delete("run")
    other.gc()
    await other.append("new", [intent(0, "another")])
    await store.append("run", [intent(2, SYSTEM, "hello")])
    await asyncio.sleep(0.05)
    assert other.read("new") == [intent(0, "another")]
    assert other.read("run") == store.read("run") == [intent(2, SYSTEM, "hello")]
    other.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no plain file")
async def test_a_writer_s_death_brings_nothing_back_of_a_run_that_was_deleted(store, path):
    secret = [Event(seq=seq, kind="note", time=1.0, data={"text": f"secret {seq}"}) for seq in range(9)]
    for event in secret:
        await store.append("run", [event])
    await asyncio.sleep(0.05)
    with SqliteStore(path) as other:
        other.delete("run")
    later = [intent(9, "later"), intent(10, "last")]
    await store.append("run", later[:1])
    await asyncio.sleep(0.05)
    await store.append("run", later[1:])
    left = store._insurance.path
    assert "secret" not in left.read_text()
    dead = shutil.copy(left, path.with_name("runs.db-4711-abcdef.open"))
    with SqliteStore(path) as heir:
        assert heir.read("run") == later
    assert not Path(dead).exists()


async def test_gc_gives_the_space_back(store, path):
    big = [Event(seq=seq, kind="note", time=1.0, data={"text": "x" * 100_000}) for seq in range(20)]
    await store.append("big", big)
    await store.append("small", [intent(0, "kept")])
    store.delete("big")
    done = store.gc()
    assert done.bytes > 1_000_000
    assert path.stat().st_size < 200_000
    assert store.read("small") == [intent(0, "kept")]


async def test_gc_says_what_the_store_could_not_take_and_deletes_it_when_asked(store, path):
    await store.append("run", [intent(0, "hello")])
    path.with_name("runs.db-4711-abcdef.open").write_text("no json\n")
    store.read("run")
    (file,) = store.gc().refused
    assert file.exists()
    assert store.gc(refused=True).refused == (file,)
    assert not file.exists()
    assert path.exists()


async def test_gc_while_another_process_holds_the_lock(store, path):
    await store.append("run", [intent(0, "hello")])
    store.delete("run")
    store._connection().execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for work in (store.gc, lambda: store.delete("run")):
        with pytest.raises(StoreError, match="Another process"):
            work()
    other.close()
    store.gc()


def test_the_stated_level_of_durability_is_the_one_in_force(store):
    store.read("")
    assert store._connection().execute("PRAGMA synchronous").fetchone() == (1,), "NORMAL"
    assert store._connection().execute("PRAGMA journal_mode").fetchone() == ("wal",)


DIES = """
import asyncio, os, signal, sys
from redraft.store.sqlite import SqliteStore
from redraft.types import Event

async def main(path):
    store = SqliteStore(path)
    for seq in range(50):
        asked = '{"messages":[{"content":"' + "system " * 100 + '","role":"system"},{"content":"turn %d","role":"user"}]'
        data = {"content": asked % (seq // 2) + ',"model":"m"}', "role": "author"}
        await store.append("run", [Event(seq=seq, kind="intent", time=1.0, key=str(seq), data=data)])
        if seq == 20:
            store.read("run")  # some are in the database, the others in the plain file
            store._flush = lambda here: None
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.crash
def test_after_a_kill_the_messages_are_there_once(path):
    assert subprocess.run([sys.executable, "-c", DIES, str(path)], check=False).returncode == -signal.SIGKILL
    with SqliteStore(path) as store:
        events = store.read("run")
    assert [event.seq for event in events] == list(range(50))
    assert all(f"turn {event.seq // 2}" in event.data["content"] for event in events)
    assert number_of(path, "messages") == 26
    assert not [*path.parent.glob("*.open"), *path.parent.glob("*.refused")]
