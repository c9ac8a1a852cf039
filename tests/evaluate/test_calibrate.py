"""Calibration on scripted models: who gains by a critique, who is harmed by it, and that it resumes."""

import dataclasses
import json

import pytest

from redraft import Budget, Predict, SqliteStore
from redraft.checks import words
from redraft.errors import InputError, UsageError
from redraft.evaluate import Calibrate, Example
from redraft.testing import FunctionLM
from redraft.testing.words import EVERYTHING

BAD = "dull words all around here and more"
GOOD = "bright day"
ISSUE = "cut it to two"
REVISE = {
    "verdict": "revise",
    "issues": [{"problem": ISSUE, "suggestion": "", "aspect": "", "severity": "major", "location": ""}],
}


def by_turns(share):
    """True in `share` of 10 turns."""
    turn = iter(range(10**6))
    return lambda: next(turn) * 7 % 10 < share * 10


def model(*, blind, shown, critic=None, constrained=None, name="scripted"):
    """Passes in so many of ten blind drafts, edits with the draft in view, edits with the critic's issue, constrained drafts."""
    draws = {kind: by_turns(rate) for kind, rate in
             {"blind": blind, "shown": shown, "critic": critic or shown, "under": constrained or 0}.items()}  # fmt: skip

    def reply(request):
        text = str(request.messages)
        if "verdict" in json.dumps(dict(request.schema or {})):
            return json.dumps(REVISE)
        kind = "under" if request.grammar else "critic" if ISSUE in text else "shown" if BAD in text else "blind"
        return GOOD if draws[kind]() else BAD

    return FunctionLM(reply, name=name, capabilities=dataclasses.replace(EVERYTHING, grammar=constrained is not None))


def examples(n):
    return [Example(task=f"write {i}").with_inputs("task") for i in range(n)]


def calibrated(lm, n=60, **options):
    return Calibrate(Predict("task -> answer", lm=lm), examples(n), checks=[words(1, 3)], **options)()


def test_a_good_critic_is_recommended():
    found = calibrated(model(blind=0.2, shown=0.3, critic=0.9))
    assert (found.verdict.outcome, found.verdict.rung) == ("recommended", "critique")
    entry = found.entry()
    assert (entry["strategy"], entry["rungs"][-1]) == ("critique", "critique")
    assert entry["evidence"]["examples"] == 60
    assert found.critiques.correcting.value > 0.8
    assert {t.theirs for t in found.verdict.tests} >= {"resample twice", "edit"}
    assert "error_introducing" in entry["evidence"]["critique"]
    assert "critic" not in entry
    named = calibrated(model(blind=0.2, shown=0.3, critic=0.9), critic="a strict judge").entry()
    assert named["critic"] == "a strict judge"


def test_what_showing_the_draft_does_is_said():
    helps = calibrated(model(blind=0.1, shown=0.8), critic=False)
    assert "showing the draft helps; edit against resample: +" in str(helps)
    hurts = calibrated(model(blind=0.6, shown=0.0), critic=False)
    assert (hurts.shown.won, hurts.shown.p < 0.01) == (0, True)
    assert hurts.entry()["evidence"]["draft_shown"].startswith("showing the draft hurts; edit against resample: -")
    alike = calibrated(model(blind=0.3, shown=0.3), critic=False)
    assert "showing the draft: no difference seen" in str(alike)
    assert calibrated(model(blind=1.0, shown=0.0), n=3, critic=False).shown is None


def test_where_the_bad_draft_misleads_a_constraint_is_recommended():
    found = calibrated(model(blind=0.3, shown=0.0, constrained=0.9))
    assert found.verdict.rung == "constrain"
    assert {k: found.entry()[k] for k in ("strategy", "revise")} == {"strategy": "refine", "revise": "constrain"}
    assert any(t.theirs in ("edit", "critique") and t.p < 0.01 for t in found.verdict.tests)


def test_and_blind_samples_where_there_is_no_constraint():
    found = calibrated(model(blind=0.5, shown=0.0, name="small-135m"), n=80)
    assert found.verdict.rung == "resample"  # a small model gets no hints
    assert found.entry()["strategy"] == "best-of-n"


def test_no_difference_leaves_the_default():
    found = calibrated(model(blind=0.3, shown=0.3))
    assert found.verdict.outcome == "no difference"
    assert found.entry()["strategy"] == "auto"
    assert "the default of auto holds" in str(found)


