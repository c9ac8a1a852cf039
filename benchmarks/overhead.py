"""What redraft costs by itself, beside DSPy and a bare awaited model: `make bench`, or `python benchmarks/overhead.py`.

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


def child(code: str) -> float:
    """CPU milliseconds of a new interpreter, user and system."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, cwd=tempfile.gettempdir())
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed in a new interpreter: {code}")
    return (used.ru_utime + used.ru_stime) * 1e3


def loaded(statement: str) -> str:
    """Which of the heavy modules, and how many modules in all, a statement loads."""
    code = f"import sys, json; was = {{*sys.modules}}; {statement}; print(json.dumps([*{{*sys.modules}} - was]))"
    names = json.loads(subprocess.check_output([sys.executable, "-c", code], cwd=tempfile.gettempdir()))
    heavy = [name for name in HEAVY if name in names and not statement.endswith(name)]
    return f"{len(names):5d}  {', '.join(heavy) or 'none'}"


def measure_imports(runs: int, *, with_dspy: bool) -> None:
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "src" / "redraft")], check=True)
    cases = [(code, target) for code, target in IMPORTS if with_dspy or "dspy" not in code]
    for code, _ in cases:
        child(code)  # writes the bytecode of what it imports
    taken: dict[str, list[float]] = {code: [] for code, _ in [("pass", None), *cases]}
    for _ in range(runs):
        for code, figures in taken.items():
            figures.append(child(code))
    bare = taken["pass"]
    print(f"CPU ms of an import in a new process, without the bare interpreter's {min(bare):.1f}; {runs} runs in turn")
    print(f"{'':58}{'min':>7}{'median':>8}{'target':>8}  modules, of the heavy ones")
    for code, target in cases:
        least, median = min(taken[code]) - min(bare), statistics.median(taken[code]) - statistics.median(bare)
        print(f"{code:58}{least:7.1f}{median:8.1f}{target or '':>8}  {loaded(code)}")


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


DSPY = "dspy.Predict"


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


def measure_calls(windows: int, *, with_dspy: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="redraft-bench-") as folder:
        cases = dict(own_cases(folder)) | (dict(dspy_cases()) if with_dspy else {})
        taken = measure(cases, windows)
    print(f"\nus an LM call, without latency; {windows} windows in turn; target {TARGET_US} for '{OWN}'")
    print(f"{'':44}{'CPU min':>9}{'median':>8}{'wall min':>10}{'median':>8}{'x ' + DSPY if with_dspy else '':>16}")
    for name, (cpu, wall) in taken.items():
        figures = f"{min(cpu):9.1f}{statistics.median(cpu):8.1f}{min(wall):10.1f}{statistics.median(wall):8.1f}"
        ratio = f"{min(cpu) / min(taken[DSPY][0]):16.2f}" if with_dspy else ""
        print(f"{name:44}{figures}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure redraft's own overhead.")
    parser.add_argument("--runs", type=int, default=15, help="new processes for each import")
    parser.add_argument("--windows", type=int, default=40, help="windows for each kind of call")
    options = parser.parse_args()
    with_dspy = importlib.util.find_spec("dspy") is not None
    if not with_dspy:
        print("dspy is not installed: only redraft is measured (`make bench` installs it)\n")
    warnings.simplefilter("ignore")
    measure_imports(options.runs, with_dspy=with_dspy)
    measure_calls(options.windows, with_dspy=with_dspy)


if __name__ == "__main__":
    main()
