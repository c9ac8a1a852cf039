"""What DSPy 3.4.1's Refine and BestOfN get wrong where only a DSPy program shows it: one promise of ours each. Others are in
tests/strategies/test_dspy_faults.py, and beside what they belong to in this folder.
"""

from __future__ import annotations

import dspy
import pytest
from dspy_programs import BOTH, DOOR, EITHER, Model, Theirs, Twice, answers, asked, said, short

from redraft.integrations.dspy import BestOfN, Refine, result_of

pytestmark = DOOR


@BOTH
def test_two_predictors_keep_two_models(method):
    # ValueError: Multiple LMs are being used (8469)
    small, big = Model(answers("a b", "e f")), Theirs(answers("c d", "g h"), "theirs/big")
    options = {"advisor": False} if method is Refine else {}
    result = result_of(method(Twice(small.lm, big.lm), 2, short, 1.0, **options)(question="q"))
    assert ([a.text for a in result.attempts], len(small.requests), len(big.requests)) == (["c d", "g h"], 2, 2)


def test_advice_is_asked_of_the_modules_own_model():
    # of the global one; without one each good attempt counts as failed (found there)
    model, other = Model([*answers("a b"), "Be short.", *answers("a")]), Model([], "never/asked")
    predict = dspy.Predict("question -> answer")
    predict.lm = model.lm
    for around in ({"lm": other.lm}, {}):
        model = Model([*answers("a b"), "Be short.", *answers("a")])
        predict.lm = model.lm
        with dspy.context(**around):
            result = result_of(Refine(predict, 2, short, 1.0, fail_count=0)(question="q"))
        assert ([a.error for a in result.attempts], len(model.requests)) == ([None, None], 3)
        assert "Be short." in asked(model)


@EITHER
def test_a_model_of_the_context_alone(kind):
    # 8931
    model = kind(answers("a"))
    with dspy.context(lm=model.lm):
        assert Refine(dspy.Predict("question -> answer"), 2, short, 1.0)(question="q").answer == "a"


@EITHER
@pytest.mark.parametrize(
    "adapter", [dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter, "two steps", "own", "in the program"]
)
def test_a_hint_goes_with_every_adapter(kind, adapter):
    # attempts 2 and 3 fail in WrapperAdapter() (PRs 10168, 10099)
    def reply(request):
        told = request.messages[-1]["content"]
        if "verbatim" in str(request.messages):
            extracted.append(str(request.messages))
        elif "It lacks salt." not in str(request.messages):
            return (
                '{"answer": "dull"}'
                if adapter is dspy.JSONAdapter
                else "<answer>dull</answer>"
                if adapter is dspy.XMLAdapter
                else said(answer="dull")
            )
        text = "dull" if "dull" in told else "salty"
        form = {dspy.JSONAdapter: f'{{"answer": "{text}"}}', dspy.XMLAdapter: f"<answer>{text}</answer>"}
        return form.get(adapter, said(answer=text))

    class Own(dspy.ChatAdapter):
        def __init__(self, needed):
            super().__init__()
            self.needed = needed

    class Inside(dspy.Module):
        def __init__(self):
            super().__init__()
            self.ask = dspy.Predict("question -> answer")

        def forward(self, question):
            with dspy.context(adapter=dspy.ChatAdapter()):
                return self.ask(question=question)

    extracted, model = [], kind(reply)
    reader = Model(reply, "test/reader")
    made = {"two steps": lambda: dspy.TwoStepAdapter(reader.lm), "own": lambda: Own(1), "in the program": lambda: None}
    chosen = made.get(adapter, adapter)()
    module = Inside() if adapter == "in the program" else dspy.Predict("question -> answer")
    reward = lambda args, pred: (1.0, "") if pred.answer == "salty" else (0.1, "It lacks salt.")
    with dspy.context(lm=model.lm, adapter=chosen, trace=[]):
        prediction = Refine(module, 2, reward, 1.0)(question="q")
        ((_, inputs, _),) = dspy.settings.trace
    result = result_of(prediction)
    assert ([a.error for a in result.attempts], prediction.answer, inputs) == ([None, None], "salty", {"question": "q"})
    assert (result.usage.soft, result.usage.calls) == (0, len(model.requests) + len(reader.requests))
    assert not any("It lacks salt." in told for told in extracted)  # advice is for who writes, not for who reads


