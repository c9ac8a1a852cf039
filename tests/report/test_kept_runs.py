"""What a journal says of a run's attempts is what the run's own result says."""

import asyncio
import json

import pytest

from redraft import BestOfN, Budget, ChainOfThought, Critic, Module, Predict, Refine, Run, SelfRefine, checks, context
from redraft.errors import RedraftError
from redraft.journal import MemoryStore
from redraft.report.data import attempt_data
from redraft.report.kept import drafts_of, outermost
from redraft.report.text import judged, trajectory
from redraft.result import cut_off
from redraft.testing import FunctionLM, ScriptedLM

ISSUE = {"problem": "dull", "suggestion": "add taste", "aspect": "style", "severity": "major", "location": "all"}
REVISE, FINE = json.dumps({"verdict": "revise", "issues": [ISSUE]}), json.dumps({"verdict": "ok", "issues": []})
WINS = [json.dumps({"better": "A"}), json.dumps({"better": "B"})]
CHECKS = [checks.contains("La Maison"), checks.words(3, 9)]


def kept(strategy, lm, budget=None, **inputs):
    """The result, or the error, and the run's events."""
    store = MemoryStore()
    with context(model=lm, store=store):
        run = Run(run_id="r", seed=1, budget=budget)
        try:
            outcome = asyncio.run(run.execute(strategy, strategy.bind(inputs)))
        except RedraftError as error:
            outcome = error
    return outcome, store.read("r")


def refine():
    lm = ScriptedLM(["Fine.", "Fine food at La Maison.", "La Maison."])
    return Refine(Predict("task -> review"), N=3, checks=CHECKS), lm


def self_refine():
    lm = ScriptedLM(["one two three", REVISE, "one two 3", *WINS, FINE])
    return SelfRefine(Predict("task -> review"), Critic(), rounds=2), lm


def best_of_n():
    return BestOfN(Predict("task -> review"), N=4, reward_fn=lambda _, p: len(p.review)), FunctionLM(
        lambda request: "x" * (request.seed % 9)
    )


def with_reasoning():
    lm = ScriptedLM([json.dumps({"reasoning": "hm", "answer": "no"}), json.dumps({"reasoning": "oh", "answer": "yes"})])
    return Refine(ChainOfThought("task -> answer"), N=2, checks=[checks.contains("yes")]), lm


def failing():
    def write(task):
        raise ValueError(f"cannot {task}")

    return Refine(write, N=2, reward_fn=lambda *_: 1.0), ScriptedLM([])


@pytest.mark.parametrize("made", [refine, self_refine, best_of_n, with_reasoning, failing])
def test_the_same_attempts_and_the_same_report(made):
    strategy, lm = made()
    outcome, events = kept(strategy, lm, task="eat")
    (drafts,) = [d for d in drafts_of(events) if not d.scope]
    best = getattr(outcome, "best", None)
    assert trajectory(drafts.attempts, drafts.best) == trajectory(outcome.attempts, best)
    for ours, theirs in zip(drafts.attempts, outcome.attempts, strict=True):
        assert {**attempt_data(ours), "fields": ""} == {**attempt_data(theirs), "fields": ""}
    assert drafts.ended


def test_a_run_that_was_cut_off_shows_the_draft_that_never_ended():
    _, events = kept(*refine(), task="eat")
    second = next(i for i, e in enumerate(events) if e.kind == "propose" and e.data["index"] == 1)
    (drafts,) = drafts_of(events[: second + 1])
    assert (len(drafts.attempts), drafts.best.index, drafts.ended) == (2, 0, False)
    assert "draft 2 | not ended: cut off, or at work | 0 tokens" in trajectory(drafts.attempts)


@pytest.mark.parametrize("strategy", [SelfRefine, Refine, BestOfN])
def test_only_a_limit_around_it_cuts_a_draft_off_its_modules_own_fails_it(strategy):
    ask = Predict("task -> review", lm=ScriptedLM(["Fine."] * 9))

    async def twice(task):
        async with Run(budget=Budget(calls=1)):
            await ask.acall(task=task)
            return await ask.acall(task=task)

    async def again(task):
        await ask.acall(task=task)
        return await ask.acall(task=task)

    def first(module, budget=None):
        _, events = kept(strategy(module, reward_fn=lambda *_: 0.5), ScriptedLM([]), budget, task="eat")
        return drafts_of(events)[0].attempts[0]

    said = "the limit of 1 call is reached (1 spent)"
    own, around = first(twice), first(again, Budget(calls=1))
    assert (cut_off(own), judged(own).startswith(f"x failed: {said}")) == (False, True)
    assert (cut_off(around), judged(around)) == (True, f"cut off: {said}")


def test_refinements_inside_others_are_told_apart():
    class Team(Module):
        def __init__(self):
            self.inner = Refine(Predict("task -> text"), N=2, checks=[checks.contains("b")])

        async def aforward(self, task):
            return {"text": (await self.inner.acall(task=task)).text}

    outcome, events = kept(
        Refine(Team(), N=2, checks=[checks.contains("c")]), ScriptedLM(["a", "a b", "a b", "a b c"]), task="eat"
    )
    found = drafts_of(events)
    assert len(found) > 1
    assert [d.scope for d in outermost(found)] == [""]
    assert [a.text for a in found[0].attempts] == [a.text for a in outcome.attempts]


def test_strategies_under_one_run_are_each_outermost():
    store = MemoryStore()
    write, lm = refine()
    with context(model=lm, store=store), Run(run_id="r"):
        write(task="eat")
    found = list(outermost(drafts_of(store.read("r"))))
    assert [bool(d.scope) for d in found] == [True]
    assert found[0].best is not None


def test_events_of_other_shapes_are_passed_over():
    _, events = kept(*refine(), task="eat")
    odd = [type(events[0])(seq=99, kind="accept", time=1.0, scope="elsewhere", data={"index": 5})]
    assert len(drafts_of([*events, *odd])) == 1
