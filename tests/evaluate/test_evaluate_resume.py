"""A killed or repeated evaluation buys only what is missing, and reports the same."""

import asyncio

import pytest

from redraft import Budget, Predict, Refine, SqliteStore
from redraft.checks import check
from redraft.evaluate import Evaluate, Example
from redraft.evaluate.waiting import at_work
from redraft.journal import Claim, MemoryStore
from redraft.testing import FunctionLM, ScriptedLM

short = check(lambda text: len(text) < 12, name="short", tell="Be short.")


def examples(n):
    return [Example(q=f"question {i}", gold=i).with_inputs("q") for i in range(n)]


def metric(example, prediction):
    return prediction.answer.startswith("ok")


def unsteady(latency=0.0):
    """Every third reply is too long, in order of arrival: a replay must not ask again."""

    async def reply(request):
        nth = len(lm.requests)
        await asyncio.sleep(latency)
        return "ok" if nth % 3 else "ok, but far too long"

    lm = FunctionLM(reply, price=0.01)
    return lm


def refine(lm, N=3):
    return {"refine": Refine(Predict("q -> answer", lm=lm), N=N, checks=[short])}


def seen(report):
    """All that a report says, except that it was found in the store."""
    kept = (
        "strategy",
        "index",
        "run_id",
        "status",
        "score",
        "passed",
        "prediction",
        "attempts",
        "usage",
        "stop_reason",
    )
    items = [{name: item[name] for name in kept} for item in report.to_dict()["items"]]
    return items, report.notes()


def test_a_repeated_evaluation_buys_nothing_and_says_the_same(tmp_path):
    lm = unsteady()
    with SqliteStore(tmp_path / "runs.db") as store:
        first = Evaluate(examples(8), metric, store=store)(refine(lm))
    bought = len(lm.requests)
    assert bought == sum(s.usage.calls for s in first.standings) > 24
    silent = ScriptedLM([], name=lm.name, price=0.01)
    with SqliteStore(tmp_path / "runs.db") as store:
        again = Evaluate(examples(8), metric, store=store)(refine(silent))
    assert seen(again) == seen(first)
    assert [s.cost for s in again.standings] == [s.cost for s in first.standings]
    assert again["refine"].seconds == pytest.approx(first["refine"].seconds, abs=0.05)
    assert "24 items found in the store" in str(again)


async def test_cancelled_half_way_it_goes_on_where_it_was(tmp_path):
    lm = unsteady(latency=0.01)
    with SqliteStore(tmp_path / "runs.db") as store:
        done = 0

        def count(item, so_far, planned):
            nonlocal done
            done = so_far
            if so_far == 7:
                task.cancel()

        task = asyncio.ensure_future(
            Evaluate(examples(10), metric, store=store, concurrency=3).acall(refine(lm), progress=count)
        )
        with pytest.raises(asyncio.CancelledError):
            await task
    bought = len(lm.requests)
    assert 7 <= done < 20
    with SqliteStore(tmp_path / "runs.db") as store:
        report = await Evaluate(examples(10), metric, store=store, concurrency=3).acall(refine(lm))
    usage = [s.usage for s in report.standings]
    assert report.complete
    assert all(s.n == 10 for s in report.standings)
    # A call that was cut off between its intent and the model counts as one, though the model never saw it.
    assert len(lm.requests) <= sum(u.calls for u in usage) <= len(lm.requests) + 3
    assert len(lm.requests) > bought
    assert sum(item.resumed for item in report.items) >= done


async def test_what_an_interruption_cost_gives_the_baseline_no_more_samples(tmp_path):
    """Every first call is cut off and bought again: two calls an item in the figures, one in what the money would buy."""
    first, lm = asyncio.Event(), FunctionLM(lambda request: "ok", price=0.01)

    async def hang(request):
        first.set()
        await asyncio.sleep(60)

    given = refine(FunctionLM(hang, name=lm.name, price=0.01))
    with SqliteStore(tmp_path / "runs.db") as store:
        task = asyncio.create_task(Evaluate(examples(1), metric, store=store).acall(given))
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        report = await Evaluate(examples(1), metric, store=store).acall(refine(lm))
    assert [s.name for s in report.standings] == ["refine", "single shot"]  # and no best of 2
    assert (report.items[0].usage.calls, report.items[0].lost) == (2, 1)
    assert "refine: 1 call cut off with an earlier process and bought again" in str(report)


