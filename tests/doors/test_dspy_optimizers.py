"""DSPy's evaluation and optimizers over programs with our Refine inside."""

from __future__ import annotations

import dspy
import pytest
from dspy_programs import DOOR, EITHER, Model, asked, said

from redraft.integrations.dspy import BestOfN, Refine, result_of

pytestmark = [
    *DOOR,
    pytest.mark.filterwarnings("ignore:.*(experimental|GEPA|tqdm|Optuna|optuna).*"),
]

TRAIN = [dspy.Example(question=f"{i}+{i}", answer=str(2 * i)).with_inputs("question") for i in range(1, 7)]


def exact(example, pred, trace=None):
    return pred.answer == example.answer


def digits(args, pred):
    return 1.0 if pred.answer.isdigit() else 0.0


def solver(request):
    """A model whose first draft is in words, and whose retries, at another temperature, are right."""
    text = next(m["content"] for m in reversed(request.messages) if m["role"] == "user")
    text = text if isinstance(text, str) else text[0]["text"]
    line = next((part for part in text.splitlines() if "+" in part and part[0].isdigit()), "0+0")
    right = str(sum(map(int, line.split("+"))))
    return said(reasoning="I add.", answer=right if request.temperature else "it is many")


class Program(dspy.Module):
    """Our strategy in the middle of somebody's program."""

    def __init__(self, method=BestOfN, **options):
        super().__init__()
        self.solve = method(dspy.ChainOfThought("question -> answer"), 3, digits, 1.0, **options)

    def forward(self, question):
        return dspy.Prediction(answer=self.solve(question=question).answer)


@EITHER
def test_evaluate_with_eight_threads(kind, capfd):
    model = kind(solver)
    with dspy.context(lm=model.lm):
        report = dspy.Evaluate(devset=TRAIN, metric=exact, num_threads=8)(Program())
    assert (report.score, len(report.results)) == (100.0, 6)
    assert "belongs to no run" not in capfd.readouterr().err


@EITHER
@pytest.mark.parametrize("method", [Refine, BestOfN])
def test_bootstrapping_finds_demos_in_the_best_attempts_alone(kind, method):
    # 0 demos: the traces hold copies of the predictors, and the hint among the inputs (found in DSPy 3.4.1)
    model = kind(solver)
    options = {"advisor": False} if method is Refine else {}
    with dspy.context(lm=model.lm):
        optimizer = dspy.BootstrapFewShot(metric=exact, max_bootstrapped_demos=3, max_labeled_demos=0)
        better = optimizer.compile(Program(method, **options), trainset=TRAIN)
    (predictor,) = better.predictors()
    assert [(d["question"], d["answer"]) for d in predictor.demos] == [("1+1", "2"), ("2+2", "4"), ("3+3", "6")]
    assert all(set(d.keys()) == {"augmented", "question", "reasoning", "answer"} for d in predictor.demos)
    with dspy.context(lm=model.lm):
        assert better(question="6+6").answer == "12"
    assert "3+3" in asked(model)  # the demos are in the prompt


def test_gepa_runs_and_its_metric_is_a_reward():
    def metric(gold, pred, trace=None, pred_name=None, pred_trace=None):
        right = str(sum(map(int, gold.question.split("+"))))
        return dspy.Prediction(score=float(pred.answer == right), feedback=f"The sum is {right}, in digits.")

    model, reflection = Model(solver), Model(lambda request: '{"new_instruction": "Answer in digits alone."}')
    refined = Refine(dspy.ChainOfThought("question -> answer"), 2, metric, 1.0)
    with dspy.context(lm=model.lm):
        prediction = refined(question="4+4")
        assert result_of(prediction).attempts[0].score.feedback == "The sum is 8, in digits."
        assert "The sum is 8, in digits." in asked(model)
        gepa = dspy.GEPA(metric=metric, max_metric_calls=14, reflection_lm=reflection.lm, num_threads=2)
        better = gepa.compile(BestOfN(dspy.ChainOfThought("question -> answer"), 1, digits, 1.0), trainset=TRAIN)
    assert isinstance(better, BestOfN)
    assert reflection.requests
    assert "many" in asked(reflection, 0)  # the drafts' steps reached the reflection


def test_mipro_runs():
    pytest.importorskip("optuna")
    texts = {"proposed_instruction": "Answer in digits.", "observations": "sums", "summary": "sums"}

    def either(request):
        told = "".join(str(m["content"]) for m in request.messages)
        if "proposed_instruction" in told or "observations" in told or "summary" in told:
            names = [n for n in (*texts, "program_description", "module_description") if f"[[ ## {n} ## ]]" in told]
            return said(**{name: texts.get(name, "It adds.") for name in names})
        return solver(request)

    model = Model(either)
    with dspy.context(lm=model.lm):
        optimizer = dspy.MIPROv2(
            metric=exact, auto=None, num_candidates=2, num_threads=2, max_bootstrapped_demos=1, max_labeled_demos=1
        )
        better = optimizer.compile(Program(), trainset=TRAIN[:3], valset=TRAIN[3:], num_trials=2, minibatch=False)
        assert better(question="6+6").answer == "12"


def test_metrics_of_every_arity_are_rewards():
    seen = []

    def three(example, pred, trace):
        seen.append((type(example), example.question, dict(example.inputs()), trace))
        return True

    def two(args, pred):
        seen.append((type(args), args["question"], type(pred)))
        return 1

    async def five(gold, pred, trace, pred_name, pred_trace):
        seen.append((gold.question, trace, pred_name, pred_trace))
        return dspy.Prediction(score=1.0, feedback=None)

    class Grader(dspy.Module):
        def forward(self, example, pred, trace=None):
            seen.append(example.question)
            return 1.0

    model = Model(lambda request: said(answer="a"))
    for metric in (three, two, five, Grader()):
        refined = BestOfN(dspy.Predict("question -> answer"), 2, metric, 1.0)
        assert [name for name, _ in refined.named_predictors()] == ["module"]
        with dspy.context(lm=model.lm):
            result = result_of(refined(question="q"))
        assert result.error is None, result.error
        assert result.stop_reason == "threshold"
    assert seen == [
        (dspy.Example, "q", {"question": "q"}, None),
        (dict, "q", dspy.Prediction),
        ("q", None, None, None),
        "q",
    ]
