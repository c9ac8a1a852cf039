"""No budget is exceeded by a model that honours its cap, under any concurrency; usage is exact or a stated range."""

import asyncio
import random

from hypothesis import given, note, settings
from hypothesis import strategies as st
from world import PRICE, BookkeepingLM, execute, faults, in_flight, programs, spent_by_level

from redraft.errors import LMError, RedraftError
from redraft.purchase import _gate

quick = settings(max_examples=60, deadline=None)


def check_budgets(calls, slack=0):
    for (scope, budget), (count, tokens) in spent_by_level(calls).items():
        if budget is None:
            continue
        note(f"{scope}: {budget}, {count} calls, {tokens} tokens")
        if budget.calls is not None:
            assert count <= budget.calls
        if budget.tokens is not None:
            assert tokens <= budget.tokens + slack
        if budget.cost is not None:
            assert tokens * PRICE <= budget.cost + 1e-9 + slack * PRICE


def check_usage(usage, calls):
    """The run's books against the model's."""
    true = sum(call.tokens for call in calls)
    note(f"true: {len(calls)} calls, {true} tokens; {usage}")
    assert usage.calls >= len(calls)
    assert usage.tokens <= true
    if not usage.unbounded:
        assert true <= usage.tokens + usage.uncertain_tokens
        assert true * PRICE <= usage.cost + usage.uncertain_cost + 1e-9
    assert usage.cost <= true * PRICE + 1e-9
    if usage.exact:
        assert usage.tokens == true
        assert usage.calls == len(calls)


async def check_nothing_leaks(outcome):
    assert in_flight(outcome.run) == (0, 0, 0)
    gate = _gate(outcome.lm)
    for _ in range(200):  # what was cut off needs a turn of the loop, or the end of a thread, to let go
        if gate._inside == 0:
            break
        await asyncio.sleep(0.005)
    assert (gate._inside, [t for t in gate._waiters._tickets if not t._over]) == (0, [])


@given(node=programs(), plan=faults, seed=st.integers(0, 10**6))
@quick
def test_no_budget_is_exceeded_and_usage_holds_the_truth(node, plan, seed):
    async def main():
        rng = random.Random(seed)
        outcome = await execute(node, BookkeepingLM(plan, rng), rng)
        check_budgets(outcome.lm.calls)
        check_usage(outcome.usage, outcome.lm.calls)
        await check_nothing_leaks(outcome)
        carried = outcome.result if outcome.result is not None else outcome.error
        assert carried.usage == outcome.usage
        assert (outcome.result is None) == (outcome.run.best is None)
        if isinstance(outcome.error, RedraftError):
            assert outcome.error.attempts == outcome.run.attempts

    asyncio.run(main())


@given(
    node=programs(),
    plan=faults,
    seed=st.integers(0, 10**6),
    after=st.floats(0, 0.02),
    how=st.sampled_from(["task", "run"]),
)
@quick
def test_cancelled_at_any_moment_nothing_leaks_and_all_is_charged(node, plan, seed, after, how):
    async def main():
        rng = random.Random(seed)
        outcome = await execute(node, BookkeepingLM(plan, rng), rng, cancel_after=after, how=how)
        for _ in range(200):
            if in_flight(outcome.run)[0] == 0 and all(
                task.done() for task in asyncio.all_tasks() - {asyncio.current_task()}
            ):
                break
            await asyncio.sleep(0.002)
        await check_nothing_leaks(outcome)
        check_budgets(outcome.lm.calls)
        check_usage(outcome.usage, outcome.lm.calls)
        count = len(outcome.lm.calls)
        await asyncio.sleep(0.005)
        assert len(outcome.lm.calls) == count, "nothing is bought after the end"

    asyncio.run(main())


@given(node=programs(), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_a_model_that_ignores_its_cap_overshoots_by_the_calls_in_flight_and_it_is_said(node, seed):
    async def main():
        rng = random.Random(seed)
        lm = BookkeepingLM({}, rng, greedy=True)
        outcome = await execute(node, lm, rng)
        longest = 12 + 40  # words of the longest reply, JSON forms included
        check_budgets(lm.calls, slack=lm.parallel * longest)
        over = sum(max(0, call.tokens) for call in lm.calls if call.cap is not None)
        assert outcome.usage.tokens == sum(call.tokens for call in lm.calls) or not outcome.usage.exact
        said = sum(event.data["tokens"] for event in outcome.events if event.kind == "overrun")
        assert said == outcome.usage.overrun <= over

    asyncio.run(main())


@given(
    limit=st.integers(1, 300),
    asks=st.lists(st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(1, 60))), min_size=1, max_size=12),
    used=st.integers(0, 100),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=100, deadline=None)
def test_a_meter_alone_never_promises_more_than_it_has(limit, asks, used, seed):
    """Whatever is in flight, spent and held together stay within the limit; nobody waits for ever."""
    from redraft.budget import Ask, Budget, Meter
    from redraft.errors import BudgetExceeded
    from redraft.types import Usage

    async def main():
        rng = random.Random(seed)
        root = Meter(Budget(tokens=limit))
        meters = [root, Meter(Budget(tokens=max(1, limit // 2)), root), Meter(Budget(calls=3), root)]
        held_now = 0

        async def one(prompt, cap):
            nonlocal held_now
            meter = rng.choice(meters)
            try:
                held = await meter.reserve(Ask(prompt=prompt, cap=cap))
            except BudgetExceeded:
                return
            held_now += held.tokens
            try:
                assert held_now + root.usage.tokens <= limit
                await asyncio.sleep(rng.choice([0, 0.0005]))
            finally:
                held_now -= held.tokens
                held.settle(Usage(calls=1, input_tokens=prompt, output_tokens=min(held.cap, used)))

        tasks = [asyncio.ensure_future(one(*ask)) for ask in asks]
        for task in tasks:
            if rng.random() < 0.2:
                asyncio.get_running_loop().call_soon(task.cancel)
        outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert [o for o in outcomes if isinstance(o, Exception)] == []
        assert root.usage.tokens <= limit
        assert meters[1].usage.tokens <= max(1, limit // 2)
        assert meters[2].usage.calls <= 3

    asyncio.run(main())


def test_the_kinds_of_failure_are_all_met():
    """The generator is worth its name: a fixed sample meets budgets that end, errors, results and estimates."""
    from world import Node, numbered

    leaf = Node("leaf", 0)
    node = numbered(Node("refine", 0, (Node("gather", 0, (leaf, leaf, Node("refine", 0, (leaf,), N=3))),), N=3))
    met = set()

    async def main(plan, budget):
        rng = random.Random(1)
        outcome = await execute(node, BookkeepingLM(plan, rng), rng, budget=budget)
        met.add(type(outcome.error or outcome.result).__name__)
        met.update(name for name in ("estimated", "uncertain_tokens") if getattr(outcome.usage, name))
        met.add(str(getattr(outcome.result, "stop_reason", "none")))

    from redraft import Budget

    asyncio.run(main({}, None))
    asyncio.run(main({2: ("refused",)}, None))
    asyncio.run(main({2: ("cut",), 3: ("silent",)}, None))
    asyncio.run(main({}, Budget(calls=7)))
    asyncio.run(main({}, Budget(tokens=10)))
    assert met >= {"Result", "BudgetExceeded", "estimated", "uncertain_tokens", "budget", "rounds"}
    assert issubclass(LMError, RedraftError)
