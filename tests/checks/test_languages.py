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
from redraft.checks import languages
from redraft.checks.constraint import NOTHING
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
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_text_of_a_constraint_passes_its_checks(checks, seed):
    grammar = together(checks).grammar()
    assert not problem(grammar)
    found = walk(grammar, seed)
    assert found.whole, found
    assert accepts(grammar, found.text)
    for check in checks:
        assert check.judge(found.text) == (1.0, ""), (check, found.text)
