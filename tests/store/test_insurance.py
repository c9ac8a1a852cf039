"""What was awaited is there whatever its process died of: the plain files beside the database, and who inherits them."""

import asyncio
import gc
import itertools
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from redraft.errors import StoreError
from redraft.journal import DONE
from redraft.store import insurance
from redraft.store.sqlite import SqliteStore
from redraft.types import Event

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there every append pays for its transaction")

WRITER = """
import asyncio, os, sys, threading
from redraft.store import insurance, sqlite
from redraft.types import Event

def event(seq, **data):
    return Event(seq=seq, kind="note", time=1.5 + seq, scope="a.b[0]", key="k", data=data)

store = sqlite.SqliteStore(sys.argv[1])
def die(*_): os.kill(os.getpid(), 9)
"""

MANY = (
    WRITER
    + """
async def write(run_id):
    seq = len(store.read(run_id))
    while True:
        store.append(run_id, [event(seq, aside=True)])
        await store.append(run_id, [event(seq + 1, text="x" * 3000), event(seq + 2)])
        os.write(1, f"{run_id} {seq + 2}\\n".encode())
        seq += 3
        if seq % 5 == 0:
            await asyncio.sleep(0)

async def main(thread):
    await asyncio.gather(*(write(f"run {thread}.{task}") for task in range(4)))

for thread in range(3):
    threading.Thread(target=asyncio.run, args=(main(thread),)).start()
"""
)


def event(seq, **data):
    return Event(seq=seq, kind="note", time=1.5 + seq, scope="a.b[0]", key="k", data=data)


def python(script, *args, **more):
    return subprocess.Popen([sys.executable, "-c", script, *map(str, args)], stdout=subprocess.PIPE, text=True, **more)


def run(script, *args):
    child = python(script, *args)
    child.communicate()
    return child.returncode


def fds():
    return len(list(Path("/proc/self/fd").iterdir()))


def rows(path, run_id="run"):
    """What other programs see in the database."""
    db = sqlite3.connect(path)
    try:
        select = "SELECT seq FROM events JOIN run_ids USING (run) WHERE run_id = ? ORDER BY seq"
        return [seq for (seq,) in db.execute(select, (run_id,))]
    finally:
        db.close()


def left(path, kind="open"):
    return sorted(path.parent.glob(f"*.{kind}"))


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(8))
def test_what_was_awaited_survives_kill_9_at_any_moment(path, seed):
    rng = random.Random(seed)
    acknowledged = {}
    for _ in range(4):  # each resumes what the one before it left
        child = python(MANY, path)
        said = "".join(child.stdout.readline() for _ in range(12))  # it has begun
        time.sleep(rng.random() * 0.5)
        child.send_signal(signal.SIGKILL)
        for line in (said + child.communicate()[0]).split("\n")[:-1]:
            run_id, seq = line.rsplit(" ", 1)
            acknowledged[run_id] = int(seq)
    store = SqliteStore(path)
    assert acknowledged
    for run_id, last in acknowledged.items():
        kept = [e.seq for e in store.read(run_id)]
        assert kept == list(range(len(kept)))  # a prefix: no holes
        assert len(kept) > last
    store.close()
    assert left(path) == left(path, "refused") == []


@pytest.mark.crash
@pytest.mark.parametrize("moment", ["before the transaction", "in it", "after it", "at the truncation", "after that"])
@pytest.mark.parametrize("size", [10, 400_000])
def test_kill_9_between_a_line_and_its_row(path, moment, size):
    patch = {
        "before the transaction": "write = store._write; store._write = lambda b: die() if len(b) > 1 else write(b)",
        "in it": "sqlite.INSERT = 'INSERT INTO events (run, seq, time, kind, scope, key, data, parts)'"
        " ' VALUES (?, die(?), ?, ?, ?, ?, ?, ?)'; store._connection().create_function('die', 1, lambda s:"
        " die() if s == 4 else s)",
        "after it": "write = store._write; store._write = lambda b: (write(b), die() if len(b) > 1 else 0)",
        "at the truncation": "store._insurance.start_over = lambda: die() if store._insurance._size else 0",
        "after that": "over = insurance.Insurance.start_over\n"
        "insurance.Insurance.start_over = lambda self: (over(self), die() if self.path else 0)",
    }[moment]
    script = f"""
{WRITER}
{patch}
async def main():
    for seq in range(6):
        await store.append("run", [event(seq, big="x" * {size})])
    await asyncio.sleep(1)
asyncio.run(main())
"""
    assert run(script, path) == -signal.SIGKILL
    (file,) = left(path)
    assert (file.stat().st_size == 0) == (moment == "after that" and size > 10)
    store = SqliteStore(path)
    assert store.read("run") == [event(seq, big="x" * size) for seq in range(6)]
    assert rows(path) == list(range(6))
    store.close()
    assert left(path) == left(path, "refused") == []


