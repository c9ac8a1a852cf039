"""The languages of constraints: every text of one passes the check that offers it, alone and together with others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft.checks import (
    bullets,
    chars,
    contains,
    ends_with,
    forbids,
    keyword_counts,
    languages,
    lowercase,
    matches,
    no_commas,
    one_of,
    paragraphs,
    sentences,
    starts_with,
    uppercase,
    words,
)
from redraft.checks.constraint import NOTHING, Constraint
from redraft.checks.patterns import translated
from redraft.grammar import accepts, problem, walk

pytest.importorskip("llguidance")

ALONE = [
    words(1),
    words(20, 40),
    words(30),
    words(120, 200),
    words(at_least=15),
    words(at_most=25),
    sentences(1),
    sentences(3),
    sentences(2, 5),
    sentences(at_most=4),
    paragraphs(1),
    paragraphs(2, 3),
    bullets(3),
    bullets(2, 9),
    bullets(at_least=4),
    chars(40, 120),
    chars(100),
    chars(at_most=280),
    contains("La Maison"),
    contains("bees", "C++", "naïve café"),
    contains("Dr. Smith"),
    forbids("very good", "moreover"),
    forbids("a", "!", "don't"),
    keyword_counts({"garden": 2}),
    keyword_counts({"garden": (1, 3), "very well": 0, "rain": (1, None)}),
    starts_with("My dear friend,"),
    starts_with("Hello there."),
    ends_with("That is all."),
    ends_with("the very end"),
    matches(r"[A-Z]{2}-\d{3,}"),
    matches(r"\w+(, \w+)*"),
    one_of("positive", "very negative"),
    lowercase(),
    uppercase(),
    no_commas(),
]

TOGETHER = [
    (words(20, 40), no_commas(), bullets(3)),
    (words(30), contains("garden", "fresh coffee")),
    (words(20, 40), contains("garden", "coffee", "La Maison", "Lisbon")),
    (words(45, 60), sentences(3, 4), contains("garden")),
    (sentences(3), contains("garden", "coffee"), forbids("nice", "very good")),
    (sentences(3), lowercase(), contains("La Maison")),
    (sentences(2), uppercase(), no_commas()),
    (sentences(4), paragraphs(2)),
    (sentences(4), starts_with("Hello there."), ends_with("That is all.")),
    (sentences(3), starts_with("In short"), keyword_counts({"rain": 2})),
    (bullets(3), lowercase()),
    (bullets(2, 4), sentences(3)),
    (bullets(3), starts_with("Here is how:"), contains("garden")),
    (bullets(2), paragraphs(1), words(10, 20), contains("garden", "rain", "sun")),
    (paragraphs(2), words(40, 60), ends_with("Yours truly")),
    (chars(50, 200), lowercase(), no_commas()),
    (keyword_counts({"garden": 1}), contains("garden", "gate"), words(12, 30)),
]


def together(checks):
    whole = None
    for check in checks:
        offer = check.constraint()
        whole = offer if whole is None else whole & offer
    return whole


@pytest.mark.parametrize("checks", [*((check,) for check in ALONE), *TOGETHER], ids=str)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_text_of_a_constraint_passes_its_checks(checks, seed):
    grammar = together(checks).grammar()
    assert not problem(grammar)
    found = walk(grammar, seed)
    assert found.whole, found
    assert accepts(grammar, found.text)
    for check in checks:
        assert check.judge(found.text)[0] == 1.0, (check, found.text)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (
            words(10, 40),
            "The food is fresh, and it's cheap; we don't mind the half-empty room. You may stay 2.5 hours!",
        ),
        (sentences(2), "Bees live in a hive. Their queen lays 2000 eggs each day."),
        (bullets(2), "- Sleep well\n- Drink more water every morning."),
        (contains("La Maison"), "La Maison is small but famous.\n\nIts chef cooks what he likes."),
        (contains("bees"), "Bees make honey from the nectar of all sorts of flowers."),
        (lowercase(), "all is quiet. nobody knows what the morning brings us."),
        (one_of("yes", "no"), "no"),
    ],
    ids=str,
)
def test_plain_good_texts_are_in_the_language(check, text):
    assert check.judge(text)[0] == 1.0
    assert accepts(check.constraint().grammar(), text)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (bullets(3), "- 1.\n- 2.\n- 3."),
        (bullets(2), "- \n- "),
        (words(3, 9), "Good , , . food"),
        (words(3, 9), "Good  food   here."),
        (words(3, 9), "Good food\n\n\n\nHere it is."),
        (words(3, 9), "We went there with the."),
        (sentences(1), "No. No. No."),
        (contains("bees"), "bees bees bees bees"),
        (lowercase(), "so so so, , , ,"),
    ],
    ids=str,
)
def test_degenerate_texts_are_not(check, text):
    assert not accepts(check.constraint().grammar(), text)


@pytest.mark.parametrize(
    "checks",
    [
        (contains("bees"), forbids("bees")),
        (starts_with("My friend"), lowercase()),
        (starts_with("Well, yes"), no_commas()),
        (words(5), bullets(6)),
        (words(5), words(9)),
        (lowercase(), uppercase()),
        (keyword_counts({"rain": 1}), starts_with("Rain is rain.")),
        (bullets(3), sentences(5)),
        (words(20), chars(100)),
    ],
    ids=str,
)
def test_what_cannot_be_together_says_so(checks):
    assert "no text can satisfy it" in problem(together(checks).grammar())


def test_alternatives_and_opposites():
    either = contains("rain").constraint() | lowercase().constraint()
    assert accepts(either.grammar(), "nobody knows what the morning brings us all.")
    both = either & words(5, 9).constraint()
    assert not problem(both.grammar())
    without = ~contains("rain").constraint()
    assert without == forbids("rain").constraint()
    assert ~without == contains("rain").constraint()
    assert ~words(5, 9).constraint() == NOTHING


def test_an_own_terminal_narrows_a_shape():
    joined = words(5, 9).constraint() & Constraint("/[ -df-~]*/")
    assert not problem(joined.grammar())
    assert accepts(joined.grammar(), "Rain falls on our small town.")
    assert not accepts(joined.grammar(), "Rain falls on the small town.")


def test_a_terminal_that_does_not_fit_leaves_its_place_to_another():
    wide, odd = Constraint("/[a-z ]*/", bounded=True), Constraint("/[0-9]+/", bounded=True)
    narrow, third = Constraint("/[a-y ]*/", bounded=True), Constraint("/[a-x ]*/", bounded=True)
    whole, held = languages.together([wide, odd, odd, narrow, third])
    assert held == [0, 3], "two at most, and what contradicts the first is none of them"
    assert not problem(whole.grammar())
    assert languages.together([Constraint("/(/"), Constraint("/)/"), wide, narrow])[1] == [2, 3]


@pytest.mark.parametrize(
    "pattern",
    ["(?i)abc", r"a(?=b)", r"(a)\1", r"\bfoo\b", r"a(?<!b)c", r"(?m:^a$)", r"x$y", "(", r"(?P<x>a)(?P=x)", "(a"],
)
def test_patterns_that_the_engine_reads_otherwise_are_not_translated(pattern):
    assert translated(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\d{3}-[a-f]+$",
        r"[^,]+,[^,\s]+",
        r".*foo.{2,}",
        r"a/b\"c\\d",
        r"(?:ab|c*)+?",
        r"[\W]x?",
        r"\s+\S+",
        r"[一-龥]{2}",
        r"<\w>",
    ],
)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_patterns_translate_to_what_they_match(pattern, seed):
    grammar = languages.matches(pattern).grammar()
    assert not problem(grammar)
    found = walk(grammar, seed)
    assert found.whole
    assert re.fullmatch(pattern, found.text)
