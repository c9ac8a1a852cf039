"""What you see: a small model on this machine climbs the ladder, rung by rung, until a text meets its checks; an
editor persona asks for more, and a revision replaces the best draft only for a reason. No key, no GPU.

Expected output: for each task the rungs that were climbed and why, each draft with its verdicts, what changed, why it
was kept or not, and the receipt. Another model: `python examples/demo.py openai/gpt-4.1-mini`.
"""

from __future__ import annotations

import sys
import time

import redraft
from redraft import LM, Budget, Predict, Refine, Reflect, checks
from redraft.lm import catalogue
from redraft.report.text import trajectory
from redraft.strategies import Refining
from redraft.types import Event

write = Predict("task -> text", max_tokens=160)

SCENES: list[tuple[str, str, Refining]] = [
    (
        "Give tips for a good night's sleep.",
        "what code can mend costs no call: three bullets, lower case",
        Refine(write, N=3, checks=[checks.bullets(3), checks.lowercase()]),
    ),
    (
        "Review La Maison, a French restaurant",
        "an editor asks for more, and a revision has to win: three sentences, the name",
        Reflect(
            write,
            writer="food writer",
            editor="senior food critic and editor",
            criteria=["sensory detail", "vocabulary", "balanced tone"],
            rounds=2,
            checks=[checks.sentences(3), checks.contains("La Maison")],
            revise="fresh",  # a model this small does worse when it is shown its bad draft
        ),
    ),
    (
        "Write an advertisement for a bakery named Crumb.",
        "what it cannot mend is held while decoding: 12 to 25 words, the name, no commas",
        Refine(write, N=3, checks=[checks.words(12, 25), checks.contains("Crumb"), checks.no_commas()]),
    ),
]


def rungs(event: Event) -> None:
    """Say which rung is climbed, and why."""
    if event.kind == "propose":
        print(f"  {event.data['rung']:10} {event.data['why']}", flush=True)
    elif event.kind == "fix_refused":
        print(f"  {'fix':10} not possible: {event.data['why']}", flush=True)


def main(model: LM | str = "local/smollm2-135m", seed: int = 3) -> None:
    """Fetch the model if it is an embedded one, write, and show how each text came about."""
    if isinstance(model, str) and model.startswith("local/"):
        catalogue.pull(model.removeprefix("local/"))
    print(f"model: {getattr(model, 'name', model)}", flush=True)
    # Seeded, so that it repeats on the same machine.
    redraft.configure(model=model, seed=seed, budget=Budget(calls=12, seconds=300), listeners=[rungs])
    for task, what, strategy in SCENES:
        print(f"\n{task}\n{what}\n", flush=True)
        started = time.perf_counter()
        result = strategy(task=task)
        print(f"\n{trajectory(result.attempts, result.best, colour=sys.stdout.isatty())}")
        print(f"\n{result.receipt()} | {time.perf_counter() - started:.1f} s | run {result.run_id}")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
