"""Which rung of the ladder helps this model at this task? Each is tried from the same failing drafts, and tested.

    python examples/12_calibrate.py

A function stands in for the model: it writes one sentence where three are asked for, mostly, and holds a constraint, mostly.
So this takes no time, and its figures say nothing about any model; on a real one: `redraft calibrate topics.jsonl --check
sentences:3`, which also writes what it found to redraft.toml, where `auto` takes it from. Expected output: what each rung
mended, the comparison, a recommendation, and the table for redraft.toml.
"""

import random

from redraft import Predict, Request, checks
from redraft.evaluate import Calibrate, Calibration, Example
from redraft.testing import FunctionLM
from redraft.types import Capabilities

TOPICS = [
    f"{thing} in {season}"
    for thing in ("tea", "rain", "bread", "tram", "chess")
    for season in ("spring", "summer", "autumn", "winter", "a storm", "an old town")
]


def pretend(request: Request) -> str:
    """A model by chance: the same for the same prompt and seed."""
    chance = random.Random(f"{request.messages}{request.seed}{request.grammar}").random()
    held = chance < (0.9 if request.grammar else 0.15)
    return "It is warm. It is good. One stays." if held else f"It is {chance:.2f} of a sentence"


def main() -> Calibration:
    """Measure, and say what is worth it."""
    lm = FunctionLM(pretend, name="pretend", capabilities=Capabilities(grammar=True, seed=True))
    examples = [Example(task=topic).with_inputs("task") for topic in TOPICS]
    found = Calibrate(Predict("task -> answer", lm=lm), examples, checks=[checks.sentences(3)], critic=False, seed=1)()
    print(found)
    print("\nfor redraft.toml:", {k: v for k, v in found.entry().items() if k != "evidence"})
    return found


if __name__ == "__main__":
    main()
