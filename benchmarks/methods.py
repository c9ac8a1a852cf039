"""What Refine and BestOfN cost by themselves, beside DSPy's, in one process.

Two questions, both answered in one run with dspy in the same process: how long 200 BestOfN(N=4) take when all run at the
same time and the model needs 50 ms for each of the 800 replies, and what one model call costs inside a Refine(N=3) that
never passes, advice included, when the model answers at once (CPU of the process; least and median of the windows, taken
in turn).
"""

import argparse
import asyncio
import gc
import importlib.util
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import record

MANY, N, LATENCY = 200, 4, 0.05
ANSWER = "Paris, since 987, with a few pauses."
ADVICE = "Say since when, and what came before."
TARGET_SECONDS, TARGET_RATIO = 0.15, 1 / 6

Window = Callable[[], int]
"""Does a stretch of work; returns how many model calls that took."""


def own(latency: float) -> Any:
    """A model of ours that needs `latency` seconds."""
    from redraft.types import Capabilities, Choice, Completion, Request, Usage

    class LM:
        name = "timed/timed"
        capabilities = Capabilities()
        max_output = 4096
        parallel = 10_000
        calls = 0

        async def generate(self, request: Request, on_delta: Any = None) -> Completion:  # noqa: ARG002
            self.calls += 1
            text = f"{ANSWER} {self.calls}"
            if latency:
                await asyncio.sleep(latency)
            return Completion(choices=(Choice(text=text, finish_reason="stop"),), usage=Usage(input_tokens=20))

        def count(self, request: Request) -> int | None:
            """No tokenizer, as with most models behind an API."""

        def cost(self, usage: Usage) -> float | None:  # noqa: ARG002
            return 0.0

    return LM()


async def reward(_: Any, __: Any) -> float:
    """Never enough."""
    return 0.5


def own_parallel() -> float:
    """Wall seconds."""
    from redraft import BestOfN, Predict

    best = BestOfN(Predict("question -> answer", lm=own(LATENCY)), N=N, reward_fn=reward, threshold=1.0, concurrency=N)

    async def work() -> float:
        started = time.perf_counter()
        await asyncio.gather(*(best.acall(question=f"q{i}") for i in range(MANY)))
        return time.perf_counter() - started

    return asyncio.run(work())


def own_refine() -> Window:
    from redraft import Predict, Refine

    lm = own(0)
    refine = Refine(Predict("question -> answer", lm=lm), N=3, reward_fn=reward, threshold=1.0)
    loop = asyncio.new_event_loop()
    numbers = itertools.count()

    async def work() -> None:
        for _ in range(20):
            await refine.acall(question=f"q{next(numbers)}")

    def window() -> int:
        before = lm.calls
        loop.run_until_complete(work())
        return int(lm.calls - before)

    return window


def their_lm(latency: float) -> Any:
    """The same as a subclass of dspy's BaseLM, its cheapest way in; nothing is cached."""
    from types import SimpleNamespace

    import dspy

    class LM(dspy.BaseLM):
        calls = itertools.count()

        def __init__(self) -> None:
            super().__init__("timed/timed", cache=False)

        def forward(self, prompt: Any = None, messages: Any = None, **_: Any) -> Any:  # noqa: ARG002
            next(self.calls)
            if latency:
                time.sleep(latency)
            fields = {"answer": ANSWER}
            if "[[ ## advice ## ]]" in str(messages):
                fields = {"discussion": ADVICE, "advice": f'{{"self": "{ADVICE}"}}'}
            text = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items())
            message = SimpleNamespace(content=f"{text}\n\n[[ ## completed ## ]]\n")
            usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
            choice = SimpleNamespace(message=message, finish_reason="stop")
            return SimpleNamespace(model=self.model, usage=usage, choices=[choice])

    return LM()


def their_reward(args: Any, pred: Any) -> float:  # noqa: ARG001
    """Never enough."""
    return 0.5


