"""What people see with `sqlite3 runs.db`: runs, attempts and calls, and that they say what the runs themselves said."""

import asyncio
import json
import sqlite3

import pytest

from redraft import Budget, Critic, Predict, Refine, Run, SelfRefine, checks, context
from redraft.errors import RedraftError, TransientLMError
from redraft.store import SqliteStore
from redraft.store.views import VIEWS
from redraft.testing import FaultyLM, FunctionLM, ScriptedLM
from redraft.types import Event


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


@pytest.fixture
def store(path):
    store = SqliteStore(path)
    yield store
    store.close()


def executed(store, strategy, run_id, lm, *, budget=None, **inputs):
    with context(model=lm, store=store):
        run = Run(run_id=run_id, budget=budget, seed=3)
        return asyncio.run(run.execute(strategy, strategy.bind(inputs)))


def seen(path, view):
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    rows = [dict(row) for row in db.execute(f"SELECT * FROM {view}")]
    db.close()
    return rows


WRITE = Refine(Predict("task -> review"), N=3, checks=[checks.contains("La Maison")])


def test_a_run_says_what_its_result_says(store, path):
    result = executed(
        store, WRITE, "r", ScriptedLM(["Fine.", "La Maison is fine."]), budget=Budget(calls=9), task="Eat"
    )
    store.close()
    (run,) = seen(path, "runs")
    assert (run["run_id"], run["stop"], run["error"]) == ("r", str(result.stop_reason), None)
    assert (run["score"], run["drafts"]) == (result.score, len(result.attempts))
    assert (run["calls"], run["tokens"], run["cost"]) == (result.usage.calls, result.usage.tokens, result.cost)
    assert run["most_tokens"] == run["tokens"]
    assert (run["models"], run["seed"], json.loads(run["budget"])["calls"]) == ("scripted", 3, 9)
    assert "Eat" in run["task"]
    assert run["begun"] <= run["ended"]
    assert run["begun"].endswith("Z")


def test_attempts_say_what_was_judged_and_decided(store, path):
    result = executed(store, WRITE, "r", ScriptedLM(["Fine.", "La Maison is fine."]), task="Eat")
    store.close()
    rows = seen(path, "attempts")
    assert [(r["draft"], r["text"], r["score"], r["passed"], r["decision"], r["reason"]) for r in rows] == [
        (a.index + 1, a.text, a.score.value, int(a.score.passed), "accepted", a.reason) for a in result.attempts
    ]


def test_an_edit_shows_whom_it_revises_and_the_critique(store, path):
    revise = {
        "verdict": "revise",
        "issues": [{"problem": "dull", "suggestion": "", "aspect": "", "severity": "major", "location": ""}],
    }
    lm = ScriptedLM(["one", json.dumps(revise), "two", json.dumps({"better": "A"}), json.dumps({"better": "B"})])
    executed(store, SelfRefine(Predict("task -> review"), Critic(), rounds=1), "r", lm, task="Eat")
    store.close()
    first, second = seen(path, "attempts")
    assert json.loads(first["critique"])["issues"][0]["problem"] == "dull"
    assert (second["revises"], second["rung"]) == (1, "edit")
    assert [call["role"] for call in seen(path, "calls")][:3] == ["author", "critic", "reviser"]


def test_calls_show_what_was_asked_and_answered(store, path):
    lm = FaultyLM(ScriptedLM(["La Maison."]), [TransientLMError("busy", status=503), None])
    executed(store, WRITE, "r", lm, task="Eat")
    store.close()
    failed, ok = seen(path, "calls")
    assert (failed["status"], failed["reply"]) == ("failed", None)
    assert "busy" in failed["error"]
    assert (ok["status"], ok["reply"], ok["role"], ok["model"]) == ("ok", "La Maison.", "author", "scripted")
    assert "Eat" in json.loads(ok["messages"])[-1]["content"]
    assert (ok["input_tokens"] > 0, ok["cost"], ok["error"]) == (True, 0.0, None)


