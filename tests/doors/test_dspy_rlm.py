"""Our RLM as a dspy.Module: in place of dspy.RLM, alone and inside of other programs."""

import asyncio
import copy

import dspy
import pytest
from dspy_programs import DOOR, Model

from redraft import Budget, checks
from redraft.errors import InputError, RedraftError
from redraft.integrations.dspy import RLM, BestOfN, Refine, result_of

pytestmark = DOOR

LONG = "ok\nERROR disk\n" * 5
COUNT = "Count.\n```python\nn = log.count('ERROR')\nprint(n)\n```"
SUBMIT = "Done.\n```python\nSUBMIT(n)\n```"


class Errors(dspy.Signature):
    """Count the errors."""

    log: str = dspy.InputField(desc="lines of a server")
    n: int = dspy.OutputField(desc="how many")


def counting(**options):
    return RLM(Errors, bypass=0, **options)


def test_a_dspy_signature_typed_and_the_steps_beside_the_answer():
    model = Model([COUNT, SUBMIT])
    with dspy.context(lm=model.lm, trace=[]):
        prediction = counting()(log=LONG)
        (step,) = dspy.settings.trace
    assert isinstance(prediction, dspy.Prediction)
    assert prediction.n == 5
    assert [s["code"] for s in prediction.trajectory] == ["n = log.count('ERROR')\nprint(n)", "SUBMIT(n)"]
    assert prediction.final_reasoning == "Done."
    assert result_of(prediction).usage.calls == 2
    assert step[1] == {"log": LONG}
    assert step[2] is prediction


def test_awaited_and_with_dspys_parameters_in_place():
    def stamp(line: str) -> str:
        """The line's first word."""
        return line.split(maxsplit=1)[0]

    code = "```python\nSUBMIT(answer=stamp(line=text) + llm_query('x'))\n```"
    model, sub = Model([code]), Model(["!"])
    rlm = RLM("text, question -> answer", 5, 3, 2000, False, [dspy.Tool(stamp)], sub.lm, bypass=0)
    with dspy.context(lm=model.lm):
        prediction = asyncio.run(rlm.acall(text="A b", question="q"))
    assert prediction.answer == "A!"


def test_what_an_optimizer_writes_is_what_the_author_is_told():
    model = Model(["```python\nSUBMIT(1)\n```"])
    program = counting()
    ((name, predictor),) = program.named_predictors()
    assert name == "predict"
    predictor.signature = predictor.signature.with_instructions("Count with great care.")
    twin = copy.deepcopy(program)
    with dspy.context(lm=model.lm):
        twin(log=LONG)
    seen = model.requests[-1].messages
    assert any("Count with great care." in str(m["content"]) for m in seen)


@pytest.mark.parametrize("method", [Refine, BestOfN])
def test_inside_of_our_strategies_it_is_an_attempt(method):
    wrong, right = "```python\nSUBMIT(3)\n```", "```python\nSUBMIT(5)\n```"
    model = Model([wrong, right])
    options = {"advisor": False} if method is Refine else {"concurrency": 1}
    program = method(counting(), 2, lambda args, pred: float(pred.n == 5), 1.0, **options)
    with dspy.context(lm=model.lm):
        prediction = program(log=LONG)
    assert prediction.n == 5
    assert result_of(prediction).usage.calls == 2


def test_a_budget_and_checks_hold():
    model = Model(["```python\nSUBMIT('a')\n```", "```python\nSUBMIT('a b')\n```"])
    rlm = RLM("text -> answer", bypass=0, checks=[checks.words(2)], budget=Budget(calls=2))
    with dspy.context(lm=model.lm):
        assert rlm(text="x").answer == "a b"
    model = Model(["```python\nprint(1)\n```"] * 3)
    with dspy.context(lm=model.lm), pytest.raises(RedraftError, match="call"):
        RLM("text -> answer", bypass=0, budget=Budget(calls=1))(text="x")


def test_a_wrong_option_is_known_before_anything_is_spent():
    with pytest.raises(InputError, match="max_iterations=0"):
        counting(max_iters=0)
    with pytest.raises(InputError, match="depth=0"):
        counting(depth=0)
