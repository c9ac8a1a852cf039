"""kill -9 at random moments, resume in a new process until done: nothing is lost, nothing committed is paid twice."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from redraft import SqliteStore
from redraft.journal import Journal
from redraft.record import derived_seed

pytestmark = pytest.mark.crash

VICTIM = Path(__file__).with_name("victim.py")
KILLS = 10


def start(folder, shape, *death):
    command = [sys.executable, str(VICTIM), str(folder), shape, *map(str, death)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def calls_received(folder):
    path = folder / "calls"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def events(folder):
    store = SqliteStore(folder / "runs.db")
    try:
        return store.read("victim")
    finally:
        store.close()


def committed(folder):
    return {derived_seed(5, event.key) for event in events(folder) if event.kind == "call"}


def in_flight(seen):
    ended = {event.data["intent"] for event in seen if event.kind in ("call", "call_error", "call_failed")}
    return [event for event in seen if event.kind == "intent" and event.seq not in ended]


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    """What each shape ends with when nobody kills it, and how many seconds its work takes."""
    made = {}

    def run(shape):
        if shape not in made:
            folder = tmp_path_factory.mktemp(f"unkilled-{shape}")
            with start(folder, shape) as process:
                while process.poll() is None and not calls_received(folder):
                    time.sleep(0.005)
                began = time.monotonic()
                _, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            made[shape] = json.loads((folder / "done").read_text()), time.monotonic() - began
        return made[shape]

    return run


def kill_at_a_random_moment(folder, shape, work, rng):
    """True if it was killed, False if it was done before."""
    before = len(calls_received(folder))
    moment = rng.random() * work
    with start(folder, shape) as process:
        # Imports take longer than the work: the moment counts from the first call, or anywhere before it.
        if rng.random() < 0.85:
            deadline = time.monotonic() + 20
            while process.poll() is None and len(calls_received(folder)) == before and time.monotonic() < deadline:
                time.sleep(0.001)
        time.sleep(moment)
        finished = process.poll() is not None
        process.kill()
        _, err = process.communicate(timeout=60)
    assert not finished or process.returncode == 0, err
    return not finished


@pytest.mark.parametrize("shape", ["refine", "self_refine", "team"])
def test_killed_again_and_again(shape, unkilled, tmp_path):
    """Ten kills a shape, each at another moment; after each, what was committed is never bought again."""
    expected, work = unkilled(shape)
    rng = random.Random(f"{shape} {time.time_ns()}")
    kills = rounds = 0
    while kills < KILLS:
        folder = tmp_path / str(rounds)
        folder.mkdir()
        rounds += 1
        lost = Counter()
        paid = {}
        while True:
            killed = kills < KILLS and kill_at_a_random_moment(folder, shape, work / 3, rng)
            if not killed and not (folder / "done").exists():
                resume(folder, shape)
            received = Counter(calls_received(folder))
            assert {seed: received[seed] for seed in paid} == paid, "a committed reply was bought again"
            if (folder / "done").exists():
                break
            kills += 1
            seen = events(folder) if (folder / "runs.db").exists() else []
            assert [event.seq for event in seen] == list(range(len(seen))), "the log is a prefix, without gaps"
            lost = Counter(derived_seed(5, event.key) for event in in_flight(seen))
            paid = {seed: received[seed] for seed in (derived_seed(5, e.key) for e in seen if e.kind == "call")}
            assert all(1 <= times <= 1 + lost[seed] for seed, times in paid.items())
        check_end(folder, expected, lost)


def check_end(folder, expected, lost):
    """The same end as without a kill, and books that hold what the kills cost."""
    result = json.loads((folder / "done").read_text())
    for part in ("fields", "score", "stop", "drafts"):
        assert result[part] == expected[part], part
    received = Counter(calls_received(folder))
    assert len(received) == expected["calls"], "the same calls as without a kill"
    assert all(times <= 1 + lost[seed] for seed, times in received.items()), "calls repeated: only those in flight"
    assert result["calls"] == expected["calls"] + sum(lost.values())
    assert result["tokens"] == expected["tokens"]
    assert (result["uncertain"] > 0) == bool(sum(lost.values()))
    seen = events(folder)
    assert committed(folder) == set(received)
    store = SqliteStore(folder / "runs.db")
    spent = Journal(store, "victim").spent()
    store.close()
    assert (spent.calls, spent.tokens) == (result["calls"], result["tokens"])
    assert len([event for event in seen if event.kind == "stop" and event.scope == ""]) == 1


@pytest.mark.parametrize("shape", ["refine", "team"])
@pytest.mark.parametrize("nth", [1, 2, 4, 6])
def test_killed_the_moment_a_call_arrives_it_is_on_record(shape, nth, unkilled, tmp_path):
    """Written before it is sent: however soon the kill comes, the call is charged."""
    with start(tmp_path, shape, "sent", nth) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    received = Counter(calls_received(tmp_path))
    lost = Counter(derived_seed(5, event.key) for event in in_flight(events(tmp_path)))
    assert sum(lost.values()) >= 1
    assert set(received) <= set(lost) | committed(tmp_path)
    resume(tmp_path, shape)
    check_end(tmp_path, unkilled(shape)[0], lost)


@pytest.mark.parametrize("shape", ["refine", "team"])
@pytest.mark.parametrize("nth", [1, 2, 4, 6])
def test_killed_the_moment_a_reply_is_committed_it_is_kept(shape, nth, unkilled, tmp_path):
    """Committed before anyone uses it: who hears of it finds it in the store, whatever happens next."""
    with start(tmp_path, shape, "call", nth) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    kept = committed(tmp_path)
    assert len(kept) >= nth
    lost = Counter(derived_seed(5, event.key) for event in in_flight(events(tmp_path)))
    before = Counter(calls_received(tmp_path))
    resume(tmp_path, shape)
    after = Counter(calls_received(tmp_path))
    assert all(after[seed] == before[seed] for seed in kept)
    check_end(tmp_path, unkilled(shape)[0], lost)


def resume(folder, shape):
    with start(folder, shape) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_killed_before_it_wrote_anything(tmp_path, unkilled):
    expected, _ = unkilled("refine")
    with start(tmp_path, "refine") as process:
        time.sleep(0.01)
        process.kill()
        process.communicate(timeout=60)
    resume(tmp_path, "refine")
    check_end(tmp_path, expected, Counter())


def test_a_finished_run_that_is_started_again_buys_nothing(tmp_path, unkilled):
    expected, _ = unkilled("team")
    for _ in range(2):
        resume(tmp_path, "team")
        check_end(tmp_path, expected, Counter())
    assert len(calls_received(tmp_path)) == expected["calls"]
