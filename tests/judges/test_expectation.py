"""The expected score of a reply, from the log probabilities of its score token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.judges import expectation
from redraft.types import Choice

SPLIT = {"4": 0.5, "3": 0.3, "5": 0.2}


def test_the_score_is_what_the_judge_says_on_average(say):
    found = expectation(say.choice([("4", SPLIT)]))
    assert (found.value, found.mass, found.measured) == (pytest.approx(3.9), pytest.approx(1.0), True)
    assert found.deviation == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("tokens", "field"),
    [
        (["Score", ": ", ("4", SPLIT), "/5"], ""),
        (["**", ("4", SPLIT), "**\nClear."], ""),
        (["{", '"verdict"', ": ", ('"4"', {'"4"': 0.5, '"3"': 0.3, '"5"': 0.2}), ', "hint": "4 of 5"}'], "verdict"),
        (['{"verdict": "', ("4", SPLIT), '", "hint": "say \\"verdict\\": 1"}'], "verdict"),
        (['{"verdict_1": "2", "verdict_2": "', ("4", SPLIT), '", "verdict_10": "1"}'], "verdict_2"),
        (["<verdict>", ("4", SPLIT), "</verdict>"], "verdict"),
    ],
)
def test_the_score_is_found_where_it_stands(say, tokens, field):
    assert expectation(say.choice(tokens), field=field).value == pytest.approx(3.9)


def test_one_score_in_several_spellings_is_one_score(say):
    found = expectation(say.choice([(" 4", {" 4": 0.4, "4": 0.2, ' "4': 0.1, "3": 0.3})]))
    assert found.value == pytest.approx(3.7)


def test_a_token_said_outside_its_alternatives_counts(say):
    reply = say.choice([("4", {"3": 0.3, "x": 0.0})])  # 0.9 for what was said
    assert expectation(reply).value == pytest.approx((4 * 0.9 + 3 * 0.3) / 1.2)


def test_thoughts_before_the_text_are_passed_over(say):
    reply = say.choice(["<think>", ("2", {"2": 1.0}), "</think>", ("4", SPLIT)], text="4")
    assert expectation(reply).value == pytest.approx(3.9)


def test_tokens_that_end_inside_a_character_are_counted_in_bytes(say):
    accent = "\u00e9".encode()
    said = say.choice(["?", "?", ': "', ("4", SPLIT)])
    halves = [
        {**t, "bytes": list(b)} for t, b in zip(said.logprobs, [accent[:1], accent[1:], b': "', b"4"], strict=True)
    ]
    reply = Choice(text='\u00e9: "4', logprobs=tuple(halves))
    assert expectation(reply, field="\u00e9").value == pytest.approx(3.9)


def test_it_abstains_if_a_score_was_unlikely(say):
    reply = say.choice([("4", {"4": 0.2, "3": 0.2, "The": 0.6})])
    assert expectation(reply) is None
    assert expectation(reply, least=0.3).value == pytest.approx(3.5)


@pytest.mark.parametrize("text", ["", "unsure", "7", "0", "between 2 and 4", "3-4", "3 to 4", "3.5", "4th", "I say 4"])
def test_what_is_no_score_is_never_guessed(say, text):
    assert expectation(Choice(text=text)) is None
    assert expectation(say.choice([(text, {"4": 1.0})])) is None


@pytest.mark.parametrize("logprobs", [None, (), ({"token": "4", "logprob": -0.1, "top_logprobs": []},)])
def test_without_alternatives_it_is_the_score_said(logprobs):
    found = expectation(Choice(text="4", logprobs=logprobs))
    assert (found.value, found.deviation, found.measured) == (4.0, 0.0, False)


def test_log_probabilities_of_another_text_are_not_used(say):
    assert expectation(say.choice([("2", {"2": 1.0})], text="4")).measured is False


def test_a_scale_whose_scores_begin_alike_takes_the_score_said(say):
    assert expectation(say.choice([("1", {"1": 0.6, "2": 0.4})]), (0, 10)).measured is False
    assert expectation(say.choice([("1", {"1": 0.6, "2": 0.4})]), (0, 9)).value == pytest.approx(1.4)


TOKENS = ["1", "2", "3", "4", "5", "x", " 4", "unsure"]


@given(st.sampled_from("12345"), st.dictionaries(st.sampled_from(TOKENS), st.floats(-20.0, 0.0)), st.floats(0.0, 1.0))
def test_an_expectation_lies_on_the_scale(said, offered, least):
    top = [{"token": token, "logprob": logprob} for token, logprob in offered.items()]
    reply = Choice(text=said, logprobs=({"token": said, "logprob": -1.0, "top_logprobs": top},))
    found = expectation(reply, least=least)
    assert found is None or (1.0 <= found.value <= 5.0 and 0.0 <= found.deviation <= 2.0 and found.mass <= 1.0)
    assert found is None or not found.measured or found.mass >= least
