"""Grammars are compiled and probed before they are sent: the engine would drop them without a word."""

from __future__ import annotations

import time

import pytest

from redraft.errors import BadRequestError
from redraft.grammar import accepts, engine_grammar, problem, walk

pytest.importorskip("llguidance")

WORDS = r"/[A-Za-z0-9'\-]{1,16}[.,;:!?]?( [A-Za-z0-9'\-]{1,16}[.,;:!?]?){19,39}/"


def terminal(expression):
    return f"start: TEXT\nTEXT: {expression}\n"


@pytest.mark.parametrize(
    "grammar",
    ['start: "yes" | "no"', terminal(WORDS), terminal(r"/[^\n]{20,160}/"), 'start: %json {"type": "object"}'],
)
def test_a_grammar_that_is_held(grammar):
    assert problem(grammar) == ""
    assert engine_grammar(grammar).startswith("%llguidance")


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ("hello", "Expected token"),
        ("start: /a", "lexer error"),
        ("start: nowhere", "unknown name"),
        (terminal("/a/ & /b/"), "no text can satisfy it"),
        (terminal("/aa*c/ & /a*b/"), "no text can satisfy it"),
        (terminal(rf"{WORDS} & ~/.*nice.*/ & ~/.*very unique.*/"), "too large"),
        (terminal(r"/[^\n]{20,160}/ & /.*wine.*/ & ~/.*, .*/"), "too large"),
    ],
)
def test_a_grammar_that_would_be_dropped(grammar, said):
    assert said in problem(grammar)
    with pytest.raises(BadRequestError, match="would ignore it"):
        engine_grammar(grammar)


def test_a_probe_is_quick_and_done_once():
    problem('start: "warm"')
    grammar = terminal(WORDS.replace("19,39", "18,38"))
    started = time.process_time()
    problem(grammar)
    assert time.process_time() - started < 1.0
    started = time.process_time()
    problem(grammar)
    assert time.process_time() - started < 0.01


def test_texts_are_accepted_to_their_end():
    grammar = 'start: "yes" | "yes, " /[a-zé]+/'
    assert [accepts(grammar, text) for text in ("yes", "yes, né", "ye", "yes, ", "yes!", "")] == [True, True] + [
        False
    ] * 4


def test_a_walk_repeats_by_its_seed_and_ends():
    grammar = terminal(WORDS)
    assert walk(grammar, 1) == walk(grammar, 1) != walk(grammar, 2)
    found = walk(grammar, 1)
    assert found.whole
    assert accepts(grammar, found.text)
    assert not walk(grammar, 1, steps=3).whole
