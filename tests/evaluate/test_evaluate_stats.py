"""The statistics: known values, and what holds for all."""

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft.evaluate.stats import (
    Estimate,
    bootstrap,
    changed,
    mcnemar,
    mean_of,
    paired_difference,
    quantile,
    sign_flips,
    wilson,
)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        (0, 0, 1.0),
        (1, 1, 1.0),
        (5, 0, 0.0625),
        (0, 6, 0.03125),
        (17, 3, 2 * (1 + 20 + 190 + 1140) / 2**20),
        (13, 5, 0.0962524),  # R: binom.test(5, 18)
    ],
)
def test_mcnemar_is_exact_and_two_sided(gained, lost, p):
    assert mcnemar(gained, lost) == mcnemar(lost, gained) == pytest.approx(p, rel=1e-3)


def test_mcnemar_of_thousands_is_the_normal_approximation():
    z = (200 - 1) / math.sqrt(5000)  # 2 ** 5000 is no float
    assert mcnemar(2600, 2400) == pytest.approx(2 * NormalDist().cdf(-z), rel=1e-2)


def test_half_of_a_hundred_lies_between_40_and_60():
    found = bootstrap([0.0, 1.0] * 50)
    assert (found.mean, found.n) == (0.5, 100)
    assert found.low == pytest.approx(0.40, abs=0.02)
    assert found.high == pytest.approx(0.60, abs=0.02)


def test_a_mean_of_normal_values_has_the_textbook_interval():
    draw = random.Random(3).gauss
    values = [draw(10, 2) for _ in range(400)]
    found = bootstrap(values)
    spread = math.sqrt(sum((v - found.mean) ** 2 for v in values) / 399 / 400)
    assert found.low == pytest.approx(found.mean - 1.96 * spread, abs=0.05)
    assert found.high == pytest.approx(found.mean + 1.96 * spread, abs=0.05)


def test_a_paired_difference_is_narrower_than_the_values_it_compares():
    theirs = [i / 50 for i in range(50)]
    ours = [v + 0.1 + 0.001 * (-1) ** i for i, v in enumerate(theirs)]
    found = paired_difference(ours, theirs)
    assert found.mean == pytest.approx(0.1)
    assert found.high - found.low < 0.001
    assert not found.spans_zero
    with pytest.raises(ValueError, match="zip"):
        paired_difference([1.0], [])


def test_too_few_values_have_no_interval():
    assert bootstrap([]) is bootstrap([1.0]) is paired_difference([], []) is None
    assert Estimate(0.0, 0.0, 0.0, 2).spans_zero


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_an_interval_holds_its_mean_and_is_the_same_for_a_seed(values, seed):
    found = bootstrap(values, seed)
    assert found == bootstrap(values, seed)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    assert found.low - 1e-9 <= sum(values) / len(values) <= found.high + 1e-9 or len(set(values)) > 1


def test_a_quantile_is_one_of_the_values():
    assert [quantile(range(1, 101), q) for q in (0.0, 0.5, 0.95, 1.0)] == [1, 50, 95, 100]
    assert (quantile([3.0], 0.95), quantile([], 0.5)) == (3.0, 0.0)


def test_a_share_has_wilsons_interval():
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # R: prop.test(8, 10, correct = FALSE)
    found = mean_of([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert (found.mean, found.n, (found.low, found.high)) == (0.8, 10, wilson(8, 10))
    assert mean_of([0.0, 0.5, 1.0] * 10) == bootstrap([0.0, 0.5, 1.0] * 10)
    assert mean_of([1.0]) is None


def test_pairs_that_change_have_an_interval_that_holds_for_few():
    assert (changed(2, 0, 2).low, changed(2, 0, 2).high) == pytest.approx((-0.3487, 1.0), abs=1e-4)
    assert paired_difference([1.0, 1.0], [0.0, 0.0]) == changed(2, 0, 2)
    few, many = changed(4, 0, 6), changed(40, 0, 60)
    assert few.mean == many.mean == pytest.approx(2 / 3)
    assert few.low < many.low < many.mean < many.high
    assert changed(0, 0, 5).spans_zero


@pytest.mark.parametrize(
    ("ours", "theirs", "p"),
    [
        ([1, 1, 1, 0], [0, 0, 0, 0], 0.25),  # McNemar of 3 and 0
        ([0.5, 0.7, 0.9], [0.4, 0.5, 0.6], 0.25),  # 0.1, 0.2, 0.3 all one way: 2 of 8
        ([0.5, 0.5, 0.9], [0.6, 0.3, 0.6], 0.5),  # -0.1, 0.2, 0.3: 4 of 8 reach 0.4
        ([0.3, 0.3], [0.3, 0.3], 1.0),
    ],
)
def test_sign_flips_are_counted(ours, theirs, p):
    assert sign_flips(ours, theirs) == sign_flips(theirs, ours) == pytest.approx(p)


def test_many_sign_flips_are_drawn():
    draw = random.Random(4).random
    theirs = [draw() for _ in range(40)]
    assert sign_flips([v + 0.2 + 0.1 * draw() for v in theirs], theirs) == pytest.approx(1 / 2001)
    assert sign_flips([v + (draw() - 0.5) for v in theirs], theirs) > 0.05


@pytest.mark.parametrize(("n", "graded"), [(6, False), (8, False), (20, False), (9, True)])
def test_two_strategies_that_are_alike_seldom_differ(n, graded):
    """A bootstrap alone says so of one in eight where n is 8."""
    draw, runs, false = random.Random(n).random, 200, 0
    for _ in range(runs):
        ours, theirs = ([draw() if graded else float(draw() < 0.5) for _ in range(n)] for _ in range(2))
        false += not paired_difference(ours, theirs).spans_zero and sign_flips(ours, theirs) <= 0.05
    assert false <= 0.05 * runs + 3 * math.sqrt(0.05 * 0.95 * runs)