@pytest.mark.crash
def test_kill_9_in_a_batch_of_which_one_append_is_refused(path):
    """Its transaction falls apart into one for each; the file must not be cut before the last."""
    script = f"""
{WRITER}
rival = sqlite.SqliteStore(sys.argv[1])
async def main():
    await asyncio.gather(*(store.append(name, [event(0)]) for name in "ab"))
    await rival.append("b", [event(1)])
    for seq in range(1, 5):
        for name in "ab":
            await store.append(name, [event(seq, big="x" * 400_000)])
    write, done = store._write, []
    def counted(batch):
        write(batch)
        done.append(batch)
        if len(done) == 2:
            die()
    store._write = counted
    await asyncio.sleep(1)
asyncio.run(main())
"""
    assert run(script, path) == -signal.SIGKILL
    store = SqliteStore(path)
    assert [e.seq for e in store.read("a")] == list(range(5))
    store.close()


@pytest.mark.crash
def test_an_exit_without_close_loses_nothing(path):
    script = f"""
{WRITER}
loop = asyncio.new_event_loop()
async def main():
    for seq in range(3):
        await store.append("run", [event(seq)])
loop.run_until_complete(main())
HOW
"""
    for number, how in enumerate(("", "os._exit(0)", "loop.close(); sys.exit()", "raise SystemExit")):
        file = path.with_name(f"runs {number}.db")
        child = python(script.replace("HOW", how), file, stderr=subprocess.PIPE)
        assert "Exception" not in child.communicate()[1]
        store = SqliteStore(file)
        assert [e.seq for e in store.read("run")] == [0, 1, 2]
        store.close()
    assert left(path) == []


def test_a_loop_that_is_closed_commits_what_it_still_had_to(store, path):
    async def main():
        for seq in range(3):
            assert (await store.append("run", [event(seq)])) is None

    asyncio.run(main())
    assert rows(path) == [0, 1, 2]
    assert not store._later
    assert not store._soon


def test_loops_are_let_go_of(store):
    async def main(seq):
        await store.append("run", [event(seq)])
        store.append("run", [event(seq + 1)])
        store.append(f"new {seq}", [event(0)])
        return weakref.ref(asyncio.get_running_loop())

    loops = [asyncio.run(main(seq)) for seq in (0, 2, 4)]
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3
    assert len(store.read("run")) == 6
    assert len(store.read("new 4")) == 1


def test_a_loop_that_the_garbage_collector_closes_while_the_store_is_in_use(store, path):
    async def main():
        await store.append("run", [event(0)])
        await store.append("run", [event(1)])

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    for lock in (store._lock, store._insurance.lock):
        with lock:
            loop.close()  # as its finalizer does, in whatever code that meets: this must not wait for itself
    assert rows(path) == [0]
    assert [e.seq for e in store.read("run")] == [0, 1]


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # from Python 3.13 on
async def test_a_store_that_is_dropped_without_close_leaves_its_file_to_the_next(path):
    open_before = fds()
    for round_ in range(5):
        store = SqliteStore(path)
        seq = len(store.read("run"))
        await store.append("run", [event(seq)])
        await store.append("run", [event(seq + 1)])
        assert len(left(path)) == 1
        store._flush = lambda here: None  # it never gets to it
        store._queue.clear()
        del store
        await asyncio.sleep(0.03)  # the loop holds it until then
        gc.collect()
        assert seq == 2 * round_
    assert fds() <= open_before
    last = SqliteStore(path)
    assert [e.seq for e in last.read("run")] == list(range(10))
    last.close()
    assert left(path) == []


