"""Our Refine and BestOfN as dspy.Modules: called, nested, awaited, batched, saved, streamed like DSPy's own."""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
import textwrap

import dspy
import pytest
from dspy_programs import BOTH, DOOR, EITHER, Model, Theirs, Twice, answers, asked, said, short

from redraft import Budget, checks
from redraft.errors import AuthError, BudgetExceeded, InputError, ParseError, RunFailed
from redraft.integrations.dspy import BestOfN, Refine, dspy_lm, result_of

pytestmark = DOOR


def no_advice(method):
    return {} if method is BestOfN else {"advisor": False}


# Documentation


@pytest.mark.parametrize(("ours", "doc"), [(Refine, dspy.Refine.__init__.__doc__), (BestOfN, dspy.BestOfN.__doc__)])
def test_dspys_own_example_runs_with_only_the_import_changed(ours, doc, monkeypatch):
    model = Model(
        [said(reasoning="r", answer="The city of Brussels"), "Use one word.", said(reasoning="r", answer="Brussels")]
    )
    if ours is BestOfN:
        model = Model([said(reasoning="r", answer="The city of Brussels"), said(reasoning="r", answer="Brussels")])
    monkeypatch.setattr(dspy, "LM", lambda name: model.lm)
    names = {}
    exec(example_in(doc, ours.__name__), names)
    assert getattr(names["result"], "answer", names["result"]) == "Brussels"


def example_in(doc, name):
    """The code of a docstring, with `dspy.NAME` taken from us."""
    fenced = re.search(r"```python\n(.*?)```", doc, re.DOTALL)
    lines = re.findall(r"^\s*(?:>>>|\.\.\.) ?(.*)$", doc, re.MULTILINE)
    code = textwrap.dedent(fenced[1]) if fenced else "\n".join(lines)
    return f"from redraft.integrations.dspy import {name}\n" + code.replace(f"dspy.{name}", name)


def test_the_tutorial_a_judge_among_the_rewards_and_a_wanted_length():
    class FactualityJudge(dspy.Signature):
        """Determine if a statement is factually accurate."""

        statement: str = dspy.InputField()
        is_factual: bool = dspy.OutputField()

    judge = dspy.ChainOfThought(FactualityJudge)
    replies = [
        *(said(reasoning="r", answer="Belgium's capital is Bruges."), said(reasoning="no", is_factual="False")),
        *(said(reasoning="r", answer="Belgium's capital is Brussels."), said(reasoning="yes", is_factual="True")),
    ]
    model = Model(replies)
    refined = Refine(
        module=dspy.ChainOfThought("question -> answer"),
        N=3,
        reward_fn=lambda args, pred: 1.0 if judge(statement=pred.answer).is_factual else 0.0,
        threshold=1.0,
        advisor=False,
    )
    with dspy.context(lm=model.lm, trace=[]):
        prediction = refined(question="Tell me about Belgium's capital city.")
        assert [step[0] for step in dspy.settings.trace] == refined.predictors()  # the judge's steps are not in it
    assert (prediction.answer, result_of(prediction).usage.calls) == ("Belgium's capital is Brussels.", 4)


# What comes back


@EITHER
@BOTH
def test_it_returns_the_best_prediction_and_carries_the_result(kind, method):
    model = kind(answers("one two three", "one", "one two"))
    refined = method(dspy.Predict("question -> answer"), 3, short, 2.0, **no_advice(method))
    with dspy.context(lm=model.lm, track_usage=True):
        prediction = refined(question="q")
    result = result_of(prediction)
    assert (prediction.answer, type(prediction), list(prediction.keys())) == ("one", dspy.Prediction, ["answer"])
    assert ([a.text for a in result.attempts], result.stop_reason) == (["one two three", "one", "one two"], "rounds")
    assert result.usage.calls == len(model.requests) == 3
    used = prediction.get_lm_usage()[model.lm.model]
    assert used["prompt_tokens"] + used["completion_tokens"] == result.usage.tokens