def their_parallel(threads: int) -> float:
    import dspy

    best = dspy.BestOfN(module=dspy.Predict("question -> answer"), N=N, reward_fn=their_reward, threshold=1.0)
    examples = [dspy.Example(question=f"q{i}").with_inputs("question") for i in range(MANY)]
    with dspy.context(lm=their_lm(LATENCY), adapter=dspy.ChatAdapter()):
        started = time.perf_counter()
        best.batch(examples, num_threads=threads, disable_progress_bar=True)
        return time.perf_counter() - started


def their_refine() -> Window:
    import dspy

    lm = their_lm(0)
    dspy.configure(lm=lm, adapter=dspy.ChatAdapter())
    refine = dspy.Refine(module=dspy.Predict("question -> answer"), N=3, reward_fn=their_reward, threshold=1.0)
    numbers = itertools.count()

    def window() -> int:
        for _ in range(10):
            refine(question=f"q{next(numbers)}")
        return 50

    return window


def floor_parallel() -> float:
    """The bare model: all 800 at once."""
    lm = own(LATENCY)

    async def work() -> float:
        started = time.perf_counter()
        await asyncio.gather(*(lm.generate(None) for _ in range(MANY * N)))
        return time.perf_counter() - started

    return asyncio.run(work())


def measure_parallel(runs: int, *, with_dspy: bool) -> record.Table:
    cases: dict[str, Callable[[], float]] = {
        "floor: 800 bare awaited replies": floor_parallel,
        "redraft BestOfN(N=4, concurrency=4)": own_parallel,
    }
    if with_dspy:
        cases["dspy.BestOfN.batch, 200 threads"] = lambda: their_parallel(MANY)
        cases["dspy.BestOfN.batch, 64 threads"] = lambda: their_parallel(64)
    taken: dict[str, list[float]] = {name: [] for name in cases}
    used: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            gc.collect()
            cpu = time.process_time()
            taken[name].append(case())
            used[name].append(time.process_time() - cpu)
    rows = [
        {
            "method": name,
            "by": by(name),
            "wall s": min(seconds),
            "median": statistics.median(seconds),
            "target": TARGET_SECONDS if name.startswith("redraft") else None,
            "CPU s": min(used[name]),
        }
        for name, seconds in taken.items()
    ]
    about = f"{MANY} x BestOfN({N}), all at once, a model of {LATENCY * 1e3:.0f} ms; least of {runs} runs in turn"
    return record.Table("At once", about, rows, {"wall s": "low", "CPU s": "low"})


def by(name: str) -> str:
    return next((who for who in ("redraft", "dspy") if name.startswith(who)), "floor")


def measure_refine(windows: int, *, with_dspy: bool) -> record.Table:
    cases = {"redraft Refine(N=3)": own_refine()} | ({"dspy.Refine(N=3)": their_refine()} if with_dspy else {})
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(windows):
        for name, case in cases.items():
            gc.collect()
            cpu = time.process_time()
            calls = case()
            taken[name].append((time.process_time() - cpu) / calls * 1e6)
    rows = [
        {"method": name, "by": by(name), "CPU us": min(us), "median": statistics.median(us)}
        for name, us in taken.items()
    ]
    if with_dspy:
        theirs = taken["dspy.Refine(N=3)"]
        for row, us in zip(rows, taken.values(), strict=True):
            row["x dspy"] = min(us) / min(theirs)
    about = f"Refine(N=3) that never passes, with advice: CPU a model call, 5 calls each; {windows} windows in turn"
    return record.Table("With advice", f"{about}; target {TARGET_RATIO:.2f} of dspy's", rows, {"CPU us": "low"})


def measure(options: argparse.Namespace) -> Iterator[record.Table]:
    with_dspy = importlib.util.find_spec("dspy") is not None
    warnings.simplefilter("ignore")
    if with_dspy:
        import dspy

        dspy.disable_logging()
    yield measure_parallel(options.runs, with_dspy=with_dspy)
    yield measure_refine(options.windows, with_dspy=with_dspy)


def more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--windows", type=int, default=30)


if __name__ == "__main__":
    record.main("methods", "What Refine and BestOfN themselves cost", measure, more, about=__doc__)
