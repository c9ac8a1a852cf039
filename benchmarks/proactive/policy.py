"""Does a learned trigger beat what is free? SmolLM2-135M, additions, half easy and half hard; train and test share no item.

    .venv-torch/bin/python benchmarks/proactive/policy.py --train 60 --test 60

Prints the arms as a table, and how well policy and mean NLL tell the places where going back pays (held out). Every token counts.
"""

from __future__ import annotations

import argparse
import random
import time

import torch

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=30)
    parser.add_argument("--test", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layer", type=int, default=20)
    parser.add_argument("--cost", type=float, default=0.005)
    given = parser.parse_args()
    if given.train + given.test > 150:
        parser.error("there are 81 easy items only: 150 items at most")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    file = catalogue.lookup(catalogue.DEFAULT).path
    lm = TransformersLM.load(file.parent, gguf=file.name)
    model, tokenizer = lm.session.model, lm.tokenizer
    rows = additions(given.train + given.test, given.seed)
    train, test = rows[: given.train], rows[given.train :]
    grader = Grader(reward=reference_reward)
    policy = RefinementPolicy.on(model, layer=given.layer, distances=(1, 2), temperatures=(0.8,))
    begun = time.process_time()
    places = measure_places(model, policy, tokenizer, train, grader=grader, max_length=CAP)
    print(f"{len(places)} places measured in {time.process_time() - begun:.0f} CPU s", flush=True)
    begun = time.process_time()
    trained = train_on(policy, places, cost=given.cost, seed=given.seed)
    print(
        f"trained in {time.process_time() - begun:.1f} CPU s; going back pays at {sum(p.best(given.cost)[0] > 0 for p in places)}"
    )
    print(
        f"mean reward while training: {trained.gradient[0]:.3f} first, {trained.gradient[-1]:.3f} last; fixed {trained.fixed}"
    )
    print(table(evaluate_pasr(model, policy, tokenizer, test, trained, grader=grader, max_length=CAP)), flush=True)
    held_out = measure_places(model, policy, tokenizer, test, grader=grader, max_length=CAP, seed=1)
    try:
        print(tell_apart(policy, held_out, given.cost))
    except InputError as error:
        print(error)


if __name__ == "__main__":
    main()