async def test_stores_that_share_a_path_in_one_process(path):
    stores = [SqliteStore(path) for _ in range(8)]
    for seq in range(5):
        for number, store in enumerate(stores):
            await store.append(f"run {number}", [event(seq)])
    assert len(left(path)) == 8
    for number, store in enumerate(stores):
        assert len(store.read(f"run {number}")) == 5
        store.close()
    assert left(path) == []


async def test_files_of_living_processes_are_left_alone(store, path):
    child = python(
        f"""
{WRITER}
async def main():
    await store.append("run", [event(0)])
    await store.append("run", [event(1)])
    store._flush = lambda here: None
    print(flush=True)
    sys.stdin.read()
asyncio.run(main())
""",
        path,
        stdin=subprocess.PIPE,
    )
    child.stdout.readline()
    (theirs,) = left(path)
    await store.append("other", [event(0)])
    assert store.read("run") == [event(0)]
    assert theirs in left(path)
    child.kill()
    child.communicate()
    assert store.read("run") == [event(0), event(1)]  # by a store that was open all the while
    assert theirs not in left(path)


HEIR = f"""
{WRITER}
sys.stdin.read(1)
print(len(store.read("run")), flush=True)
store.close()
"""


@pytest.mark.crash
def test_processes_that_open_at_once_all_have_what_the_dead_left_once(path):
    script = f"""
{WRITER}
async def main():
    for seq in range(3000):
        await store.append("run", [event(seq)])
        if seq == 0:
            store._flush = lambda here: None
    die()
asyncio.run(main())
"""
    assert run(script, path) == -signal.SIGKILL
    assert rows(path) == [0]
    heirs = [python(HEIR, path, stdin=subprocess.PIPE) for _ in range(6)]
    time.sleep(1)
    for heir in heirs:
        heir.stdin.write("x")
        heir.stdin.flush()
    assert [heir.communicate()[0].strip() for heir in heirs] == ["3000"] * 6
    assert rows(path) == list(range(3000))
    assert left(path) == left(path, "refused") == []


def line(run_id, seq, data='{"n":1}', **more):
    made = {"time": 1.0, "kind": "note", "scope": "", "key": ""} | more
    return json.dumps([run_id, seq, *(made[name] for name in ("time", "kind", "scope", "key"))]) + "\t" + data + "\n"


GARBAGE = [b"\xff\xfe\n", b"\0" * 5000 + b"\n", b"[]\t{}\n", b"5\t5\n", b"no json\n", b"[1,2,3,4,5,6]\t{}\n"] + [
    line("run", seq, data, **more).encode()
    for seq, data, more in [
        (9, "{", {}),
        (9, "[" * 100_000, {}),
        (9, "{}", {"kind": ["list"]}),
        (9, "{}", {"key": None}),
        (9, "{}", {"scope": "half \ud83d"}),
        (2**70, "{}", {}),
        (0, '{"other":"content"}', {}),
    ]
]


