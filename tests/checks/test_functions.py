"""A user's functions as checks, checks as classes, and all of them together as one score."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft import Check, Prediction, Refine, Score, check
from redraft.checks import Judgement, contains, json_schema, sentences, words
from redraft.errors import ScoreError, UsageError

INPUTS = {"topic": "soup"}


def verdict(made, prediction=None):
    prediction = prediction or Prediction(review="salt and pepper")
    return asyncio.run(made.verdict(INPUTS, prediction))


# what a function may return


@pytest.mark.parametrize(
    ("value", "score", "explanation"),
    [
        (True, 1.0, ""),
        (False, 0.0, "picky failed"),
        (1, 1.0, ""),
        (0, 0.0, "picky failed"),
        (0.4, 0.4, "picky failed"),
        (1.0, 1.0, ""),
        (None, 1.0, ""),
        ("too salty", 0.0, "too salty"),
        ("", 1.0, ""),  # "; ".join of no complaints
        ((0.4, "too salty"), 0.4, "too salty"),
        ((1.0, "well done"), 1.0, ""),
        ((False, "too salty"), 0.0, "too salty"),
        ((0.4, None), 0.4, "picky failed"),
        (Score(value=0.4, feedback="too salty"), 0.4, "too salty"),
        (Prediction(score=0.4, feedback="too salty"), 0.4, "too salty"),
    ],
)
def test_forms_of_a_check(value, score, explanation):
    def picky(text):
        return value

    made = verdict(check(picky))
    assert (made.check, made.score, made.explanation, made.passed) == ("picky", score, explanation, score == 1.0)


@pytest.mark.parametrize(
    "value", [1.5, -0.1, float("nan"), float("inf"), [], {}, object(), (1, 2, 3), ("a", "b"), 10**400]
)
def test_anything_else_is_an_error_that_names_the_check(value):
    def picky(text):
        return value

    result = Refine(lambda q: "x", N=1, checks=[picky])(q="1")
    assert (result.stop_reason, result.passed) == ("error", False)
    assert isinstance(result.error, ScoreError)
    assert "picky" in str(result.error)


def raising(text):
    raise KeyError("boom")


async def raising_later(text):
    await asyncio.sleep(0)
    raise KeyError("boom")


def asserting(text):
    assert "thyme" in text, "boom"


@pytest.mark.parametrize("fn", [raising, raising_later, asserting], ids=lambda f: f.__name__)
def test_a_check_that_raises_is_named(fn):
    result = Refine(lambda q: "x", N=1, checks=[words(1), fn])(q="1")
    assert isinstance(result.error, ScoreError)
    assert fn.__name__ in str(result.error)
    assert "boom" in str(result.error)
    assert result.score is None


# what a function is given


def test_one_argument_is_the_text():
    given_to = []
    verdict(check(given_to.append))
    assert given_to == ["salt and pepper"]


def test_several_outputs_are_one_text_without_the_reasoning():
    given_to = []
    verdict(check(given_to.append), Prediction(reasoning="hm", title="Soup", body="Hot."))
    assert given_to == ["title: Soup\n\nbody: Hot."]


def test_a_field():
    given_to = []
    verdict(check(given_to.append, field="stars"), Prediction(title="Soup", stars=4))
    assert given_to == [4]


def test_a_field_that_is_not_there_is_named():
    with pytest.raises(ScoreError, match=r"'star'.*title, stars"):
        verdict(words(1, field="star"), Prediction(title="Soup", stars=4))


class Jury:
    def __init__(self):
        self.seen = []

    def method(self, inputs, prediction, strict=False):
        self.seen.append((inputs, prediction))


def test_two_arguments_are_inputs_and_prediction():
    jury, prediction = Jury(), Prediction(review="x")
    verdict(check(jury.method), prediction)
    verdict(check(lambda inputs, prediction: jury.seen.append((inputs, prediction))), prediction)
    assert jury.seen == [(INPUTS, prediction)] * 2


def test_a_default_argument_is_no_second_one():
    assert verdict(check(lambda text, limit=99: len(text) < limit)).passed


def test_changing_the_inputs_changes_nothing():
    def vandal(inputs, prediction):
        inputs.clear()

    verdict(check(vandal))
    assert INPUTS == {"topic": "soup"}


# how a check is made


def test_decorator_forms():
    @check
    def bare(text):
        """Stays a check."""

    @check(tell="Be brief.", name="brief", hard=False)
    async def named(text):
        return len(text) < 99

    assert (bare.name, bare.tell(), bare.hard) == ("bare", "", True)
    assert (named.name, named.tell(), named.hard) == ("brief", "Be brief.", False)
    assert verdict(named).passed
    assert not verdict(named).hard
    assert "hidden" in repr(bare)
    assert "Be brief." in repr(named)


def test_a_class_of_the_users():
    class Shouting(Check):
        name = "shouting"

        def tell_text(self):
            return "Write in capitals."

        def judge(self, value):
            share = sum(c.isupper() for c in value) / max(1, len(value))
            return share, f"only {share:.0%} capitals"

    assert verdict(Shouting(), Prediction(a="ABCd")).explanation == "only 75% capitals"
    assert verdict(Shouting(), Prediction(a="ABC")).passed
    assert Shouting(tell=False).tell() == ""


def test_a_check_without_judge_says_what_to_define():
    with pytest.raises(TypeError, match="defines no judge"):
        verdict(Check())


@pytest.mark.parametrize("thing", [5, None, {"a": 1}])
def test_what_is_no_check_is_refused_at_the_door(thing):
    with pytest.raises(UsageError, match="no check"):
        Judgement([thing])


# all together


def judged(checks, text, reward=None):
    return asyncio.run(Judgement(checks, reward).score(INPUTS, Prediction(review=text)))


def test_the_value_of_checks():
    checks = [words(4), contains("salt"), sentences(1)]
    assert judged(checks, "Salt in the soup.").value == 1.0
    assert judged(checks, "Sugar in the soup.").value == pytest.approx(2 / 3)
    assert judged(checks, "Sugar in the hot soup.").value == pytest.approx((1 + (0 + 0.75) / 2) / 3)
    assert judged([], "x").value == 1.0


def test_feedback_is_what_failed_in_words():
    score = judged([words(2), contains("salt"), sentences(1)], "Sugar in it.")
    assert score.feedback == '3 words, want 2. "salt" missing.'
    assert [v.passed for v in score.verdicts] == [False, False, True]
    assert (score.passed, score.hard_failures) == (False, 2)


def test_a_reward_is_the_value_and_adds_its_feedback():
    score = judged([contains("salt")], "Sugar.", lambda args, pred: (7, "Too sweet."))
    assert (score.value, score.feedback) == (7.0, '"salt" missing. Too sweet.')
    assert score.hard_failures == 1


class Fixed(Check):
    """Gives the score it was made with."""

    def __init__(self, score):
        super().__init__()
        self.fixed = score

    def judge(self, value):
        return self.fixed, ""


def value_of(*scores):
    scoring = Judgement([Fixed(score) for score in scores]).score(INPUTS, Prediction(review="x"))
    try:  # no check here waits for anything: one step of the coroutine is all of it
        scoring.send(None)
    except StopIteration as done:
        return done.value.value
    raise AssertionError("a check waited")


PARTIAL = st.floats(0, 1, exclude_max=True)


@given(st.lists(st.just(1.0) | PARTIAL, max_size=5), PARTIAL, st.lists(PARTIAL, min_size=5, max_size=5), PARTIAL)
def test_one_more_passed_check_outweighs_all_partial_credit(others, failing, worse, better):
    """One check fails by `failing`; whatever the other failing ones do meanwhile, passing it is worth more."""
    now = value_of(failing, *others)
    assert 0.0 <= now < 1.0
    assert value_of(1.0, *(o if o == 1.0 else w for o, w in zip(others, worse, strict=False))) > now
    assert value_of(max(failing, better), *others) >= now, "partial credit is monotone"
    assert value_of(*[1.0] * (len(others) + 1)) == 1.0


def test_the_critique_of_code():
    judgement = Judgement([words(2), contains("salt"), check(lambda t: "dull", hard=False)])
    score = asyncio.run(judgement.score(INPUTS, Prediction(review="Salt it")))
    critique = judgement.critique(score)
    assert critique.by == "checks"
    assert [(i.problem, i.severity) for i in critique.issues] == [("dull", "major")]
    assert critique.keep == ("Write exactly 2 words.", 'Mention "salt".')


def test_requirements_are_what_is_told():
    hidden = json_schema({"type": "object"}, tell=False)
    assert Judgement([words(2), hidden, check(lambda t: True)]).requirements() == ("Write exactly 2 words.",)
