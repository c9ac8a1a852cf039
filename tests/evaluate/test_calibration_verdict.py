"""What a calibration may conclude: a seeded simulation of nulls, true differences, and what the figures say."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.evaluate.probe import Outcome
from redraft.evaluate.verdict import Share, Test, critiques, decide, draft_shown, shown_words, tries_worth

RUNGS = ("resample", "again", "constrain", "hint", "edit", "critique")
RUNS = 300


def trials(rates, n, seed, passing=0.3):
    """Trials of rungs whose true rates are known."""
    draw = random.Random(seed).random
    made = []
    for _ in range(n):
        good = draw() < passing
        trial = {"first": Outcome(passed=good), "draft": Outcome(passed=good)}
        if not good:
            trial |= {name: Outcome(passed=draw() < rate) for name, rate in rates.items()}
        made.append(trial)
    return made


def alike(rate):
    return dict.fromkeys(RUNGS, rate)


def recommended(rates, n):
    return [decide(trials(rates, n, seed), seed).rung for seed in range(RUNS)]


@pytest.mark.parametrize(("n", "rate"), [(40, 0.3), (80, 0.1), (80, 0.5), (80, 0.8), (150, 0.3)])
def test_at_most_one_in_twenty_nulls_is_crowned(n, rate):
    """All rungs are alike, so that every recommendation is a false one."""
    false = RUNS - recommended(alike(rate), n).count(None)
    assert false <= 0.05 * RUNS


def test_hard_and_easy_examples_are_no_difference_between_rungs():
    """Each example has its own rate, which all rungs share."""

    def made(seed):
        draw = random.Random(seed)
        rates = [draw.betavariate(0.5, 0.5) for _ in range(80)]
        return [trials(alike(rate), 1, (seed << 10) + i)[0] for i, rate in enumerate(rates)]

    false = sum(decide(made(seed), seed).rung is not None for seed in range(RUNS))
    assert false <= 0.05 * RUNS


def test_that_showing_the_draft_helps_or_hurts_is_seldom_said_of_a_null():
    found = [draft_shown(trials(alike(0.3), 80, seed)) for seed in range(RUNS)]
    assert sum(test.p <= 0.05 for test in found) <= 0.05 * RUNS
    hurts = draft_shown(trials(alike(0.5) | {"edit": 0.1}, 80, 1))
    assert (hurts.ours, hurts.theirs, hurts.p < 0.001, hurts.won < hurts.lost) == ("edit", "resample", True, True)
    assert draft_shown([]) is None


def test_two_calls_of_a_critic_are_not_better_than_two_blind_samples():
    """A critique that mends what two blind samples would is no gain, though it beats each other rung of one call."""
    false = recommended(alike(0.3) | {"critique": 1 - 0.7**2}, 80).count("critique")
    assert false <= 0.05 * RUNS


def test_showing_the_draft_is_not_recommended_where_it_only_beats_blind_samples():
    """An edit that is as good as a constraint: the cheaper kind of rung may be recommended, the edit hardly ever."""
    rates = alike(0.2) | {"constrain": 0.7, "edit": 0.7}
    assert recommended(rates, 80).count("edit") <= 0.05 * RUNS


@pytest.mark.parametrize(
    ("rates", "rung"),
    [
        (alike(0.3) | {"constrain": 0.9, "edit": 0.05, "critique": 0.05}, "constrain"),
        (alike(0.2) | {"edit": 0.4, "critique": 0.95}, "critique"),
        (alike(0.1) | {"edit": 0.8, "critique": 0.8}, "edit"),
    ],
)
def test_large_differences_are_found(rates, rung):
    assert recommended(rates, 100).count(rung) >= 0.75 * RUNS


def test_too_little_data_and_nothing_to_gain_are_said():
    few = decide(trials(alike(1.0) | {"resample": 0.0}, 10, 1))
    assert (few.outcome, few.rung) == ("too little data", None)
    assert "at least 12" in few.why
    assert decide([]).outcome == "too little data"
    none = decide(trials(alike(0.0), 60, 1))
    assert (none.outcome, none.rung) == ("nothing helps", None)
    same = decide(trials(alike(0.4), 60, 2))
    assert (same.outcome, same.rung) == ("no difference", None)
    assert "did best on a third of them; that it does better than" in same.why


def test_no_difference_is_not_said_beside_an_interval_without_0():
    found = [decide(trials(alike(0.3) | {"constrain": 0.6}, 40, seed), seed) for seed in range(RUNS)]
    unproven = [v for v in found if v.outcome != "recommended"]
    assert {v.outcome for v in unproven} == {"no difference", "not told from luck", "not better"}
    for v in unproven:
        plain = all(t.spans_zero and t.p > 0.05 for t in v.tests)
        assert plain == (v.outcome == "no difference"), (v.why, v.tests)
        assert v.rung is None
    (close,) = [found[26]]
    assert (
        str(close.tests[0]) == "constrain against resample: +38% (+3% to +64%) on 16 drafts, 7 won, 1 lost, p = 0.035"
    )
    assert close.why.endswith(
        "that it does better than resample (p = 0.035) and edit (p = 0.19) on the others is not told from luck, which takes p of 0.025 or less"
    )
    assert found[8].outcome == "not better"
    assert found[8].why.endswith(
        "critique did best on a third of them, but on the others it did worse than resample twice"
    )


def test_what_showing_the_draft_does_may_not_be_told_from_luck():
    close = Test(ours="edit", theirs="resample", pairs=12, won=0, lost=5, p=0.0625)
    assert shown_words(close) == f"showing the draft: not told from luck (p is above 0.05); {close}"
    assert close.difference.high < 0


def test_the_third_that_chooses_has_no_part_in_the_test():
    made = trials(alike(0.3) | {"constrain": 0.9}, 90, 2)
    failing = sum(not t["draft"].passed for t in made)
    verdict = decide(made, 5)
    assert [t.pairs for t in verdict.tests] == [failing - round(failing / 3)] * len(verdict.tests)
    assert {t.theirs for t in verdict.tests} >= {"resample"}


@given(seed=st.integers(0, 999), n=st.integers(0, 60), rate=st.floats(0, 1))
def test_a_verdict_is_the_same_for_the_same_trials(seed, n, rate):
    made = trials(alike(rate), n, seed)
    verdict = decide(made, seed)
    assert verdict == decide(made, seed)
    assert (verdict.rung is not None) == (verdict.outcome == "recommended")


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_share_lies_in_its_interval(a, b):
    found = Share(min(a, b), max(a, b))
    low, high = found.interval
    assert 0 <= low <= found.value + 1e-9
    assert found.value - 1e-9 <= high <= 1


def test_what_critique_costs():
    def one(good, after, *, changed=True):
        return {"draft": Outcome(passed=good), "critique": Outcome(passed=after, changed=changed)}

    made = [
        *[one(False, True)] * 3,
        one(False, False),
        *[one(True, False)] * 2,
        one(True, True),
        one(True, True, changed=False),
    ]
    found = critiques(made)
    assert (found.correcting.value, found.introducing.value) == (0.75, 0.5)
    assert (found.alarms.hits, found.missed.hits) == (3, 0)
    assert (found.before, found.alone, found.checked) == (0.5, 0.625, 0.875)
    assert found.verifier_gain == 0.25
    assert critiques([{"draft": Outcome(passed=True)}]) is None


def test_tries_are_worth_less_where_second_samples_mend_less():
    steady = trials(alike(0.4), 400, 1, passing=0)
    assert tries_worth("resample", steady) >= 4
    assert tries_worth("resample", trials(alike(0.4) | {"again": 0.0}, 400, 1, passing=0)) == 1
