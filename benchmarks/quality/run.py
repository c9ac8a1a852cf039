"""Does it pay? Our Refine beside its peers, on prompts whose requirements code can verify.

    python benchmarks/quality/run.py --models DIR --out results.jsonl      # DIR holds qwen-0.5b.gguf, qwen-1.5b.gguf
    python benchmarks/quality/report.py results.jsonl                      # the tables

One line a (model, arm, seed, prompt), written as it ends: a run that is started again goes on where it stopped. Seeds are the
outer loop, then models, then arms, so that a part of the work is a comparison already.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import logging
import os
import queue
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("MELLEA_TELEMETRY", "0")

import ifeval
import suite
from arms import ABLATIONS, ARMS, LADDER, NEEDS, Job
from server import Models, Proxy
from tasks import Task

USUAL = tuple(arm for arm in ARMS if arm not in ABLATIONS)
MODELS = ("smollm2-135m", "qwen-0.5b", "qwen-1.5b")


def main() -> None:
    options = _options()
    tasks = _chosen(options)
    done = _done(options.out)
    proxy = Proxy(options.workers, options.out.with_suffix(".greedy.jsonl"))
    models = Models(options.models, options.workers, options.threads)
    free = sum(not task.compilable for task in tasks)
    print(f"{len(tasks)} prompts, {free} without a compilable constraint; {len(done)} lines are there", file=sys.stderr)
    with options.out.open("a", encoding="utf-8") as out:
        for seed, model, arm in itertools.product(options.seeds, options.model, options.arm):
            chosen = tasks[:: options.thin.get(arm, 1)]
            left = [task for task in chosen if (model, arm, seed, task.id) not in done]
            if left:
                proxy.upstream = models.address(model)
                _work(Batch(proxy, model, arm, seed), left, options.workers, out)
    os._exit(0)  # engines and peers leave threads that would be waited for


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, appended to")
    parser.add_argument("--models", type=Path, help="the folder that holds NAME.gguf of the larger models")
    parser.add_argument("--model", type=_names, default=MODELS, help=f"default: {','.join(MODELS)}")
    parser.add_argument(
        "--arm", type=_names, default=USUAL, help=f"default: {','.join(USUAL)}; also: {','.join(ABLATIONS)}"
    )
    parser.add_argument("--seeds", type=lambda s: tuple(map(int, s.split(","))), default=(0, 1, 2))
    parser.add_argument("--family", type=_names, help="only these families")
    parser.add_argument("--every", type=int, default=1, help="only each nth prompt")
    parser.add_argument(
        "--thin", type=_shares, default={}, help="costly arms on each nth prompt only: dspy_refine=4,..."
    )
    parser.add_argument("--ifeval", type=Path, help="IFEval's input_data.jsonl instead of our own suite")
    parser.add_argument("--short", action="store_true", help="of IFEval, only prompts that ask for a short answer")
    parser.add_argument("--workers", type=int, default=2, help="jobs at a time, and slots of the server")
    parser.add_argument("--threads", type=int, default=2, help="of the engine")
    options = parser.parse_args()
    if unknown := sorted({*options.arm} - {*ARMS}):
        parser.error(f"unknown arm {unknown[0]}; known: {', '.join(ARMS)}")
    options.arm = tuple(arm for arm in options.arm if _installed(arm))
    return options


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _shares(text: str) -> dict[str, int]:
    return {arm: int(every) for arm, _, every in (part.partition("=") for part in _names(text))}


def _installed(arm: str) -> bool:
    package = NEEDS.get(arm)
    if package is None or importlib.util.find_spec(package):
        return True
    print(f"left out: {arm}, since {package} is not installed", file=sys.stderr)
    return False


def _chosen(options: argparse.Namespace) -> list[Task]:
    tasks = ifeval.tasks(options.ifeval, short=options.short) if options.ifeval else suite.tasks()
    return [task for task in tasks if not options.family or task.family in options.family][:: options.every]


def _done(path: Path) -> set[tuple[Any, ...]]:
    if not path.exists():
        return set()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return {(line["model"], line["arm"], line["seed"], line["prompt"]) for line in lines}


class Batch:
    """One arm on one model with one seed."""

    def __init__(self, proxy: Proxy, model: str, arm: str, seed: int) -> None:
        self.proxy, self.model, self.arm, self.seed = proxy, model, arm, seed

    def line(self, worker: int, task: Task) -> dict[str, Any]:
        """The finished line of one prompt."""
        count = self.proxy.begin(worker, f"{self.seed}/{task.id}", ladder=self.arm in LADDER)
        text, error, started = "", "", time.perf_counter()
        try:
            text = ARMS[self.arm](Job(task, self.model, self.proxy.url(worker))).strip()
        except Exception as raised:  # noqa: BLE001 - a peer's failure is a result
            error = "".join(traceback.format_exception_only(raised)).strip()[:300]
        seconds = time.perf_counter() - started
        score = task.score(text)
        return {
            "model": self.model,
            "arm": self.arm,
            "seed": self.seed,
            "prompt": task.id,
            "family": task.family,
            "compilable": task.compilable,
            "passed": bool(text) and score.passed,
            "score": round(score.value, 4),
            "text": text,
            "wrong": [verdict.explanation for verdict in score.verdicts if not verdict.passed],
            "calls": count.calls,
            "prompt_tokens": count.prompt_tokens,
            "completion_tokens": count.completion_tokens,
            "cut": count.cut,
            "seconds": round(seconds + count.known_seconds, 3),
            **({"error": error} if error else {}),
            **({"refused": count.refused} if count.refused else {}),
        }


def _work(batch: Batch, left: list[Task], workers: int, out: Any) -> None:
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for worker in range(workers):
        free.put(worker)
    lock = threading.Lock()
    tally = [0, 0, 0]

    def job(task: Task) -> None:
        worker = free.get()
        try:
            line = batch.line(worker, task)
        finally:
            free.put(worker)
        with lock:
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
            out.flush()
            tally[0] += line["passed"]
            tally[1] += line["calls"]
            tally[2] += bool(line.get("error"))

    started = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(job, task) for task in left]:
            future.result()
    passed, calls, errors = tally
    name = f"seed {batch.seed} {batch.model:13} {batch.arm:17}"
    took = time.perf_counter() - started
    print(
        f"{name} {passed:4d} of {len(left):3d} {calls:5d} calls {errors:3d} errors {took:7.1f} s",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # peers log each retry
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - and dspy prints each
    main()
