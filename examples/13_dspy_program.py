"""A DSPy program with redraft's Refine inside, optimised by BootstrapFewShot and evaluated, on the embedded model.

    python examples/13_dspy_program.py      (pip install 'redraft[local,dspy]')

The model has 135M parameters and mostly copies the form that DSPy's prompt shows it (`{answer}`). Refine checks each draft
by code and samples again; BootstrapFewShot, whose teacher is shown a few labelled examples, takes demos from the drafts
that were kept and are right, which it cannot do through dspy.Refine (its trace holds copies of the predictors). Expected
output: hardly an answer right before; three demos; an answer or two right after, with a quarter of the calls.
"""

import dspy

import redraft
from redraft import Budget, checks
from redraft.integrations.dspy import Refine, dspy_lm, result_of

CAPITALS = (
    "France Paris, Italy Rome, Spain Madrid, Japan Tokyo, Germany Berlin, Egypt Cairo, Greece Athens, Russia Moscow, "
    "China Beijing, Austria Vienna, Ireland Dublin, Portugal Lisbon, England London, Poland Warsaw, India New Delhi, "
    "Canada Ottawa"
)
EXAMPLES = [
    dspy.Example(question=f"What is the capital of {country}?", answer=city).with_inputs("question")
    for country, city in (pair.split(" ", 1) for pair in CAPITALS.split(", "))
]


def right(example: dspy.Example, pred: dspy.Prediction, trace: object = None) -> bool:  # noqa: ARG001 - DSPy's form
    """The city and nothing else."""
    return pred.answer.strip(" .").lower() == example.answer.lower()


def evaluated(program: dspy.Module, name: str) -> None:
    """Print the score, what it took, and the first answer's receipt."""
    before = len(dspy.settings.lm.history)
    report = dspy.Evaluate(devset=EXAMPLES[10:], metric=right, num_threads=4)(program)
    print(f"{name}: {report.score:.0f} % right, {len(dspy.settings.lm.history) - before} calls")
    example, pred, _ = report.results[0]
    print(f"    {example.question} {pred.answer!r} | {result_of(pred).receipt()}")


def main() -> None:
    """Evaluate, optimise, evaluate again."""
    dspy.disable_logging()
    redraft.configure(seed=1)  # the same drafts each time
    dspy.configure(lm=dspy_lm("local/smollm2-135m", max_tokens=40, temperature=0.0), adapter=dspy.JSONAdapter())
    # The second is not told: a small model does worse with a rule in its prompt that it cannot follow.
    bar = [checks.words(at_most=2), checks.matches(r"[A-Z][a-z]+( [A-Z][a-z]+)?", tell=False)]
    quiz = Refine(dspy.Predict("question -> answer"), N=5, checks=bar, budget=Budget(calls=5))
    evaluated(quiz, "before")
    optimizer = dspy.BootstrapFewShot(metric=right, max_bootstrapped_demos=3, max_labeled_demos=4)
    better = optimizer.compile(quiz, trainset=EXAMPLES[:10])
    own = [demo for predictor in better.predictors() for demo in predictor.demos if demo.get("augmented")]
    print("bootstrapped through Refine:", *(f"{demo['question']} {demo['answer']}" for demo in own), sep="\n    ")
    evaluated(better, "after")


if __name__ == "__main__":
    main()
