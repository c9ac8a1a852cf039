"""Does a learned trigger beat what is free? The items of the other arms; a seed's policy is trained on items of the next seed.

    .venv-torch/bin/python benchmarks/proactive/policy.py --out benchmarks/proactive/results/policy.jsonl
    .venv/bin/python benchmarks/proactive/report.py benchmarks/proactive/results/policy.jsonl

Every token counts. A line an arm, family and seed, written when a seed is measured. Resumable: what stands in the file is not
measured again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from families import EACH, FAMILIES, SEEDS, items
from meta import meta

from redraft.errors import InputError
from redraft.lm import catalogue
from redraft.proactive.pasr.grading import Grader
from redraft.proactive.policy import RefinementPolicy
from redraft.proactive.policy_eval import evaluate_pasr, table, tell_apart
from redraft.proactive.policy_train import measure_places, train_on
from redraft.proactive.torch_lm import TransformersLM


def measured(lm: TransformersLM, given: argparse.Namespace, family: str, seed: int) -> Iterator[dict[str, Any]]:
    """Train on some items, and measure on others: a line an arm, and one on how well policy and NLL tell places apart."""
    torch.manual_seed(seed)
    model, tokenizer = lm.session.model, lm.tokenizer
    test, train = items(family, seed)[: given.test], items(family, (seed + 1) % SEEDS)[: given.train]
    known = {item.prompt: item for item in (*test, *train)}

    async def right(row: dict[str, Any], pred: Any) -> float:
        return float((await known[row["question"]].check.verdict({}, pred)).passed)

    asked, learned_from = ([{"question": item.prompt} for item in pool] for pool in (test, train))
    about = {"family": family, "seed": seed}
    options = {"grader": Grader(reward=right), "max_length": test[0].cap}
    policy = RefinementPolicy.on(model, layer=given.layer, distances=(1, 2), temperatures=(0.8,))
    places = measure_places(model, policy, tokenizer, learned_from, **options)
    trained = train_on(policy, places, cost=given.cost, seed=seed)
    yield about | {
        "places": len(places),
        "pays_at": sum(p.best(given.cost)[0] > 0 for p in places),
        "reward_first": round(trained.gradient[0], 3),
        "reward_last": round(trained.gradient[-1], 3),
        "fixed_move": str(trained.fixed),
    }
    arms = evaluate_pasr(model, policy, tokenizer, asked, trained, seed=seed, **options)
    print(family, seed, table(arms), sep="\n", flush=True)
    for arm in arms:
        yield about | {"arm": arm.name, **{key: value for key, value in asdict(arm).items() if key != "name"}}
    if given.apart:
        held_out = measure_places(model, policy, tokenizer, asked, seed=1, **options)
        try:
            yield about | {"told_apart": asdict(tell_apart(policy, held_out, given.cost))}
        except InputError as error:
            yield about | {"told_apart": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a GGUF file, read into float32; default: the embedded model")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--train", type=int, default=24)
    parser.add_argument("--test", type=int, default=EACH)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(SEEDS)))
    parser.add_argument("--layer", type=int, default=20)
    parser.add_argument("--cost", type=float, default=0.005)
    parser.add_argument("--apart", action="store_true", help="measure all moves on held-out items, too")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, appended to")
    given = parser.parse_args()
    if given.train > EACH or given.test > EACH:
        parser.error(f"a seed has {EACH} items of a family: {EACH} to train on and {EACH} to test at most")
    torch.set_num_threads(1)
    file = given.model or catalogue.lookup(catalogue.DEFAULT).path
    lm = TransformersLM.load(file.parent, gguf=file.name)
    old = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(line["family"], line["seed"]) for line in old if "arm" in line}
    settings = {key: value for key, value in vars(given).items() if key not in ("out", "model")}
    about = meta({"name": f"{file.stem}, float32", "file": file.name}, settings, ("redraft", "torch", "transformers"))
    with given.out.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"meta": about}) + "\n")
        for seed in given.seeds:
            for family in given.families:
                if (family, seed) not in done:
                    lines = [json.dumps(line) for line in measured(lm, given, family, seed)]
                    out.write("\n".join(lines) + "\n")
                    out.flush()


if __name__ == "__main__":
    main()