def test_the_result_survives_copies_and_pickles_with_errors_that_cannot_be_pickled():
    class OddError(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} {two}")

    class Flaky(dspy.Module):
        def forward(self, question):
            if not seen:
                seen.append(question)
                raise OddError(1, 2)
            return dspy.Prediction(answer=question, result="a field of that name", _redraft=1)

    seen = []
    prediction = BestOfN(Flaky(), 2)(question="q")
    for twin in (copy.copy(prediction), copy.deepcopy(prediction), pickle.loads(pickle.dumps(prediction))):
        result = result_of(twin)
        assert (twin.answer, twin.result, len(result.attempts)) == ("q", "a field of that name", 2)
        assert str(result.attempts[0].error).endswith("1 2")
    with pytest.raises(InputError, match="did not come out"):
        result_of(dspy.Prediction(answer="x"))


@BOTH
def test_if_all_attempts_fail_the_error_carries_them(method):
    model = Model([AuthError("no key")] * 2)
    with dspy.context(lm=model.lm), pytest.raises(AuthError, match="no key") as caught:
        method(dspy.Predict("question -> answer"), 2, short, 1.0)(question="q")
    assert len(caught.value.attempts) == 2

    class Broken(dspy.Module):
        def forward(self, question):
            raise ValueError(question)

    with pytest.raises(RunFailed, match=r"ValueError: why") as failed:
        method(Broken(), 2, short, 1.0)(question="why")
    assert len(failed.value.attempts) == 2


def test_a_wrong_constructor_or_call_says_how_before_anything_is_spent():
    predict = dspy.Predict("question -> answer")
    for wrong in ({"N": 0}, {"reward_fn": lambda x: 1}, {"threshold": float("nan")}, {"no_such": 1}):
        with pytest.raises((InputError, TypeError)):
            Refine(predict, **wrong)
    with pytest.raises(InputError, match=r"no dspy\.Module"):
        Refine("question -> answer")
    with pytest.raises(InputError, match="by name"):
        Refine(predict, 2, short, 1.0)("q")


# Budget and checks


@EITHER
def test_the_budget_is_hard(kind):
    model = kind(lambda request: said(answer="one two"))
    refined = BestOfN(dspy.Predict("question -> answer"), 10, short, 2.0, budget=Budget(calls=3), concurrency=4)
    with dspy.context(lm=model.lm):
        result = result_of(refined(question="q"))
    assert (result.stop_reason, len(model.requests), result.usage.calls) == ("budget", 3, 3)
    with dspy.context(lm=model.lm), pytest.raises(BudgetExceeded):
        BestOfN(Twice(), 1, budget=Budget(calls=1))(question="q")


def test_checks_are_told_scored_and_mended_and_the_demo_shows_what_was_kept():
    model = Model(answers("Brussels, Belgium."))
    refined = Refine(dspy.ChainOfThought("question -> answer"), checks=[checks.no_commas(), checks.lowercase()])
    model = Model([said(reasoning="Hm, yes", answer="Brussels, Belgium.")])
    with dspy.context(lm=model.lm, trace=[]):
        prediction = refined(question="q")
        ((predictor, inputs, step),) = dspy.settings.trace
    assert "Requirements:" in asked(model)
    assert (prediction.answer, prediction.reasoning) == ("brussels belgium.", "Hm, yes")
    assert (predictor, inputs, step.answer) == (refined.module.predict, {"question": "q"}, "brussels belgium.")
    assert [a.rung for a in result_of(prediction).attempts] == ["tell", "fix"]


def test_an_edit_rewrites_the_best_draft_in_the_programs_fields():
    model = Model([said(reasoning="r", answer="far too long"), '{"reasoning": "s", "answer": "short"}'])
    reward = lambda args, pred: (short(args, pred), "Too long.")
    with dspy.context(lm=model.lm):
        prediction = Refine(dspy.ChainOfThought("question -> answer"), 2, reward, 1.0, revise="edit")(question="q")
    assert (prediction.answer, prediction.reasoning) == ("short", "s")