def test_what_never_ended_and_what_is_not_known_is_null(store, path):
    asked = {
        "content": "no list of messages",
        "role": "author",
        "reserved": {"calls": 1, "uncertain_tokens": 50, "unpriced": 1},
    }
    store.append("cut", [Event(seq=0, kind="intent", time=1.5, data=asked)])
    store.append("odd", [Event(seq=0, kind="note", time=1.5, data={"index": "?", "usage": 5})])
    store.close()
    cut, odd = seen(path, "runs")
    assert (cut["ended"], cut["score"], cut["calls"], cut["tokens"], cut["most_tokens"]) == (None, None, 1, 0, 50)
    assert (cut["cost"], odd["cost"]) == (None, 0)
    (call,) = seen(path, "calls")
    assert (call["status"], call["reply"], call["cost"], call["messages"]) == ("unfinished", None, None, None)


def test_a_cached_reply_and_what_other_code_bought_are_calls(store, path):
    store.append(
        "r",
        [
            Event(
                seq=0,
                kind="call",
                time=1.0,
                data={
                    "intent": None,
                    "role": "author",
                    "model": "m",
                    "usage": {},
                    "completion": {"choices": [{"text": "kept"}]},
                    "cached": True,
                    "seconds": 0.0,
                },
            ),
            Event(
                seq=1, kind="soft", time=1.0, data={"by": "openai", "usage": {"calls": 2, "input_tokens": 7, "soft": 2}}
            ),
        ],
    )
    store.close()
    cached, metered = seen(path, "calls")
    assert (cached["status"], cached["reply"], cached["model"]) == ("cached", "kept", "m")
    assert (metered["status"], metered["role"], metered["input_tokens"]) == ("metered", "openai", 7)
    assert (seen(path, "runs")[0]["calls"], seen(path, "runs")[0]["tokens"]) == (2, 7)


def test_a_run_that_failed_is_told_from_one_that_did_not(store):
    def broken(task):
        raise ValueError("no")

    with pytest.raises(RedraftError):
        executed(store, Refine(broken, N=1, reward_fn=lambda *_: 1.0), "bad", ScriptedLM([]), task="Eat")
    executed(store, WRITE, "good", FunctionLM(lambda _: "La Maison."), task="Eat")
    assert [(run.run_id, run.failed, run.stop) for run in store.runs()] == [
        ("good", False, "passed"),
        ("bad", True, "error"),
    ]
    assert "no" in store.run("bad").error


def test_half_a_surrogate_pair_hides_no_run(store):
    """As an argument that is no UTF-8 has it: JSON can say it, UTF-8 cannot."""
    spec = {"task": "caf\udce9"}
    store.append("run", [Event(seq=0, kind="run", time=1.0, data={"seed": 1, "spec": spec})])
    assert store.run("run").task == store.runs()[0].task == "caf\udce9"
    assert store.run_ids() == ["run"]


def test_the_newest_runs_come_first_and_a_limit_holds(store):
    for n in range(5):
        store.append(f"run {n}", [Event(seq=0, kind="note", time=float(n))])
    assert store.run_ids() == ["run 4", "run 3", "run 2", "run 1", "run 0"]
    assert [run.run_id for run in store.runs(2)] == ["run 4", "run 3"]
    assert store.run("run 9") is None


def test_the_views_columns_are_documented():
    from redraft.store import views

    db = sqlite3.connect(":memory:")
    db.executescript(
        "CREATE TABLE run_ids (run, run_id); CREATE TABLE messages (message, hash, json);"
        "CREATE TABLE events (run, seq, time, kind, scope, key, data, parts);"
    )
    for view in VIEWS:
        db.execute(view)
    for name in ("runs", "attempts", "calls"):
        columns = [column for column, *_ in db.execute(f"SELECT * FROM {name}").description]
        said = views.__doc__.partition(f"`{name}`,")[2].partition("\n\n")[0]
        assert [column for column in columns if column not in said] == []
    db.close()
