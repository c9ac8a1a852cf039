"""What redraft costs by itself, beside DSPy and a bare awaited model, all in one process.

The model answers at once, so all that is measured is the library. Every case takes its short windows in turn with the
others, so that all of them meet the same machine; the least of many windows is the cost, the median is the cost here
and now. CPU is of the whole process, the store's and the loop's threads included.
"""

import argparse
import asyncio
import gc
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import record

ROOT = Path(__file__).parent.parent
FRONT = "from redraft import Refine, SelfRefine, Predict, checks"
HEAVY = ("openai", "pydantic", "pydantic_ai", "torch", "xllamacpp", "litellm", "dspy", "asyncio")
IMPORTS = (("import asyncio, dataclasses", None), ("import redraft", 15), (FRONT, 60), ("import dspy", None))
"""With their targets. The first is no part of redraft: it says how fast the machine is (29 where the targets were set)."""
TARGET_US = 50
TASKS = 64
QUESTION = "What is the capital of France, and since when?"
ANSWER = "Paris, since 987, with a few pauses."

# Imports


def child(code: str, program: str = sys.executable) -> float:
    """CPU milliseconds of a new interpreter, user and system."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")}
    process = subprocess.Popen([program, "-W", "ignore", "-c", code], env=env, cwd=tempfile.gettempdir())
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed in a new interpreter: {code}")
    return (used.ru_utime + used.ru_stime) * 1e3


def loaded(statement: str) -> tuple[int, str]:
    """How many modules a statement loads, and which of the heavy ones."""
    code = f"import sys, json; was = {{*sys.modules}}; {statement}; print(json.dumps([*{{*sys.modules}} - was]))"
    names = json.loads(subprocess.check_output([sys.executable, "-c", code], cwd=tempfile.gettempdir()))
    heavy = [name for name in HEAVY if name in names and not statement.endswith(name)]
    return len(names), ", ".join(heavy) or "none"


def measure_imports(runs: int, *, with_dspy: bool) -> record.Table:
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "src" / "redraft")], check=True)
    cases = [(code, target) for code, target in IMPORTS if with_dspy or "dspy" not in code]
    for code, _ in cases:
        child(code)  # writes the bytecode of what it imports
    taken: dict[str, list[float]] = {code: [] for code, _ in [("pass", None), *cases]}
    for _ in range(runs):
        for code, figures in taken.items():
            figures.append(child(code))
    bare, rows = taken["pass"], []
    for code, target in cases:
        count, heavy = loaded(code)
        rows.append({
            "import": code,
            "by": "redraft" if "redraft" in code else "dspy" if "dspy" in code else "floor",
            "CPU ms": min(taken[code]) - min(bare),
            "median": statistics.median(taken[code]) - statistics.median(bare),
            "target": target,
            "modules": count,
            "of the heavy ones": heavy,
        })  # fmt: skip
    about = f"CPU of a new process without the bare interpreter's {min(bare):.1f} ms; least of {runs} runs in turn"
    return record.Table("Imports", about, rows, {"CPU ms": "low"})


# Calls

Window = Callable[[], int]
"""Does a stretch of work; returns how many LM calls that took."""


def own_cases(folder: str) -> Iterator[tuple[str, Window]]:
    from redraft import Budget, Predict, Refine, Request, Run, SelfRefine, SqliteStore
    from redraft.types import Capabilities, Choice, Completion, Usage

    class InstantLM:
        """No latency; every reply but a critic's is a new text."""

        name = "instant/instant"
        capabilities = Capabilities()
        max_output = 4096
        parallel = TASKS

        def __init__(self) -> None:
            self.calls = 0
            self.usage = Usage(input_tokens=20, output_tokens=9)

        async def generate(self, request: Request, on_delta: Any = None) -> Completion:  # noqa: ARG002
            self.calls += 1
            critic = len(request.messages) > 1 and "name only what really" in request.messages[0]["content"]
            text = "- it is short -> write more" if critic else f"{ANSWER} {self.calls}"
            return Completion(choices=(Choice(text=text, finish_reason="stop"),), model=self.name, usage=self.usage)

        def count(self, request: Request) -> int | None:
            """No tokenizer, as with most models behind an API."""

        def cost(self, usage: Usage) -> float | None:
            return usage.input_tokens * 1.5e-7 + usage.output_tokens * 6e-7

    lm = InstantLM()
    budget = Budget(tokens=10**12)
    predict = Predict("question -> answer", lm=lm)
    refine = Refine(predict, N=3, reward_fn=_reward, threshold=2.0)
    refiner = SelfRefine(predict, rounds=2, judge=_judge)
    store = SqliteStore(Path(folder) / "runs.db")
    loop = asyncio.new_event_loop()
    numbers = itertools.count()

    async def bare(calls: int) -> None:
        for i in range(calls):
            await lm.generate(Request(messages=({"role": "user", "content": f"{QUESTION} {i}"},)))

    async def some(calls: int) -> None:
        for _ in range(calls):
            await predict.acall(question=f"{QUESTION} {next(numbers)}")

    async def in_one_run(calls: int, tasks: int, **options: Any) -> None:
        async with Run(**options):
            await asyncio.gather(*(some(calls // tasks) for _ in range(tasks)))
        store.read("-")  # commits all that is still queued: it belongs to this window

    def window(work: Callable[[], Any]) -> Window:
        def run() -> int:
            before = lm.calls
            loop.run_until_complete(work())
            return lm.calls - before

        return run

    def in_threads(*, of: Any) -> Window:
        def run() -> int:
            before = lm.calls
            for _ in range(64):
                of(question=f"{QUESTION} {next(numbers)}")
            return lm.calls - before

        return run

    async def top_level() -> None:
        await some(256)

    async def refined(module: Any) -> None:
        for _ in range(40):
            await module.acall(question=f"{QUESTION} {next(numbers)}")

    stored = {"store": store, "budget": budget}
    yield "floor: the bare awaited model", window(lambda: bare(2560))
    yield "Predict, journal in memory", window(lambda: in_one_run(512, 1))
    yield "Predict, memory, token budget", window(lambda: in_one_run(512, 1, budget=budget))
    yield OWN, window(lambda: in_one_run(512, 1, **stored))
    yield f"Predict, memory, token budget, {TASKS} tasks", window(lambda: in_one_run(512, TASKS, budget=budget))
    yield f"{OWN}, {TASKS} tasks", window(lambda: in_one_run(512, TASKS, **stored))
    yield "Predict, await acall(...), a run each", window(top_level)
    yield "Predict, sync call, a run each", in_threads(of=predict)
    yield "Refine(N=3), await acall(...)", window(lambda: refined(refine))
    yield "SelfRefine(rounds=2), await acall(...)", window(lambda: refined(refiner))
    yield "Refine(N=3), sync call", in_threads(of=refine)


OWN = "Predict, SQLite, token budget"
DSPY = "dspy.Predict"
ALIKE = {
    "64 tasks at once": {
        *(f"Predict, memory, token budget, {TASKS} tasks", f"{OWN}, {TASKS} tasks"),
        *(f"{DSPY}, {TASKS} tasks (acall)", f"{DSPY}.batch, 8 threads"),
    },
    "a sync call": {"Predict, sync call, a run each", DSPY},
    "a sync call of a strategy": {"Refine(N=3), sync call", "dspy.BestOfN(N=3)"},
    "awaited, a run each": {
        *("Predict, await acall(...), a run each", "Refine(N=3), await acall(...)"),
        "SelfRefine(rounds=2), await acall(...)",
    },
}
"""What is called in the same way, and compares."""


async def _reward(_: Any, __: Any) -> float:
    return 0.5


async def _judge(_: Any, __: Any, ___: Any) -> bool:
    return True


def dspy_cases() -> Iterator[tuple[str, Window]]:
    """Its cheapest setup: a subclass of BaseLM costs less than an engine, and nothing is cached."""
    from types import SimpleNamespace

    import dspy

    class InstantLM(dspy.BaseLM):
        def __init__(self) -> None:
            super().__init__("instant/instant", cache=False)

        def forward(self, prompt: Any = None, messages: Any = None, **_: Any) -> Any:  # noqa: ARG002
            message = SimpleNamespace(content=f"[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]\n")
            choice = SimpleNamespace(message=message, finish_reason="stop")
            usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
            return SimpleNamespace(model=self.model, usage=usage, choices=[choice])

        async def aforward(self, prompt: Any = None, messages: Any = None, **options: Any) -> Any:
            return self.forward(prompt, messages, **options)

    dspy.configure(lm=InstantLM(), adapter=dspy.ChatAdapter())
    predict = dspy.Predict("question -> answer")
    best = dspy.BestOfN(module=predict, N=3, reward_fn=lambda _, __: 0.5, threshold=2.0)
    loop = asyncio.new_event_loop()
    numbers = itertools.count()

    def ask(_: Any = None) -> None:
        predict(question=f"{QUESTION} {next(numbers)}")

    def sequential() -> int:
        for _ in range(64):
            ask()
        return 64

    async def some(calls: int) -> None:
        for _ in range(calls):
            await predict.acall(question=f"{QUESTION} {next(numbers)}")

    async def concurrent() -> None:
        await asyncio.gather(*(some(2) for _ in range(TASKS)))

    def at_once() -> int:
        loop.run_until_complete(concurrent())
        return 2 * TASKS

    def threads() -> int:
        predict.batch(
            [dspy.Example(question=f"{QUESTION} {next(numbers)}").with_inputs("question") for _ in range(128)],
            num_threads=8,
            disable_progress_bar=True,
        )
        return 128

    def best_of() -> int:
        for _ in range(20):
            best(question=f"{QUESTION} {next(numbers)}")
        return 60

    yield DSPY, sequential
    yield f"{DSPY}, {TASKS} tasks (acall)", at_once
    yield f"{DSPY}.batch, 8 threads", threads
    yield "dspy.BestOfN(N=3)", best_of


def measure(cases: dict[str, Window], windows: int) -> dict[str, tuple[list[float], list[float]]]:
    """CPU and wall microseconds a call, of each window."""
    for case in cases.values():
        case()
    taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in cases}
    for _ in range(windows):
        for name, case in cases.items():
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            calls = case()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            taken[name][0].append(cpu / calls * 1e6)
            taken[name][1].append(wall / calls * 1e6)
    return taken


def measure_calls(windows: int, *, with_dspy: bool) -> record.Table:
    with tempfile.TemporaryDirectory(prefix="redraft-bench-") as folder:
        cases = dict(own_cases(folder)) | (dict(dspy_cases()) if with_dspy else {})
        taken = measure(cases, windows)
    rows = [
        {
            "case": next((case for case, names in ALIKE.items() if name in names), "awaited, in one run"),
            "call": name,
            "by": "floor" if name.startswith("floor") else "dspy" if "dspy" in name else "redraft",
            "CPU us": min(cpu),
            "CPU median": statistics.median(cpu),
            "wall us": min(wall),
            "wall median": statistics.median(wall),
            f"x {DSPY}": min(cpu) / min(taken[DSPY][0]) if with_dspy else None,
        }
        for name, (cpu, wall) in taken.items()
    ]
    rows.sort(key=lambda row: row["case"])
    about = f"microseconds a call of a model that answers at once; least of {windows} windows in turn; target {TARGET_US} for '{OWN}'"
    return record.Table("Calls", about, rows, {"CPU us": "low", "wall us": "low"})


def run(options: argparse.Namespace) -> Iterator[record.Table]:
    with_dspy = importlib.util.find_spec("dspy") is not None
    warnings.simplefilter("ignore")
    yield measure_imports(options.runs, with_dspy=with_dspy)
    yield measure_calls(options.windows, with_dspy=with_dspy)


def more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=15, help="new processes for each import")
    parser.add_argument("--windows", type=int, default=40, help="windows for each kind of call")


if __name__ == "__main__":
    record.main("overhead", "What the library itself costs", run, more, about=__doc__)