def test_a_dspy_lm_advises_judges_and_takes_over():
    small, big, judge = (
        Model(answers("a b", "c d")),
        Theirs(answers("e f", "g h"), "theirs/big"),
        Theirs(lambda request: '{"best": "tie"}', "theirs/judge"),
    )
    refined = BestOfN(
        dspy.Predict("question -> answer"), 3, lambda a, p: 0.5, models=[small.lm, big.lm], judge=judge.lm
    )
    with dspy.context(lm=small.lm):
        prediction = refined(question="q")
    assert (len(small.requests), len(big.requests), prediction.answer) == (1, 2, "a b")
    assert result_of(prediction).usage.calls == 3 + len(judge.requests) > 3


# Nesting, async, threads


@EITHER
def test_strategies_nest_and_no_draft_is_bought_twice(kind):
    texts = iter(range(100))
    model = kind(lambda request: said(answer=f"draft {next(texts)}"))
    nested = BestOfN(BestOfN(dspy.Predict("question -> answer"), 3, short, 2.0), 3, short, 2.0)
    with dspy.context(lm=model.lm, trace=[]):
        prediction = nested(question="q")
        assert [step[0] for step in dspy.settings.trace] == nested.predictors()
    assert (prediction.answer, len(model.requests), result_of(prediction).usage.calls) == ("draft 0", 9, 9)


@EITHER
@BOTH
async def test_it_can_be_awaited_and_twenty_at_once(kind, method):
    model = kind(lambda request: said(answer="a b" if request.temperature is None else "a"))
    refined = method(dspy.Predict("question -> answer"), 2, short, 1.0, **no_advice(method))
    with dspy.context(lm=model.lm):
        predictions = await asyncio.gather(*(refined.acall(question=f"q{i}") for i in range(20)))
    assert {p.answer for p in predictions} == {"a"}
    assert {len(result_of(p).attempts) for p in predictions} == {2}


async def test_a_sync_call_under_a_running_loop_patches_nothing():
    # syncify applies nest_asyncio (10337)
    model = Model(answers("a"))
    with dspy.context(lm=model.lm):
        assert Refine(dspy.Predict("question -> answer"), 1)(question="q").answer == "a"
    assert not hasattr(asyncio, "_nest_patched")


def test_batch_and_parallel_share_nothing():
    # each call with one failure: DSPy counts down one fail_count for all
    failed = set()

    class Flaky(dspy.Module):
        def forward(self, question):
            if question not in failed:
                failed.add(question)
                raise ConnectionError(question)
            return dspy.Prediction(answer=question)

    refined = BestOfN(Flaky(), 3, short, 1.0, fail_count=1)
    examples = [dspy.Example(question=f"q{i}").with_inputs("question") for i in range(40)]
    predictions = refined.batch(examples, num_threads=8, disable_progress_bar=True)
    assert [p.answer for p in predictions] == [e.question for e in examples]
    assert {len(result_of(p).attempts) for p in predictions} == {2}


@EITHER
def test_threads_that_a_program_starts_spend_from_its_run(kind):
    class Parallel(dspy.Module):
        def __init__(self):
            super().__init__()
            self.ask = dspy.Predict("question -> answer")
            self.pick = BestOfN(dspy.Predict("question -> answer"), 1)

        def forward(self, question):
            pairs = [(self.ask, {"question": f"{question}{i}"}) for i in range(3)]
            pairs += [(self.pick, {"question": f"{question}{i}"}) for i in range(3)]
            told = dspy.Parallel(num_threads=3, disable_progress_bar=True)(pairs)
            return dspy.Prediction(answer=" ".join(t.answer for t in told))

    model = kind(lambda request: said(answer="a"))
    with dspy.context(lm=model.lm):
        result = result_of(BestOfN(Parallel(), 1, budget=Budget(calls=6))(question="q"))
    assert (result.answer, result.usage.calls, result.usage.soft) == ("a a a a a a", 6, 0)


# Saving


