"""dspy.RLM on one file: a job as JSON on stdin, what came of it as JSON on the last line. Needs dspy 3.4, and deno."""

import json
import sys
import time
from pathlib import Path

import dspy


def main() -> None:
    job = json.load(sys.stdin)

    def model(name: str) -> dspy.LM:
        return dspy.LM(
            f"openai/{name}", api_base=job["url"], api_key="none", cache=False, num_retries=0, max_tokens=100_000
        )

    root, sub = model("root"), model("sub")
    dspy.configure(lm=root)
    began = time.perf_counter()
    rlm = dspy.RLM(
        f"{job['variable']}, query -> {job['outputs']}", max_iters=20, max_llm_calls=job["calls"], sub_lm=sub
    )
    try:
        said = rlm(**{job["variable"]: Path(job["path"]).read_text(encoding="utf-8"), "query": job["query"]})
        told = {"answer": {name: said[name] for name in job["graded"]}}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        told = {"error": f"{type(error).__name__}: {error}"[:500]}
    print(json.dumps({**told, "seconds": time.perf_counter() - began}))


main()
