"""rlms on one file, in its LocalREPL: a job as JSON on stdin, what came of it as JSON on the last line. Needs rlms 0.1.3."""

import json
import sys
import time
from pathlib import Path

from rlm import RLM


def main() -> None:
    job = json.load(sys.stdin)

    def model(name: str) -> dict:
        return {"model_name": name, "base_url": job["url"], "api_key": "none"}

    began = time.perf_counter()
    rlm = RLM(
        backend="openai",
        backend_kwargs=model("root"),
        other_backends=["openai"],
        other_backend_kwargs=[model("sub")],
        environment="local",
        max_iterations=20,
    )
    try:
        said = rlm.completion(Path(job["path"]).read_text(encoding="utf-8"), root_prompt=job["query"])
        told = {"answer": json.loads(said.response)}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        told = {"error": f"{type(error).__name__}: {error}"[:500]}
    print(json.dumps({**told, "seconds": time.perf_counter() - began}))


main()
