"""Five hundred items at once, with failures, retries and cancellations: spending never passes a limit, by one call or token."""

import asyncio
import random
from contextlib import aclosing

from hypothesis import given, note, settings
from hypothesis import strategies as st
from world import PRICE, BookkeepingLM, faults

from redraft import Batch, BestOfN, Budget, Predict, Refine, context
from redraft.journal import MemoryStore

ITEMS = 500
limits = st.one_of(
    st.builds(lambda calls: Budget(calls=calls), st.integers(1, 900)),
    st.builds(lambda tokens: Budget(tokens=tokens), st.integers(50, 20_000)),
    st.builds(lambda tokens: Budget(cost=tokens * PRICE), st.integers(50, 20_000)),
    st.builds(lambda calls, tokens: Budget(calls=calls, tokens=tokens), st.integers(1, 900), st.integers(50, 20_000)),
)
each = st.one_of(st.none(), st.builds(lambda tokens: Budget(tokens=tokens), st.integers(10, 200)))


def by_length(inputs, prediction):
    return len(prediction.a)


def strategy(lm, kind):
    module = Predict("q -> a", lm=lm, system=f"You are leaf{kind}.", max_tokens=8 if kind % 2 else None)
    if kind == 0:
        return BestOfN(module, N=3, reward_fn=by_length, threshold=20, concurrency=3)
    return Refine(module, N=2, reward_fn=by_length, threshold=1000, advisor=False)


async def some_of_it(work, stop_after, how):
    async with aclosing(work.as_completed({"q": f"{i}"} for i in range(ITEMS))) as ended:
        seen = 0
        async for item in ended:
            seen += 1
            if item.status == "not_begun":
                return
            if seen == stop_after:
                if how == "close":
                    return
                work.stop()


@given(
    budget=limits,
    item_budget=each,
    plan=faults,
    kind=st.integers(0, 3),
    stops=st.lists(st.tuples(st.integers(1, ITEMS), st.sampled_from(["close", "stop"])), max_size=2),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=6, deadline=None)
def test_no_limit_is_passed(budget, item_budget, plan, kind, stops, seed):
    store = MemoryStore()
    lm = BookkeepingLM(plan, random.Random(seed), latency=0.002)
    lm.parallel = 500

    async def main():
        with context(seed=seed):
            for stop_after, how in [*stops, (0, "end")]:  # each time as a new process would find it
                work = Batch(
                    strategy(lm, kind),
                    concurrency=ITEMS,
                    budget=budget,
                    item_budget=item_budget,
                    store=store,
                    batch_id="b",
                )
                await asyncio.wait_for(some_of_it(work, stop_after, how), 60)
                await asyncio.sleep(0.01)
                check(lm, budget, work)

    asyncio.run(main())


def check(lm, budget, work):
    calls, tokens = len(lm.calls), sum(call.tokens for call in lm.calls)
    note(f"{budget}: {calls} calls, {tokens} tokens; {work.usage}")
    assert budget.calls is None or calls <= budget.calls
    assert budget.tokens is None or tokens <= budget.tokens
    assert budget.cost is None or tokens * PRICE <= budget.cost + 1e-9
    assert calls <= work.usage.calls
    assert work.usage.tokens <= tokens
    if not work.usage.unbounded:
        assert tokens <= work.usage.tokens + work.usage.uncertain_tokens
    assert (work.whole._in_flight, work.whole._reserved_tokens) == (0, 0)
