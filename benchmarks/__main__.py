"""`python -m benchmarks NAME [OPTIONS]`: measure again, print the tables and write benchmarks/results/NAME.json.

`--list` says what there is, `--all` runs all of the page's with their defaults, `--docs` writes docs/benchmarks.md from the results.
`NAME --help` lists a benchmark's options. Those with results of their own form write lines into build/NAME.jsonl instead, and go
on where these end; their folders' `report.py` draws them.
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import publish
import record

HERE = Path(__file__).resolve().parent

BENCHMARKS = {
    "loop": ("loop.py", "a loop of three drafts beside each peer's: cost, calls, tokens, what is kept"),
    "many": ("many.py", "200 items at the same time, beside each peer"),
    "faults": ("faults.py", "what comes back when the model fails, beside each peer"),
    "limits": ("limits.py", "a limit of tokens on an item, beside each peer"),
    "install": ("install.py", "packages, MB, import and first answer, beside each peer"),
    "overhead": ("overhead.py", "imports, and a call of a model that answers at once, beside DSPy"),
    "methods": ("methods.py", "Refine and BestOfN by themselves, beside DSPy's"),
    "batch": ("batch.py", "10,000 items beside a bare loop (--dspy: and DSPy's batch)"),
    "store": ("store.py", "the run store, an event"),
    "sandbox": ("sandbox.py", "the jail's starts, cells and large inputs"),
    "server": ("server.py", "redraft serve: what it adds, leaving clients, held streams"),
    "page": ("page.py", "the page of a large run"),
    "crash": ("crash.py", "a batch that is killed 500 times"),
}

OWN = {
    "quality": ("quality/run.py", "145 prompts that code verifies, beside peers (--models DIR)"),
    "rlm": ("rlm/run.py", "RLM over generated data, beside peers (--data DIR --task ... --size ...)"),
    "proactive": ("proactive/evidence.py", "mending while writing beside its peers (--model GGUF: another model)"),
    "policy": ("proactive/policy.py", "a learned trigger beside what is free (needs redraft[torch])"),
}


def run(name: str, arguments: list[str]) -> int:
    script = HERE / (BENCHMARKS | OWN)[name][0]
    out = record.RESULTS / f"{name}.json" if name in BENCHMARKS else record.ROOT / "build" / f"{name}.jsonl"
    return subprocess.run([sys.executable, str(script), *arguments, "--out", str(out)], check=False).returncode


def main() -> int:
    match sys.argv[1:]:
        case ["--docs"]:
            publish.PAGE.write_text(publish.page(), encoding="utf-8")
            return 0
        case ["--all"]:
            return max(run(name, []) for name in BENCHMARKS)
        case [name, *arguments] if name in BENCHMARKS | OWN:
            return run(name, arguments)
        case ["--list"] | []:
            print("\n".join(f"{name:10} {what}" for name, (_, what) in (BENCHMARKS | OWN).items()))
            return 0
        case [name, *_]:
            print(f"there is no benchmark {name!r}; these are: {', '.join(BENCHMARKS | OWN)}", file=sys.stderr)
            return 2
    return 2


if __name__ == "__main__":
    sys.exit(main())
