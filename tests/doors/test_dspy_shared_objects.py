"""What a DSPy program shares with redraft and keeps for itself: predictions, traces, models, tools, the end of a budget."""

from __future__ import annotations

import dspy
import pytest
from dspy_programs import DOOR, EITHER, Model, Theirs, said

from redraft import Budget, ReAct
from redraft.errors import BudgetExceeded
from redraft.integrations.dspy import BestOfN, dspy_lm, result_of
from redraft.testing import FunctionLM
from redraft.testing.words import EVERYTHING

pytestmark = DOOR


def test_a_program_may_return_one_object_again_and_again():
    class Same(dspy.Module):
        def __init__(self):
            super().__init__()
            self.out, self.left = dspy.Prediction(answer=""), ["good", "bad", "worse", "other"]

        def forward(self, question):
            self.out.answer = self.left.pop(0)
            return self.out

    program = Same()
    first = BestOfN(program, 3, lambda args, pred: float(pred.answer == "good"), 2.0)(question="q")
    second = BestOfN(program, 1)(question="q")
    assert (first.answer, second.answer, program.out.answer) == ("good", "other", "other")
    assert result_of(first).run_id != result_of(second).run_id


def test_what_a_reward_changes_in_a_prediction_is_what_comes_back():
    def tidy(args, pred):
        pred.answer = pred.answer.strip(".")
        return 1.0

    with dspy.context(lm=Model([said(answer="Yes.")]).lm):
        assert BestOfN(dspy.Predict("question -> answer"), 1, tidy, 1.0)(question="q").answer == "Yes"


def test_traces_hold_no_receipts():
    with dspy.context(lm=Model([said(answer="a")]).lm, trace=[]):
        prediction = BestOfN(dspy.Predict("question -> answer"), 1)(question="q")
        ((_, _, noted),) = dspy.settings.trace
    assert noted.answer == "a"
    assert "_redraft" in vars(prediction)
    assert "_redraft" not in vars(noted)


@EITHER
def test_a_budget_that_ends_in_dspys_threads_ends_the_run(kind):
    # dspy.Parallel raises an error of its own in its place
    class Parallel(dspy.Module):
        def __init__(self):
            super().__init__()
            self.ask = dspy.Predict("question -> answer")

        def forward(self, question):
            pairs = [(self.ask, {"question": f"{question}{i}"}) for i in range(6)]
            return dspy.Parallel(num_threads=2, disable_progress_bar=True, max_errors=1)(pairs)[0]

    model = kind(lambda request: said(answer="a"))
    with dspy.context(lm=model.lm), pytest.raises(BudgetExceeded) as ended:
        BestOfN(Parallel(), 3, lambda args, pred: 0.0, 1.0, budget=Budget(calls=4))(question="q")
    assert (len(model.requests), ended.value.usage.calls, len(ended.value.attempts)) == (4, 4, 1)


def test_a_model_that_asks_another_one_of_ours_is_one_call():
    inner = dspy_lm(FunctionLM(lambda request: said(answer="a"), capabilities=EVERYTHING))

    class Routing(dspy.BaseLM):
        def forward(self, prompt=None, messages=None, **options):
            return inner.forward(messages=messages)

    with dspy.context(lm=Routing("routing")):
        result = result_of(
            BestOfN(dspy.Predict("question -> answer"), 1, budget=Budget(calls=1, seconds=20))(question="q")
        )
    assert (result.answer, result.usage.calls, result.usage.soft) == ("a", 1, 0)


def test_a_dspy_lm_is_one_already():
    model = Theirs([])
    assert dspy_lm(model.lm) is model.lm
    assert dspy_lm(model.lm, temperature=0.5).kwargs["temperature"] == 0.5


def test_tools_and_predictors_of_dspys_are_tools_of_react():
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    react = ReAct("q -> a", tools=[dspy.Tool(add, name="plus"), dspy.Predict("topic -> fact")])
    plus, predict = (tool.wire["function"] for tool in react.tools.values())
    assert (plus["name"], plus["description"], [*plus["parameters"]["properties"]]) == (
        "plus",
        "Add two numbers.",
        ["a", "b"],
    )
    assert (predict["name"], [*predict["parameters"]["properties"]]) == ("Predict", ["topic"])
