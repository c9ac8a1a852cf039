"""A time limit holds whatever hangs: within its seconds and a fifth, with the best so far."""

import asyncio
import threading
import time

import pytest
from core_models import DeafLM, HangingLM, Stopwatch

from redraft import BestOfN, Budget, Module, Predict, Run, SelfRefine, StopReason
from redraft.errors import BudgetExceeded
from redraft.testing import FaultyLM, FunctionLM

LIMIT = 0.3
SLACK = 0.2


def constant(inputs, prediction):
    return 1.0


def fine(q="x"):
    return "fine"


async def timed(strategy, **options):
    """The result of the strategy under the limit; the time it took is checked."""
    run = Run(budget=Budget(seconds=LIMIT), **options)
    with Stopwatch() as watch:
        result = await asyncio.wait_for(run.execute(strategy, {"q": "x"}), 5)
    assert watch.seconds < LIMIT + SLACK
    return result


def expect(result, text):
    assert result.text == text
    assert result.stop_reason is StopReason.BUDGET
    assert isinstance(result.error, BudgetExceeded)
    assert result.error.limit == "seconds"


class Hangs:
    """User code whose second call hangs in one of several ways."""

    def __init__(self, how):
        self.how = how
        self.calls = 0
        self.release = threading.Event()

    async def acall(self, q):
        self.calls += 1
        if self.calls > 1:
            await getattr(self, self.how)()
        return "fine"

    async def politely(self):
        await asyncio.sleep(5)

    async def shielded(self):
        await asyncio.shield(asyncio.ensure_future(asyncio.sleep(0.8)))

    async def deaf(self):
        """Swallows every cancellation, for longer than it is given."""
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            try:
                await asyncio.sleep(end - time.monotonic())
            except asyncio.CancelledError:
                continue

    async def in_a_thread(self):
        await asyncio.to_thread(self.release.wait, 0.8)


@pytest.mark.parametrize("lm", [HangingLM(replies=1), DeafLM(0.8, replies=1)], ids=["hanging", "deaf"])
async def test_a_model_that_does_not_reply(lm):
    result = await timed(BestOfN(Predict("q -> a", lm=lm), reward_fn=constant))
    expect(result, "reply 1")
    assert result.usage.calls == 2
    assert result.usage.uncertain_tokens > 0, "the call that was cut off is charged"


async def test_a_model_in_the_middle_of_its_prefill():
    lm = FaultyLM(FunctionLM(lambda request: "fine"), [None, ("hang", 0.8)])
    expect(await timed(BestOfN(Predict("q -> a", lm=lm), reward_fn=constant)), "fine")


@pytest.mark.parametrize("how", ["politely", "shielded", "deaf", "in_a_thread"])
async def test_async_user_code_that_hangs(how):
    module = Hangs(how)
    expect(await timed(BestOfN(module, reward_fn=constant)), "fine")
    module.release.set()


async def test_a_def_that_sleeps_in_its_thread():
    calls, release = [], threading.Event()

    def module(q):
        calls.append(q)
        if len(calls) > 1:
            release.wait(0.8)
        return "fine"

    expect(await timed(BestOfN(module, reward_fn=constant)), "fine")
    release.set()


async def test_a_sync_module_in_a_thread_that_waits_for_a_hanging_model():
    lm = HangingLM(replies=1)
    inner = Predict("q -> a", lm=lm)

    class User(Module):
        def forward(self, q):
            return inner(q=q)

    expect(await timed(BestOfN(User(), reward_fn=constant)), "reply 1")


@pytest.mark.parametrize("kind", ["def", "async"])
async def test_a_reward_that_hangs_loses_no_draft(kind):
    """The draft is paid for: unjudged as it is, it is better than nothing."""
    release = threading.Event()

    def slow(inputs, prediction):
        release.wait(0.8)
        return 1.0

    async def hanging(inputs, prediction):
        await asyncio.sleep(5)

    lm = FunctionLM(lambda request: "a draft")
    result = await timed(BestOfN(Predict("q -> a", lm=lm), reward_fn=slow if kind == "def" else hanging))
    release.set()
    expect(result, "a draft")
    assert result.score is None
    assert not result.passed, "nobody has judged it"
    assert result.usage.calls == 1


