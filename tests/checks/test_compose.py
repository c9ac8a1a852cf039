"""Checks made of checks: each use of the parts, and what the whole makes of them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft import Prediction
from redraft.checks import (
    Check,
    Constraint,
    all_of,
    any_of,
    check,
    contains,
    json_valid,
    not_,
    number,
    sentences,
    weighted,
    words,
)
from redraft.checks.aliases import Holds
from redraft.errors import ScoreError, UsageError
from redraft.grammar import problem

HAS_A, HAS_B = Holds("a"), Holds("b")


class Asking(Check):
    """Gives a fixed score, and counts how often it was asked."""

    asks = True

    def __init__(self, score=1.0):
        super().__init__()
        self.score, self.asked = score, 0

    def tell_text(self):
        return "Please."

    async def verdict(self, inputs, prediction):
        self.asked += 1
        return self._as_verdict(self.score, "displeased")


def verdict(made, prediction=None, **fields):
    return asyncio.run(made.verdict({"q": "x"}, prediction or Prediction(**fields)))


# scores and explanations


@pytest.mark.parametrize(
    ("check", "text", "score", "why"),
    [
        (all_of(HAS_A, HAS_B), "ab", 1.0, ""),
        (all_of(HAS_A, HAS_B), "a", 0.5, '"b" missing'),
        (all_of(HAS_A, HAS_B), "", 0.0, '"a" missing; "b" missing'),
        (any_of(HAS_A, HAS_B), "b", 1.0, ""),
        (any_of(HAS_A, words(4)), "x y", 0.5, 'none of the alternatives holds: "a" missing; 2 words, want 4'),
        (not_(HAS_A), "b", 1.0, ""),
        (not_(HAS_A), "a", 0.0, 'this holds, but must not: Write "a"'),
        (weighted((HAS_A, 3), (HAS_B, 1), threshold=0.7), "a", 1.0, ""),
        (weighted((HAS_A, 3), (HAS_B, 1)), "a", 0.75, '0.75 of 1 reached: "b" missing'),
        (weighted((HAS_A, 3), (HAS_B, 1), threshold=0.5), "b", 0.5, '0.25 of 0.5 reached: "a" missing'),
        (weighted((HAS_A, 1), threshold=0), "", 1.0, ""),
        (all_of(any_of(HAS_A, HAS_B), not_(all_of(HAS_A, HAS_B))), "ab", 0.5, "this holds, but must not: "),
    ],
)
def test_what_the_whole_says(check, text, score, why):
    said = verdict(check, answer=text)
    assert said.score == pytest.approx(score)
    assert said.explanation.startswith(why)
    assert said.passed == (score == 1.0)
    assert check.judge(text)[0] == said.score


def test_what_is_told():
    assert all_of(words(3), HAS_A).tell() == 'Write exactly 3 words. Write "a".'
    assert (
        any_of(words(3), HAS_A).tell() == 'At least one of these must hold: (1) Write exactly 3 words. (2) Write "a".'
    )
    assert not_(HAS_A).tell() == 'This must not hold: Write "a".'
    assert all_of(words(3, tell=False), HAS_A).tell() == 'Write "a".'
    assert any_of(words(3, tell=False), HAS_A).tell() == 'Write "a".'
    assert not_(words(3, tell=False)).tell() == all_of(HAS_A, tell=False).tell() == ""


# fields, functions, models


def test_members_may_look_at_different_fields():
    check = all_of(words(1, field="title"), contains("salt", field="body"))
    assert verdict(check, title="Soup", body="With salt.").passed
    assert verdict(check, title="Hot soup", body="With salt.").score == 0.5
    assert (check.constraint(), check.guard("x"), check.fix("x")) == (None, "unknown", None)
    with pytest.raises(ScoreError, match="await verdict"):
        check.judge("x")


def test_a_field_is_for_those_that_name_none():
    bare = words(1)
    check = all_of(bare, sentences(1, field="body"), field="title")
    assert verdict(check, title="Soup", body="Hot soup.").passed
    assert bare.field is None, "a check is not changed by being part of another"


def test_functions_are_members_too():
    check = all_of(lambda text: len(text) > 2, lambda inputs, prediction: inputs["q"] == "x")
    assert verdict(check, answer="abc").passed
    assert not verdict(any_of(lambda text: False), answer="abc").passed


@pytest.mark.parametrize(
    ("make", "text", "asked"),
    [
        (lambda m: all_of(m, HAS_A), "a", 1),
        (lambda m: all_of(m, HAS_A), "b", 0),
        (lambda m: any_of(m, HAS_A), "a", 0),
        (lambda m: any_of(m, HAS_A), "b", 1),
        (lambda m: weighted((m, 1), (HAS_A, 1)), "b", 1),
        (not_, "b", 1),
        (lambda m: all_of(HAS_A, any_of(HAS_B, m)), "b", 0),
    ],
)
def test_a_model_is_asked_only_where_code_leaves_it_open(make, text, asked):
    member = Asking()
    check = make(member)
    verdict(check, answer=text)
    assert check.asks
    assert member.asked == asked


@pytest.mark.parametrize(
    "make",
    [
        all_of,
        lambda: all_of("sentences:3"),
        lambda: any_of(words),
        lambda: weighted(words(3)),
        lambda: weighted((words(3), -1)),
        lambda: weighted((words(3), 0)),
        lambda: weighted((words(3), 1), threshold=1.5),
        lambda: weighted((words(3), 1), threshold="hi"),
        lambda: weighted((words(3), 1), threshold=float("nan")),
        lambda: weighted((words(3), "x")),
        lambda: weighted((words(3), True)),
        lambda: weighted((words(3), float("nan"))),
    ],
)
def test_what_cannot_be_composed_is_refused(make):
    with pytest.raises(UsageError):
        make()


# constraints


def test_constraints_compose():
    assert all_of(HAS_A, number(0, 9)).constraint().bounded
    assert any_of(number(1, 2, integer=True), HAS_A).constraint().terminal == "(/1|2/) | (/(?s:.*)a(?s:.*)/)"
    assert not_(HAS_A).constraint() == ~HAS_A.constraint()
    assert all_of(HAS_A, json_valid()).constraint().schema is not None
    assert any_of(json_valid(), HAS_A).constraint() == HAS_A.constraint()
    assert not_(json_valid()).constraint() is None
    assert all_of(Asking()).constraint() is any_of(Asking()).constraint() is None


def test_what_cannot_hold_together_is_left_out_of_the_constraint():
    whole = all_of(number(1, 3, integer=True), Holds("x")).constraint()
    assert whole == number(1, 3, integer=True).constraint()
    assert problem(whole.grammar()) == ""


# fixes


class Appending(Check):
    """Wants a text, and adds it."""

    def __init__(self, wanted):
        super().__init__()
        self.wanted = wanted

    def judge(self, value):
        return float(self.wanted in value), "missing"

    def fix(self, value):
        return value + self.wanted

    def constraint(self):
        return Constraint("/x/")


def test_fixes_are_made_in_turn_and_none_hurts_another():
    assert all_of(Appending("a"), Appending("b")).fix("x") == "xab"
    assert all_of(Appending("a"), not_(HAS_A)).fix("x") is None
    assert weighted((Appending("a"), 1), (Appending("b"), 1)).fix("x") == "xab"
    assert any_of(HAS_B, Appending("a")).fix("x") == "xa"
    assert not_(Appending("a")).fix("xa") is None
    assert all_of(all_of(Appending("a")), any_of(Appending("b"))).fix("x") == "xab"


def short(text):
    return len(text) < 2


class Shortness(Check):
    """As a check of one's own that judges by `verdict`."""

    async def verdict(self, inputs, prediction):
        return self._as_verdict(float(short(self.value_of(prediction))), "too long")


