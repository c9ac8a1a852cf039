"""The list of all runs: rows, batches as groups, and what is new."""

import asyncio
import json

import pytest
from page_runs import BRIEF, CHECKS, FULL, LONGER, Read

from redraft import Predict, Refine, Run, context
from redraft.report.page import render
from redraft.report.page.listing import Lister
from redraft.report.page.redact import Redactor
from redraft.store import SqliteStore
from redraft.testing import ScriptedLM
from redraft.types import Event


@pytest.fixture
def kept(tmp_path):
    with SqliteStore(tmp_path / "runs.db") as store:
        yield store


@pytest.fixture
def lister(kept):
    return Lister(kept, Redactor({"A_TOKEN": "correct horse battery"}))


@pytest.fixture
def keep(kept):
    def run(run_id, replies, N=3, task="Review La Maison"):
        strategy = Refine(Predict("task -> review"), N=N, checks=CHECKS)
        with context(model=ScriptedLM(replies), store=kept):
            asyncio.run(Run(run_id=run_id, seed=1).execute(strategy, {"task": task}))

    return run


def rows(listing):
    return {row.run.run_id: row for group in listing.groups for row in group.rows}


def test_the_newest_first_each_beside_single_shots(lister, keep):
    for n in range(4):
        keep(f"single-shot-{n}", [BRIEF if n else FULL], N=1)
    keep("refined", [BRIEF, LONGER, FULL])
    keep("alone", [FULL], task="Another task")
    found = rows(lister.listing(10))
    assert list(found) == ["alone", "refined", "single-shot-3", "single-shot-2", "single-shot-1", "single-shot-0"]
    assert found["refined"].stands.outcome == "tie"
    assert found["alone"].stands.text == "no single shot of this task is kept"
    assert found["single-shot-0"].single
    assert dict(lister.listing(10).totals) == {"Refine": {"tie": 1, "none": 1}}


def test_no_more_than_were_asked_for(lister, keep):
    for n in range(3):
        keep(f"r{n}", [FULL])
    listing = lister.listing(2)
    assert (listing.shown, listing.kept, len(rows(listing))) == (2, 3, 2)
    assert "Show all 3 runs" in render.list_page(listing)


def test_items_of_a_batch_stand_below_it(lister, keep, kept):
    def log(seq, kind, **data):
        kept.append("b1", [Event(seq=seq, kind=kind, time=1.0 + seq, data=data)])

    log(0, "batch", seed=1, spec={"task": "many"}, version=1)
    log(1, "items", begun=["b1:a", "b1:b"], ended={})
    log(2, "items", begun=[], ended={"b1:a": {"calls": 1}})
    keep("b1:b", [FULL], task="one of many")
    keep("x:y", [FULL], task="a run whose id only looks so")
    alone, batch = lister.listing(10).groups
    assert [row.run.run_id for row in alone.rows] == ["x:y"]
    assert (batch.name, batch.text) == ("b1", "2 items begun, 1 ended")
    assert [row.run.run_id for row in batch.rows] == ["b1:b"]


def test_named_inputs_are_shown_as_words(lister, keep, kept):
    kept.append(
        "r",
        [
            Event(
                seq=0,
                kind="run",
                time=1.0,
                key="run",
                data={"seed": 1, "spec": {"inputs": {"question": "How many?", "n": 3}}},
            )
        ],
    )
    assert rows(lister.listing(5))["r"].task == "How many?; 3"


def test_secrets_are_left_out_of_the_list(lister, keep):
    keep("r", [FULL], task="Log in with correct horse battery")
    page = render.list_page(lister.listing(5))
    assert "correct horse" not in page
    assert "Log in with [redacted]" in page


def test_a_damaged_run_is_listed_and_hides_no_other(lister, keep, kept):
    kept.append(
        "bad",
        [
            Event(seq=0, kind="run", time=1.0, key="run", data={"spec": {"task": "Review La Maison"}}),
            Event(seq=1, kind="stop", time=2.0, data={"reason": "passed"}),
            Event(seq=2, kind="attempt", time=2.0, scope="/attempt[0]", data={"index": 0}),
        ],
    )
    keep("good", [FULL])
    assert set(rows(lister.listing(5))) == {"bad", "good"}


def test_the_mark_changes_when_something_is_written_and_only_then(lister, keep):
    keep("a", [FULL])
    lister.listing(5)
    mark = lister.mark()
    lister.listing(5)
    assert lister.mark() == mark
    keep("b", [FULL])
    assert lister.mark() != mark


def test_what_a_run_is_called_is_text(lister, keep):
    keep("<b>\"' &/?#", [FULL], task="<script>alert(1)</script>")
    read = Read(render.list_page(lister.listing(5)))
    (link,) = [attrs["href"] for tag, attrs in read.tags if tag == "a" and attrs.get("href", "").startswith("/run/")]
    assert link == "/run/%3Cb%3E%22%27%20%26%2F%3F%23"
    assert [tag for tag, _ in read.tags].count("script") == 1


def test_an_empty_store_says_so(lister, kept):
    assert kept.run_ids() == []
    assert "No run is kept here yet" in render.list_page(lister.listing(5))
    assert json.dumps(lister.listing(5).shown) == "0"
