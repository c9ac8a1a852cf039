"""Code that buys replies by itself: counted after the fact, journalled, refused once a limit is reached."""

import asyncio
from collections import deque

import pytest

from redraft import Budget, Module, Predict, Refine, Run, Usage
from redraft.errors import BudgetExceeded, PriceUnknownError, RunClosed
from redraft.foreign import Spent, bought, charge, once
from redraft.frame import current_frame, paying
from redraft.journal import MemoryStore
from redraft.testing import ScriptedLM
from redraft.types import Capabilities, Choice, Completion

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


async def test_below_a_purchase_no_code_is_part_of_the_run():
    lm = ScriptedLM(["inner"])
    async with Run(budget=Budget(calls=1)) as run:
        with paying():
            charge(TEN, "elsewhere")
            assert (await Predict("q -> a", lm=lm).acall(q="x")).a == "inner"  # in a run of its own
        assert (run.usage.calls, current_frame().run) == (0, run)


class Routing:
    """An LM that asks another one, through a module."""

    name, parallel, max_output, capabilities = "routing", 4, None, Capabilities()

    def __init__(self, inner):
        self.inner = inner

    async def generate(self, request, on_delta=None):
        said = await Predict("q -> a", lm=self.inner).acall(q=str(request.messages))
        return Completion(choices=(Choice(text=said.a, finish_reason="stop"),), usage=Usage(output_tokens=2))

    def count(self, request):
        return None

    def cost(self, usage):
        return 0.0


@pytest.mark.parametrize("budget", [Budget(calls=1), Budget(tokens=2000)])
async def test_an_lm_that_asks_another_one_is_counted_once(budget):
    lm = Routing(ScriptedLM(["yes"]))
    async with asyncio.timeout(5), Run(budget=budget) as run:
        assert (await Predict("q -> a", lm=lm).acall(q="x")).a == "yes"
        assert run.usage.calls == 1


async def test_a_money_limit_and_an_unknown_price_do_not_go_together():
    async with Run(budget=Budget(cost=1.0)):
        charge(Usage(calls=1, unpriced=1, input_tokens=5), by="x")
        with pytest.raises(PriceUnknownError, match="x"):
            await bought("x", lambda: pytest.fail("it was bought"))


async def test_a_token_limit_that_cannot_hold_is_said():
    async with Run(budget=Budget(tokens=5)) as run:
        charge(Usage(calls=1, unbounded=1), by="a chain")
    (said,) = [e.data["text"] for e in run.journal.events if e.kind == "lint"]
    assert "a chain does not report" in said


async def test_what_is_no_json_is_not_recorded():
    store = MemoryStore()

    async def call():
        return {1, 2}, TEN

    async with Run(run_id="r", store=store):
        assert await bought("set", call) == {1, 2}
    assert [e.kind for e in store.read("r")] == ["run", "soft", "stop"]


@pytest.mark.parametrize("way", ["once", "step"])
async def test_a_replayed_step_does_not_ask_for_what_was_bought_in_it_and_that_is_no_divergence(way):
    store, lm = MemoryStore(), ScriptedLM(["four"])

    async def work():
        return (await Predict("q -> a", lm=lm).acall(q="2 + 2?")).a

    for _ in range(2):
        async with Run(run_id="r", store=store, strict=True) as run:
            done = await (once("sum", work) if way == "once" else run.step("sum", work))
            assert (done, run.usage.calls) == ("four", 1)
    assert len(lm.requests) == 1
