"""What you see: a small model on this machine writes a review that must meet two checks. What falls short is
criticised and redrafted, and a draft replaces the best one only for a reason. No key, no GPU.

Expected output: each draft with its verdicts and critique, the word diff, why it was accepted or rejected, the
receipt. Another model: `python examples/demo.py openai/gpt-4.1-mini`.
"""

from __future__ import annotations

import sys
import time

import redraft
from redraft import LM, Budget, Predict, Reflect, checks
from redraft.lm import catalogue
from redraft.report.text import trajectory

TASK = "Review La Maison, a French restaurant"

write = Reflect(
    Predict("task -> review", max_tokens=160),
    writer="food writer",
    editor="senior food critic and editor",
    criteria=["sensory detail", "vocabulary", "balanced tone"],
    rounds=3,
    checks=[checks.sentences(3), checks.contains("La Maison")],
    revise="fresh",  # a model this small does worse when it is shown its bad draft
    budget=Budget(calls=12, seconds=300),
)


def main(model: LM | str = "local/smollm2-135m", seed: int = 3) -> None:
    """Fetch the model if it is an embedded one, write, and show how the review came about."""
    if isinstance(model, str) and model.startswith("local/"):
        catalogue.pull(model.removeprefix("local/"))
    print(
        f"model: {getattr(model, 'name', model)}\ntask:  {TASK}\nmust:  exactly 3 sentences, and mention La Maison\n",
        flush=True,
    )
    redraft.configure(model=model, seed=seed)  # seeded, so that it repeats on the same machine
    started = time.perf_counter()
    result = write(task=TASK)
    print(trajectory(result.attempts, result.best, colour=sys.stdout.isatty()))
    print(f"\n{result.receipt()} | {time.perf_counter() - started:.1f} s | run {result.run_id}")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
