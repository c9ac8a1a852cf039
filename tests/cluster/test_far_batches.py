"""A batch on a real Ray: the same rows and records as here, whoever is killed; errors as rows; one budget, one rate limit."""

import asyncio
import random
from contextlib import aclosing

import anyio
import pytest
from far_parts import Books, Counting, Odd, killing, model, on_ray, questions, taken, three_drafts

from redraft import Batch, Budget, Predict, SqliteStore, context
from redraft.errors import BudgetExceeded, ConfigError, InputError, RunFailed, StoreError
from redraft.journal import MemoryStore
from redraft.testing import Reply
from redraft.turns import gate_of

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def recorded(store, batch_id):
    """Of each run its events, but for what two processes cannot share: times."""
    begun = [run for event in store.read(batch_id) for run in event.data.get("begun", ())]
    return {
        run: [
            (e.seq, e.kind, e.scope, e.key, {k: v for k, v in e.data.items() if k != "seconds"})
            for e in store.read(run)
        ]
        for run in begun
    }


async def test_rows_and_records_are_those_of_a_batch_without_a_cluster(tmp_path):
    rows, records = [], []
    with Counting() as server, context(seed=7):
        for name, make in (("here", Batch), ("far", on_ray)):
            with SqliteStore(tmp_path / f"{name}.db") as store:
                work = make(three_drafts(server.url), store=store, batch_id="b", budget=Budget(tokens=100_000))
                items = await taken(work, questions(20), ordered=True)
                rows.append([(i.index, i.key, i.status, i.result.a, i.result.stop_reason, i.usage) for i in items])
                records.append(recorded(store, "b"))
                assert work.usage.calls == 60
    assert rows[0] == rows[1]
    assert records[0] == records[1]
    assert set(server.received.values()) == {2}


async def test_workers_killed_again_and_again_lose_nothing_and_buy_nothing_twice():
    rng, store, n = random.Random(3), MemoryStore(), 40
    with Counting(delay=0.05) as server:
        work = on_ray(three_drafts(server.url), store=store, batch_id="b", budget=Budget(calls=10_000))
        killer = asyncio.ensure_future(killing(work, server, rng, 5))
        items = await taken(work, questions(n))
        assert await killer == 5
    assert sorted(item.index for item in items) == list(range(n))
    assert {item.status for item in items} == {"done"}
    books = Books(store, "b")
    books.check(server)
    assert sum(books.committed.values()) == 3 * n
    assert sum(books.lost.values()) > 0, "no kill met a call in flight: it proves nothing"
    assert work.usage.calls == sum(books.intents.values()) == sum(item.usage.calls for item in items)


async def test_without_a_store_a_killed_worker_loses_nothing_either():
    with Counting(delay=0.05) as server:
        work = on_ray(three_drafts(server.url))
        killer = asyncio.ensure_future(killing(work, server, random.Random(4), 2))
        items = await taken(work, questions(20))
        await killer
    assert {item.status for item in items} == {"done"}
    again = [times for times in server.received.values() if times > 1]
    assert work.usage.calls >= server.total
    assert sum(again) - len(again) <= 2 * 12, "repeated: at most what was in flight"


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_whole_budget_holds_across_kills(seed):
    rng = random.Random(seed)
    limit = rng.choice([{"calls": rng.randint(20, 50)}, {"tokens": rng.randint(3_000, 9_000)}])
    with Counting(seed, delay=0.03) as server:
        strategy = three_drafts(server.url, max_tokens=rng.randint(5, 60))
        work = on_ray(strategy, budget=Budget(**limit), concurrency=rng.randint(4, 24))
        killer = asyncio.ensure_future(killing(work, server, rng, 2))
        items = await taken(work, questions(60))
        killer.cancel()
        await asyncio.gather(killer, return_exceptions=True)
    usage = work.usage
    assert server.total <= usage.calls <= limit.get("calls", 10_000)
    assert usage.tokens + usage.uncertain_tokens <= limit.get("tokens", 10**9)
    assert isinstance(work.over, BudgetExceeded)
    assert work.over.of is work.whole
    assert {item.status for item in items} <= {"done", "cut_off", "not_begun"}, [
        repr(i.error) for i in items if i.status == "failed"
    ]
    assert {item.status for item in items} & {"cut_off", "not_begun"}
    assert work.whole._reserved_tokens == work.whole._in_flight == 0, "all that was reserved is given back"


async def test_cut_off_by_the_whole_budget_it_goes_on_with_a_higher_one():
    store = MemoryStore()
    with Counting() as server:
        part = await taken(
            on_ray(three_drafts(server.url), store=store, batch_id="b", budget=Budget(calls=25)), questions(20)
        )
        assert server.total == 25
        assert "--call-limit" in str(next(item.error for item in part if item.status == "not_begun"))
        more = on_ray(three_drafts(server.url), store=store, batch_id="b", budget=Budget(calls=60))
        whole = await taken(more, questions(20))
    assert {item.status for item in whole} == {"done"}
    assert server.total == more.usage.calls == 60


