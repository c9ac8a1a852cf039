"""A run is gone on with by its id; what it was made of is on record, and a change is said."""

import pytest

from redraft import Predict, Refine, Run, SqliteStore
from redraft.budget import Budget, Meter
from redraft.errors import StoreError
from redraft.testing import ScriptedLM


def refine(lm, **options):
    return Refine(
        Predict("q -> a", lm=lm), N=2, reward_fn=lambda inputs, made: 0.0, threshold=1.0, advisor=False, **options
    )


async def test_the_run_of_that_id_goes_on_where_it_was(tmp_path):
    lm = ScriptedLM(["one", "two"])
    strategy = refine(lm)
    with SqliteStore(tmp_path / "runs.db") as store:
        first = await Run(run_id="r", store=store, budget=Budget(calls=1)).execute(strategy, {"q": "x"})
        assert (str(first.stop_reason), lm.left) == ("budget", 1)
    with SqliteStore(tmp_path / "runs.db") as store:
        run = Run.resume("r", store=store, budget=Budget(calls=2))
        assert run.usage.calls == 1, "what was spent before counts"
        result = await run.execute(strategy, {"q": "x"})
        assert ([a.text for a in result.attempts], lm.left) == (["one", "two"], 0)


def test_an_unknown_id_is_said_and_nothing_is_begun(tmp_path):
    with SqliteStore(tmp_path / "runs.db") as store:
        with pytest.raises(StoreError, match="no run 'nope'"):
            Run.resume("nope", store=store)
        assert store.read("nope") == []


async def test_what_it_is_made_of_is_on_record_and_a_change_is_said():
    from redraft.journal import MemoryStore

    store = MemoryStore()
    for q, changed in [("x", []), ("x", []), ("other", [["inputs"]])]:
        run = Run(run_id="r", store=store)
        await run.execute(refine(ScriptedLM(["one", "two"])), {"q": q})
        events = run.journal.events
        before = max((i for i, e in enumerate(events) if e.kind == "resumed"), default=0)
        assert [e.data["what"] for e in events[before:] if e.kind == "changed"] == changed
    spec = next(e.data["spec"] for e in store.read("r") if e.kind == "run")
    assert (spec["strategy"], spec["inputs"]) == ("Refine", {"q": "x"})


async def test_runs_around_one_meter_spend_from_it_and_keep_their_own_journals():
    whole = Meter(Budget(calls=3))
    runs = [Run(around=whole) for _ in range(2)]
    results = [await run.execute(refine(ScriptedLM(["one", "two"])), {"q": "x"}) for run in runs]
    assert [str(r.stop_reason) for r in results] == ["rounds", "budget"]
    assert whole.usage.calls == 3
    assert runs[0].run_id != runs[1].run_id
    assert whole.ended_by(results[1].error) is results[1].error
