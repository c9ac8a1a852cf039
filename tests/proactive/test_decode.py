"""The method itself: what is taken back, what takes its place, and that it always ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import DOGS, WORDS, dogs, driven

from redraft.proactive import DynamicBacktracker, RandomSignal, RefinementSignal
from redraft.proactive.scripted import END, TableLM


def without(word):
    return lambda text: "forbids" if word in text else ""


def test_nothing_is_taken_back_where_nothing_is_wrong():
    lm = dogs()
    drafts, rewinds, decoding, asks = driven(lm)
    assert (drafts, rewinds, asks) == (["A dull dog."], [], 1)
    assert decoding.spent == {"text": 5}


def test_a_known_wrong_token_is_repaired_and_the_rest_of_the_doomed_text_is_not_written():
    lm = dogs()
    drafts, [rewind], _, _ = driven(lm, guard=without("dull"))
    assert drafts == ["A red dog."]
    assert (rewind.cause, rewind.by, rewind.at, rewind.to) == ("guard", "forbids", 2, 1)
    assert (rewind.before, rewind.taken, rewind.put) == ("A", " dull", " red")
    assert lm.forwards == 2 + 3, "two tokens until the guard failed, three after the other one was put there"


def test_alternatives_that_a_guard_refuses_cost_nothing():
    lm = TableLM(lambda before: {"a": 0.5, "b": 0.3, "c": 0.2} if not before else {END: 1.0}, [END, "a", "b", "c"])
    drafts, _, decoding, _ = driven(lm, guard=lambda text: "" if text in ("", "c") else "c only")
    assert drafts == ["c"]
    assert decoding.spent == {"text": 1, "guard": 1}


def test_where_every_continuation_is_banned_it_goes_back_farther():
    def table(before):
        if not before:
            return {"x": 0.7, "y": 0.3}
        return {"bad": 0.6, "evil": 0.4} if before == ("x",) else {END: 1.0}

    drafts, rewinds, _, _ = driven(
        TableLM(table, [END, "x", "y", "bad", "evil"]), guard=lambda t: "g" if len(t) > 2 else ""
    )
    assert drafts == ["y"]
    assert [(r.at, r.to) for r in rewinds] == [(2, 0)]


def test_where_nothing_can_pass_it_stops_with_what_there_is():
    lm = TableLM(lambda before: {"a": 0.6, "b": 0.4}, [END, "a", "b"])
    drafts, rewinds, _, _ = driven(lm, guard=lambda text: "never" if text else "")
    assert (drafts, rewinds) == (["a"], [])


def test_where_no_way_on_is_left_it_ends_before_the_token_that_cannot_stand():
    table = lambda before: {"a": 0.9, "b": 0.1} if len(before) < 2 else {"x": 1.0}
    drafts, rewinds, decoding, _ = driven(
        TableLM(table, [END, "a", "b", "x"]), guard=lambda t: "g" if "x" in t else "", most=9
    )
    assert drafts == [drafts[0]]
    assert len(drafts[0]) == 2
    assert len(rewinds) == 3, "each way to write the first two was tried"
    assert not decoding.drafts[0].ended


def test_a_text_that_ends_without_passing_is_written_on():
    drafts, rewinds, _, _ = driven(dogs(), good=lambda text: "runs" in text)
    assert drafts[0] == "A dull dog."
    assert drafts[-1].endswith(" It runs.")
    assert rewinds[0].cause == "end"


def test_a_rewind_never_puts_a_token_back_that_was_there():
    drafts, _, _, _ = driven(dogs(), good=lambda text: False, back=DynamicBacktracker(most=50, floor=0.01), most=12)
    assert len(drafts) == len(set(drafts))


def test_a_signal_has_alternatives_written_and_the_checks_choose():
    signal = RefinementSignal("confidence", 0.65)  # "dull" has 0.6
    back = DynamicBacktracker(reach=(1, 20), keep=0.0)
    drafts, [rewind], _, _ = driven(dogs(), good=lambda text: "red" in text, signal=signal, back=back)
    assert (rewind.cause, rewind.accepted, rewind.taken) == ("signal", True, " dull")
    assert drafts[-1].startswith("A red")


def test_over_greedy_decoding_likelihood_alone_changes_nothing():
    back = DynamicBacktracker(reach=(1, 20), keep=0.0, gap=1, agree=id)
    plain, _, _, _ = driven(dogs())
    drafts, rewinds, decoding, _ = driven(dogs(), signal=RandomSignal(1.0), back=back)
    assert drafts == plain
    assert rewinds
    assert not any(r.accepted for r in rewinds)
    assert decoding.spent["signal"] > 0, "it is pure cost"


def test_what_most_agree_on_wins_where_no_check_can_tell():
    def table(before):
        if before == ("=",):
            return {"6": 0.5, "5": 0.45, "7": 0.05}
        return {"=": 1.0} if not before else {END: 1.0}

    lm = TableLM(table, [END, "=", "5", "6", "7"])
    back = DynamicBacktracker(reach=(1, 5), keep=0.0, temperatures=(0.1, 0.1, 0.1))
    drafts, [rewind], _, _ = driven(lm, signal=RefinementSignal("margin", 0.1), back=back)
    assert drafts == ["=5"]
    assert rewind.by == "3 of 4 agree on it"
    assert rewind.consistency == 0.25


def tables():
    """Tables of random shares over four words and the end, the same for the same prefix."""
    words = [END, "a", "b", " c", "."]

    def make(seed, ends):
        def table(before):
            import random

            chance = random.Random(f"{seed}|{before}")
            shares = {w: chance.random() for w in words[1:]}
            shares[END] = chance.random() * ends
            total = sum(shares.values())
            return {w: p / total for w, p in shares.items()}

        return TableLM(table, words)

    return st.builds(make, st.integers(0, 10**6), st.floats(0.0, 3.0))


@settings(max_examples=150, deadline=None)
@given(
    lm=tables(),
    rate=st.floats(0, 1),
    forbidden=st.sets(st.sampled_from(["a", "b", " c", ".", "ab", "ba"]), max_size=5),
    longest=st.integers(0, 12),
    most=st.integers(0, 12),
    gap=st.integers(1, 9),
    cap=st.integers(1, 20),
    passes=st.sampled_from(["always", "never", "long"]),
)
def test_it_always_ends_and_writes_no_more_than_its_limits_allow(lm, rate, forbidden, longest, most, gap, cap, passes):
    def guard(text):
        return "forbidden" if any(f in text for f in forbidden) or len(text) > 3 * longest else ""

    good = {"always": lambda t: True, "never": lambda t: False, "long": lambda t: len(t) > 5}[passes]
    back = DynamicBacktracker(reach=(1, 6), gap=gap, most=most)
    drafts, rewinds, decoding, asks = driven(lm, guard=guard, good=good, signal=RandomSignal(rate), back=back, most=cap)
    assert len(rewinds) <= most
    assert drafts, "there is always a text, be it an unfinished one"
    assert len(decoding.tokens) <= cap
    assert sum(decoding.spent.values()) == lm.forwards, "every token is counted"
    # Between two rewinds a text grows to its cap at most; alternatives are three, one for each temperature.
    assert lm.forwards <= (most + 1) * cap + most * 3 * max(cap, 1) + most
    assert asks <= 3 * (cap + 1) * (most + 1) + most


@settings(max_examples=60, deadline=None)
@given(lm=tables(), cap=st.integers(1, 20), rate=st.floats(0, 1))
def test_reject_all_is_never_trigger_token_for_token(lm, cap, rate):
    plain, _, before, _ = driven(lm, most=cap)

    # Nothing speaks for an alternative: no check tells them apart, no two agree, and none is likelier than greedy.
    class Stubborn(DynamicBacktracker):
        def select_best_alternative(self, tails, verified, texts):
            from redraft.proactive.backtrack import Selected

            return Selected(at=0, why="rejected", consistency=1.0)

    after = driven(lm, most=cap, signal=RandomSignal(rate), back=Stubborn(reach=(1, 6), gap=1))
    assert after[0] == plain
    assert [t.key for t in after[2].tokens] == [t.key for t in before.tokens]


@settings(max_examples=60, deadline=None)
@given(lm=tables(), cap=st.integers(2, 20), forbidden=st.sampled_from(["a", "b", ".", "ab"]))
def test_a_text_that_is_handed_over_as_ended_never_fails_a_guard(lm, cap, forbidden):
    _, rewinds, decoding, _ = driven(lm, guard=without(forbidden), good=lambda text: False, most=cap)
    assert all(forbidden not in draft.text for draft in decoding.drafts if draft.ended)
    for rewind in rewinds:
        assert forbidden not in rewind.before + rewind.put


def test_a_replayed_decode_is_the_same():
    one, other = (driven(dogs(), signal=RandomSignal(0.5), good=lambda t: False, seed=3) for _ in range(2))
    assert one[0] == other[0]
    assert one[1] == other[1]


def test_the_tables_are_what_they_say():
    assert DOGS(("A",)) == {" dull": 0.6, " red": 0.4}
    with pytest.raises(ValueError):
        WORDS.index("blue")
