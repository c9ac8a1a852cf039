"""Does it pay? A strategy on examples, beside a single shot and the best of as many blind samples as its calls would buy.

    python examples/11_eval.py

A function stands in for the model: it chats six times in ten where a number alone was asked for, and some sums are too hard
for it. So this takes no time, and its figures say nothing about any model. On the command line it is
`redraft eval data.jsonl --strategy refine --check number --metric exact:label`. Expected output: a table and the pairs
behind it. Refine wins here without a further call, since code mends what the check explains; what is too hard stays wrong.
"""

import random
import re

from redraft import Predict, Refine, Request, checks
from redraft.evaluate import Evaluate, Example, Report
from redraft.testing import FunctionLM
from redraft.types import Capabilities, Prediction

SUMS = [(a, b) for a in range(11, 91, 10) for b in (7, 18, 29)]


def pretend(request: Request) -> str:
    """A model by chance: the same for the same prompt and seed."""
    prompt = str(request.messages)
    a, b = map(int, re.search(r"(\d+) \+ (\d+)", prompt).groups())
    total = a + b + (10 if a > 70 and b > 20 else 0)
    return f"That would be {total}!" if random.Random(f"{prompt}{request.seed}").random() < 0.6 else str(total)


def right(example: Example, prediction: Prediction) -> bool:
    """The metric: what strategies do not see."""
    return prediction.answer == example.label


def main() -> Report:
    """Compare `Refine` with what it has to beat."""
    lm = FunctionLM(pretend, name="pretend", capabilities=Capabilities(seed=True))
    examples = [Example(task=f"{a} + {b}", label=str(a + b)).with_inputs("task") for a, b in SUMS]
    refine = Refine(Predict("task -> answer", lm=lm), N=3, checks=[checks.number()])
    report = Evaluate(examples, right, seed=1)({"refine": refine})
    print(report)
    return report


if __name__ == "__main__":
    main()
