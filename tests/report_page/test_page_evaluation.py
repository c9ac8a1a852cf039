"""The page of an evaluation: figures, comparisons, the plot, which strategy passed which example; and its place in the list."""

import asyncio
import json
from itertools import pairwise

import pytest
from click.testing import CliRunner
from page_runs import Read

from redraft import Budget, Predict, Refine, SqliteStore
from redraft.checks import words
from redraft.cli import main
from redraft.errors import StoreError
from redraft.evaluate import Evaluate, Example
from redraft.evaluate.kept import data_of, keep
from redraft.evaluate.peers import comparisons, larger_model
from redraft.report.page import render
from redraft.report.page.evaluation import evaluation, is_evaluation
from redraft.report.page.listing import Lister
from redraft.report.page.redact import Redactor
from redraft.report.page.scatter import Point, scatter_of
from redraft.testing import FunctionLM
from redraft.types import Event

GOOD, BAD = "yes", "no no no"


@pytest.fixture
def kept(tmp_path):
    with SqliteStore(tmp_path / "runs.db") as store:
        yield store


@pytest.fixture
def evaluated(kept):
    """`evaluated()` evaluates in the store and returns the run's id: the small model is right under a constraint alone."""

    def run(n=8, budget=None, task="q{i}", metric=None):
        lm = FunctionLM(lambda request: GOOD if request.grammar else BAD, name="small", price=0.001)
        module = Predict("q -> answer", lm=lm)
        peer = larger_model(module, [words(1)], FunctionLM(lambda r: GOOD, name="big", price=0.01))
        asked = [Example(q=task.format(i=i)).with_inputs("q") for i in range(n)]
        refine = Refine(module, N=2, checks=[words(1)])
        work = Evaluate(asked, metric, checks=[words(1)], concurrency=1, store=kept, budget=budget)
        report = work({"refine:attempts=2": refine, peer.name: peer})
        data = data_of(report, comparisons(report, ["big"]), {"model": "small", "data": "d.jsonl", "options": {}})
        return asyncio.run(keep(kept, data))

    return run


def told(kept, run_id):
    return evaluation(run_id, Redactor({}).events(kept.read(run_id)))


def test_a_line_a_strategy_with_what_it_has_to_beat(kept, evaluated):
    found = told(kept, evaluated())
    assert found.title == "refine:attempts=2 on 8 examples"
    assert [(x.name, x.baseline, x.passed, x.n) for x in found.lines] == [
        ("refine:attempts=2", False, 8, 8), ("big", True, 8, 8), ("single shot", True, 0, 8), ("best of 2", True, 0, 8)
    ]  # fmt: skip
    ours = found.lines[0]
    assert ours.passes == pytest.approx((0.6756, 1.0), abs=1e-3)
    assert (ours.calls, ours.once.theirs, ours.best.theirs) == (2.0, "single shot", "best of 2")
    assert (ours.once.outcome, ours.once.pairs, ours.once.tone, ours.once.p) == ("better", 8, "good", 2 / 2**8)
    assert [(c.ours, c.theirs, c.outcome) for c in found.more] == [("refine:attempts=2", "big", "no difference")]
    assert (found.complete, found.graded, found.unequal) == (True, False, False)
    assert not any(" against " in note for note in found.notes)


def test_which_strategy_passed_which_example(kept, evaluated):
    found = told(kept, evaluated(3))
    assert [row.asked for row in found.rows] == ["q0", "q1", "q2"]
    assert [[cell.sign for cell in row.cells] for row in found.rows] == [["\u2713", "\u2713", "\u2717", "\u2717"]] * 3
    assert not any(row.alike for row in found.rows)
    ids = {cell.run_id for row in found.rows for cell in row.cells}
    assert len(ids) == 12
    assert ids <= set(kept.run_ids())


def test_the_page_links_every_item_and_draws_the_plot(kept, evaluated):
    run_id = evaluated(2)
    page = render.evaluation_page(told(kept, run_id))
    read = Read(page)
    links = [a["href"] for t, a in read.tags if t == "a" and a.get("href", "").startswith("/run/")]
    assert len(links) == 8
    assert all(link.removeprefix("/run/") in kept.run_ids() for link in links)
    assert [t for t, _ in read.tags].count("circle") == 4
    assert {"dollars an item", "refine:attempts=2", "2/2"} <= {text.strip() for text in read.text}
    assert [a["href"] for t, a in read.tags if t == "a" and a.get("href", "").startswith("#s")] != []