async def test_a_critic_that_hangs():
    async def critic(text):
        await asyncio.sleep(5)

    expect(await timed(SelfRefine(fine, critic=critic)), "fine")


async def test_nothing_at_all_in_time_is_an_error_with_the_usage():
    with pytest.raises(BudgetExceeded) as caught:
        await timed(BestOfN(Predict("q -> a", lm=HangingLM()), N=1))
    assert caught.value.usage.calls == 1
    assert len(caught.value.attempts) == 1


HANGING_MODULES = {
    "model": lambda: Predict("q -> a", lm=HangingLM(replies=1)),
    "deaf model": lambda: Predict("q -> a", lm=DeafLM(0.8, replies=1)),
    "async": lambda: Hangs("politely"),
    "deaf": lambda: Hangs("deaf"),
    "thread": lambda: Hangs("in_a_thread"),
}


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("how", HANGING_MODULES)
async def test_inner_strategies_salvage_their_best(how, depth):
    strategy = BestOfN(HANGING_MODULES[how](), reward_fn=constant)
    for _ in range(depth):
        strategy = BestOfN(strategy, reward_fn=constant)
    result = await timed(strategy)
    assert result.text in ("fine", "reply 1")
    assert result.stop_reason is StopReason.BUDGET


async def test_an_inner_limit_ends_the_inner_strategy_only():
    calls = []

    async def module(q):
        calls.append(q)
        if len(calls) == 2:
            await asyncio.sleep(5)
        return f"draft {len(calls)}"

    inner = BestOfN(module, N=2, reward_fn=constant, budget=Budget(seconds=LIMIT))
    with Stopwatch() as watch:
        result = await BestOfN(inner, N=2, reward_fn=constant).acall(q="x")
    assert watch.seconds < LIMIT + 2 * SLACK
    assert result.stop_reason is StopReason.ROUNDS
    assert [a.prediction.stop_reason for a in result.attempts] == [StopReason.BUDGET, StopReason.ROUNDS]


async def test_calls_waiting_for_room_or_at_the_gate_end_as_well():
    lm = HangingLM(name="narrow-deadline")
    lm.parallel = 1

    async def many(q):
        await asyncio.gather(*(predict.acall(q=str(i)) for i in range(5)))

    predict = Predict("q -> a", lm=lm)
    with pytest.raises(BudgetExceeded):
        await timed(BestOfN(many, N=1))
    assert len(lm.requests) <= 1


async def test_after_the_deadline_nothing_is_sent():
    lm = FunctionLM(lambda request: "x")
    async with Run(budget=Budget(seconds=0.05)) as run:
        await asyncio.sleep(0.1)
        with pytest.raises(BudgetExceeded):
            await Predict("q -> a", lm=lm).acall(q="x")
    assert lm.requests == []
    assert run.usage.calls == 0


async def test_a_with_block_has_a_deadline_too():
    lm = HangingLM()
    with Stopwatch() as watch:
        async with Run(budget=Budget(seconds=LIMIT)):
            with pytest.raises(BudgetExceeded):
                await Predict("q -> a", lm=lm).acall(q="x")
    assert watch.seconds < LIMIT + SLACK


def test_a_sync_call_has_a_deadline_too():
    with Stopwatch() as watch:
        result = BestOfN(
            Predict("q -> a", lm=DeafLM(0.8, replies=1)), reward_fn=constant, budget=Budget(seconds=LIMIT)
        )(q="x")
    assert watch.seconds < LIMIT + SLACK
    expect(result, "reply 1")


def test_asyncio_run_ends_at_once_after_a_deadline():
    """No task that hangs is left for the loop to wait for, unless it is deaf."""
    with Stopwatch() as watch:
        asyncio.run(timed(BestOfN(Hangs("politely"), reward_fn=constant)))
    assert watch.seconds < LIMIT + 2 * SLACK
