"""A real small model as root and sub-model, beside one direct call to it, on small files.

    python benchmarks/rlm/small.py --model PATH.gguf --task needle,oolong --size 1KB,4KB,16KB --data DIR --out small.jsonl

Both answer the same typed signature. A direct call gets as much of the data as fits the context; what an RLM spends is
bounded by `--seconds` a run. One line a run; a run whose line is there is not made again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import generate
import grading
import tasks

from redraft import RLM, Budget, Predict, Run
from redraft.errors import RedraftError
from redraft.lm.local import LocalLM
from redraft.sandbox import interpreter

_CHARS_A_TOKEN = 2.5
"""Of this data for small models' tokenizers, at worst: ids and numbers are short tokens."""
_APART = 1_500
"""Tokens of the context that are kept for the question and the answer."""


def main() -> None:
    given = _options()
    lm = LocalLM(path=given.model, ctx=given.ctx, threads=given.threads, slots=1)
    done = {_key(json.loads(line)) for line in given.out.read_text().splitlines()} if given.out.exists() else set()
    for name, size, seed, system in itertools.product(given.task, given.size, given.seed, given.system):
        what = {"model": lm.name, "task": name, "size": size, "seed": seed, "system": system}
        if _key(what) in done:
            continue
        line = {**what, **one(what, lm, given)}
        print(line, file=sys.stderr, flush=True)
        with given.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def one(what: dict[str, Any], lm: LocalLM, given: argparse.Namespace) -> dict[str, Any]:
    task = tasks.TASKS[what["task"]]
    path, gold = generate.make(task.name, what["size"], what["seed"], given.data)
    data, room = path.read_text(encoding="ascii"), int((given.ctx - _APART) * _CHARS_A_TOKEN)
    module: Any
    if what["system"] == "direct":
        module, data = Predict(task.signature, lm=lm), data[:room]
    else:
        module = RLM(
            task.signature, lm=lm, sub_lm=lm, max_iterations=8, max_llm_calls=20, max_output_chars=1500, bypass=0,
            interpreter=interpreter("auto", seconds=20),
        )  # fmt: skip
    began, told, steps, answer = time.perf_counter(), "", 0, {}
    with Run(budget=Budget(seconds=given.seconds), seed=what["seed"]) as run:
        try:
            said = module(**{task.variable: data, "query": task.query(gold)})
            answer = {field: said[field] for field in task.graded}
            steps = len(said.trajectory) if "trajectory" in said else 0
            told = "fallback" if steps and said.trajectory[-1].get("fallback") else ""
        except RedraftError as error:
            told = f"{type(error).__name__}: {error}"[:300]
        usage = run.usage
    exact, share = grading.grade(task, answer, gold)
    return {
        "exact": exact,
        "share": round(share, 3),
        "seconds": round(time.perf_counter() - began, 1),
        "calls": usage.calls,
        "tokens": usage.tokens,
        "steps": steps,
        "answer": answer,
        "note": told,
    }


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("model", "task", "size", "seed", "system"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--task", type=lambda s: s.split(","), default=["needle", "oolong"])
    parser.add_argument(
        "--size", type=lambda s: [generate.size_of(p) for p in s.split(",")], default=[1_000, 4_000, 16_000]
    )
    parser.add_argument("--seed", type=lambda s: [int(p) for p in s.split(",")], default=[1])
    parser.add_argument("--system", type=lambda s: s.split(","), default=["direct", "redraft"])
    parser.add_argument("--ctx", type=int, default=8192, help="tokens of context")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=90.0, help="a run's budget")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
