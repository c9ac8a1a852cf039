"""What compiling brings a plain program: a form that a small model misses by itself, on products that it was not compiled on.

Two requirements that code sees (3 to 8 words, no capitals). The teacher is Refine(N=4), which decodes under them after a
first draft that falls short; four of its drafts become demos. "told": one attempt with the requirements in the prompt.
Whether a slogan is any good nobody judges here.
"""

import argparse

import record

from redraft import BootstrapFewShot, Predict, Refine, checks
from redraft.evaluate import Evaluate, Example

PRODUCTS = [
    "soap",
    "tea",
    "a bicycle",
    "a lamp",
    "bread",
    "a garden hose",
    "honey",
    "a raincoat",
    "wool socks",
    "a chess set",
    "olive oil",
    "a tent",
    "pencils",
    "a violin",
    "coffee",
    "a clock",
    "cheese",
    "a kayak",
    "candles",
    "a backpack",
    "apple juice",
    "a hammock",
    "running shoes",
    "a telescope",
    "chocolate",
    "a drum",
    "sunglasses",
    "a blender",
    "a notebook",
    "toothpaste",
    "a kite",
    "salt",
    "a sofa",
    "a camera",
    "a fan",
    "pasta",
    "a scarf",
    "a ladder",
    "rice",
    "a guitar",
]
TRAIN = 12
FORM = [checks.words(3, 8), checks.lowercase()]


def measure(options):
    examples = [Example(product=name).with_inputs("product") for name in PRODUCTS]
    held_out = examples[TRAIN : TRAIN + options.held_out]
    program = Predict("product -> slogan", max_tokens=40, lm=options.model)
    rows, notes = [], []
    for seed in options.seeds:
        optimizer = BootstrapFewShot(seed=seed)
        teacher = Refine(program, N=4, checks=FORM, fix=False)
        compiled = optimizer.compile(program, examples[:TRAIN], teacher=teacher)
        arms = {
            "plain": program,
            "told": Refine(program, N=1, checks=FORM, fix=False),
            "Refine(N=4)": teacher,
            "compiled": compiled,
            "compiled, told": Refine(compiled, N=1, checks=FORM, fix=False),
        }
        report = Evaluate(held_out, checks=FORM, baselines=False, seed=seed)(arms)
        rows += [row(seed, report[name]) for name in arms]
        notes.append(f"seed {seed}: {'; '.join(str(optimizer.report).splitlines())}")
    about = f"{len(held_out)} products held out, {options.model}; a share of them, of calls and tokens an item"
    yield record.Table("A form, before and after", about, rows, notes=notes)


def row(seed, standing):
    return {
        "case": f"seed {seed}",
        "program": standing.name,
        "by": record.OURS,
        "pass %": 100 * (standing.pass_rate or 0.0),
        "score": standing.score,
        "calls": standing.usage.calls / standing.items,
        "tokens": standing.usage.tokens / standing.items,
    }


def more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="local/smollm2-135m")
    parser.add_argument("--held-out", type=int, default=len(PRODUCTS) - TRAIN)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])


if __name__ == "__main__":
    record.main("learn", "What compiling brings a plain program", measure, more, about=__doc__, seeds=(0, 1))
