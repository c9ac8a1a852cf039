"""Drafts that are made at the same time: the order in which they are settled, what is kept, what a replay does."""

from __future__ import annotations

import asyncio

import pytest

from redraft import BestOfN, Budget, Predict, Refine, Run, refusals
from redraft.checks import check, contains, ends_with, forbids, no_commas, number, words
from redraft.checks.base import Check
from redraft.checks.scorer import Judgement
from redraft.errors import BadRequestError, ConfigError, UnsupportedError
from redraft.journal import MemoryStore
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Prediction


def write(lm, **options):
    return Predict("topic -> review", lm=lm, **options)


def paced(*replies):
    """A model whose i-th call takes `seconds` and says `text`, or raises it."""
    asked = iter(replies)

    async def reply(request):
        seconds, text = next(asked)
        await asyncio.sleep(seconds)
        if isinstance(text, Exception):
            raise text
        return text

    return FunctionLM(reply)


async def replayed(strategy, whole, store):
    """Replay a finished log: the same result, and nothing bought."""
    twin = MemoryStore()
    await twin.append("r", store.read("r"))
    again = await Run(store=twin, run_id="r", strict=True).execute(strategy, {"topic": "x"})
    assert (again.text, again.stop_reason) == (whole.text, whole.stop_reason)
    assert again.usage.calls == whole.usage.calls
    return again


async def test_a_slow_repair_of_one_does_not_change_the_order_of_the_others():
    """Their repairs have numbers, and a replay has to give them the same ones."""
    grades = FunctionLM(lambda request: '{"grade": 0.5}')
    grade = Predict("text -> grade: float", lm=grades)

    async def reward(args, pred):
        if pred.review == "a b":  # what code made of the first
            await asyncio.sleep(0.05)
        return (await grade.acall(text=pred.review)).grade

    lm = paced((0.0, "a, b"), (0.03, "c, d"), (0.01, "e, f"))
    strategy = Refine(write(lm), N=3, width=3, checks=[no_commas()], reward_fn=reward, threshold=0.9)
    store = MemoryStore()
    whole = await Run(store=store, run_id="r", seed=1).execute(strategy, {"topic": "x"})
    await replayed(strategy, whole, store)


async def test_ties_are_settled_in_the_order_in_which_they_end():
    lm = paced((0.02, "zero"), (0.0, "one"))
    strategy = BestOfN(write(lm), N=2, concurrency=2, reward_fn=lambda args, pred: 0.5)
    store = MemoryStore()
    whole = await Run(store=store, run_id="r", seed=1).execute(strategy, {"topic": "x"})
    assert whole.text == "one"
    await replayed(strategy, whole, store)


async def test_a_loser_that_had_got_half_way_is_no_divergence():
    lm = paced((0.0, "half"), (0.05, "now this has five words"), (9, "never"))

    async def twice(topic):
        first = await write(lm).acall(topic=topic)
        if first.review == "half":
            return (await write(lm).acall(topic="more")).review
        return first.review

    strategy = BestOfN(twice, N=2, concurrency=2, checks=[words(5)])
    store = MemoryStore()
    whole = await Run(store=store, run_id="r", seed=1).execute(strategy, {"topic": "x"})
    assert whole.passed
    await replayed(strategy, whole, store)


async def test_what_came_too_late_is_no_divergence():
    lm = paced((0.0, "now this has five words"), (0.0, "this has five words too"))
    strategy = BestOfN(write(lm), N=2, concurrency=2, checks=[words(5)])
    store = MemoryStore()
    whole = await Run(store=store, run_id="r", seed=1).execute(strategy, {"topic": "x"})
    await replayed(strategy, whole, store)


async def test_a_replay_makes_no_remark_twice():
    lm = ScriptedLM(["a, b", "on and on", "and on", "and on"])
    checks = [no_commas(), words(5), check(lambda text: False, name="never_told")]
    strategy = Refine(write(lm, max_tokens=9), N=3, checks=checks)
    store = MemoryStore()
    await Run(store=store, run_id="r", seed=1).execute(strategy, {"topic": "x"})
    before = [e.kind for e in store.read("r")]
    assert {"constraint_held", "lint"} <= {*before}
    await Run(store=store, run_id="r").execute(strategy, {"topic": "x"})
    assert [e.kind for e in store.read("r")] == [*before, "resumed"]


async def test_a_resumed_run_goes_by_the_refusals_on_its_own_record():
    def model(name):
        async def reply(request):
            if request.grammar is not None:
                raise UnsupportedError("no", parameter="grammar")
            return "one"

        return FunctionLM(reply, name=name)

    known, unknown = "refuses-and-known", "refuses-and-unknown"
    Refine(write(model(known)), N=2, checks=[words(5)])(topic="w")  # this process learns it
    for name, calls in ((known, 2), (unknown, 3)):
        strategy, store = Refine(write(model(name)), N=2, checks=[words(5)]), MemoryStore()
        whole = await Run(store=store, run_id="r", seed=1).execute(strategy, {"topic": "x"})
        assert whole.usage.calls == calls
        forgotten = {n: set(p) for n, p in refusals._refused.items()}
        refusals._refused.clear()  # as in a new process
        await replayed(strategy, whole, store)
        refusals._refused.update(forgotten)
        await replayed(strategy, whole, store)


