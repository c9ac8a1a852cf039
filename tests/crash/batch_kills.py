"""Kills a batch again and again, and keeps the books that must hold. For the tests, and for `benchmarks/crash.py`."""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from redraft import SqliteStore
from redraft.record import derived_seed
from redraft.testing import FaultServer, Reply

VICTIM = Path(__file__).with_name("batch_victim.py")


class CountingServer:
    """A loopback model that counts each call by its sampling seed, which every call has for itself."""

    def __init__(self, rng):
        self.received = Counter()
        self.total = 0
        self.arrived = threading.Condition()
        self._rng = rng
        self._server = FaultServer(self._reply)

    def __enter__(self):
        self.url = self._server.__enter__().base_url
        return self

    def __exit__(self, *error):
        self._server.__exit__(*error)

    def _reply(self, asked):
        with self.arrived:
            self.received[asked["seed"]] += 1
            self.total += 1
            self.arrived.notify_all()
        return Reply(text=f"w{asked['seed']}", delay=self._rng.random() * 0.01)


class Store:
    """What the store holds of a batch, by call."""

    def __init__(self, folder):
        self.committed = Counter()
        self.intents = Counter()
        self.lost = Counter()
        """Those that were in flight when a process died."""
        self.failed = Counter()
        """Cancelled losers."""
        path = folder / "runs.db"
        if not path.exists():
            return
        with SqliteStore(path) as store:
            begun = {run for event in store.read("victim") for run in event.data.get("begun", ())}
            for run in begun:
                self._count(store.read(run))

    def _count(self, events):
        assert [event.seq for event in events] == list(range(len(events))), "the log is a prefix, without gaps"
        seed = next((event.data["seed"] for event in events if event.kind == "run"), None)
        ended = {e.data["intent"]: e.kind for e in events if e.kind in ("call", "call_error", "call_failed")}
        for event in events:
            if event.kind == "call":
                self.committed[derived_seed(seed, event.key)] += 1
            if event.kind == "intent":
                call = derived_seed(seed, event.key)
                self.intents[call] += 1
                self.lost[call] += event.seq not in ended
                self.failed[call] += ended.get(event.seq) == "call_failed"


def start(folder, url, n, limit):
    command = [sys.executable, str(VICTIM), str(folder), url, str(n), str(limit)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finish(folder, url, n, limit):
    with start(folder, url, n, limit) as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads((folder / "done").read_text())


def rows(folder):
    """The whole lines of the output."""
    path = folder / "out.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def kill(process, server, rng):
    """At a moment that `rng` picks: when so many more calls have arrived, and a little later; or while it starts. False if it
    was done before.
    """
    if rng.random() < 0.1:
        time.sleep(rng.random() * 0.5)
    else:
        wanted = server.total + rng.randint(1, 12)
        while process.poll() is None:
            with server.arrived:
                if server.arrived.wait_for(lambda: server.total >= wanted, timeout=0.2):
                    break
        time.sleep(rng.random() * 0.012)
    finished = process.poll() is not None
    process.kill()
    _, err = process.communicate(timeout=60)
    assert not finished or process.returncode == 0, err
    return not finished


def check(folder, server, paid, limit):
    """After a kill. Returns what must not be bought again."""
    store = Store(folder)
    assert {call: server.received[call] for call in paid} == paid, "a committed reply was bought again"
    assert all(times == 1 for times in store.committed.values()), "a reply is on record twice"
    for call, times in server.received.items():
        assert times <= store.intents[call], "a call without an intent"
        assert times <= 1 + store.lost[call] + store.failed[call], "repeated, though it was not in flight"
    assert sum(store.intents.values()) <= limit, "more calls than the budget has"
    keys = [row["id"] for row in rows(folder)]
    assert len(keys) == len(set(keys)), "a row is there twice"
    return {call: server.received[call] for call in store.committed}


def killed_again_and_again(folder, kills, *, n, seed, limit=100_000, say=lambda line: None):
    """So many kills of one batch, then its end. Returns the server and the store's books."""
    rng = random.Random(seed)
    with CountingServer(random.Random(seed + 1)) as server:
        paid, done = {}, 0
        had = defaultdict(int)
        while done < kills:
            with start(folder, server.url, n, limit) as process:
                killed = kill(process, server, rng)
            paid = check(folder, server, paid, limit)
            there = {row["id"]: row for row in rows(folder)}
            assert had.keys() <= there.keys(), "a row was lost"
            had = there
            if not killed:
                break
            done += 1
            say(f"kill {done}: {server.total} calls received, {len(paid)} committed, {len(there)} rows")
        books = finish(folder, server.url, n, limit)
        check(folder, server, paid, limit)
        return server, Store(folder), books, done
