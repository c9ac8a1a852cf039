"""What the tests on Ray share with their workers and with the drivers that they kill: a counting model, modules, books."""

import asyncio
import contextlib
import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path

from redraft import Batch, Module, Predict, Refine
from redraft.batch import Cluster
from redraft.lm.openai import OpenAILM
from redraft.record import derived_seed
from redraft.testing import FaultServer, Reply

WORKERS = 4


class Counting:
    """A loopback model that counts each call by its sampling seed, which every call has for itself."""

    def __init__(self, seed=0, delay=0.02, answer=None):
        self.received = Counter()
        self.arrived = threading.Condition()
        self._answer = answer
        self._delay = delay
        self._rng = random.Random(seed)
        self._server = FaultServer(self._reply)

    @property
    def total(self):
        return sum(self.received.values())

    @property
    def aborted(self):
        return self._server.aborted

    def __enter__(self):
        self.url = self._server.__enter__().base_url
        return self

    def __exit__(self, *error):
        self._server.__exit__(*error)

    def _reply(self, asked):
        with self.arrived:
            self.received[asked["seed"]] += 1
            self.arrived.notify_all()
        if self._answer is not None and (said := self._answer(asked)) is not None:
            return said
        return Reply(text=f"w{asked['seed']}", delay=self._rng.random() * self._delay)

    def until(self, calls, seconds=240):
        """Wait until so many calls have arrived."""
        assert self.come(calls, seconds), self.total

    def come(self, calls, seconds):
        """True if so many calls arrive within this time."""
        with self.arrived:
            return self.arrived.wait_for(lambda: self.total >= calls, timeout=seconds)


def model(url, **options):
    return OpenAILM("test", base_url=url, **options)


def never(inputs, prediction):
    return 0.0


def three_drafts(url, **options):
    """Each row buys three replies."""
    predict = Predict("q -> a", lm=model(url), **options)
    return Refine(predict, N=3, reward_fn=never, threshold=1.0, advisor=False)


class Odd(Module):
    """Asks, and then does what the question says."""

    def __init__(self, url):
        self.ask = Predict("q -> a", lm=model(url))

    async def aforward(self, q):
        said = await self.ask.acall(q=q)
        if q.startswith("raise"):
            raise Unsendable(threading.Lock(), q)
        if q.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if q.startswith("lock"):
            return {"a": threading.Lock()}
        return {"a": said.a}


class Unsendable(Exception):
    """Holds what no pickle can, and is not made of its message alone."""

    def __init__(self, lock, text):
        super().__init__(text)
        self.lock = lock


def questions(n):
    return [{"q": f"question {i}"} for i in range(n)]


def on_ray(module, **options):
    return Batch(module, cluster=Cluster("local", WORKERS), **{"concurrency": 12, **options})


async def taken(work, items, **options):
    return [item async for item in work.as_completed(items, **options)]


class Books:
    """What a store holds of a batch, by call."""

    def __init__(self, store, batch_id):
        self.committed = Counter()
        self.intents = Counter()
        self.lost = Counter()
        """Calls that were begun and have no end: those of processes that died."""
        begun = {run for event in store.read(batch_id) for run in event.data.get("begun", ())}
        for run_id in begun:
            self._count(store.read(run_id))

    def _count(self, events):
        assert [event.seq for event in events] == list(range(len(events)))
        seed = next((event.data["seed"] for event in events if event.kind == "run"), None)
        ended = {e.data["intent"] for e in events if e.kind in ("call", "call_error", "call_failed")}
        for event in events:
            if event.kind == "call":
                self.committed[derived_seed(seed, event.key)] += 1
            if event.kind == "intent":
                call = derived_seed(seed, event.key)
                self.intents[call] += 1
                self.lost[call] += event.seq not in ended

    def check(self, server):
        """No committed call was bought twice, none was repeated that was not in flight."""
        assert all(times == 1 for times in self.committed.values())
        for call, times in server.received.items():
            assert times <= self.intents[call]
            assert times <= 1 + self.lost[call]


async def killing(work, server, rng, kills):
    """Kill so many workers, each some calls after the last one."""
    done = 0
    while done < kills:
        wanted = server.total + rng.randint(2, 10)
        while not await asyncio.to_thread(server.come, wanted, 0.2):
            pass
        if work.workers:
            os.kill(rng.choice(work.workers), signal.SIGKILL)
            done += 1
    return done


def worker_pids(driver):
    """The workers of a driver's own Ray, by the names that Ray gives its processes."""
    parents, workers = {}, []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if (folder / "cmdline").read_bytes().startswith(b"ray::Worker"):
                    workers.append(int(folder.name))
    return [pid for pid in workers if driver in _above(pid, parents)]


def _above(pid, parents):
    while pid in parents:
        pid = parents[pid]
        yield pid
