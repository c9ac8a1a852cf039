"""Does a learned trigger beat what is free? SmolLM2-135M, additions, half easy and half hard; train and test share no item.

    .venv-torch/bin/python benchmarks/proactive/policy.py --seeds 0 1 2 --out benchmarks/proactive/results/policy.jsonl
    .venv/bin/python benchmarks/proactive/report.py benchmarks/proactive/results/policy.jsonl

Every token counts. Each seed draws its items, trains a policy and measures it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from meta import meta

from redraft.errors import InputError
from redraft.lm import catalogue
from redraft.proactive.pasr.grading import Grader, reference_reward
from redraft.proactive.policy import RefinementPolicy
from redraft.proactive.policy_eval import evaluate_pasr, table, tell_apart
from redraft.proactive.policy_train import measure_places, train_on
from redraft.proactive.torch_lm import TransformersLM

CAP = 10


def additions(n: int, seed: int) -> list[dict[str, str]]:
    """n items, no two alike, half of them with operands up to 9 and half with operands from 10 to 60."""
    chance, seen = random.Random(seed), set()
    rows: list[dict[str, str]] = []
    while len(rows) < n:
        low, high = (1, 9) if len(rows) % 2 == 0 else (10, 60)
        a, b = chance.randint(low, high), chance.randint(low, high)
        if (a, b) not in seen:
            seen.add((a, b))
            rows.append({"question": f"What is {a} + {b}? Reply with the number only.", "answer": str(a + b)})
    return rows


def measured(lm: TransformersLM, given: argparse.Namespace, seed: int) -> Iterator[dict[str, Any]]:
    """Train on some items, and measure on others: a line an arm, and one on how well policy and NLL tell places apart."""
    torch.manual_seed(seed)
    model, tokenizer = lm.session.model, lm.tokenizer
    rows = additions(given.train + given.test, seed)
    train, test = rows[: given.train], rows[given.train :]
    grader = Grader(reward=reference_reward)
    policy = RefinementPolicy.on(model, layer=given.layer, distances=(1, 2), temperatures=(0.8,))
    places = measure_places(model, policy, tokenizer, train, grader=grader, max_length=CAP)
    trained = train_on(policy, places, cost=given.cost, seed=seed)
    yield {
        "seed": seed,
        "places": len(places),
        "pays_at": sum(p.best(given.cost)[0] > 0 for p in places),
        "reward_first": round(trained.gradient[0], 3),
        "reward_last": round(trained.gradient[-1], 3),
        "fixed_move": str(trained.fixed),
    }
    arms = evaluate_pasr(model, policy, tokenizer, test, trained, grader=grader, max_length=CAP, seed=seed)
    print(table(arms), flush=True)
    for arm in arms:
        yield {"seed": seed, "arm": arm.name, **{key: value for key, value in asdict(arm).items() if key != "name"}}
    if given.apart:
        held_out = measure_places(model, policy, tokenizer, test, grader=grader, max_length=CAP, seed=1)
        try:
            yield {"seed": seed, "told_apart": asdict(tell_apart(policy, held_out, given.cost))}
        except InputError as error:
            yield {"seed": seed, "told_apart": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=24)
    parser.add_argument("--test", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--layer", type=int, default=20)
    parser.add_argument("--cost", type=float, default=0.005)
    parser.add_argument("--apart", action="store_true", help="measure all moves on held-out items, too")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, appended to")
    given = parser.parse_args()
    if given.train + given.test > 150:
        parser.error("there are 81 easy items only: 150 items at most")
    torch.set_num_threads(1)
    file = catalogue.lookup(catalogue.DEFAULT).path
    lm = TransformersLM.load(file.parent, gguf=file.name)
    settings = {key: value for key, value in vars(given).items() if key != "out"}
    with given.out.open("a", encoding="utf-8") as out:
        header = meta(
            {"name": "smollm2-135m in float32", "file": file.name}, settings, ("redraft", "torch", "transformers")
        )
        for line in itertools.chain([{"meta": header}], *(measured(lm, given, seed) for seed in given.seeds)):
            out.write(json.dumps(line) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