@pytest.mark.parametrize("spoilt", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_keeps_nobody_out_and_is_kept(store, path, spoilt, caplog):
    await store.append("run", [event(0)])
    await store.append("other", [event(0)])
    file = path.with_name("runs.db-4711-abcdef.open")
    good = line("other", 1).encode()
    file.write_bytes(spoilt + good)
    again = SqliteStore(path)
    assert [e.seq for e in again.read("run")] == [0]
    assert [e.seq for e in again.read("other")] == [0, 1]
    again.close()
    assert not file.exists()
    assert file.with_suffix(".refused").read_bytes() == spoilt + good
    assert "runs.db-4711-abcdef.refused" in caplog.text


async def test_a_torn_last_line_was_never_acknowledged(store, path):
    await store.append("run", [event(0)])
    file = path.with_name("runs.db-4711-abcdef.open")
    file.write_text(line("run", 1) + line("run", 2)[:-9])
    assert [e.seq for e in store.read("run")] == [0, 1]
    assert not file.exists()
    assert not left(path, "refused")


async def test_a_run_that_the_database_does_not_know_is_another_database_s(store, path, caplog):
    """Somebody deleted the database, and not the file that its last user left beside it."""
    path.with_name("runs.db-4711-abcdef.open").write_text(line("run", 7))
    assert store.read("run") == []
    assert len(left(path, "refused")) == 1
    assert "another one" in caplog.text


@pytest.mark.parametrize("name", ["runs.db-2", "runs.db-2-3", "runs[1].db", "*.db"])
async def test_only_the_database_s_own_files_are_taken(store, path, name):
    other = SqliteStore(path.with_name(name))
    for each in (store, other):
        await each.append("run", [event(0)])
        path.with_name(f"{each.path.name}-4711-abcdef.open").write_text(line("run", 1, key=each.path.name))
    for each in (store, other):
        assert [e.key for e in each.read("run")] == ["k", each.path.name]
    other.close()
    assert not left(path, "refused")


@pytest.mark.parametrize("fault", ["short", "full", "no lock", "taken by an heir", "no folder"])
async def test_without_the_file_an_append_waits_for_its_transaction(store, path, monkeypatch, fault):
    await store.append("run", [event(0)])
    open_before = fds()
    write = os.write

    def refuse(*_):
        raise OSError(28, "No space left on device")

    def taken(fd, _):
        Path(f"/proc/self/fd/{fd}").resolve().unlink()

    if fault == "short":
        await store.append("run", [event(1)])
        monkeypatch.setattr(insurance.os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
    elif fault == "full":
        monkeypatch.setattr(insurance.os, "write", refuse)
    elif fault == "no folder":
        monkeypatch.setattr(insurance.os, "open", refuse)
    else:
        monkeypatch.setattr(insurance.fcntl, "flock", refuse if fault == "no lock" else taken)
    first = 2 if fault == "short" else 1
    for seq in range(first, first + 3):
        waits = store.append("run", [event(seq, text="x" * 50)])
        assert waits is not DONE
        await waits
    monkeypatch.undo()
    assert store.append("run", [event(first + 3)]) is DONE
    assert fds() <= open_before + 1
    assert rows(path) == list(range(first + 3))
    (file,) = left(path)
    assert all(json.loads(text.partition("\t")[0]) for text in file.read_text().splitlines())  # no half line in it
    store.close()
    assert left(path) == []


async def test_a_name_with_half_a_surrogate_pair_is_refused_at_once(store):
    await store.append("run", [event(0)])
    with pytest.raises(StoreError, match="surrogates not allowed"):
        await store.append("run", [Event(seq=1, kind="cut \ud83d off", time=1.0)])
    await store.append("run", [event(1)])
    assert [e.seq for e in store.read("run")] == [0, 1]


async def test_the_file_is_for_whoever_may_use_the_database(store, path):
    await store.append("run", [event(0)])
    path.chmod(0o660)
    await store.append("run", [event(1)])
    (file,) = left(path)
    assert file.stat().st_mode & 0o777 == 0o660


async def test_the_file_stays_short(store, path):
    await store.append("run", [event(0)])
    for seq in range(1, 40):
        await store.append("run", [event(seq, big="x" * 100_000)])
        if seq % 13 == 0:
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    (file,) = left(path)
    assert file.stat().st_size < 1_200_000
    assert len(store.read("run")) == 40


async def test_close_while_others_append(path):
    """Whatever was acknowledged is there afterwards, in the database or for whoever opens it next."""
    for _ in range(10):
        store = SqliteStore(path)
        first = len(store.read("run"))
        acknowledged = []

        def append(store=store, first=first, acknowledged=acknowledged):
            async def main():
                for seq in itertools.count(first):  # the interpreter may let it go on for 0.1 s
                    await store.append("run", [event(seq)])
                    acknowledged.append(seq)

            with pytest.raises(StoreError, match="is closed"):
                asyncio.run(main())

        thread = threading.Thread(target=append)
        thread.start()
        time.sleep(random.random() * 0.02)
        store.close()
        thread.join()
        again = SqliteStore(path)
        kept = [e.seq for e in again.read("run")]
        assert kept == list(range(len(kept)))
        assert len(kept) > max(acknowledged, default=-1)
        again.close()
        assert left(path) == []


def test_appends_and_flushes_on_many_threads_while_the_file_is_cut(store, path, monkeypatch):
    monkeypatch.setattr(insurance, "_TOO_LONG", 2000)
    cuts = []
    truncate = os.ftruncate
    monkeypatch.setattr(
        insurance.os, "ftruncate", lambda fd, size: (cuts.append(len(store._queue)), truncate(fd, size))
    )

    async def main(name):
        for seq in range(400):
            await store.append(name, [event(seq, text="x" * 20)])
            if seq % 7 == 0:
                await asyncio.sleep(0)
            if seq % 50 == 0:
                store.read(name)

    threads = [threading.Thread(target=asyncio.run, args=(main(f"run {number}"),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cuts
    assert not any(cuts)  # never with anything uncommitted
    for number in range(4):
        assert [e.seq for e in store.read(f"run {number}")] == list(range(400))


def forked(work):
    """The exit status of a child that does it."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(20)
    return child.exitcode


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_forked_child_has_a_store_of_its_own(store, path):
    await store.append("run", [event(0)])
    await store.append("run", [event(1)])

    def work():
        async def main():
            assert not store._queue
            for seq in range(3):
                await store.append("child", [event(seq)])
            assert len(left(path)) == 2

        asyncio.events._set_running_loop(None)  # the parent's
        asyncio.run(main())
        store.close()

    assert forked(work) == 0
    assert len(left(path)) == 1
    await store.append("run", [event(2)])
    assert [e.seq for e in store.read("run")] == [0, 1, 2]
    assert [e.seq for e in store.read("child")] == [0, 1, 2]


FORKS = f"""
{WRITER}
async def main():
    await store.append("run", [event(0)])
    await store.append("run", [event(1)])
    store._flush = lambda here: None
    if os.fork() == 0:
        os.close(1)
        sys.stdin.read()
        os._exit(0)
    die()
asyncio.run(main())
"""


@pytest.mark.crash
def test_a_child_that_outlives_its_parent_holds_nothing_of_it(store, path):
    child = python(FORKS, path, stdin=subprocess.PIPE)
    child.stdout.read()
    child.wait()
    assert store.read("run") == [event(0), event(1)]
    child.communicate()
    assert left(path) == []


@pytest.mark.crash
def test_what_a_child_writes_survives_its_parent_s_close(path):
    script = f"""
{WRITER}
store.append("run", [event(0)])
told, tells = os.pipe()
if (child := os.fork()) == 0:
    store.append("run", [event(1)])
    os.read(told, 1)
    store.append("run", [event(2)])
    os._exit(0)
import time; time.sleep(0.3)
store.close()
os.write(tells, b"x")
os.waitpid(child, 0)
"""
    assert run(script, path) == 0
    store = SqliteStore(path)
    assert [e.seq for e in store.read("run")] == [0, 1, 2]
    store.close()


@pytest.mark.crash
def test_forks_amid_appends_of_other_threads(path):
    script = f"""
{WRITER}
import warnings; warnings.simplefilter("ignore")
async def write(name):
    for seq in range(2000):
        await store.append(name, [event(seq)])
        if seq % 20 == 0:
            await asyncio.sleep(0)
threads = [threading.Thread(target=asyncio.run, args=(write(f"run {{n}}"),)) for n in range(3)]
for t in threads: t.start()
n = 0
while any(t.is_alive() for t in threads):
    if (child := os.fork()) == 0:
        store.append(f"child {{n}}", [event(0)])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    n += 1
store.close()
print(n)
"""
    child = python(script, path)
    forks = int(child.communicate(timeout=60)[0])
    assert forks
    store = SqliteStore(path)
    assert all(len(store.read(f"child {n}")) == 1 for n in range(forks))
    assert all(len(store.read(f"run {n}")) == 2000 for n in range(3))
    store.close()
    assert left(path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_reader_that_may_not_write_leaves_the_files_of_the_dead(store, path):
    await store.append("run", [event(0)])
    file = path.with_name("runs.db-4711-abcdef.open")
    file.write_text(line("run", 1))
    path.chmod(0o400)
    reader = SqliteStore(path)
    assert [e.seq for e in reader.read("run")] == [0]
    reader.close()
    assert file.exists()
    path.chmod(0o600)
    assert [e.seq for e in store.read("run")] == [0, 1]
