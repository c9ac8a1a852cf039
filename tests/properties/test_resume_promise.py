"""No call whose reply was committed is made again after a kill, and the run ends where it would have ended.

A kill leaves a prefix of the run's events. So a finished run's log is cut anywhere and resumed, with other latencies,
as often as it takes.
"""

import asyncio
import random

from hypothesis import given, note, settings
from hypothesis import strategies as st
from world import KINDS, BookkeepingLM, execute, faults, mild, programs, spent_by_level

from redraft.errors import RedraftError
from redraft.journal import Journal, MemoryStore
from redraft.record import derived_seed
from redraft.types import Usage

quick = settings(max_examples=50, deadline=None)
orderly = tuple(kind for kind in KINDS if kind != "race")
"""A race's outcome is luck: there is nothing it would have ended with."""

cuts = st.lists(st.floats(0, 1), min_size=1, max_size=4)


def prefix(events, share):
    """What a kill leaves: at least the first event, which a run writes before anything else."""
    store = MemoryStore()
    kept = events[: max(1, round(share * len(events)))]
    store.append("r", kept)
    return store, kept


def seeds_of(kind, events):
    """The seeds that the model saw for the events' calls: a call's seed comes from its key."""
    return {derived_seed(7, event.key) for event in events if event.kind == kind}


def unfinished(events):
    ended = {event.data["intent"] for event in events if event.kind in ("call", "call_error", "call_failed")}
    return [event for event in events if event.kind == "intent" and event.seq not in ended]


def ending(outcome):
    """All that can be seen of how it ended, except what it cost."""
    if outcome.result is None:
        return type(outcome.error), str(outcome.error), drafts(outcome.error.attempts)
    result = outcome.result
    return result.to_dict(), result.score, result.stop_reason, result.best.index, drafts(result.attempts)


def drafts(attempts):
    return [
        (a.index, a.parent, a.text, a.score, a.critique, a.rung, a.accepted, a.reason, str(a.error)) for a in attempts
    ]


async def whole(node, plan, seed, latency=0.001, budget=None):
    rng = random.Random(seed)
    store = MemoryStore()
    lm = BookkeepingLM(plan, rng, latency)
    return await execute(node, lm, rng, store=store, run_id="r", budget=budget), store


async def resumed(node, plan, seed, store, budget=None):
    rng = random.Random(seed)
    return await execute(node, BookkeepingLM(plan, rng), rng, store=store, run_id="r", budget=budget)


@given(node=programs(orderly, st.none()), plan=mild, seed=st.integers(0, 10**6), shares=cuts)
@quick
def test_killed_anywhere_it_ends_where_it_would_have_ended(node, plan, seed, shares):
    async def main():
        first, store = await whole(node, plan, seed)
        events = store.read("r")
        for life, share in enumerate(shares):
            left, kept = prefix(events, share)
            again = await resumed(node, plan, seed + life + 1, left)
            note(f"cut at {len(kept)} of {len(events)}")
            bought = {call.seed for call in again.lm.calls}
            assert not bought & seeds_of("call", kept), "a committed reply was bought again"
            assert len(again.lm.effects) == len(first.lm.effects) - len([e for e in kept if e.kind == "step"])
            assert ending(again) == ending(first)
            assert len(again.lm.calls) <= len(first.lm.calls) - len([e for e in kept if e.kind == "call"])
            events = left.read("r")  # the next kill cuts what this life left

    asyncio.run(main())


@given(
    node=programs(("gather", "refine"), st.none(), keep=st.just(False)),
    seed=st.integers(0, 10**6),
    shares=st.lists(st.floats(0.3, 1), min_size=3, max_size=3),
)
@quick
def test_arrival_order_is_no_part_of_a_key(node, seed, shares):
    """Modules in closures, all given the same input at once, in an order that is new in every life."""

    async def main():
        first, store = await whole(node, {}, seed)
        for life, share in enumerate(shares):
            left, kept = prefix(store.read("r"), share)
            again = await resumed(node, {}, seed + life + 1, left)
            assert len(again.lm.calls) == len(first.lm.calls) - len([e for e in kept if e.kind == "call"])
            assert ending(again) == ending(first)

    asyncio.run(main())