def test_a_limit_that_ended_it_and_means_of_different_examples_are_said(kept, evaluated):
    found = told(kept, evaluated(8, Budget(calls=6)))
    assert not found.complete
    assert "limit of 6 calls" in found.stopped
    assert found.unequal
    page = render.evaluation_page(found)
    assert "Partial: the limit of 6 calls" in page
    assert "cannot be set against each other" in page
    assert [cell and cell.sign for cell in found.rows[-1].cells] == ["\u2713", "\u2013", None]
    assert "left out: a limit came first" in page


def test_scores_that_are_no_passes_are_shown_as_scores(kept, evaluated):
    found = told(kept, evaluated(3, metric=lambda example, prediction: (0.25, "a quarter of it")))
    assert found.graded
    cell = found.rows[0].cells[0]
    assert (cell.tone, cell.sign) == ("yes", "\u2713 0.25")
    assert "a quarter of it" in cell.said
    assert "0.25" in render.evaluation_page(found)


def test_it_stands_in_the_list_as_an_evaluation_with_its_items_below(kept, evaluated):
    run_id = evaluated(2)
    listing = Lister(kept, Redactor({})).listing(100)
    alone, items = listing.groups
    (row,) = alone.rows
    assert (row.run.run_id, row.run.strategy, row.state, row.tone) == (run_id, "evaluation", "complete", "good")
    assert row.task == "refine:attempts=2 on 2 examples, judged by checks"
    assert (row.run.calls, row.run.models) == (4 + 2 + 2 + 4, ("small",))
    assert (items.kind, items.name, items.page, len(items.rows)) == ("Evaluation", run_id, True, 8)
    assert {r.run.strategy for r in items.rows} == {"refine:attempts=2", "big", "single shot", "best of 2"}
    assert "evaluation" not in dict(listing.totals)
    page = render.list_page(listing)
    assert f'<a href="/run/{run_id}"><code>{run_id}</code></a>' in page
    assert page.count('class="run"') == 9


def test_the_newest_evaluation_has_the_items(kept, evaluated):
    part = evaluated(4, Budget(calls=5))
    whole = evaluated(4)
    groups = {g.name: len(g.rows) for g in Lister(kept, Redactor({})).listing(100).groups}
    assert groups[whole] == 16
    assert part not in groups  # all of its items are the other's, too


def test_what_a_model_or_a_file_wrote_is_text_and_no_secret(kept, evaluated):
    task = "<script>alert(1)</script> sk-abcdefghij0123456789abcd {i}"
    page = render.evaluation_page(told(kept, evaluated(1, task=task)))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "sk-abcdefghij" not in page


def test_a_damaged_report_is_an_error_of_the_store_and_hides_no_other_run(kept):
    kept.append("evaluation-x", [
        Event(seq=0, kind="run", time=1.0, key="run", data={"spec": {"strategy": "evaluation", "task": "t"}}),
        Event(seq=1, kind="evaluation", time=2.0, data={"report": {"strategies": [{}]}}),
    ])  # fmt: skip
    assert is_evaluation(kept.read("evaluation-x"))
    with pytest.raises(StoreError, match="cannot be read"):
        told(kept, "evaluation-x")
    (group,) = Lister(kept, Redactor({})).listing(5).groups
    assert [row.run.run_id for row in group.rows] == ["evaluation-x"]


def test_a_report_of_it_is_one_file_without_links_to_a_server(kept, evaluated, tmp_path):
    run_id = evaluated(2)
    out = tmp_path / "e.html"
    said = CliRunner().invoke(main, ["report", run_id, "-o", str(out), "--store", str(kept.path)])
    assert said.exit_code == 0, said.stderr
    read = Read(out.read_text(encoding="utf-8"))
    assert "refine:attempts=2 on 2 examples" in {text.strip() for text in read.text}
    assert not [a for t, a in read.tags if t == "a" and a.get("href", "").startswith("/")]
    newest = CliRunner().invoke(main, ["report", "-o", "-", "--store", str(kept.path)])
    assert run_id in newest.stdout
    shown = CliRunner().invoke(main, ["runs", "show", run_id, "--json", "--store", str(kept.path)])
    assert json.loads(shown.stdout)["strategy"] == "evaluation"


def test_marks_that_would_cover_each_other_are_labelled_below_each_other():
    points = [Point(anchor=f"s{i}", name=f"p{i}", soft=False, at=10.0, value=0.5, low=0.4, high=0.6) for i in range(3)]
    plot = scatter_of(points, "tokens an item")
    heights = [dot.label[1] for dot in plot.dots]
    assert [round(b - a) for a, b in pairwise(heights)] == [15, 15]
    assert plot.text == "p0 0.50 at 10; p1 0.50 at 10; p2 0.50 at 10 tokens an item"
    assert scatter_of([], "tokens an item") is None
