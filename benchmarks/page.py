"""How long the page of a large run takes: read from the store, told, written as HTML, and opened in a real Chromium.

    .venv-browser/bin/python benchmarks/page.py [EVENTS]

Without Playwright or a Chromium the last line is left out.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

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


def timed(what: str, work: Callable[[], T]) -> T:
    """The work's value; how long it took goes to stdout."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = work()
    print(f"{what:<22} {time.perf_counter() - wall:7.3f} s   {time.process_time() - cpu:7.3f} s of CPU here")
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
        for _ in range(3):
            page = browser.new_page()
            page.goto(file.as_uri())
            ready = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
            print(f"{'opened in Chromium':<22} {ready / 1000:7.3f} s")
            page.close()
        browser.close()


def main() -> None:
    """Print the table."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "runs.db") as store:
        large(store, events)
        redactor = Redactor()
        found = timed("read", lambda: store.read("large"))
        found = timed("secrets left out", lambda: redactor.events(found))
        told = timed("told", lambda: story("large", found))
        page = timed("HTML", lambda: render.run_page(told))
        report = timed(
            "report, with its JSON", lambda: render.report(told, run_data(store.run("large"), found, redactor))
        )
        print(f"{len(found)} events, page {len(page) / 1000:,.0f} kB, report {len(report) / 1000:,.0f} kB")
        file = Path(folder) / "report.html"
        file.write_text(report, encoding="utf-8")
        opened(file)


if __name__ == "__main__":
    main()
