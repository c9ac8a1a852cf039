"""What a run returns: fields, receipt, how it shows itself, and that it travels."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from redraft import Attempt, Predict, Prediction, Refine, SelfRefine, StopReason, Usage
from redraft.budget import Budget
from redraft.checks import contains, sentences
from redraft.errors import (
    AuthError,
    BudgetExceeded,
    LMError,
    ParseError,
    RunFailed,
    ScoreError,
    TransientLMError,
    UnsupportedError,
)
from redraft.result import Result, count, tokens
from redraft.testing import ScriptedLM
from redraft.types import Choice, Completion, Event, Request, Score, Verdict


def run(*replies, n=None, price=0.0, spec="topic -> review", **options):
    lm = ScriptedLM(replies, price=price)
    return Refine(Predict(spec, lm=lm), N=n or len(replies), **options)(topic="x")


# fields


def test_the_outputs_are_attributes_and_items():
    result = run('{"title": "Soup", "stars": 4}', spec="topic -> title, stars: int")
    assert (result.title, result.stars, result["title"]) == ("Soup", 4, "Soup")
    assert result.to_dict() == {"title": "Soup", "stars": 4}
    assert result == Prediction(title="Soup", stars=4)
    assert result.prediction == Prediction(title="Soup", stars=4)
    assert type(result.prediction) is Prediction
    assert result.text == "title: Soup\n\nstars: 4"
    assert ("title" in result, "nope" in result, len(result), list(result)) == (True, False, 2, ["title", "stars"])


def test_a_field_called_like_a_part_of_the_receipt_is_an_item():
    reply = '{"score": 9.5, "best": "Soup", "cost": "low"}'
    result = run(reply, spec="topic -> score: float, best, cost", reward_fn=lambda args, pred: pred["score"] / 10)
    assert (result["score"], result["best"], result["cost"]) == (9.5, "Soup", "low")
    assert (result.score, result.best.index, result.cost) == (0.95, 0, 0.0)


def test_an_unknown_field_names_the_known_ones():
    with pytest.raises(AttributeError, match="no field 'reveiw'; the fields are: review"):
        run("x").reveiw  # noqa: B018
    with pytest.raises(KeyError):
        run("x")["reveiw"]


def test_a_result_does_not_change():
    result = run("x")
    with pytest.raises(AttributeError, match="does not change"):
        result.review = "y"
    with pytest.raises(AttributeError, match="does not change"):
        result.best = None
    result.to_dict()["review"] = "y"
    assert result.review == "x"


# the receipt


def test_receipt():
    result = run("one two", "one", n=2, reward_fn=lambda args, pred: len(pred.review.split()), advisor=False)
    line = f"kept draft 1 of 2 | 2 calls | {result.usage.tokens} tokens | $0.00 | stopped: rounds"
    assert result.receipt() == line
    assert repr(result) == f"Result(review='one two')\n  score 2.00 | {line} | run {result.run_id}"


def test_receipt_of_one():
    assert run("x", checks=[sentences(1)]).receipt().startswith("kept draft 1 of 1 | 1 call | ")
    assert run("x", checks=[sentences(1)]).receipt().endswith("stopped: passed")


def test_receipt_with_prices():
    assert f"${run('one two', price=0.01).usage.tokens / 100:.4f}" in run("one two", price=0.01).receipt()
    unknown = run("one two", price=None)
    assert (unknown.cost, "price unknown" in unknown.receipt()) == (None, True)


def test_a_price_that_is_tiny_is_not_shown_as_nothing():
    receipt = run("one two", price=1e-9).receipt()
    assert "$0.00 " not in receipt
    assert "$0.0000 " not in receipt


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (Usage(), "0 tokens"),
        (Usage(input_tokens=1), "1 token"),
        (Usage(input_tokens=200, output_tokens=12), "212 tokens"),
        (Usage(output_tokens=90, estimated=1), "about 90 tokens"),
        (Usage(output_tokens=212, uncertain_tokens=88), "212 to 300 tokens"),
    ],
)
def test_tokens_in_words(usage, text):
    assert tokens(usage) == text


def test_counts_in_words():
    assert [count(n, "call") for n in (0, 1, 2)] == ["0 calls", "1 call", "2 calls"]


# passed


def judged(*verdicts, error=None):
    score = None
    if verdicts:
        score = Score(value=1.0, verdicts=tuple(Verdict(check="c", passed=p, score=1.0) for p in verdicts))
    best = Attempt(index=0, inputs={}, prediction=Prediction(a=1), score=score, error=error)
    return Result(
        best, attempts=(best,), events=(), stop_reason=StopReason.ROUNDS, usage=Usage(), run_id="r", error=error
    )


def test_passed():
    assert judged(True, True).passed
    assert not judged(True, False).passed
    assert judged().passed, "nothing was asked for"
    assert not judged(error=ScoreError("no verdict")).passed


# how it shows itself


def test_html_is_a_table_of_attempts():
    html = run("Aa. Bb.", "Aa.", checks=[sentences(1)])._repr_html_()
    assert html.count("<tr>") == 3
    assert "kept" in html
    assert "scores above" not in html, "the kept one says so"


def test_html_is_escaped():
    evil = "<script>alert('x')</script>"

    def picky(text):
        return (0.5, evil) if "first" in text else True

    html = run(f"{evil} first", f"{evil} last", checks=[picky])._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 2

    def failing(topic):
        if topic == "x":
            raise ValueError(evil)
        return topic

    with pytest.raises(RunFailed) as caught:
        Refine(failing, N=1)(topic="x")
    best = Attempt(index=1, inputs={}, prediction=Prediction(a=evil))
    attempts = (*caught.value.attempts, best)
    result = Result(
        best, attempts=attempts, events=(), stop_reason=StopReason.ERROR, usage=Usage(), run_id=evil, error=None
    )
    assert "<script" not in result._repr_html_()


def test_repr_of_a_result_without_score():
    assert "score" not in repr(run("x"))


# travelling


def test_pickle_and_copy_keep_the_receipt():
    result = SelfRefine(
        Predict("topic -> review", lm=ScriptedLM(["Aa. Bb.", "Aa."])), checks=[sentences(1), contains("Aa")]
    )(topic="x")
    for twin in (pickle.loads(pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)):
        assert type(twin) is Result
        assert twin == result
        assert repr(twin) == repr(result)
        assert twin._repr_html_() == result._repr_html_()
        assert [a.critique for a in twin.attempts] == [a.critique for a in result.attempts]
        assert twin.best is twin.attempts[1] or twin.best == twin.attempts[1]
        assert len(twin.events) == len(result.events)


def test_pickle_of_a_result_that_ended_early():
    result = run("Aa.", "never", checks=[sentences(2)], budget=Budget(calls=1))
    twin = pickle.loads(pickle.dumps(result))
    assert (twin.stop_reason, twin.error.limit, str(twin.error)) == ("budget", "calls", str(result.error))


@pytest.mark.parametrize(
    "error",
    [
        LMError("m", status=500, sent=True),
        TransientLMError("m", status=429, retry_after=1.5),
        AuthError("m", status=401),
        UnsupportedError("m", parameter="seed", status=400),
        BudgetExceeded("m", limit="calls", allowed=2, spent=2),
        ParseError("m", completion=Completion(choices=(Choice(text="x"),))),
        ScoreError("m"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_travel(error):
    error.run_id = "r"
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


@pytest.mark.parametrize(
    "value",
    [Request(messages=({"role": "user", "content": "x"},)), Event(seq=1, kind="call", time=0.0)],
    ids=["Request", "Event"],
)
def test_values_travel(value):
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value


def test_an_error_travels_with_its_attempts():
    """As out of a process pool."""
    lm = ScriptedLM([AuthError("401", status=401)] * 2)
    with pytest.raises(AuthError) as caught:
        Refine(Predict("topic -> review", lm=lm), N=2)(topic="soup")
    twin = pickle.loads(pickle.dumps(caught.value))
    assert [str(a.error) for a in twin.attempts] == ["401", "401"]
    assert (twin.usage.calls, twin.run_id) == (2, caught.value.run_id)
    with pytest.raises(RunFailed) as caught:
        Refine(lambda topic: 1 / 0, N=1)(topic="soup")
    assert len(pickle.loads(pickle.dumps(caught.value)).attempts) == 1


def test_events_are_json():
    result = run("Aa. Bb.", "Aa.", checks=[sentences(1)])
    assert json.loads(json.dumps([dict(e.data) for e in result.events]))
    assert [e.seq for e in result.events] == sorted(e.seq for e in result.events)
