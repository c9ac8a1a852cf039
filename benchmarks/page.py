"""How long the page of a large run takes: read from the store, told, written as HTML, and opened in a real Chromium.

Without Playwright or a Chromium (`.venv-browser` has the one, and the system the other) the last line is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import record

from redraft import Predict, Refine, Run, checks, context
from redraft.report.page import render
from redraft.report.page.data import run_data
from redraft.report.page.redact import Redactor
from redraft.report.page.story import story
from redraft.store import SqliteStore
from redraft.testing import FunctionLM

T = TypeVar("T")
WORDS = [
    "".join(parts) for parts in itertools.product("kltrsvm", "aeiou", "nrstlmd", ("", "a", "es", "ing", "ly", "ful"))
]
WEIGHTS = [1 / (n + 1) for n in range(len(WORDS))]  # as words are in a language: few often, most seldom
PER_DRAFT = 5  # events


def large(store: SqliteStore, events: int) -> None:
    """A run of so many events: drafts of 150 words, none good enough."""
    chance = random.Random(1)
    lm = FunctionLM(lambda _: " ".join(chance.choices(WORDS, WEIGHTS, k=150)) + ".")
    wanted = [checks.words(500, 600), checks.contains("La Maison")]
    strategy = Refine(Predict("task -> essay"), N=events // PER_DRAFT, checks=wanted, revise="fresh")
    with context(model=lm, store=store):
        asyncio.run(Run(run_id="large", seed=1).execute(strategy, {"task": "Write about a city by a river at night"}))


ROWS: list[dict[str, Any]] = []


def timed(what: str, work: Callable[[], T]) -> T:
    """The work's value; how long it took becomes a row."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = work()
    taken = {"wall s": time.perf_counter() - wall, "CPU s": time.process_time() - cpu}
    ROWS.append({"step": what, "by": record.OURS, **taken})
    return value


def opened(file: Path) -> None:
    """Open the file in a Chromium, if there is one; say when it was all there."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        return
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        ready = []
        for _ in range(3):
            page = browser.new_page()
            page.goto(file.as_uri())
            ready.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
            page.close()
        ROWS.append({"step": "opened in Chromium, best of 3", "by": record.OURS, "wall s": min(ready)})
        browser.close()


def tables(options: argparse.Namespace) -> Iterator[record.Table]:
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "runs.db") as store:
        large(store, options.events)
        redactor = Redactor()
        found = timed("read", lambda: store.read("large"))
        found = timed("secrets left out", lambda: redactor.events(found))
        told = timed("told", lambda: story("large", found))
        page = timed("HTML", lambda: render.run_page(told))
        report = timed(
            "report, with its JSON", lambda: render.report(told, run_data(store.run("large"), found, redactor))
        )
        file = Path(folder) / "report.html"
        file.write_text(report, encoding="utf-8")
        opened(file)
    about = f"{len(found):,} events; page {len(page) / 1000:,.0f} kB, report {len(report) / 1000:,.0f} kB; once"
    yield record.Table("A page", about, ROWS)


def more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=1000)


if __name__ == "__main__":
    record.main("page", "How long the page of a large run takes", tables, more, about=__doc__, seeds=(1,))