async def test_an_item_that_another_evaluation_works_on_is_waited_for(tmp_path):
    """Two evaluations at once on one store: each of their shared baseline's items is bought once."""
    lm = unsteady(latency=0.02)
    module = Predict("q -> answer", lm=lm)
    with SqliteStore(tmp_path / "runs.db") as store:
        one, two = await asyncio.gather(
            Evaluate(examples(4), metric, store=store).acall(refine(lm)),
            Evaluate(examples(4), metric, store=store).acall({"twice": Refine(module, N=2, checks=[short])}),
        )
    bought = {item.run_id: item.usage.calls for report in (one, two) for item in report.items}
    assert len(lm.requests) == sum(bought.values())
    assert {i.run_id for i in one.items if i.strategy == "single shot"} <= {i.run_id for i in two.items}
    assert at_work(store, "nobody") is False


def test_the_wait_for_another_evaluation_ends_with_the_time():
    lm, store = unsteady(), MemoryStore()
    first = Evaluate(examples(1), metric, store=store)(refine(lm))
    held, bought = Claim(store, first.items[0].run_id), len(lm.requests)
    report = Evaluate(examples(1), metric, store=store, budget=Budget(seconds=0.5))(refine(lm))
    held.release()
    assert next(item.status for item in report.items if item.strategy == "refine") == "cut_off"
    assert (report.complete, len(lm.requests)) == (False, bought)


def test_a_strategy_that_is_called_like_its_baseline_is_that_baseline():
    store, lm = MemoryStore(), unsteady()
    module = Predict("q -> answer", lm=lm)
    once = Refine(module, N=1, checks=[short], fix=False)
    report = Evaluate(examples(3), metric, store=store)(
        {"single shot": once, "two": Refine(module, N=2, checks=[short])}
    )
    assert [s.name for s in report.standings][:2] == ["single shot", "two"]
    assert not any(s.name.startswith("single shot (") for s in report.standings)
    assert report["two"].single_shot.theirs == "single shot"
    assert report["two"].note.startswith(
        "its single shot is single shot, configured alike and bought once (one attempt"
    )
    assert "single shot: it is a single shot itself, and has no baselines" in str(report)


def test_more_money_goes_on_where_the_budget_ended():
    lm, store = unsteady(), MemoryStore()
    part = Evaluate(examples(10), metric, store=store, budget=Budget(calls=9))(refine(lm))
    assert (part.complete, len(lm.requests)) == (False, 9)
    same = Evaluate(examples(10), metric, store=store, budget=Budget(calls=9))(refine(lm))
    assert (same.complete, len(lm.requests)) == (False, 9), "what was spent before counts"
    report = Evaluate(examples(10), metric, store=store, budget=Budget(calls=500))(refine(lm))
    assert report.complete
    assert sum(s.usage.calls for s in report.standings) == len(lm.requests)


def test_another_metric_is_judged_on_the_drafts_there_are():
    lm, store = unsteady(), MemoryStore()
    Evaluate(examples(4), metric, store=store)(refine(lm))
    bought = len(lm.requests)
    report = Evaluate(examples(4), lambda e, p: 0.5, store=store)(refine(lm))
    assert (report["refine"].score, len(lm.requests)) == (0.5, bought)


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        (refine, {"seed": 1}),
        (lambda lm: refine(lm, N=2), {}),
        (lambda lm: {"other": refine(lm)["refine"]}, {}),
        (lambda lm: {"refine": Refine(Predict("q -> answer", lm=lm), N=3, checks=[check(len, name="short")])}, {}),
        (lambda lm: {"refine": Refine(Predict("q -> answer", lm=lm, top_p=0.5), N=3, checks=[short])}, {}),
        (lambda lm: refine(FunctionLM(lambda request: "ok", name="another")), {}),
    ],
)
def test_what_is_changed_is_evaluated_anew(changed, options):
    lm, store = unsteady(), MemoryStore()
    first = Evaluate(examples(2), metric, store=store, baselines=False)(refine(lm))
    again = Evaluate(examples(2), metric, store=store, baselines=False, **options)(changed(lm))
    assert {item.run_id for item in first.items} & {item.run_id for item in again.items} == set()
    assert not any(item.resumed for item in again.items)


def test_equal_examples_are_samples_of_their_own():
    lm = FunctionLM(lambda request: f"ok {request.seed}")
    twice = [Example(q="the same").with_inputs("q")] * 2
    report = Evaluate(twice, metric, store=MemoryStore())(Predict("q -> answer", lm=lm))
    assert len({item.run_id for item in report.items}) == 2
    assert len({request.seed for request in lm.requests}) == 2
