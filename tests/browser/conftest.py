"""A real headless Chromium, and runs for it to show. No page may log an error or ask another host for anything."""

import asyncio
import contextlib
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from redraft import Predict, Refine, Run, SelfRefine, checks, context
from redraft.cli.viewing import Viewer
from redraft.errors import RedraftError
from redraft.evaluate import Evaluate, Example
from redraft.evaluate.kept import data_of
from redraft.evaluate.kept import keep as record
from redraft.store import SqliteStore
from redraft.testing import FunctionLM, ScriptedLM

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SHOTS = os.environ.get("REDRAFT_SHOTS", "")
"""A folder: screenshots are left there, for people to look at."""

DRAFTS = [
    "Good food. Go there.",
    "La Maison has good food. Go there.",
    "La Maison has good food. Its soup is warm. Go there.",
]
ISSUE = {
    "problem": "the verb is worn",
    "suggestion": "find another",
    "aspect": "diction",
    "severity": "minor",
    "location": "keeps",
}
POEM = [
    "The river keeps on.",
    json.dumps({"verdict": "revise", "issues": [ISSUE]}),
    "The river bargains on.",
    json.dumps({"better": "A"}),
    json.dumps({"better": "B"}),
    json.dumps({"verdict": "ok", "issues": []}),
]
HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\"> [x](javascript:alert(1)) \x1b[31m \u202e"


@pytest.fixture(scope="session")
def chromium():
    """Skips where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: make test-browser installs it"
    )
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no Chromium on this machine (looked for {', '.join(NAMES)}): apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium, request):
    """`browse(address, dark=, width=)` opens a page; at the end every page must have kept its promises."""
    opened, wrong = [], []

    def browse(address, *, dark=False, width=1100, **more):
        page = chromium.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", **more
        )
        page.set_default_timeout(10_000)
        home = urlsplit(address).netloc
        page.on("console", lambda m: wrong.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))

        def asked(request):
            url = urlsplit(request.url)
            if url.scheme in ("http", "https", "ws", "wss") and url.netloc != home:
                wrong.append(f"asked for {request.url}")

        page.on("request", asked)
        page.goto(address)
        opened.append(page)
        return page

    yield browse
    for n, page in enumerate(opened):
        if SHOTS:
            page.screenshot(path=f"{SHOTS}/{request.node.name}-{n}.png", full_page=True)
        page.close()
    assert wrong == []


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """A store with four runs."""

    def keep(run_id, strategy, replies, **inputs):
        def run():
            with context(model=ScriptedLM(replies), store=store), contextlib.suppress(RedraftError):
                asyncio.run(Run(run_id=run_id, seed=1).execute(strategy, strategy.bind(inputs)))

        with ThreadPoolExecutor(1) as apart:  # Playwright has a loop in this thread
            apart.submit(run).result()

    with SqliteStore(tmp_path_factory.mktemp("store") / "runs.db") as store:
        wanted = [checks.sentences(3), checks.contains("La Maison")]
        keep("review", Refine(Predict("task -> review"), N=3, checks=wanted), DRAFTS, task="Review La Maison")
        keep("poem", SelfRefine(Predict("task -> poem"), revise="edit"), POEM, task="A line about a river")
        keep("hostile", Refine(Predict("task -> answer"), N=1, checks=wanted), [HOSTILE], task=HOSTILE)
        keep("failed", Refine(Predict("task -> answer"), N=1, checks=wanted), [], task="It fails")
        yield store


@pytest.fixture(scope="session")
def assessed(tmp_path_factory):
    """A store with one evaluation: a refined draft is right on all six examples, a single shot on every other one."""

    def reply(request):
        asked = str(request.messages)
        again = request.grammar or "fell short" in asked  # a constraint where its library is installed, else a hint
        return "yes" if again or any(f"question {i}" in asked for i in (0, 2, 4)) else "no no no"

    def evaluate():
        lm = FunctionLM(reply, name="small", price=0.001)
        asked = [Example(q=f"question {i}: {HOSTILE if i == 5 else 'is it so?'}").with_inputs("q") for i in range(6)]
        module = Predict("q -> answer", lm=lm)
        given = {"refine": Refine(module, N=2, checks=[checks.words(1)]), "ask": once}
        report = Evaluate(asked, checks=[checks.words(1)], concurrency=1, store=store)(given)
        return asyncio.run(record(store, data_of(report, [], {"model": "small", "data": "questions.jsonl"})))

    def once(q):
        return "yes" if q[9] in "024" else "no no no"

    with SqliteStore(tmp_path_factory.mktemp("assessed") / "runs.db") as store, ThreadPoolExecutor(1) as apart:
        yield store, apart.submit(evaluate).result()


@pytest.fixture(scope="session")
def assessed_site(assessed):
    """The address of `redraft view` of that store."""
    yield from served(assessed[0])


@pytest.fixture(scope="session")
def site(kept):
    """The address of `redraft view`."""
    yield from served(kept)


def served(store):
    with Viewer(store, "127.0.0.1", 0) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield viewer.address
        viewer.shutdown()
        thread.join()