@given(node=programs(orderly, st.none()), plan=faults, seed=st.integers(0, 10**6), share=st.floats(0, 1))
@quick
def test_refusals_replay_as_well(node, plan, seed, share):
    async def main():
        first, store = await whole(node, plan, seed)
        left, kept = prefix(store.read("r"), share)
        again = await resumed(node, plan, seed + 1, left)
        bought = {call.seed for call in again.lm.calls}
        assert not bought & (seeds_of("call", kept) | seeds_of("call_error", kept))
        if "gather" not in repr(node):  # which of several failures comes first is luck
            assert ending(again) == ending(first)

    asyncio.run(main())


@given(node=programs(orderly, st.none()), plan=mild, seed=st.integers(0, 10**6), share=st.floats(0, 1))
@quick
def test_the_usage_after_a_resume_is_the_old_one_and_the_killed_calls(node, plan, seed, share):
    async def main():
        first, store = await whole(node, plan, seed)
        left, kept = prefix(store.read("r"), share)
        lost = sum((Usage(**event.data["reserved"]) for event in unfinished(kept)), Usage())
        before = Journal(left, "r").spent()
        again = await resumed(node, plan, seed + 1, left)
        made = sum(call.tokens for call in again.lm.calls)
        note(f"lost {lost}\nbefore {before}\nafter {again.usage}")
        assert again.usage.calls == before.calls + len(again.lm.calls)
        assert before.tokens <= again.usage.tokens <= before.tokens + made
        assert again.usage == Journal(left, "r").spent(), "the books of the next life agree"
        if not any(plan.values()):
            assert again.usage.tokens == first.usage.tokens
            assert again.usage.calls == first.usage.calls + lost.calls
            assert again.usage.uncertain_tokens == lost.uncertain_tokens

    asyncio.run(main())


@given(node=programs(), plan=faults, seed=st.integers(0, 10**6), shares=cuts)
@quick
def test_budgets_hold_over_all_lives_together(node, plan, seed, shares):
    """Nested ones as well, with races, failures and whatever else."""

    async def main():
        first, store = await whole(node, plan, seed)
        calls, events = list(first.lm.calls), store.read("r")
        for life, share in enumerate(shares):
            left, kept = prefix(events, share)
            sent = {derived_seed(7, event.key): 0 for event in kept if event.kind == "intent"}
            for event in kept:
                if event.kind == "intent":
                    sent[derived_seed(7, event.key)] += 1
            survived = []
            for call in calls:  # the others belong to a future that the kill prevented
                if sent.get(call.seed, 0) > 0:
                    sent[call.seed] -= 1
                    survived.append(call)
            again = await resumed(node, plan, seed + life + 1, left)
            calls, events = survived + again.lm.calls, left.read("r")
            for (scope, budget), (count, tokens) in spent_by_level(calls).items():
                note(f"life {life}, {scope}: {budget}, {count} calls, {tokens} tokens")
                assert budget is None or budget.calls is None or count <= budget.calls
                assert budget is None or budget.tokens is None or tokens <= budget.tokens
                assert budget is None or budget.cost is None or tokens * 0.001 <= budget.cost + 1e-9

    asyncio.run(main())


@given(node=programs(orderly, st.none()), plan=mild, seed=st.integers(0, 10**6), share=st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_an_honest_resume_is_never_called_a_divergence(node, plan, seed, share):
    async def main():
        from redraft import context

        _, store = await whole(node, plan, seed)
        left, _ = prefix(store.read("r"), share)
        with context(strict=True):
            again = await resumed(node, plan, seed + 1, left)
        assert [event for event in again.events if event.kind == "diverged"] == []

    asyncio.run(main())


@given(node=programs(), plan=faults, seed=st.integers(0, 10**6), after=st.floats(0, 0.015))
@settings(max_examples=30, deadline=None)
def test_a_cancelled_run_resumes_without_buying_twice(node, plan, seed, after):
    async def main():
        rng = random.Random(seed)
        store = MemoryStore()
        first = await execute(
            node, BookkeepingLM(plan, rng), rng, store=store, run_id="r", cancel_after=after, how="run"
        )
        kept = store.read("r")
        again = await resumed(node, plan, seed + 1, store)
        bought = {call.seed for call in again.lm.calls}
        assert not bought & seeds_of("call", kept)
        assert isinstance(again.error, RedraftError | None)
        assert again.usage.calls >= first.usage.calls - 1

    asyncio.run(main())
