"""A cache changes what a program costs, never what it says: random programs, without it, with a new one, with a full one."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from test_resume_promise import ending
from world import BookkeepingLM, execute, mild, programs

from redraft import context
from redraft.store import SqliteCache

orderly = ("sequence", "threaded", "lenient", "refine", "best", "self_refine", "reflect")
"""One thing after the other: which of two equal calls at once takes which kept reply is luck."""


def fresh(events):
    """The replies that were bought in attempts after the first of their strategy."""
    again = [e.scope for e in events if e.kind == "propose" and e.data["index"] > 0]
    bought = [e for e in events if e.kind == "call" and not e.data.get("cached")]
    return [e for e in bought if any(f"{e.scope}/".startswith(f"{scope}/") for scope in again)]


@given(node=programs(orderly, st.none()), plan=mild, seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_with_a_cache_a_program_says_the_same_for_less_and_its_retries_are_new(node, plan, seed, tmp_path_factory):
    async def run():
        lm = BookkeepingLM(plan, random.Random(seed))
        return await execute(node, lm, random.Random(seed))

    async def main():
        without = await run()
        cache = SqliteCache(tmp_path_factory.mktemp("cache") / "c.db")
        with context(cache=cache):
            cold, warm = await run(), await run()
        cache.close()
        assert ending(cold) == ending(without)
        assert ending(warm) == ending(without)
        assert warm.usage.calls <= cold.usage.calls
        assert len(fresh(warm.events)) == len(fresh(without.events))
        assert warm.usage.calls >= len(fresh(warm.events))
        assert sum(e.kind == "intent" for e in warm.events) == len(warm.lm.calls)

    asyncio.run(main())
