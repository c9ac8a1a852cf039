"""Code that buys replies by itself: counted after the fact, journalled, refused once a limit is reached."""

import asyncio
from collections import deque

import pytest

from redraft import Budget, Module, Refine, Run, Usage
from redraft.errors import BudgetExceeded, RunClosed
from redraft.foreign import Spent, bought, charge
from redraft.journal import MemoryStore

TEN = Usage(calls=1, input_tokens=6, output_tokens=4, cost=0.01)


class Elsewhere(Module):
    """A module with a client of its own."""

    def __init__(self, *texts, fails=()):
        self.texts = iter(texts)
        self.fails = iter(fails)
        self._bought = deque()  # no plain attribute: what a module was asked is not what it is

    async def aforward(self, **inputs):
        async def call():
            if error := next(self.fails, None):
                raise error
            self._bought.append(inputs)
            return {"answer": next(self.texts)}, TEN

        return await bought("elsewhere", call)


async def test_what_other_code_buys_is_counted_and_marked():
    result = await Refine(Elsewhere("bad", "good"), 3, lambda args, pred: float(pred.answer == "good"), 1.0).acall(
        q="x"
    )
    assert (result.answer, result.usage.calls, result.usage.soft, result.usage.tokens) == ("good", 2, 2, 20)
    assert result.usage.cost == pytest.approx(0.02)
    assert "2 calls (2 metered afterwards)" in result.receipt()


async def test_a_limit_that_is_reached_refuses_the_next_call():
    module = Elsewhere(*"abc")
    result = await Refine(module, 3, lambda args, pred: 0.1, 1.0, budget=Budget(tokens=20)).acall(q="x")
    assert (len(module._bought), result.stop_reason, result.answer) == (2, "budget", "a")


async def test_a_resumed_run_buys_nothing_twice():
    store = MemoryStore()
    module = Elsewhere("once")
    for _ in range(2):
        async with Run(run_id="r", store=store) as run:
            assert (await module.acall(q="x")).answer == "once"
            assert (run.usage.calls, run.usage.tokens) == (1, 10)
    assert len(module._bought) == 1


async def test_a_failure_says_what_it_spent_or_is_of_unknown_size():
    async with Run() as run:
        with pytest.raises(ConnectionError):
            await Elsewhere(fails=[Spent(ConnectionError("reset"), TEN)]).acall(q="x")
        assert (run.usage.tokens, run.usage.unbounded) == (10, 0)
        with pytest.raises(ValueError, match="odd"):
            await Elsewhere(fails=[ValueError("odd")]).acall(q="x")
        assert (run.usage.calls, run.usage.unbounded) == (2, 1)


async def test_a_cancelled_call_is_charged_as_one_of_unknown_size():
    async def forever():
        await asyncio.Event().wait()

    async with Run() as run:
        task = asyncio.create_task(bought("slow", forever))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (run.usage.calls, run.usage.soft, run.usage.unbounded) == (1, 1, 1)


def test_a_sync_function_charges_from_its_thread():
    def answer(q):
        charge(TEN, by="my own client")
        return q

    with Run(budget=Budget(calls=5)) as run:
        result = Refine(answer, 2, lambda args, pred: 0.1, 1.0)(q="x")
        assert (result.usage.calls, run.usage.tokens) == (2, 20)
    assert [e.data["by"] for e in run.journal.events if e.kind == "soft"] == ["my own client"] * 2


async def test_outside_a_run_it_is_just_awaited():
    async def call():
        return 7, TEN

    charge(TEN, by="nobody")
    assert await bought("x", call) == 7


async def test_a_closed_run_buys_nothing():
    async def late(run):
        async with run:
            pass
        from redraft.frame import entered

        with entered(run._frame):
            await bought("late", lambda: pytest.fail("it was bought"))

    with pytest.raises(RunClosed):
        await late(Run())


async def test_its_own_calls_are_refused_too():
    async with Run(budget=Budget(calls=1)):
        charge(TEN, by="x")
        with pytest.raises(BudgetExceeded, match="limit of 1 call"):
            await bought("x", lambda: pytest.fail("it was bought"))


async def test_what_is_no_json_is_not_recorded():
    store = MemoryStore()

    async def call():
        return {1, 2}, TEN

    async with Run(run_id="r", store=store):
        assert await bought("set", call) == {1, 2}
    assert [e.kind for e in store.read("r")] == ["run", "soft"]
