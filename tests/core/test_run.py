"""Run: buying a reply, retries, refusals, usage, attempts, nesting, closing."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest
from core_models import DeafLM, HangingLM, ask

from redraft import (
    BestOfN,
    Budget,
    Module,
    Predict,
    Refine,
    Request,
    Run,
    SelfRefine,
    StopReason,
    configure,
    context,
    in_run,
)
from redraft.errors import (
    AuthError,
    BadRequestError,
    BudgetExceeded,
    DivergedError,
    LMError,
    PriceUnknownError,
    RunClosed,
    RunFailed,
    ScoreError,
    TransientLMError,
    UnsupportedError,
)
from redraft.journal import Journal, MemoryStore
from redraft.retry import LONGEST_WAIT, wait_before
from redraft.testing import FaultyLM, FunctionLM, ScriptedLM
from redraft.types import Capabilities, Choice, Completion, Usage


def busy(after=0.0, **fields):
    return TransientLMError("busy", status=429, retry_after=after, **fields)


def ok(**options):
    return FunctionLM(lambda request: "two words", **options)


def constant(inputs, prediction):
    return 1.0


def kinds(run):
    return [event.kind for event in run.journal.events]


# One reply


async def test_a_reply_is_bought_journalled_and_counted():
    lm = ScriptedLM(["three words long"], price=0.5)
    async with Run() as run:
        completion = await run.complete(ask("two words"), lm=lm)
    assert completion.text == "three words long"
    assert run.usage == Usage(calls=1, input_tokens=2, output_tokens=3, cost=2.5)
    assert run.usage.exact
    assert kinds(run) == ["run", "intent", "call", "stop"]


async def test_without_a_token_limit_the_request_is_sent_as_asked():
    lm = ok()
    lm.max_output = 50
    async with Run(budget=Budget(calls=9, seconds=9)) as run:
        await run.complete(ask(), lm=lm)
        await run.complete(ask(max_tokens=7), lm=lm)
    assert [request.max_tokens for request in lm.requests] == [None, 7]


async def test_with_a_token_limit_a_cap_is_always_sent():
    lm = FunctionLM(lambda request: "one two three four five")
    lm.max_output = 50
    async with Run(budget=Budget(tokens=60)) as run:
        await run.complete(ask("a b"), lm=lm)  # the model's maximum
        await run.complete(ask("c d", max_tokens=4), lm=lm)  # what was asked
        await run.complete(ask("e f"), lm=lm)  # what remains
    assert [request.max_tokens for request in lm.requests] == [50, 4, 60 - 7 - 6 - 2]


async def test_money_sends_a_cap_as_well():
    lm = ok(price=0.01)
    async with Run(budget=Budget(cost=0.05)) as run:
        await run.complete(ask("a b"), lm=lm)
        with pytest.raises(BudgetExceeded) as caught:
            await run.complete(ask("a b"), lm=lm)
    assert [request.max_tokens for request in lm.requests] == [3]
    assert caught.value.limit == "cost"


async def test_money_without_a_price_is_an_error_at_the_door():
    lm = ok(price=None)
    with pytest.raises(PriceUnknownError):
        await BestOfN(Predict("q -> a", lm=lm), N=1, budget=Budget(cost=1.0)).acall(q="x")
    assert lm.requests == []


async def test_an_unknown_price_is_unknown_not_zero():
    result = await BestOfN(Predict("q -> a", lm=ok(price=None)), N=1).acall(q="x")
    assert result.cost is None
    assert result.usage.unpriced == 1


async def test_a_model_s_seed_is_derived_unless_the_request_has_one():
    lm, seedless = ok(), ok(capabilities=Capabilities(), name="seedless")
    async with Run(seed=3) as run:
        await run.complete(ask(), lm=lm)
        await run.complete(ask(seed=9), lm=lm)
        await run.complete(ask(), lm=seedless)
    assert lm.requests[0].seed is not None
    assert lm.requests[1].seed == 9
    assert seedless.requests[0].seed is None


# Retries


async def test_a_transient_failure_is_tried_again_and_every_try_is_counted():
    lm = FaultyLM(ok(), [busy(), busy()])
    async with Run() as run:
        assert (await run.complete(ask(), lm=lm)).text == "two words"
    assert lm.calls == run.usage.calls == 3
    assert [event.data["tried"] for event in run.journal.events if event.kind == "retry"] == [1, 2]


async def test_it_gives_up_after_its_tries():
    lm = FaultyLM(ok(), [busy()] * 9)
    with context(tries=3):
        async with Run() as run:
            with pytest.raises(TransientLMError):
                await run.complete(ask(), lm=lm)
    assert lm.calls == run.usage.calls == 3


async def test_retry_after_is_honoured():
    lm = FaultyLM(ok(), [busy(0.3)])
    began = time.monotonic()
    async with Run() as run:
        await run.complete(ask(), lm=lm)
    assert 0.3 <= time.monotonic() - began < 1.5
    assert next(e for e in run.journal.events if e.kind == "retry").data["wait"] == 0.3


def test_without_retry_after_the_wait_grows_with_jitter():
    for tried, base in ((1, 0.5), (2, 1.0), (3, 2.0), (10, 20.0)):
        waits = {wait_before(TransientLMError("x"), tried, 99) for _ in range(20)}
        assert all(base / 2 <= wait <= base for wait in waits)
        assert len(waits) > 1
    assert wait_before(busy(LONGEST_WAIT + 1), 1, 9) is None, "who asks for minutes is not waited for"
    assert wait_before(busy(LONGEST_WAIT), 1, 9) == LONGEST_WAIT
    assert wait_before(TransientLMError("x"), 4, 4) is None
    assert wait_before(BadRequestError("x"), 1, 4) is None


async def test_a_wait_beyond_the_deadline_ends_at_once():
    lm = FaultyLM(ok(), [busy(30.0)])
    began = time.monotonic()
    async with Run(budget=Budget(seconds=5)) as run:
        with pytest.raises(BudgetExceeded) as caught:
            await run.complete(ask(), lm=lm)
    assert caught.value.limit == "seconds"
    assert isinstance(caught.value.__cause__, TransientLMError)
    assert time.monotonic() - began < 2


async def test_every_try_needs_room_in_the_budget():
    lm = FaultyLM(ok(), [busy()] * 9)
    async with Run(budget=Budget(calls=2)) as run:
        with pytest.raises(BudgetExceeded):
            await run.complete(ask(), lm=lm)
    assert lm.calls == 2


async def test_no_gate_is_held_while_waiting_for_the_next_try():
    lm = FaultyLM(ok(name="one-at-a-time"), [TransientLMError("down", status=503, retry_after=0.5)])
    lm.parallel = 1
    async with Run() as run:
        first = asyncio.create_task(run.complete(ask("first"), lm=lm))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await run.complete(ask("second"), lm=lm)
        assert time.monotonic() - began < 0.3
        await first


@pytest.mark.parametrize("error", [BadRequestError("no", status=400), AuthError("key", status=401), LMError("odd")])
async def test_a_permanent_error_is_raised_at_once(error):
    lm = FaultyLM(ok(), [error] * 9)
    async with Run() as run:
        with pytest.raises(type(error)):
            await run.complete(ask(), lm=lm)
    assert lm.calls == 1
    assert run.usage == Usage(calls=1), "refused: one call and no tokens"


async def test_what_an_lm_raises_in_breach_of_contract_comes_out_as_an_lm_error():
    lm = ScriptedLM([KeyError("choices")])
    async with Run() as run:
        with pytest.raises(LMError, match="scripted failed with KeyError") as caught:
            await run.complete(ask(), lm=lm)
    assert isinstance(caught.value.__cause__, KeyError)
    assert run.usage.uncertain_tokens > 0, "it may have been sent"


# Parameters that a model refuses


def picky(name, parameter="temperature", latency=0.0):
    async def answer(request):
        await asyncio.sleep(latency)
        if getattr(request, parameter) is not None:
            raise UnsupportedError(f"no {parameter}", parameter=parameter, status=400)
        return "ok"

    return FunctionLM(answer, name=name)


async def test_a_refused_optional_parameter_is_dropped_once_and_remembered():
    lm = picky("picky-1")
    async with Run() as run:
        await run.complete(ask("a", temperature=0.5), lm=lm)
        await run.complete(ask("b", temperature=0.5), lm=lm)
    assert [request.temperature for request in lm.requests] == [0.5, None, None]
    dropped = [event.data["parameter"] for event in run.journal.events if event.kind == "dropped"]
    assert dropped == ["temperature"]
    assert run.usage.calls == 3
    async with Run() as other:
        await other.complete(ask("c", temperature=0.5), lm=lm)
    assert lm.requests[-1].temperature is None, "remembered for the model, not for the run"
    async with Run() as other:
        fresh = picky("picky-2")
        await other.complete(ask("c", temperature=0.5), lm=fresh)
    assert fresh.requests[0].temperature == 0.5


async def test_calls_in_flight_together_all_survive_the_refusal():
    lm = picky("picky-3", latency=0.01)
    async with Run() as run:
        replies = await asyncio.gather(*(run.complete(ask(str(i), temperature=0.5), lm=lm) for i in range(5)))
    assert [reply.text for reply in replies] == ["ok"] * 5


async def test_a_constraint_is_never_dropped():
    lm = picky("picky-4", parameter="grammar")
    async with Run() as run:
        with pytest.raises(UnsupportedError):
            await run.complete(ask(grammar="g"), lm=lm)
    assert len(lm.requests) == 1


async def test_a_model_that_refuses_what_was_not_sent_is_not_asked_for_ever():
    async def stubborn(request):
        raise UnsupportedError("no temperature", parameter="temperature")

    lm = FunctionLM(stubborn, name="stubborn")
    async with Run() as run:
        for _ in range(2):
            with pytest.raises(UnsupportedError):
                await run.complete(ask(temperature=0.5), lm=lm)
    assert len(lm.requests) == 3


# Usage


async def test_a_reply_without_usage_is_counted_marked_and_given_an_upper_end():
    lm = FaultyLM(FunctionLM(lambda request: "four words of text"), ["no_usage"])
    async with Run() as run:
        await run.complete(ask("a prompt"), lm=lm)
    assert run.usage.estimated == 1
    assert not run.usage.exact
    assert run.usage.tokens <= 2 + 4 <= run.usage.tokens + run.usage.uncertain_tokens


async def test_tool_calls_without_usage_are_counted_too():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": "' + "word " * 200 + '"}'}}
    lm = FunctionLM(lambda request: Completion(choices=(Choice(tool_calls=(call,)),)))
    async with Run() as run:
        await run.complete(ask(), lm=lm)
    assert run.usage.output_tokens + run.usage.uncertain_tokens >= 200


async def test_an_upstream_that_ignores_its_cap_is_settled_truly_and_reported():
    lm = FaultyLM(FunctionLM(lambda request: "one two three four five six"), ["ignore_cap"])
    async with Run() as run:
        await run.complete(ask("hi", max_tokens=2), lm=lm)
    assert run.usage.output_tokens == 6
    assert run.usage.overrun == 4
    assert [e.data["tokens"] for e in run.journal.events if e.kind == "overrun"] == [4]


async def test_failed_before_sending_costs_a_call_and_after_sending_its_reservation():
    async with Run(budget=Budget(tokens=1000)) as run:
        await run.complete(ask("a b"), lm=FaultyLM(ok(), [busy()]))
        assert run.usage == Usage(calls=2, input_tokens=2, output_tokens=2)
        await run.complete(ask("a b", max_tokens=10), lm=FaultyLM(ok(), [busy(sent=True)]))
    assert run.usage.tokens == 8
    assert run.usage.uncertain_tokens == 2 + 10


async def test_a_failure_that_reports_its_usage_is_exact():
    lost = TransientLMError("cut", sent=True, retry_after=0, reported=Usage(input_tokens=5, output_tokens=6))
    async with Run() as run:
        await run.complete(ask("a b"), lm=FaultyLM(ok(price=1.0), [lost]))
    assert run.usage == Usage(calls=2, input_tokens=7, output_tokens=8, cost=15.0)


async def test_a_cancelled_call_is_charged_as_a_range():
    lm = HangingLM(price=0.5)
    async with Run() as run:
        call = asyncio.create_task(run.complete(ask("a b", max_tokens=10), lm=lm))
        await lm.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert run.usage.calls == 1
        assert run.usage.tokens == 0
        assert run.usage.uncertain_tokens >= 12
        assert run.usage.uncertain_cost >= 6.0
        assert run.usage.unbounded == 0
    assert kinds(run)[-2:] == ["call_failed", "stop"]
    assert Journal(None, "x").spent() == Usage()


async def test_a_cancelled_call_without_a_cap_is_said_to_be_unbounded():
    lm = HangingLM()
    async with Run() as run:
        call = asyncio.create_task(run.complete(ask("a b"), lm=lm))
        await lm.asked.wait()
        call.cancel()
        await asyncio.wait([call])
    assert run.usage.unbounded == 1


async def test_a_call_cancelled_while_it_waits_at_the_gate_costs_no_tokens():
    lm = HangingLM(name="narrow")
    lm.parallel = 1
    async with Run() as run:
        first = asyncio.create_task(run.complete(ask("first"), lm=lm))
        await lm.asked.wait()
        second = asyncio.create_task(run.complete(ask("second"), lm=lm))
        await asyncio.sleep(0.01)
        before = run.usage
        second.cancel()
        await asyncio.wait([second])
        assert (run.usage.tokens, run.usage.uncertain_tokens) == (before.tokens, before.uncertain_tokens)
        first.cancel()
        await asyncio.wait([first])
    assert len(lm.requests) == 1


async def test_a_late_reply_of_a_cancelled_call_is_not_charged_twice():
    """The client swallows its cancellation, and the reply comes after the run has given up on it."""
    lm, store = DeafLM(1.2), MemoryStore()
    with pytest.raises(BudgetExceeded):
        await Run(budget=Budget(seconds=0.4), store=store, run_id="r").execute(
            BestOfN(Predict("q -> a", lm=lm), N=1), {"q": "x"}
        )
    await asyncio.sleep(1.5)
    assert lm.delivered == 1
    spent = Journal(store, "r").spent()
    assert spent.calls == 1
    assert spent.tokens == 0 or spent.uncertain_tokens == 0, "either the range or the true usage, not both"


async def test_a_late_failure_of_a_cancelled_call_is_not_charged_twice():
    """The same with a client that ends its swallowed cancellation with an error: it is not retried either."""

    async def late(request):
        asleep = asyncio.ensure_future(asyncio.sleep(1.2))
        while not asleep.done():
            try:
                await asyncio.shield(asleep)
            except asyncio.CancelledError:
                continue
        raise TransientLMError("lost", sent=True, retry_after=0)

    lm, store = FunctionLM(late), MemoryStore()
    run = Run(budget=Budget(seconds=0.4), store=store, run_id="r")
    with pytest.raises(BudgetExceeded) as caught:
        await run.execute(BestOfN(Predict("q -> a", lm=lm), N=1), {"q": "x"})
    await asyncio.sleep(1.5)
    assert len(lm.requests) == 1
    assert Journal(store, "r").spent() == caught.value.usage == run.usage


# Closing


async def test_a_closed_run_refuses_calls():
    lm = ok()
    async with Run() as run:
        pass
    with pytest.raises(RunClosed, match="buys nothing more"):
        await run.complete(ask(), lm=lm)
    assert lm.requests == []


async def test_an_abandoned_thread_buys_nothing():
    lm, seen, over = ok(), [], threading.Event()
    predict = Predict("q -> a", lm=lm)

    def module(q):
        time.sleep(0.4)
        try:
            seen.append(predict(q="late"))
        except RunClosed as error:
            seen.append(error)
        over.set()
        return q

    with pytest.raises(BudgetExceeded):
        await BestOfN(module, N=1, budget=Budget(seconds=0.1)).acall(q="x")
    await asyncio.to_thread(over.wait, 5)
    assert isinstance(seen[0], RunClosed)
    assert lm.requests == []


async def test_a_closed_inner_run_is_closed_though_the_outer_one_goes_on():
    lm, leaked = ok(), []

    async def leaks(q):
        leaked.append(asyncio.create_task(later()))
        return q

    async def later():
        await asyncio.sleep(0.05)
        return await predict.acall(q="late")

    async def outer(q):
        result = await BestOfN(leaks, N=1).acall(q=q)
        await asyncio.wait(leaked)
        return result

    predict = Predict("q -> a", lm=lm)
    await BestOfN(outer, N=1).acall(q="x")
    assert isinstance(leaked[0].exception(), RunClosed)
    assert lm.requests == []


# Steps, listeners


async def test_a_step_is_done_once():
    store, done = MemoryStore(), []

    class Steps:
        async def steps(self, run, inputs):
            first = await run.step("write", done.append, "a") or await run.step("count", lambda: len(done))
            again = await run.step("count", lambda: len(done) + 10)
            run.accept(await run.attempt(lambda q: f"{first} {again}", inputs), "x")
            return StopReason.ROUNDS

    for _ in range(2):
        result = await Run(store=store, run_id="r").execute(Steps(), {"q": "x"})
        assert result.answer == "1 11"
        assert done == ["a"]


async def test_a_step_that_failed_is_done_again():
    store, tries = MemoryStore(), []

    class Steps:
        async def steps(self, run, inputs):
            def flaky():
                tries.append(1)
                if len(tries) == 1:
                    raise OSError("disk")
                return "done"

            value = await run.step("flaky", flaky)
            run.accept(await run.attempt(lambda q: value, inputs), "x")
            return StopReason.ROUNDS

    with pytest.raises(RunFailed, match="disk"):
        await Run(store=store, run_id="r").execute(Steps(), {"q": "x"})
    assert (await Run(store=store, run_id="r").execute(Steps(), {"q": "x"})).answer == "done"


async def test_listeners_that_raise_are_dropped_and_cannot_hurt():
    seen = []

    def bad(event):
        raise ValueError(event.kind)

    def worse(event):
        if event.kind == "call":
            raise KeyError(event.kind)

    run = Run(listeners=[bad, seen.append, worse, bad, worse])
    await run.execute(BestOfN(Predict("q -> a", lm=ok()), N=2, reward_fn=constant), {"q": "x"})
    told = [event.kind for event in seen]
    assert told.count("attempt") == 2
    assert "listener_failed" in told
    assert kinds(run).count("listener_failed") == 4 or kinds(run).count("listener_failed") == 2


async def test_listeners_that_want_deltas_get_them():
    class Deltas(list):
        deltas = True

        def __call__(self, event):
            self.append(event)

    listener = Deltas()
    async with Run(listeners=[listener]) as run:
        await run.complete(ask(), lm=ok())
    assert "".join(e.data["text"] for e in listener if e.kind == "delta") == "two words"
    assert "delta" not in kinds(run)


# Attempts and results


async def test_what_a_module_raises_is_the_attempt_s_error():
    def module(q):
        raise ZeroDivisionError("oh")

    with pytest.raises(RunFailed, match="ZeroDivisionError: oh") as caught:
        await BestOfN(module, N=3, reward_fn=constant).acall(q="x")
    assert [type(a.error) for a in caught.value.attempts] == [ZeroDivisionError] * 3
    assert caught.value.run_id
    assert caught.value.usage == Usage()


async def test_a_module_that_raises_cancelled_error_itself_is_no_cancellation():
    tries = []

    async def module(q):
        tries.append(q)
        if len(tries) == 2:
            gone = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone
        return "fine"

    result = await BestOfN(module, N=3, reward_fn=constant).acall(q="x")
    assert result.answer == "fine"
    assert [a.error is None for a in result.attempts] == [True, False, True]


async def test_a_reward_that_raises_is_a_score_error_never_a_zero():
    def reward(inputs, prediction):
        raise LookupError("no gold answer")

    result = await BestOfN(Predict("q -> a", lm=ok()), N=1, reward_fn=reward).acall(q="x")
    assert (result.a, result.score, result.stop_reason) == ("two words", None, StopReason.ERROR)
    assert isinstance(result.error, ScoreError)
    assert "LookupError in reward function 'reward': no gold answer" in str(result.error)
    assert not result.passed, "a judge that gives no verdict is never a pass"


async def test_an_ended_budget_keeps_the_best_so_far():
    lm = ScriptedLM(["a", "b b", "c"])
    strategy = BestOfN(
        Predict("q -> a", lm=lm), N=3, reward_fn=lambda inputs, p: len(p.a.split()), budget=Budget(calls=2)
    )
    result = await strategy.acall(q="x")
    assert (result.a, result.score, result.stop_reason) == ("b b", 2.0, StopReason.BUDGET)
    assert isinstance(result.error, BudgetExceeded)
    assert result.usage.calls == 2


async def test_a_failure_after_a_draft_keeps_the_draft():
    lm = ScriptedLM(["a draft", *[BadRequestError("too long", status=400)] * 2])
    result = await SelfRefine(Predict("q -> a", lm=lm), critic=lambda text: "no good").acall(q="x")
    assert (result.a, result.stop_reason) == ("a draft", StopReason.REJECTED)
    assert [type(a.error) for a in result.attempts] == [type(None), BadRequestError, BadRequestError]


async def test_a_critic_that_fails_ends_with_the_draft():
    def critic(text):
        raise RuntimeError("critic broke")

    result = await SelfRefine(Predict("q -> a", lm=ok()), critic=critic).acall(q="x")
    assert (result.a, result.stop_reason) == ("two words", StopReason.ERROR)
    assert "critic broke" in str(result.error)


async def test_bad_input_is_raised_before_anything_is_spent():
    from redraft.errors import InputError

    lm = ok()
    with pytest.raises(InputError, match="wrong"):
        await BestOfN(Predict("q -> a", lm=lm), N=1).acall(wrong="x")
    assert lm.requests == []


async def test_accept_never_takes_what_scores_below_the_best():
    class Worse:
        async def steps(self, run, inputs):
            for value in (2.0, 1.0):
                attempt = await run.attempt(lambda q, text=str(value): text, inputs, scorer=Fixed(value))
                accepted.append(run.accept(attempt, "because"))
            return StopReason.ROUNDS

    class Fixed:
        def __init__(self, value):
            self.value = value

        async def score(self, inputs, prediction):
            from redraft import Score

            return Score(value=self.value)

    accepted = []
    result = await Run().execute(Worse(), {"q": "x"})
    assert (result.answer, accepted) == ("2.0", [True, False])
    assert "scores below draft 1" in result.attempts[1].reason


# Nesting


async def test_modules_inside_a_user_s_module_join_the_run():
    lm = ok()

    class Pipeline(Module):
        def __init__(self):
            self.plan = Predict("q -> a", lm=lm)
            self.steps = [Predict("q -> a", lm=lm), Predict("q -> a", lm=lm)]

        async def aforward(self, q):
            await self.plan.acall(q=q)
            await asyncio.gather(*(step.acall(q=q) for step in self.steps))
            return q

    async with Run() as run:
        await Pipeline().acall(q="x")
    assert run.usage.calls == 3
    assert len({event.scope for event in run.journal.events if event.kind == "call"}) == 3
    assert {e.scope.split("/")[-1].split(":")[0] for e in run.journal.events if e.kind == "call"} == {
        "plan",
        "steps[0]",
        "steps[1]",
    }


async def test_an_inner_strategy_spends_from_both_budgets():
    lm = ok()
    inner = BestOfN(Predict("q -> a", lm=lm), N=9, reward_fn=constant, budget=Budget(calls=2))
    result = await BestOfN(inner, N=9, reward_fn=constant, budget=Budget(calls=5)).acall(q="x")
    assert len(lm.requests) == 5
    assert [a.usage.calls for a in result.attempts] == [2, 2, 1, 0]
    assert result.stop_reason is StopReason.BUDGET
    assert result.attempts[0].prediction.stop_reason is StopReason.BUDGET


async def test_a_run_opened_inside_a_run_is_part_of_it():
    lm = ok()
    predict = Predict("q -> a", lm=lm)

    async def module(q):
        async with Run(budget=Budget(calls=3)):
            for i in range(9):
                await predict.acall(q=str(i))
        return q

    for limit, calls in ((2, 2), (7, 3)):
        before = len(lm.requests)
        with pytest.raises(BudgetExceeded):
            await BestOfN(module, N=1, budget=Budget(calls=limit)).acall(q="x")
        assert len(lm.requests) - before == calls


def test_a_with_block_is_a_run_for_sync_code():
    lm = ok()
    predict = Predict("q -> a", lm=lm)
    with Run(budget=Budget(calls=2)) as run:
        predict(q="a")
        predict(q="b")
        with pytest.raises(BudgetExceeded):
            predict(q="c")
    with pytest.raises(RunClosed):
        run_again(run, lm)
    assert run.usage.calls == 2
    predict(q="outside again")
    assert run.usage.calls == 2


def run_again(run, lm):
    from redraft.sync import run_sync

    return run_sync(lambda: run.complete(ask(), lm=lm))


async def test_an_async_with_block_is_a_run_for_tasks_started_in_it():
    lm = ok()
    predict = Predict("q -> a", lm=lm)
    async with Run(budget=Budget(calls=4)) as run:
        tried = await asyncio.gather(*(predict.acall(q=str(i)) for i in range(6)), return_exceptions=True)
    assert sum(isinstance(outcome, BudgetExceeded) for outcome in tried) == 2
    assert run.usage.calls == len(lm.requests) == 4


def test_settings_give_runs_their_defaults():
    lm, store = ok(), MemoryStore()
    with context(model=lm, budget=Budget(calls=1), store=store, seed=4):
        Predict("q -> a")(q="x")
        run = Run()
        assert (run.budget, run.seed) == (Budget(calls=1), 4)
        assert store.read(run.run_id)
    assert Run().budget == Budget()
    with pytest.raises(Exception, match="no setting named"):
        configure(modle="x")


# Cancelling


def cancelled_by_another_thread(strategy, when, **options):
    run = Run(**options)

    async def main():
        threading.Thread(target=lambda: (when(), run.cancel())).start()
        began = time.monotonic()
        try:
            return await run.execute(strategy, {"q": "x"})
        finally:
            taken.append(time.monotonic() - began)

    taken = []
    return run, main, taken


async def test_cancel_from_another_thread_returns_the_best_so_far():
    lm = HangingLM(replies=1)
    run, main, _ = cancelled_by_another_thread(
        BestOfN(Predict("q -> a", lm=lm), reward_fn=constant), lambda: time.sleep(0.2)
    )
    result = await asyncio.wait_for(main(), 5)
    assert (result.a, result.stop_reason) == ("reply 1", StopReason.CANCELLED)
    assert result.usage.calls == 2
    assert result.usage.uncertain_tokens > 0
    assert lm.cancelled == 1
    with pytest.raises(RunClosed):
        await run.complete(ask(), lm=ok())


async def test_cancel_does_not_wait_for_a_model_that_ignores_it():
    _, main, taken = cancelled_by_another_thread(
        BestOfN(Predict("q -> a", lm=DeafLM(3.0, replies=1)), reward_fn=constant), lambda: time.sleep(0.2)
    )
    result = await main()
    assert (result.a, result.stop_reason) == ("reply 1", StopReason.CANCELLED)
    assert taken[0] < 1.0
    assert result.usage.uncertain_tokens > 0


async def test_cancel_does_not_wait_for_a_thread_of_the_user_s():
    release, calls = threading.Event(), []

    def module(q):
        calls.append(q)
        if len(calls) > 1:
            release.wait(3)
        return "fine"

    _, main, taken = cancelled_by_another_thread(BestOfN(module, reward_fn=constant), lambda: time.sleep(0.2))
    result = await main()
    release.set()
    assert (result.answer, result.stop_reason) == ("fine", StopReason.CANCELLED)
    assert taken[0] < 1.0


async def test_cancel_salvages_the_best_of_inner_strategies():
    lm = HangingLM(replies=1)
    inner = BestOfN(Predict("q -> a", lm=lm), reward_fn=constant)
    _, main, _ = cancelled_by_another_thread(BestOfN(inner, reward_fn=constant), lambda: time.sleep(0.2))
    result = await asyncio.wait_for(main(), 5)
    assert (result.a, result.stop_reason) == ("reply 1", StopReason.CANCELLED)


async def test_cancel_before_the_first_draft_is_an_error_that_says_so():
    lm = HangingLM()
    _, main, _ = cancelled_by_another_thread(BestOfN(Predict("q -> a", lm=lm), N=1), lambda: time.sleep(0.1))
    with pytest.raises((RunFailed, RunClosed)) as caught:
        await asyncio.wait_for(main(), 5)
    assert caught.value.usage.calls == 1


async def test_cancel_before_the_start_buys_nothing():
    lm = ok()
    run = Run()
    run.cancel()
    with pytest.raises((RunFailed, RunClosed)):
        await run.execute(BestOfN(Predict("q -> a", lm=lm), N=2, reward_fn=constant), {"q": "x"})
    assert lm.requests == []


async def test_cancel_after_the_end_changes_nothing():
    run = Run()
    result = await run.execute(BestOfN(Predict("q -> a", lm=ok()), N=1), {"q": "x"})
    run.cancel()
    await asyncio.sleep(0.01)
    assert result.stop_reason is StopReason.ROUNDS


async def test_a_task_that_is_cancelled_ends_cancelled_and_its_calls_are_charged():
    lm = HangingLM(replies=1)
    run = Run()
    task = asyncio.create_task(run.execute(BestOfN(Predict("q -> a", lm=lm), reward_fn=constant), {"q": "x"}))
    await lm.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.usage.calls == 2
    assert run.usage.uncertain_tokens > 0
    assert lm.cancelled == 1


async def test_a_cancelled_run_can_be_resumed():
    store, lm = MemoryStore(), HangingLM(replies=1)
    module = Predict("q -> a", lm=lm)
    strategy = BestOfN(module, N=3, reward_fn=constant)
    run = Run(store=store, run_id="r")
    asyncio.get_running_loop().call_later(0.1, run.cancel)
    assert (await run.execute(strategy, {"q": "x"})).stop_reason is StopReason.CANCELLED
    lm.good = 99
    result = await Run(store=store, run_id="r").execute(strategy, {"q": "x"})
    assert (result.stop_reason, result.attempts[0].text) == (StopReason.ROUNDS, "reply 1")
    assert len(lm.requests) == 4, "the cancelled call is bought again, the first is not"
    assert result.usage.calls == 4
    assert result.events[-1].data["reason"] == "rounds"


def test_a_thread_pool_of_ones_own_spends_from_the_run_with_in_run():
    lm = ok()
    predict = Predict("q -> a", lm=lm)

    def fan(q):
        with ThreadPoolExecutor(4) as pool:
            return " ".join(p.a for p in pool.map(in_run(lambda i: predict(q=f"{q}{i}")), range(4)))

    result = BestOfN(fan, N=1, budget=Budget(calls=9))(q="x")
    assert result.usage.calls == 4


async def test_strict_ends_a_block_that_asks_for_something_else():
    store, predict = MemoryStore(), Predict("q -> a", lm=ok())
    async with Run(run_id="r", store=store):
        await predict.acall(q="1")
    with pytest.raises(DivergedError, match="never asked"):
        async with Run(run_id="r", store=store, strict=True):
            await predict.acall(q="2")


async def test_a_limit_that_ends_the_retries_says_why_there_were_any():
    lm = FaultyLM(ScriptedLM(["never"]), [TransientLMError("no connection to anywhere", sent=True)])
    with pytest.raises(BudgetExceeded, match=r"limit of 1 call is reached.*no connection to anywhere"):
        async with Run(budget=Budget(calls=1)):
            await Predict("q -> a", lm=lm).acall(q="x")


async def test_a_smaller_budget_inside_ends_its_attempt_only():
    inner = BestOfN(Predict("q -> a", lm=ScriptedLM(["one", "two", "three"])), 1, budget=Budget(tokens=1))
    calls = []

    async def program(q):
        calls.append(q)
        if len(calls) < 3:
            return await inner.acall(q=q)
        return "without it"

    result = await Refine(program, 3, lambda args, pred: 1.0, 1.0, budget=Budget(calls=9)).acall(q="x")
    assert (result.answer, [type(a.error).__name__ for a in result.attempts]) == (
        "without it",
        ["BudgetExceeded", "BudgetExceeded", "NoneType"],
    )


async def test_who_hears_a_reply_cannot_hurt_it():
    heard = []

    def hear(delta):
        heard.append(delta.text)
        raise ValueError("not now")

    lm = ScriptedLM(["a b c"])
    async with Run() as run:
        said = await run.complete(Request(messages=({"role": "user", "content": "x"},)), lm=lm, on_delta=hear)
        assert (said.text, len(heard), run.usage.calls) == ("a b c", 1, 1)
    assert [e.kind for e in run.journal.events if e.kind == "listener_failed"] == ["listener_failed"]


async def test_a_recorded_reply_is_heard_at_once():
    store = MemoryStore()
    for _ in range(2):
        heard = []
        async with Run(run_id="r", store=store) as run:
            request = Request(messages=({"role": "user", "content": "x"},))
            await run.complete(request, lm=ScriptedLM(["a b c"]), on_delta=heard.append)
        assert "".join(d.text for d in heard) == "a b c"


def test_other_frameworks_settings_travel_into_a_thread_pool():
    setting = ContextVar("setting", default="lost")

    async def work(q):
        setting.set("kept")
        with ThreadPoolExecutor(2) as pool:
            return await asyncio.gather(
                *(asyncio.get_running_loop().run_in_executor(pool, in_run(setting.get)) for _ in range(3))
            )

    assert Refine(work, 1)(q="x").answer == ["kept"] * 3