@EITHER
def test_the_trace_gets_the_best_attempts_steps_and_nothing_else(kind):
    # the hint is among the inputs, the feedback call's step is in the trace, `trace=None` is an AttributeError
    advice = '{"advice": {"first": "Be short."}}'
    model = kind([*answers("a b", "c d e"), advice, *answers("f", "g h"), advice, *answers("i j", "k l m")])
    program = Twice()
    with dspy.context(lm=model.lm, trace=[]):
        assert Refine(program, 3, short, 1.0)(question="q").answer == "g h"
        trace = dspy.settings.trace
        assert [(step[0], step[1], step[2].answer) for step in trace] == [
            (program.first, {"question": "q"}, "f"),
            (program.second, {"question": "f"}, "g h"),
        ]
    with dspy.context(lm=kind(answers("a", "b"), "other/model").lm, trace=None):
        assert Refine(program, 1)(question="q").answer == "b"
        assert dspy.settings.trace is None


@EITHER
@BOTH
def test_histories_and_usage_have_every_call(kind, method):
    # lm.history has 2 of 5 calls
    one, two, three = answers("a b c", "a b c d", "a b")
    replies = [one, "Be short.", two, "Be shorter.", three] if method is Refine else [one, two, three]
    model = kind(replies)
    refined = method(dspy.Predict("question -> answer"), 3, short, 1.0)
    with dspy.context(lm=model.lm, track_usage=True):
        prediction = refined(question="q")
    result = result_of(prediction)
    used = prediction.get_lm_usage()[model.lm.model]
    assert result.usage.calls == len(model.requests) == len(replies)
    assert used["prompt_tokens"] + used["completion_tokens"] == result.usage.tokens
    assert len(model.lm.history) >= 3
    assert len(refined.history) == len(model.lm.history)


def test_a_rerun_does_not_replay_the_same_drafts():
    # the same rollout ids each time: the second run's retries come out of the cache
    texts = iter(range(100))
    model = Theirs(lambda request: said(answer=f"draft {next(texts)}"))
    refined = BestOfN(dspy.Predict("question -> answer"), 3, short, 1.0)
    with dspy.context(lm=model.lm):
        first, second = (result_of(refined(question="q")) for _ in range(2))
    assert [a.text for a in first.attempts] == ["draft 0", "draft 1", "draft 2"]
    assert [a.text for a in second.attempts] == ["draft 0", "draft 3", "draft 4"]


def test_the_users_temperature_holds_for_the_first_draft():
    # overridden by 1.0 (found there)
    model = Model(lambda request: said(answer="a b"), temperature=0.3)
    with dspy.context(lm=model.lm):
        BestOfN(dspy.Predict("question -> answer"), 3, short, 1.0, temperature=0.7)(question="q")
    assert [r.temperature for r in model.requests] == [0.3, 0.7, 0.7]


def test_a_module_of_a_repl_and_the_calls_own_object_stay_as_they_are():
    # OSError in the constructor: there is no source; fail_count counts down on the object (10312)
    names = {"dspy": dspy}
    exec("class Echo(dspy.Module):\n  def forward(self, question): return dspy.Prediction(answer=question)", names)
    refined = Refine(names["Echo"](), 2, short, 1.0, fail_count=1)
    before = dict(vars(refined))
    assert refined(question="q").answer == "q"
    assert {k: v for k, v in vars(refined).items() if k != "history"} == {
        k: v for k, v in before.items() if k != "history"
    }


def test_a_dspy_program_may_catch_dspys_errors():
    from dspy import lm15

    class Shortening(dspy.Module):
        def __init__(self):
            super().__init__()
            self.ask = dspy.Predict("question -> answer")

        def forward(self, question):
            try:
                return self.ask(question=question)
            except dspy.ContextWindowExceededError:
                return self.ask(question=question[:1])

    from redraft.errors import ContextOverflowError

    for model in (
        Theirs([lm15.ContextLengthError("too long"), *answers("a")]),
        Model([ContextOverflowError("too long"), *answers("a")]),
    ):
        with dspy.context(lm=model.lm):
            assert BestOfN(Shortening(), 1)(question="long").answer == "a"


def test_a_native_refine_inside_ours_is_part_of_the_run():
    model = Model(lambda request: said(answer="a"))
    native = dspy.BestOfN(dspy.Predict("question -> answer"), 2, short, 1.0)
    with dspy.context(lm=model.lm):
        result = result_of(BestOfN(native, 1)(question="q"))
    assert (result.answer, result.usage.calls, result.usage.soft) == ("a", 1, 0)
