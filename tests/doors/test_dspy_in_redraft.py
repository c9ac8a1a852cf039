"""DSPy programs inside redraft's own strategies."""

from __future__ import annotations

import json

import dspy
import pytest
from dspy_programs import DOOR, EITHER, Model, Theirs, Twice, answers, asked, said, short

import redraft
from redraft import Budget, Run, SelfRefine, SqliteStore, checks
from redraft.integrations.dspy import as_module
from redraft.testing import FunctionLM

pytestmark = DOOR


@EITHER
def test_a_dspy_module_is_passed_as_it_is(kind):
    model = kind([said(reasoning="r", answer="far too long"), said(reasoning="r", answer="short")])
    refine = redraft.Refine(
        dspy.ChainOfThought("question -> answer"), checks=[checks.words(at_most=1)], budget=Budget(calls=2)
    )
    with dspy.context(lm=model.lm):
        result = refine(question="q")
    assert (result.answer, result.reasoning, result.stop_reason) == ("short", "r", "passed")
    assert (result.usage.calls, result.usage.soft, len(model.requests)) == (2, 0, 2)
    assert "Requirements:" in asked(model, 0)
    assert "fell short" in asked(model, 1)


async def test_it_can_be_awaited_and_told_to_await():
    model = Model(lambda request: said(answer="a"))
    with dspy.context(lm=model.lm):
        assert (await redraft.BestOfN(dspy.Predict("question -> answer"), 1).acall(question="q")).answer == "a"
        assert (await redraft.BestOfN(as_module(Twice(), awaits=True), 1).acall(question="q")).answer == "a"

    class AsyncOnly(dspy.Module):
        async def aforward(self, question):
            return dspy.Prediction(answer=question)

    assert (await redraft.BestOfN(AsyncOnly(), 1).acall(question="q")).answer == "q"


def test_the_critic_of_a_self_refine_sees_the_instructions():
    task = dspy.Predict(dspy.Signature("question -> answer", "Be brave."))
    critic = FunctionLM(lambda request: json.dumps({"verdict": "ok", "issues": []}))
    with dspy.context(lm=Model(answers("a")).lm):
        assert SelfRefine(task, critic=critic)(question="q").stop_reason == "critic_ok"
    assert "Be brave." in asked(critic)


@EITHER
def test_advice_reaches_each_predictor_by_its_path_though_they_share_a_signature(kind):
    # two that share a signature object both get the last one's (found in DSPy 3.4.1)
    advice = FunctionLM(lambda request: json.dumps({"advice": {"first": "Cut more.", "second": "Be bold."}}))
    model = kind(answers("a b", "c d", "e f", "g"))
    with dspy.context(lm=model.lm):
        redraft.Refine(Twice(), 2, short, 1.0, advisor=advice)(question="q")
    told = [asked(model, at) for at in range(4)]
    assert [("Cut more." in t, "Be bold." in t) for t in told] == [(False, False)] * 2 + [(True, False), (False, True)]
    paths = asked(advice)
    assert "first: question -> answer, wrote: " in paths
    assert "c d" in paths


def test_a_hint_reaches_a_predictor_inside_a_nested_strategy():
    from redraft.integrations.dspy import BestOfN

    class Nested(dspy.Module):
        def __init__(self):
            super().__init__()
            self.plan = dspy.Predict("question -> plan")
            self.write = BestOfN(dspy.Predict("plan -> answer"), 1)

        def forward(self, question):
            return self.write(plan=self.plan(question=question).plan)

    advice = FunctionLM(lambda request: json.dumps({"advice": {"write.module": "Be bold."}}))
    model = Model([said(plan="p"), *answers("a b"), said(plan="p"), *answers("a")])
    with dspy.context(lm=model.lm):
        redraft.Refine(Nested(), 2, short, 1.0, advisor=advice)(question="q")
    assert ["Be bold." in asked(model, at) for at in range(4)] == [False, False, False, True]


@EITHER
def test_a_killed_run_goes_on_and_buys_nothing_twice(kind, tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    model = kind(lambda request: said(answer=f"draft {len(model.requests)}"), cache=False)
    told = []
    for _ in range(2):
        strategy = redraft.BestOfN(Twice(), 2, short, 2.0)
        with dspy.context(lm=model.lm), Run(run_id="one", store=store, strict=True):
            told.append([strategy(question="q").answer for _ in range(2)])
    assert told[0] == told[1]
    assert len(model.requests) == 8
    store.close()


def test_what_a_program_is_does_not_depend_on_the_process():
    from redraft.evaluate.identity import fingerprint

    one, two = (redraft.BestOfN(Twice(), 2, short, 2.0) for _ in range(2))
    before = (one.identity(), fingerprint(one))
    list(one.module.named_modules())
    assert before == (one.identity(), fingerprint(one)) == (two.identity(), fingerprint(two))
    assert one.identity() != redraft.BestOfN(dspy.Predict("question -> answer"), 2, short, 2.0).identity()


def test_what_goes_past_the_run_is_counted_softly():
    own = Theirs(lambda request: said(answer="by the way"), "theirs/own", cache=False)

    class Stubborn(dspy.Module):
        """An adapter of its own and a model of its own, called as its author likes."""

        def __init__(self):
            super().__init__()
            self.ask = dspy.Predict("question -> answer")
            self.ask.lm = own.lm

        def forward(self, question):
            with dspy.context(adapter=dspy.ChatAdapter()):
                return self.ask(question=question)

    refine = redraft.BestOfN(Stubborn(), 5, lambda args, pred: 0.1, 1.0, budget=Budget(calls=2))
    result = refine(question="q")
    assert (result.stop_reason, result.usage.calls, result.usage.soft) == ("budget", 2, 2)
    assert result.usage.input_tokens == 20
    assert {e.data["by"] for e in result.events if e.kind == "soft"} == {"dspy theirs/own"}


def test_usage_is_counted_once_where_a_program_tracks_its_own():
    class Tracking(dspy.Module):
        def __init__(self):
            super().__init__()
            self.ask = dspy.Predict("question -> answer")

        def forward(self, question):
            with dspy.track_usage() as tracker:
                told = self.ask(question=question)
            seen.append(tracker.get_total_tokens())
            return told

    for kind in (Model, Theirs):
        seen, model = [], kind(lambda request: said(answer="a"))
        with dspy.context(lm=model.lm):
            result = redraft.BestOfN(Tracking(), 1)(question="q")
        assert (result.usage.calls, result.usage.soft) == (1, 0)
        assert seen[0][model.lm.model]["prompt_tokens"] == result.usage.input_tokens


def test_program_outputs_of_other_kinds():
    class Plain(dspy.Module):
        def __init__(self, said):
            super().__init__()
            self.said = said

        def forward(self, question):
            return self.said

    assert redraft.BestOfN(Plain("text"), 1)(question="q").answer == "text"
    assert redraft.BestOfN(Plain({"a": 1}), 1)(question="q").a == 1
    with pytest.raises(redraft.errors.RunFailed, match="returned None"):
        redraft.BestOfN(Plain(None), 1)(question="q")
