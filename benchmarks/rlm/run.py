"""RLM beside a direct call and its peers, by an oracle model over loopback, so that the scaffold alone is measured.

    python benchmarks/rlm/run.py --task logs,reviews --size 1MB,100MB --system redraft,direct --data DIR --out results.jsonl
    python benchmarks/rlm/run.py --task oolong --size 1MB --label-noise 0.05 --malformed 0.05 --votes 1,3 ...
    python benchmarks/rlm/report.py results.jsonl

One line a run, written as it ends; a run whose line is there is not made again. Each system is a process of its own and
reads the same file; `--rlms PYTHON` and `--dspy PYTHON` name the interpreters that have the peers.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import generate
import grading
import tasks
from oracle import Noise, Oracle, tokens
from watch import Watch

from redraft.testing import FaultServer
from redraft.testing.replies import Reply

HERE = Path(__file__).parent
SCRIPTS = {"redraft": "ours.py", "direct": "ours.py", "rlms": "peer_rlms.py", "dspy": "peer_dspy.py"}


class Kept(list):
    """The server keeps every body it reads, for tests; here they would be the memory that is measured."""

    def append(self, _: Any) -> None:
        """Keep nothing."""


def main() -> None:
    given = _options()
    done = _done(given.out)
    for name, size, seed, votes, system in itertools.product(
        given.task, given.size, given.seed, given.votes, given.system
    ):
        noise = Noise(label=given.label_noise, malformed=given.malformed, empty=given.empty)
        what = {"task": name, "size": size, "seed": seed, "votes": votes, "system": system, **dataclasses.asdict(noise)}
        what["window"] = given.window
        if json.dumps(what) in done:
            continue
        print(f"{name} {size:,} bytes, {system}", file=sys.stderr, flush=True)
        line = measured(what, noise, given)
        with given.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps({**what, **line}) + "\n")


def measured(what: dict[str, Any], noise: Noise, given: argparse.Namespace) -> dict[str, Any]:
    """One system on one file."""
    task = tasks.TASKS[what["task"]]
    path, gold = generate.make(task.name, what["size"], what["seed"], given.data)
    oracle = Oracle(task, gold, noise=noise, seed=what["seed"], votes=what["votes"], system=what["system"])
    with FaultServer(lambda body: _served(oracle, body), models=("root", "sub", "direct")) as server:
        server.requests, server.headers = Kept(), Kept()
        job = {
            "task": task.name,
            "system": what["system"],
            "url": server.base_url,
            "path": str(path),
            "variable": task.variable,
            "outputs": task.outputs,
            "graded": task.graded,
            "query": task.query(gold),
            "calls": given.calls,
            "window": what["window"],
        }
        python = {"rlms": given.rlms, "dspy": given.dspy}.get(what["system"]) or sys.executable
        told, watch = _child(python, SCRIPTS[what["system"]], job, given.limit)
    exact, share = grading.grade(task, told.get("answer") or {}, gold)
    ledger = oracle.ledger
    return {
        "exact": exact,
        "share": round(share, 4),
        "seconds": told["seconds"] and round(told["seconds"], 3),
        "cpu": round(told["cpu"], 2),
        "calls": dict(ledger.calls),
        "read": dict(ledger.read),
        "written": dict(ledger.written),
        "longest": dict(ledger.longest),
        "again": dict(+ledger.again),
        "host_mb": round(watch.host),
        "sandbox_mb": round(watch.children),
        **{k: told[k] for k in ("error", "steps") if told.get(k)},
    }


def _served(oracle: Oracle, body: dict[str, Any]) -> Reply:
    said = oracle.reply(body["model"], body["messages"])
    read, written = sum(tokens(str(m["content"])) + 4 for m in body["messages"]), tokens(said)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return Reply(text=said, usage=usage, honour_cap=False)


def _child(python: str | Path, script: str, job: dict[str, Any], limit: float) -> tuple[dict[str, Any], Watch]:
    command = [str(python), str(HERE / script)]
    env = {
        **os.environ,
        "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
    }  # deno lies beside its Python
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    before = _children_cpu()
    with subprocess.Popen(command, **pipes, text=True, env=env) as p:
        timer = threading.Timer(limit, p.kill)
        timer.start()
        with Watch(p.pid) as watch:
            out, err = p.communicate(json.dumps(job))
        timer.cancel()
    last = out.strip().splitlines()[-1:] or [""]
    cpu = _children_cpu() - before
    if last[0].startswith("{"):
        return {**json.loads(last[0]), "cpu": cpu}, watch
    why = (
        f"ended with {p.returncode}: {err.strip()[-300:]}"
        if p.returncode != -9
        else f"not done after {limit:g} s, or killed"
    )
    return {"error": why, "seconds": None, "cpu": cpu}, watch


def _children_cpu() -> float:
    """Seconds of processor that ended children and theirs have used: says more than the clock on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--task", type=_names, default=[*tasks.TASKS], help=f"of {', '.join(tasks.TASKS)}; default: all"
    )
    parser.add_argument("--size", type=lambda s: [generate.size_of(p) for p in s.split(",")], default=[1_000_000])
    parser.add_argument("--seed", type=_numbers, default=[1])
    parser.add_argument("--votes", type=_numbers, default=[1], help="readings of each label that are voted on")
    parser.add_argument("--system", type=_names, default=["redraft", "direct"], help=f"of {', '.join(SCRIPTS)}")
    parser.add_argument("--label-noise", type=float, default=0.0, help="share of wrong labels, 0 to 1")
    parser.add_argument("--malformed", type=float, default=0.0, help="share of sub-replies out of form")
    parser.add_argument("--empty", type=float, default=0.0, help="share of empty sub-replies")
    parser.add_argument("--window", type=int, default=128_000, help="tokens that a direct call's prompt is cut at")
    parser.add_argument("--calls", type=int, default=20_000, help="max_llm_calls")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds after which a run is killed")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the generated files")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, appended to")
    parser.add_argument("--rlms", type=Path, help="a Python that has rlms")
    parser.add_argument("--dspy", type=Path, help="a Python that has dspy")
    given = parser.parse_args()
    unknown = [n for n in given.task if n not in tasks.TASKS] + [n for n in given.system if n not in SCRIPTS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    return given


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _done(path: Path) -> set[str]:
    """The runs whose lines are there, by what they were told."""
    names = ("task", "size", "seed", "votes", "system", "label", "malformed", "empty", "window")
    if not path.exists():
        return set()
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {json.dumps({name: line[name] for name in names}) for line in lines}


if __name__ == "__main__":
    main()