@pytest.mark.parametrize(
    "other",
    [
        short,
        check(short),
        Shortness(),
        all_of(short),
        any_of(HAS_B, check(short)),
        not_(lambda text: not short(text)),
        lambda inputs, prediction: short(prediction.answer),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_fix_is_dropped_where_code_cannot_tell_what_another_member_makes_of_it(other, order):
    whole = all_of(*[Appending("a"), other][::order])
    assert verdict(whole, answer="x").score == 0.5
    assert whole.fix("x") is None
    assert weighted((Appending("a"), 2), (other, 1)).fix("x") is None
    assert all_of(whole, Appending("a")).fix("x") is None


def test_a_member_that_looks_elsewhere_is_not_hurt():
    title = Appending("a")
    title.field = "title"
    body = [check(short, field="body"), all_of(check(short, field="body"))]
    for other in body:
        assert all_of(title, other).applied(Prediction(title="x", body="y"))["title"] == "xa"
    for other in (lambda inputs, prediction: short(prediction.title), all_of(*body, check(short, field="title"))):
        assert all_of(title, other).applied(Prediction(title="x", body="y")) is None


def test_a_function_may_mend_itself():
    assert all_of(check(lambda text: text.islower(), fix=str.lower)).fix("X") == "x"


@given(st.lists(st.sampled_from("abxyz"), max_size=4).map("".join), st.permutations([0, 1, 2, 3]))
def test_no_fix_makes_a_member_fail(text, order):
    members = [Appending("a"), Appending("b"), check(lambda t: len(t) < 3), words(1)]
    for made in (all_of(*(members[i] for i in order[:3])), all_of(*(members[i] for i in order))):
        fixed = made.fix(text)
        for member in made.members if fixed is not None else ():
            assert not (verdict(member, answer=text).passed and not verdict(member, answer=fixed).passed)


def test_a_fix_finds_its_field():
    check = all_of(Appending("a"), field="title")
    fixed = check.applied(Prediction(title="x", body="y"))
    assert fixed.to_dict() == {"title": "xa", "body": "y"}


# guards

CHECKS = st.recursive(
    st.sampled_from([HAS_A, HAS_B, Holds("ab", at="start"), words(2, 3), number()]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda m: all_of(*m)),
        st.lists(inner, min_size=1, max_size=3).map(lambda m: any_of(*m)),
        inner.map(not_),
        st.tuples(st.lists(st.tuples(inner, st.integers(0, 2)), min_size=1, max_size=3), st.sampled_from([0.5, 1.0]))
        .filter(lambda drawn: sum(weight for _, weight in drawn[0]) > 0)
        .map(lambda drawn: weighted(*drawn[0], threshold=drawn[1])),
    ),
    max_leaves=5,
)
TEXTS = st.lists(st.sampled_from(["a", "b", "ab", " ", "x", "1", "\n", "B"]), max_size=6).map("".join)


@given(CHECKS, TEXTS, TEXTS)
def test_a_guards_word_holds_for_whatever_follows(check, prefix, rest):
    said = check.guard(prefix)
    score, _ = check.judge(prefix + rest)
    assert 0.0 <= score <= 1.0
    if said != "unknown":
        assert (score == 1.0) == (said == "pass")


@given(CHECKS, TEXTS)
def test_judging_at_once_and_by_verdict_agree(check, text):
    said = verdict(check, answer=text)
    assert (said.score, said.passed) == (check.judge(text)[0], check.judge(text)[0] == 1.0)