def test_state_and_whole_programs_round_trip(tmp_path):
    refined = Refine(
        dspy.ChainOfThought("question -> answer"), 2, short, 1.0, advisor=False, checks=[checks.words(at_most=9)]
    )
    assert [name for name, _ in refined.named_predictors()] == ["module.predict"]
    assert [name for name, _ in refined.named_parameters()] == ["module.predict"]
    refined.module.predict.demos = [dspy.Example(question="a", answer="b", reasoning="c")]
    refined.save(tmp_path / "state.json")
    twin = Refine(dspy.ChainOfThought("question -> answer"), 2, short, 1.0)
    twin.load(tmp_path / "state.json")
    assert twin.module.predict.demos[0]["answer"] == "b"
    refined.save(tmp_path / "whole", save_program=True)
    whole = dspy.load(tmp_path / "whole", allow_pickle=True)
    assert (type(whole), whole.N, whole.threshold, len(whole.strategy().judgement.checks)) == (Refine, 2, 1.0, 1)
    model = Model([said(reasoning="r", answer="a b"), said(reasoning="r", answer="a")])
    with dspy.context(lm=model.lm):
        assert whole(question="q").answer == "a"


def test_a_saved_program_finds_its_model_by_name(tmp_path, monkeypatch):
    from redraft import registry

    inner = Model(answers("a")).inner
    monkeypatch.setitem(registry._KNOWN["models"], "shop", lambda name, base_url=None: inner)
    inner.name = "shop/one"
    program = Refine(dspy.Predict("question -> answer"), 1)
    program.set_lm(dspy_lm("shop/one", temperature=0.3))
    program.save(tmp_path / "state.json")
    twin = Refine(dspy.Predict("question -> answer"), 1)
    twin.load(tmp_path / "state.json", allow_unsafe_lm_state=True)
    assert twin(question="q").answer == "a"
    assert inner.requests[0].temperature == 0.3
    assert "sk-" not in (tmp_path / "state.json").read_text()


# Streams


@EITHER
@BOTH
async def test_the_listeners_chunks_arrive(kind, method):
    # StreamListener gets 0 chunks: the copy never equals the predictor (8736)
    model = kind(answers("one two three four five six seven"))
    refined = method(dspy.Predict("question -> answer"), 1, short, 0.0)
    chunks, final = await streamed(refined, model)
    assert "".join(c.chunk for c in chunks) == "one two three four five six seven"
    assert len(chunks) > 2
    assert result_of(final).attempts[0].text == final.answer


@EITHER
async def test_an_async_program_streams_too_and_advice_is_not_for_the_reader(kind):
    model = kind([*answers("one two three four"), "Use one word.", *answers("five")])
    refined = Refine(dspy.Predict("question -> answer"), 2, short, 1.0, advisor=None)
    chunks, final = await streamed(refined, model, is_async_program=True, allow_reuse=True)
    assert re.sub(r"\s+", "", "".join(c.chunk for c in chunks)) == "onetwothreefourfive"
    assert final.answer == "five"


async def streamed(program, model, *, allow_reuse=False, **options):
    listeners = [dspy.streaming.StreamListener("answer", allow_reuse=allow_reuse)]
    chunks, final = [], None
    with dspy.context(lm=model.lm):
        async for value in dspy.streamify(program, stream_listeners=listeners, **options)(question="q"):
            if isinstance(value, dspy.streaming.StreamResponse):
                chunks.append(value)
            elif isinstance(value, dspy.Prediction):
                final = value
    return chunks, final


# Replies that do not parse


def test_what_was_wrong_with_a_reply_is_the_hint_never_the_reply_itself():
    # one silent try with another adapter; the retry never hears of the error (7693, 7899, 2202, 2148)
    model = Model(["nonsense", "more nonsense", *answers("7")])
    with dspy.context(lm=model.lm):
        prediction = Refine(dspy.Predict("question -> answer: int"), 2, lambda a, p: 1.0, 1.0)(question="q")
    told = asked(model)
    assert (prediction.answer, "nonsense" in told, "has no field 'answer'" in told) == (7, False, True)
    assert isinstance(result_of(prediction).attempts[0].error, ParseError)