def test_rungs_begin_with_the_same_draft_and_passing_ones_are_criticised_only():
    lm = model(blind=0.5, shown=0.5)
    found = calibrated(lm, n=4)
    passing = [t for t in found.trials if t["draft"].passed]
    assert passing
    assert all(set(t) == {"first", "draft", "critique"} for t in passing)
    failing = [t for t in found.trials if not t["draft"].passed]
    assert all({"resample", "again", "hint", "edit"} <= set(t) for t in failing)
    assert len(lm.requests) == sum(o.calls for t in found.trials for o in t.values())


def test_without_a_critic_none_is_asked():
    found = calibrated(model(blind=0.0, shown=0.0), n=3, critic=False)
    assert found.critiques is None
    assert all("critique" not in t for t in found.trials)


def test_what_code_mends_is_no_failing_draft():
    fenced = FunctionLM(lambda request: '```json\n{"a": 1}\n```')
    found = Calibrate(Predict("task -> answer", lm=fenced), examples(3), checks=["json_valid"], critic=False)()
    assert [t["draft"].passed for t in found.trials] == [True] * 3
    assert len(fenced.requests) == 3


def test_a_critic_that_says_nothing_usable_leaves_the_draft():
    def reply(request):
        return "{}" if "verdict" in json.dumps(dict(request.schema or {})) else BAD

    found = calibrated(FunctionLM(reply), n=2)
    assert [(t["critique"].passed, t["critique"].changed) for t in found.trials] == [(False, False)] * 2


def test_a_reward_with_a_threshold_is_a_bar():
    def reward(args, pred):
        return (1.0, "") if pred.answer == GOOD else (0.2, "it is dull")

    lm = model(blind=0.2, shown=0.9)
    found = Calibrate(Predict("task -> answer", lm=lm), examples(60), reward_fn=reward, threshold=1.0, critic=False)()
    assert found.verdict.rung == "edit"
    assert "reward reward" in found.key


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no bar"),
        ({"reward_fn": lambda args, pred: 1.0}, "give a threshold"),
        ({"checks": [words(1, 3)], "budgets": 1}, "unknown option 'budgets'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_spent(options, said):
    lm = model(blind=1, shown=1)
    with pytest.raises(InputError, match=said):
        Calibrate(Predict("task -> answer", lm=lm), examples(2), **options)
    with pytest.raises(InputError, match="needs a Predict"):
        Calibrate(lambda task: task, examples(2), checks=[words(1, 3)])
    assert lm.requests == []


def test_it_goes_on_where_a_limit_ended_it(tmp_path):
    store, lm = SqliteStore(tmp_path / "runs.db"), model(blind=0.0, shown=0.0)
    part = calibrated(lm, n=6, store=store, budget=Budget(calls=20), concurrency=1)
    assert part.stopped is not None
    assert "PARTIAL" in str(part)
    whole = calibrated(lm, n=6, store=store)
    assert len(whole.trials) == 6
    calls = sum(o.calls for t in whole.trials for o in t.values())
    assert len(lm.requests) == calls
    again = calibrated(lm, n=6, store=store)
    assert (again.trials, len(lm.requests)) == (whole.trials, calls)
    store.close()


def test_a_model_that_cannot_be_asked_is_an_error():
    def refuse(request):
        raise UsageError("no")

    with pytest.raises(UsageError):
        calibrated(FunctionLM(refuse), n=2)


QUESTIONS = (
    *("Is ice cold?", "Is fire hot?", "Can fish fly?", "Is the sun a star?", "Do cats bark?", "Is water wet?"),
    *("Is Paris in France?", "Do birds have wings?", "Is grass green?", "Can dogs read?", "Is snow black?"),
    *("Is a whale a fish?", "Is gold a metal?", "Do trees have leaves?", "Is milk white?", "Is Monday a day?"),
)


@pytest.mark.local
def test_on_the_embedded_model_constraints_pay_and_its_own_bad_draft_misleads_it():
    asked = [Example(task=question).with_inputs("task") for question in QUESTIONS]
    module = Predict("task -> answer", lm="local/smollm2-135m", max_tokens=16)
    found = Calibrate(module, asked, checks=["one_of:yes,no"], critic=False, seed=1)()
    assert (found.verdict.outcome, found.verdict.rung) == ("recommended", "constrain"), str(found)
    (edit,) = [t for t in found.verdict.tests if t.theirs == "edit"]
    assert edit.p <= 0.05
    assert edit.lost == 0
    mended = {name: sum(t[name].passed for t in found.trials if name in t) for name in ("resample", "edit")}
    assert mended["edit"] <= mended["resample"] + 1
    assert {k: found.entry()[k] for k in ("strategy", "revise")} == {"strategy": "refine", "revise": "constrain"}
