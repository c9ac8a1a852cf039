"""What watching costs: CPU seconds a token of `model.generate`, of our loop with signals, and of computing all anew each step.

    .venv-torch/bin/python benchmarks/proactive/speed.py

SmolLM2-135M in float32 on one thread; the arms take turns, and the middle of the rounds is shown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from redraft import checks
from redraft.lm import catalogue
from redraft.proactive import RandomSignal, RefinementSignal
from redraft.proactive.guards import Guards
from redraft.proactive.tokens import text_of
from redraft.proactive.torch_lm import TransformersLM, proactive_generate
from redraft.proactive.torch_session import Session, greedy
from redraft.types import Request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = catalogue.lookup(catalogue.DEFAULT)
    lm = TransformersLM.load(model.path.parent, gguf=model.path.name)
    ids = lm.prompt(Request(messages=({"role": "user", "content": "Describe a small café in Paris in detail."},)))
    asked, n = torch.tensor([ids]), given.tokens
    whole = {"attention_mask": torch.ones_like(asked), "max_new_tokens": n, "do_sample": False, "pad_token_id": 0}
    signal, guards = (
        RefinementSignal("entropy", 1e9),
        Guards([checks.forbids("zebra"), checks.words(at_most=500)], "answer"),
    )

    def generate() -> list[int]:
        return list(lm.session.model.generate(asked, **whole)[0].tolist()[len(ids) :])

    def loop() -> list[int]:
        return [t.id or 0 for t in Session(lm.session.model, lm.tokenizer).write(ids, n, greedy).tokens]

    def watched() -> list[int]:
        seen: list[Any] = []

        def look(token: Any) -> bool:
            seen.append(token)
            return bool(guards(text_of(seen))) or signal.should_refine(seen)

        return [t.id or 0 for t in Session(lm.session.model, lm.tokenizer).write(ids, n, greedy, look).tokens]

    def custom() -> list[int]:
        function = proactive_generate(lm.tokenizer, guard=guards, signal=signal)
        return list(lm.session.model.generate(asked, custom_generate=function, **whole)[0].tolist()[len(ids) :])

    def anew() -> list[int]:
        new: list[int] = []
        with torch.inference_mode():
            for _ in range(n):
                new.append(
                    int(
                        lm.session.model(input_ids=torch.tensor([[*ids, *new]]), use_cache=False).logits[0, -1].argmax()
                    )
                )
        return new

    def rewinding() -> list[int]:
        function = proactive_generate(lm.tokenizer, signal=RandomSignal(0.05))
        return list(lm.session.model.generate(asked, custom_generate=function, **whole)[0].tolist()[len(ids) :])

    arms: dict[str, Callable[[], list[int]]] = {
        "model.generate": generate,
        "our loop, all numbers of each token": loop,
        "our loop, guards and signal watched": watched,
        "generate(custom_generate=...), never triggered": custom,
        "all computed anew each step": anew,
        "with rewinds at 5 % of the places": rewinding,
    }
    spent: dict[str, list[float]] = {name: [] for name in arms}
    plain = generate()
    same = {}
    for _ in range(given.rounds):
        for name, arm in arms.items():
            started = time.process_time()
            same[name] = arm() == plain
            spent[name].append((time.process_time() - started) / len(plain) * 1000)
    first = statistics.median(spent["model.generate"])
    print(f"{len(ids)} tokens of prompt, {len(plain)} written, {given.rounds} rounds; CPU ms a token of the text")
    for name, times in spent.items():
        middle = statistics.median(times)
        print(
            f"{name:<48}{middle:>8.1f}{min(times):>8.1f}..{max(times):<8.1f}{middle / first:>6.2f} x  {'same' if same[name] else 'other'} text"
        )


if __name__ == "__main__":
    main()