async def test_too_many_requests_slow_all_workers_down_together():
    heard, crowded = [], {"left": 6}

    def refuse(asked):
        if crowded["left"]:
            crowded["left"] -= 1
            return Reply.error(429, "too many requests", headers={"retry-after": "0.1"})
        return None

    with Counting(answer=refuse) as server, context(listeners=[heard.append]):
        work = on_ray(three_drafts(server.url))
        items = await taken(work, questions(16))
        lm = model(server.url)
        gate = gate_of((lm.name, lm.parallel, lm.address))
    assert {item.status for item in items} == {"done"}
    slowed = [event for event in heard if event.kind == "slowed"]
    assert len(slowed) == gate._lowered >= 1, "the driver's gate, which all workers share"
    assert gate._inside == 0
    assert [event.kind for event in heard].count("call") == 48, "the driver's listeners hear of all"


async def test_what_one_row_does_is_its_own_affair():
    odd = ["raise it", "lock it", "die", *(f"question {i}" for i in range(8))]
    with Counting() as server:
        items = await taken(
            on_ray(Odd(server.url), concurrency=4), [*({"q": q} for q in odd), {"q": iter("ab")}], ordered=True
        )
    assert [item.status for item in items] == ["failed"] * 3 + ["done"] * 8 + ["failed"]
    raised, lock, died, *_, given = (item.error for item in items)
    assert "raise it" in str(raised)
    assert "Unsendable" in f"{type(raised).__name__}: {raised}"
    assert "cannot leave the worker" in str(lock)
    assert isinstance(died, RunFailed)
    assert "3 workers died while they did this row" in str(died)
    assert items[2].usage.calls == 1, "what it had bought is not bought again by the next worker"
    assert isinstance(given, InputError)


async def test_a_batch_that_is_left_cuts_its_rows_off_and_goes_on_later():
    store = MemoryStore()
    with Counting(delay=0.1) as server:
        async with aclosing(
            on_ray(three_drafts(server.url), store=store, batch_id="b").as_completed(questions(30))
        ) as ended:
            for _ in range(4):
                await anext(ended)
        cut = [e for run in store._events for e in store.read(run) if e.kind == "call_failed"]
        assert cut
        assert {e.data["error"] for e in cut} <= {"cancelled after sending", "cancelled before sending"}
        books = Books(store, "b")
        assert sum(books.lost.values()) == 0, "each call that was begun has an end"
        rest = await taken(on_ray(three_drafts(server.url), store=store, batch_id="b"), questions(30))
    assert {item.status for item in rest} == {"done"}
    assert sum(Books(store, "b").committed.values()) == 90


@pytest.mark.parametrize("seconds", [0.02, 0.5, 1.0, 1.5, 2.0, 3.0])
async def test_a_batch_left_while_its_workers_start_ends_them(seconds):
    """What the fixture asserts: the CPUs are free again, though a traceback may still hold the worker."""
    with Counting(delay=0.1) as server:
        work = asyncio.ensure_future(taken(on_ray(three_drafts(server.url)), questions(5_000)))
        await asyncio.sleep(seconds)
        work.cancel()
        left = await asyncio.gather(work, return_exceptions=True)
    assert isinstance(left[0], asyncio.CancelledError)


async def test_a_scope_that_cancels_again_and_again_leaves_no_worker_either():
    with Counting(delay=0.1) as server:
        with anyio.move_on_after(1.0) as scope:
            await taken(on_ray(three_drafts(server.url)), questions(5_000))
    assert scope.cancelled_caught


async def test_a_deadline_of_the_whole_batch_holds_in_the_workers():
    with Counting(answer=lambda asked: Reply(text="late", delay=30)) as server:
        items = await taken(on_ray(three_drafts(server.url), budget=Budget(seconds=6), concurrency=4), questions(8))
    assert {item.status for item in items} == {"cut_off", "not_begun"}
    assert "6 seconds" in str(items[0].error)


async def test_a_key_stays_where_it_is():
    far = model("http://192.0.2.1:9/v1", api_key="secret", provider="elsewhere")
    items = await taken(on_ray(Predict("q -> a", lm=far)), questions(1))
    assert isinstance(items[0].error, ConfigError)
    assert "ELSEWHERE_API_KEY" in str(items[0].error)


async def test_a_store_that_fails_ends_the_batch():
    class Full(MemoryStore):
        def append(self, run_id, events):
            if run_id.endswith("#5"):
                raise StoreError("full")
            return super().append(run_id, events)

    with Counting() as server, pytest.raises(StoreError, match="full"):
        await taken(on_ray(Predict("q -> a", lm=model(server.url)), store=Full(), concurrency=2), [{"q": "x"}] * 40)
