"""Signals, where to go back to, and which alternative to take."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.errors import InputError
from redraft.proactive import DynamicBacktracker, RandomSignal, RefinementSignal
from redraft.proactive.signals import consistency
from redraft.proactive.tokens import Token, entry_of, is_whole, text_of, tokens_of


def place(*shares, entropy=None, data=b"x"):
    """A place with these shares, the first of which was chosen; ids by rank."""
    top = tuple(Token(data=data, logprob=math.log(p), id=i) for i, p in enumerate(shares))
    return Token(data=data, logprob=math.log(shares[0]), id=0, top=top, entropy=entropy)


SURE, TORN = place(0.98, 0.01), place(0.5, 0.45)


@pytest.mark.parametrize(
    ("measure", "threshold"), [("confidence", 0.6), ("margin", 0.3), ("nll", 0.5), ("entropy_topk", 0.6)]
)
def test_each_measure_doubts_the_token_that_was_nearly_another(measure, threshold):
    signal = RefinementSignal(measure, threshold)
    assert signal.should_refine([SURE, TORN])
    assert not signal.should_refine([TORN, SURE])
    assert signal.doubt(TORN) > signal.doubt(SURE)


def test_a_window_is_a_mean_and_is_silent_until_it_is_full():
    signal = RefinementSignal("nll", 0.3, window=2)
    assert signal.value([TORN]) is None
    assert signal.value([SURE, TORN]) == pytest.approx((-math.log(0.98) - math.log(0.5)) / 2)
    assert signal.should_refine([SURE, TORN])
    assert not signal.should_refine([SURE, SURE])


def test_the_entropy_of_the_top_is_not_taken_for_the_whole():
    with pytest.raises(InputError, match="use 'entropy_topk'"):
        RefinementSignal("entropy", 1.0).should_refine([TORN])
    assert RefinementSignal("entropy", 1.0).should_refine([place(0.5, 0.45, entropy=1.2)])


@given(shares=st.lists(st.floats(0.001, 1.0), min_size=2, max_size=8))
def test_the_entropy_of_the_top_is_a_lower_bound(shares):
    total = sum(shares)
    whole = sorted((p / total for p in shares), reverse=True)
    full = -sum(p * math.log(p) for p in whole)
    assert place(*whole[: max(2, len(whole) // 2)]).entropy_topk <= full + 1e-9


def test_a_threshold_by_percentile_fires_at_that_share_of_the_places():
    chance = random.Random(1)
    replies = [[place(p, (1 - p) / 2) for p in (chance.uniform(0.3, 1.0) for _ in range(50))] for _ in range(20)]
    for measure in ("nll", "confidence"):
        signal = RefinementSignal.calibrated(measure, replies, percentile=90)
        fired = sum(signal.should_refine(reply[: i + 1]) for reply in replies for i in range(50))
        assert fired == pytest.approx(100, abs=2)


def test_calibration_needs_replies_that_fill_the_window():
    with pytest.raises(InputError, match="smaller window"):
        RefinementSignal.calibrated("nll", [[SURE]], window=2)


@pytest.mark.parametrize(("rate", "low", "high"), [(0.0, 0, 0), (1.0, 400, 400), (0.25, 70, 130)])
def test_a_random_signal_fires_at_its_rate_and_alike_for_the_same_text(rate, low, high):
    texts = [[place(0.9, 0.1, data=str(n).encode())] for n in range(400)]
    fired = [RandomSignal(rate, seed=1).should_refine(text) for text in texts]
    assert low <= sum(fired) <= high
    assert fired == [RandomSignal(rate, seed=1).should_refine(text) for text in texts]


def test_consistency_is_the_share_that_agrees_with_the_first():
    assert consistency(["5", "5", "6", "5"]) == 0.75
    assert consistency(["5"]) == 1.0
    assert RefinementSignal().compute_consistency(["a", "b"]) == 0.5
    assert RefinementSignal().compute_confidence(TORN) == pytest.approx(0.5)
    assert RefinementSignal().compute_entropy(TORN) is None


@given(
    n=st.integers(0, 60),
    torn=st.sets(st.integers(0, 59)),
    keep=st.floats(0, 0.9),
    reach=st.tuples(st.integers(1, 10), st.integers(10, 30)),
)
def test_a_point_lies_within_reach_and_leaves_what_is_to_be_kept(n, torn, keep, reach):
    tokens = [TORN if i in torn else SURE for i in range(n)]
    back = DynamicBacktracker(reach=reach, keep=keep)
    point = back.find_refinement_point(tokens, RefinementSignal("margin"))
    if point is None:
        assert max(math.ceil(keep * n), n - reach[1]) > n - reach[0]
        return
    assert reach[0] <= n - point <= reach[1]
    assert point >= keep * n
    window = [i for i in torn if max(math.ceil(keep * n), n - reach[1]) <= i <= n - reach[0]]
    assert point == min(window, default=point)


def test_a_point_that_is_tabu_is_not_found_again():
    tokens = [SURE] * 10 + [TORN] + [SURE] * 6
    back, signal = DynamicBacktracker(), RefinementSignal("margin")
    assert back.find_refinement_point(tokens, signal) == 10
    assert back.find_refinement_point(tokens, signal, tabu=lambda at: at == 10) == 4
    assert back.find_refinement_point(tokens, signal, tabu=lambda at: True) is None


def test_alternatives_begin_with_another_likely_token_each_at_its_temperature():
    tokens = [place(0.5, 0.3, 0.19, 0.01)]
    branches = DynamicBacktracker().revise_from_point(tokens, 0, random.Random(0))
    assert [b.temperature for b in branches] == [0.7, 0.8, 0.9]
    assert {b.first.id for b in branches} <= {1, 2}, "neither the token that stood there nor an unlikely one"
    assert DynamicBacktracker().revise_from_point(tokens, 0, random.Random(0), banned=frozenset({1, 2})) == []


def pick(verified, texts, logprobs=None):
    tails = [[Token(data=b"x", logprob=p)] for p in logprobs or [-1.0] * len(texts)]
    selected = DynamicBacktracker().select_best_alternative(tails, verified, texts)
    return selected.at, selected.why


def test_the_checks_come_before_agreement_and_likelihood():
    assert pick([0, 1, 0], ["5", "6", "5"], [-0.1, -9.0, -0.1]) == (1, "the checks prefer it")
    assert pick([-1, 0, 0, 0], ["a", "b", "b", "c"], [0.0, -1.0, -2.0, -0.1]) == (1, "the checks prefer it")


def test_agreement_comes_before_likelihood():
    assert pick([0, 0, 0], ["5", "6", "6."], [-0.1, -9.0, -8.0]) == (2, "2 of 3 agree on it")
    assert pick([0, 0, 0], ["5", "6", "5"], [-9.0, -0.1, -0.5])[0] == 0


def test_likelihood_breaks_ties_and_the_original_wins_equals():
    assert pick([0, 0, 0], ["5", "6", "7"], [-1.0, -0.5, -2.0]) == (1, "the likelier one, all else being equal")
    assert pick([0, 0], ["5", "6"], [-1.0, -1.0]) == (0, "nothing speaks against it")


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), st.sampled_from("ab"), st.floats(-9, 0)), min_size=1, max_size=5
    )
)
def test_nothing_that_the_checks_rank_lower_is_ever_taken(rows):
    verified, texts, logprobs = map(list, zip(*rows, strict=True))
    at, _ = pick(verified, texts, logprobs)
    assert verified[at] == max(verified)


@pytest.mark.parametrize(
    "options",
    [
        {"reach": (0, 5)},
        {"reach": (6, 5)},
        {"keep": 1.0},
        {"floor": 0.0},
        {"gap": 0},
        {"most": -1},
        {"temperatures": ()},
    ],
)
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(InputError):
        DynamicBacktracker(**options)


def test_a_token_survives_the_wire():
    token = place(0.5, 0.3, entropy=1.0, data=" caf\u00e9".encode())
    [back] = tokens_of([entry_of(token)])
    assert back == token


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_cut_inside_a_character_is_seen(cut):
    cake = "\U0001f370".encode()
    pieces = [Token(data=b"a", logprob=0.0), *(Token(data=bytes([b]), logprob=0.0) for b in cake)]
    assert not is_whole(pieces[: 1 + cut])
    assert is_whole(pieces)
    assert is_whole(pieces[:1])
    assert text_of(pieces[: 1 + cut]) == "a"


def test_alternatives_of_a_piece_of_a_character_are_none_of_the_whole_character():
    piece = {"id": 7, "token": "\ufffd", "bytes": [176], "logprob": -0.1}
    [token] = tokens_of(
        [
            {
                "id": 7,
                "token": "\U0001f370",
                "bytes": [240, 159, 141, 176],
                "logprob": -0.1,
                "top_logprobs": [piece, piece],
            }
        ]
    )
    assert token.top == ()
