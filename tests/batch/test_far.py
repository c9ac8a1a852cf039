"""A worker and its driver in one process, without a cluster: one budget, one rate limit, and a record that is never half there."""

import asyncio
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft import Budget, Predict, Run, config, turns
from redraft.batch.item import Row
from redraft.batch.one import Outcome
from redraft.batch.portable import _Plain, unpacked
from redraft.batch.remote import Common, Job, Remote
from redraft.batch.worker import FarGate, FarMeter, FarStore, Line, Worker
from redraft.budget import Ask, Meter
from redraft.errors import BudgetExceeded, RunFailed
from redraft.journal import Journal, MemoryStore
from redraft.testing import FunctionLM
from redraft.turns import Gate, gate_of
from redraft.types import Attempt, Usage


class Pair:
    """One worker's line, and the driver's end of it."""

    def __init__(self, whole, store=None):
        self.line = Line()
        self.meter = FarMeter(whole.budget, self.line)
        self.store = FarStore(self.line)
        self.fetched = []
        actor = SimpleNamespace(
            wants=SimpleNamespace(remote=self._fetch), answered=SimpleNamespace(remote=self._answered)
        )
        self.remote = Remote(actor, Common(whole=whole, store=store, tell=lambda event: None))
        self.listening = asyncio.ensure_future(self.remote.listen((ConnectionError,)))

    async def _fetch(self):
        wants = await self.line.fetch()
        self.fetched.append(wants)
        return wants

    def _answered(self, answers, spent, seconds):
        self.meter.known(spent, seconds)
        self.line.answer(answers)

    def kill(self):
        self.listening.cancel()
        self.remote._died(ConnectionError("killed"))

    async def close(self):
        for _ in range(5):
            await asyncio.sleep(0)
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)


CALLS = st.tuples(
    st.integers(0, 1),  # which worker
    st.integers(1, 40),  # prompt
    st.integers(1, 60),  # cap
    st.floats(0, 1),  # how much of it is used
    st.integers(0, 3),  # turns of the loop until the reply comes
    st.sampled_from(["replies", "replies", "replies", "cancelled"]),
)


@settings(max_examples=30, deadline=None)
@given(
    calls=st.lists(CALLS, min_size=1, max_size=25),
    limit=st.one_of(st.builds(Budget, calls=st.integers(1, 12)), st.builds(Budget, tokens=st.integers(20, 600))),
    dies=st.integers(0, 60),
)
def test_two_workers_never_spend_more_than_the_whole_has(calls, limit, dies):
    async def main():
        whole = Meter(limit)
        pairs = [Pair(whole), Pair(whole)]

        def within():
            spent = whole._spent
            assert spent.calls + whole._in_flight <= (limit.calls or 10**9)
            assert spent.tokens + whole._reserved_tokens <= (limit.tokens or 10**9)

        async def call(worker, prompt, cap, used, turns, fate):
            meter = Meter(Budget(tokens=10_000), pairs[worker].meter)
            try:
                held = await meter.reserve(Ask(prompt=prompt, cap=cap))
            except BudgetExceeded as error:
                assert meter.ended_by(error) is error, "the whole's limit, seen from a run in a worker"
                assert meter._in_flight == 0
                return
            assert held.cap <= cap
            try:
                for _ in range(turns):
                    within()
                    await asyncio.sleep(0)
                if fate == "cancelled":
                    raise asyncio.CancelledError
            except asyncio.CancelledError:
                held.settle(Usage(calls=1, uncertain_tokens=prompt + held.cap))
                raise
            held.settle(Usage(calls=1, input_tokens=prompt, output_tokens=int(used * held.cap)))

        tasks = [(what[0], asyncio.ensure_future(call(*what))) for what in calls]
        for _ in range(dies):
            within()
            await asyncio.sleep(0)
        pairs[0].kill()
        for worker, task in tasks:
            if worker == 0:
                task.cancel()
        await asyncio.wait([task for _, task in tasks], timeout=20)
        for worker, task in tasks:
            assert task.done(), "who waits for room is told when there will be none"
            assert worker == 0 or task.cancelled() or task.exception() is None, task.exception()
        for pair in pairs:
            await pair.close()
        within()
        assert whole._in_flight == whole._reserved_tokens == 0

    asyncio.run(main())


async def test_a_reply_is_settled_and_on_record_at_the_same_moment():
    whole, store = Meter(Budget(tokens=100_000)), MemoryStore()
    pair = Pair(whole, store)
    ask = Predict("q -> a", lm=FunctionLM(lambda request: "ok"))
    async with Run(store=pair.store, run_id="r", around=pair.meter):
        await asyncio.gather(*(ask.acall(q=str(i)) for i in range(20)))
    await pair.close()
    settled = 0
    for wants in pair.fetched:
        events = [e for kind, _, what in wants if kind == "append" for e in unpacked(what[1])]
        ends = sum(event.kind == "call" for event in events)
        assert sum(kind == "settle" for kind, _, _ in wants) == ends
        settled += ends
    assert settled == whole.usage.calls == 20
    assert [e.seq for e in store.read("r")] == list(range(len(store.read("r"))))


