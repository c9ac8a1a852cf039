"""What the jail costs. Beside a bare child process that holds nothing, and, where they
can start, DSPy's interpreter (its own process of Deno and Pyodide) and other interpreters of redraft.

A figure is the median of many; the least says what the machine can do when nobody else uses it. RSS is of the child.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import record

from redraft.sandbox import Jail

MB = 1 << 20
TARGETS = {"start": 60.0, "cell": 60.0, "hand-over of 100 MB": 200.0, "8 calls of 200 ms": 250.0, "longest block": 20.0}
ECHO = "import os\nwhile d := os.read(0, 4096): os.write(1, d)"


ROWS: list[dict[str, Any]] = []


def row(what: str, unit: str, times: list[float], note: str = "", by: str = record.OURS) -> None:
    figures = {"median": statistics.median(times), "least": min(times), "unit": unit, "target": TARGETS.get(what)}
    ROWS.append({"what": what, "by": by, **figures, "note": note})


async def timed(call: Callable[[], Awaitable[Any]], times: int, scale: float) -> list[float]:
    found = []
    for _ in range(times):
        before = time.perf_counter()
        await call()
        found.append((time.perf_counter() - before) * scale)
    return found


def rss(jail: Jail) -> int:
    assert jail._process is not None
    status = Path(f"/proc/{jail._process.popen.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def floor() -> None:
    """A process without a jail: what of the figures is the machine's."""
    command = [sys.executable, "-s", "-S", "-c"]
    starts = []
    for _ in range(15):
        before = time.perf_counter()
        subprocess.run([*command, "pass"], check=True)
        starts.append((time.perf_counter() - before) * 1e3)
    row("bare Python, start and end", "ms", starts, by=record.FLOOR)
    with subprocess.Popen([*command, ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as echo:
        assert echo.stdin is not None
        assert echo.stdout is not None
        turns = []
        for _ in range(3000):
            before = time.perf_counter()
            os.write(echo.stdin.fileno(), b"x" * 64)
            os.read(echo.stdout.fileno(), 4096)
            turns.append((time.perf_counter() - before) * 1e6)
        row("bare pipe, there and back", "us", turns, by=record.FLOOR)


async def small(runs: int) -> None:
    jail = Jail()

    async def start() -> None:
        await jail.start({}, {"ask": ask})

    async def ask(*_: Any) -> str:
        return "answer"

    await start()  # the child's code is compiled once a process
    row("start", "ms", await timed(start, runs, 1e3))
    await asyncio.sleep(0.5)  # it loads modules while it waits for a model
    empty = rss(jail)
    row("cell", "us", await timed(lambda: jail.execute("x = 1 + 1"), 3000, 1e6))
    row("cell with a host call", "us", await timed(lambda: jail.execute("x = ask('a')"), 1000, 1e6))
    row(
        "cell that prints 100 lines", "us", await timed(lambda: jail.execute("for i in range(100): print(i)"), 100, 1e6)
    )
    row("close", "ms", await timed(lambda: _closed(jail, start), 5, 1e3), "with a start before each")
    row("idle RSS", "MB", [empty / MB])
    await jail.close()


async def _closed(jail: Jail, start: Callable[[], Awaitable[None]]) -> None:
    await start()
    await jail.close()


async def eight_calls() -> None:
    async def ask(_: int) -> int:
        await asyncio.sleep(0.2)
        return 1

    jail = Jail()
    await jail.start({}, {"ask": ask})
    await jail.execute(
        "from concurrent.futures import ThreadPoolExecutor\nimport asyncio\npool = ThreadPoolExecutor(8)\nlist(pool.map(abs, range(8)))"
    )
    threads = "list(pool.map(ask, range(8)))"
    row("8 calls of 200 ms", "ms", await timed(lambda: jail.execute(threads), 7, 1e3), "from a thread pool")
    tasks = "await asyncio.gather(*(asyncio.to_thread(ask, n) for n in range(8)))"
    row("8 calls of 200 ms", "ms", await timed(lambda: jail.execute(tasks), 7, 1e3), "from asyncio.to_thread")
    await jail.close()


async def big(sizes: list[int]) -> None:
    line = "2026-11-30 12:00:00 INFO svc=api latency=17ms user=u42\n"
    with tempfile.TemporaryDirectory() as home:
        for size in sizes:
            text = (line * (size * MB // len(line) + 1))[: size * MB]
            file = Path(home, "file")
            await asyncio.to_thread(file.write_text, text, encoding="ascii")
            for what, value in (("file", file), ("str", text)):
                await handed(f"hand-over of {size} MB", value, size, what, runs=3 if size < 1000 else 1)
            del text


async def handed(what: str, value: Any, size: int, kind: str, runs: int) -> None:
    """How much longer a start takes with it, and what the child holds then."""
    jail = Jail()
    empty, full, blocks = [], [], []
    for _ in range(runs):
        before = time.perf_counter()
        await jail.start({}, {})
        empty.append((time.perf_counter() - before) * 1e3)
        bare = rss(jail)
        watch = asyncio.create_task(longest_block(blocks))
        await asyncio.sleep(0)
        before = time.perf_counter()
        await jail.start({"text": value}, {})
        full.append((time.perf_counter() - before) * 1e3)
        watch.cancel()
        await asyncio.wait([watch])
    assert (await jail.execute("len(text)")).output == f"{size * MB}\n"
    share = (rss(jail) - bare) / (size * MB)
    more = [max(whole - statistics.median(empty), 0.0) for whole in full]
    row(what, "ms", more, f"a {kind}; resident {share:.2f} of its size; longest block of the loop {max(blocks):.0f} ms")
    await jail.close()


async def longest_block(found: list[float]) -> None:
    """Milliseconds between two turns of the loop, at most."""
    last, most = time.perf_counter(), 0.0
    try:
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            most, last = max(most, (now - last) * 1e3), now
    finally:
        found.append(most)


def peers() -> Iterator[str]:
    """What DSPy's interpreter takes, or why it is not here."""
    try:
        from dspy.primitives.python_interpreter import PythonInterpreter
    except ImportError as error:
        yield f"DSPy's interpreter: not here ({error})"
        return
    try:
        before = time.perf_counter()
        with PythonInterpreter() as peer:
            peer.execute("x = 1 + 1")
            row("DSPy: start and first cell", "ms", [(time.perf_counter() - before) * 1e3], by="dspy")
            cells = []
            for _ in range(50):
                before = time.perf_counter()
                peer.execute("x = 1 + 1")
                cells.append((time.perf_counter() - before) * 1e6)
            row("DSPy: cell", "us", cells, by="dspy")
    except Exception as error:  # noqa: BLE001 - whatever keeps it from starting
        yield f"DSPy's interpreter did not start: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def tables(options: argparse.Namespace) -> Iterator[record.Table]:
    floor()
    asyncio.run(small(options.runs))
    asyncio.run(eight_calls())
    asyncio.run(big(options.sizes))
    notes = [*peers()]
    yield record.Table("The jail", f"median and least of many; {options.runs} starts", ROWS, notes=notes)


def more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=25, help="starts")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[10, 100], help="MB to hand over; 1024 needs some 3 GB free"
    )


if __name__ == "__main__":
    record.main("sandbox", "What the jail costs", tables, more, about=__doc__)