async def test_a_draft_that_waited_to_be_settled_is_not_lost_at_a_deadline():
    async def reward(args, pred):
        if pred.review == "a b":
            await asyncio.sleep(60)
        return 0.9 if pred.review == "good, one" else 0.1

    lm = paced((0.0, "a, b"), (0.02, "good, one"))
    strategy = Refine(write(lm), N=2, width=2, checks=[no_commas()], reward_fn=reward, budget=Budget(seconds=1.5))
    result = await strategy.acall(topic="x")
    assert (result.text, result.stop_reason) == ("good, one", "budget")


async def test_what_ends_after_a_good_one_was_not_cancelled():
    lm = paced((0.0, "now this has five words"), (0.0, "this has five words too"))
    result = await BestOfN(write(lm), N=2, concurrency=2, checks=[words(5)]).acall(topic="x")
    assert result.attempts[1].reason == "not looked at: draft 1 was good enough first"


async def test_one_failure_too_many_does_not_throw_away_what_is_under_way():
    lm = paced((0.0, BadRequestError("no")), (0.03, "now this has five words"), (9, "never"))
    result = await BestOfN(write(lm), N=3, concurrency=2, checks=[words(5)], fail_count=0).acall(topic="x")
    assert result.text == "now this has five words"
    with pytest.raises(BadRequestError, match="no"):
        await BestOfN(
            write(paced((0.0, BadRequestError("no")), (0.01, BadRequestError("nor I")))), 2, fail_count=0
        ).acall(topic="x")


@pytest.mark.parametrize("raises", ["check", "fix"])
def test_code_that_fails_on_a_repaired_text_costs_the_repair_only(raises):
    def judged(text):
        assert raises != "check" or "," in text
        return (0.5, "dull")

    def mended(text):
        return text[99] if raises == "fix" else None

    lm = ScriptedLM(["a, b", "c, d"])
    strategy = Refine(write(lm), N=2, checks=[no_commas(), check(judged, tell="Be.", fix=mended)], revise="fresh")
    result = strategy(topic="x")
    assert (lm.left, result.stop_reason) == (0, "rounds")
    assert [e.data["error"].count("judged") > 0 for e in result.events if e.kind == "judge_error"] == [True, True]


def test_a_check_whose_constraint_fails_is_not_constrained():
    class Broken(Check):
        def tell_text(self):
            return "Be."

        def judge(self, value):
            return 0.5, "no"

        def constraint(self):
            raise ValueError("boom")

    result = Refine(write(ScriptedLM(["a", "b"])), N=2, checks=[Broken()])(topic="x")
    assert [e.data["why"] for e in result.events if e.kind == "propose"][
        1
    ] == "a check's constraint failed; with a hint"
    assert "boom" in next(e.data["error"] for e in result.events if e.kind == "judge_error")


def test_a_model_that_is_not_there_is_known_before_anything_is_bought():
    lm = ScriptedLM(["a"])
    with pytest.raises(ConfigError):
        Refine("topic -> review", N=3, checks=[words(5)], models=[lm, "openai/gpt-4.1"])(topic="x")
    assert lm.left == 1


@pytest.mark.parametrize("refusal", [BadRequestError("no"), UnsupportedError("no", parameter="grammar")])
def test_a_refused_constraint_is_not_tried_again(refusal):
    lm = FunctionLM(lambda request: "one")

    async def reply(request):
        if request.grammar is not None:
            raise refusal
        return "one"

    lm = FunctionLM(reply, name=f"refuses-{type(refusal).__name__}")
    result = Refine(write(lm), N=4, checks=[words(5)])(topic="x")
    assert [r.grammar is not None for r in lm.requests] == [False, True, False, False, False]
    assert result.usage.calls == 5
    again = Refine(write(lm), N=2, checks=[words(5)])(topic="y")
    assert again.usage.calls == (2 if isinstance(refusal, UnsupportedError) else 3)


async def test_drafts_under_a_constraint_that_are_made_together_differ_in_temperature():
    lm = FunctionLM(lambda request: "one")
    await Refine(write(lm, temperature=0.0), N=6, width=3, checks=[words(5)]).acall(topic="x")
    assert [r.temperature for r in lm.requests] == [0.0, 0.9, 0.9, 0.0, 0.9, 0.9]


async def test_a_repair_never_lowers_the_score():
    judgement = Judgement([ends_with("Bye."), forbids("bread"), number(1, 9), contains("Bye")])
    draft = Prediction(review="\n71. ** . ** .  , Bye. , .  a")
    score = await judgement.score({}, draft)
    fixed, _ = await judgement.repaired({}, draft, score)
    assert fixed is None or (await judgement.score({}, fixed)).value > score.value


def test_a_score_that_is_no_number_names_its_check():
    class Nan(Check):
        name = "nan"

        def judge(self, value):
            return float("nan"), ""

    result = Refine(write(ScriptedLM(["a"])), N=1, checks=[Nan()])(topic="x")
    assert "check 'nan' returned nan" in str(result.attempts[0].error)