async def test_nothing_is_sent_before_its_intent_is_on_record():
    class Slow(MemoryStore):
        def append(self, run_id, events):
            durable = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(
                0.01, lambda: (super(Slow, self).append(run_id, events), durable.set_result(None))
            )
            return durable

    store = Slow()
    pair = Pair(Meter(), store)
    seen = []

    def reply(request):
        seen.append([event.kind for event in store.read("r")])
        return "ok"

    async with Run(store=pair.store, run_id="r", around=pair.meter):
        await Predict("q -> a", lm=FunctionLM(reply)).acall(q="x")
    await pair.close()
    assert seen[0][-1] == "intent"


async def test_a_dead_workers_calls_are_charged_and_its_places_free():
    whole, store = Meter(Budget(tokens=10_000)), MemoryStore()
    pair = Pair(whole, store)
    lm = FunctionLM(lambda request: asyncio.sleep(60), name="far")
    job = Job(Row(index=0, key="k", item=None, inputs={}, run_id="r"), [])
    pair.remote.jobs["r"] = job
    upstream = ("elsewhere", 1, "")
    gate = FarGate(upstream, pair.line)
    assert await gate.enter() == 0
    run = Run(store=pair.store, run_id="r", around=pair.meter)
    asking = asyncio.ensure_future(
        run.execute(SimpleNamespace(steps=lambda r, i: Predict("q -> a", lm=lm).acall(**i)), {"q": "x"})
    )
    while not any(event.kind == "intent" for event in store.read("r")):
        await asyncio.sleep(0)
    assert gate_of(upstream)._inside == 1
    pair.kill()
    charged = whole.usage
    assert (charged.calls, whole._in_flight, gate_of(upstream)._inside) == (1, 0, 0)
    assert charged.uncertain_tokens > 0
    assert Journal(store, "r").spent() == charged, "a run that goes on counts the same"
    assert job.ended.exception() is not None
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_whoever_waits_at_the_gate_and_leaves_holds_no_place():
    pair = Pair(Meter())
    upstream = ("narrow", 1, "")
    first, second = FarGate(upstream, pair.line), FarGate(upstream, pair.line)
    entered = await first.enter()
    waiting = [asyncio.ensure_future(second.enter()) for _ in range(3)]
    for _ in range(6):
        await asyncio.sleep(0)
    waiting[0].cancel()
    first.leave(entered)
    await asyncio.wait_for(waiting[1], 5)
    waiting[2].cancel()
    second.leave()
    await pair.close()
    assert gate_of(upstream)._inside == 0
    assert isinstance(gate_of(upstream), Gate)


def test_an_error_and_its_attempts_that_hold_each_other_become_plain():
    class Mine(Exception):
        pass

    failed = RunFailed("nothing worked")
    failed.attempts = (
        Attempt(index=0, inputs={"q": iter("ab")}, error=failed),
        Attempt(index=1, inputs={}, error=Mine("m")),
    )
    plain = _Plain().outcome(Outcome(error=failed)).error
    assert str(plain) == "nothing worked"
    assert plain.attempts[0].error is plain
    assert (type(plain.attempts[1].error), str(plain.attempts[1].error)) == (RuntimeError, "Mine: m")


@pytest.mark.parametrize("limit", [Budget(calls=3), Budget(cost=0.01)])
async def test_what_is_bought_without_a_reservation_counts_above(limit):
    whole = Meter(limit)
    pair = Pair(whole)
    Meter(parent=pair.meter).charge(Usage(calls=3, cost=0.01, soft=3))
    await pair.close()
    assert whole.usage.soft == 3
    with pytest.raises(BudgetExceeded):
        Meter(parent=pair.meter).check_room()


@pytest.fixture
def as_a_workers_process():
    """What a worker sets for its whole process is taken back."""
    before, makers = config._process, list(turns._makers)
    yield
    config._process, turns._makers[:] = before, makers


@pytest.mark.usefixtures("as_a_workers_process")
async def test_a_row_that_is_given_up_before_it_begins_says_so():
    worker = Worker()
    await worker.begin(pickle.dumps(([], {}, pickle.dumps({}), pickle.dumps(None), Budget())))
    await worker.do("early", b"")
    await worker.cancel("early")
    await worker.cancel("late")
    await worker.do("late", b"")
    told = []
    while len(told) < 2:
        told += [what for _, _, what in await worker.wants()]
    assert told == [("early", "cancelled", b""), ("late", "cancelled", b"")]
