"""redraft's RLM, or a direct call, on one file: a job as JSON on stdin, what came of it as JSON on the last line."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import oracle
import tasks

from redraft import RLM, Predict
from redraft.lm.openai import OpenAILM
from redraft.sandbox import interpreter


def rlm(job: dict[str, Any]) -> dict[str, Any]:
    root, sub = (OpenAILM(name, base_url=job["url"], api_key="none") for name in ("root", "sub"))
    module = RLM(
        f"{job['variable']}, query -> {job['outputs']}",
        max_iterations=20,
        max_llm_calls=job["calls"],
        lm=root,
        sub_lm=sub,
        interpreter=interpreter("jail", seconds=900),
        bypass=0,
    )
    said = module(**{job["variable"]: Path(job["path"]), "query": job["query"]})
    marked = [
        {k: v for k, v in step.items() if k in ("error", "fallback", "seconds") and v} for step in said.trajectory
    ]
    return {"answer": {name: said[name] for name in job["graded"]}, "steps": marked}


def direct(job: dict[str, Any]) -> dict[str, Any]:
    """One call with as much of the data as fits the window."""
    task, room = tasks.TASKS[job["task"]], job["window"] * 4 - 4_000
    with Path(job["path"]).open(encoding="utf-8") as data:
        held = data.read(room)
    lm = OpenAILM("direct", base_url=job["url"], api_key="none")
    said = Predict("prompt -> reply", lm=lm)(prompt=oracle.direct_prompt(task, job["query"], held))
    return {"answer": json.loads(said.reply)}


def main() -> None:
    job = json.load(sys.stdin)
    began = time.perf_counter()
    try:
        told = {"redraft": rlm, "direct": direct}[job["system"]](job)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        told = {"error": f"{type(error).__name__}: {error}"[:500]}
    print(json.dumps({**told, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
