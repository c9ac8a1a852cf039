"""A batch killed at 60 random points: no committed call is bought twice, no row is lost or doubled, the budget holds."""

import asyncio
import json
import random

import pytest
from batch_kills import CountingServer, Store, finish, killed_again_and_again, rows

from redraft import SqliteStore

pytestmark = pytest.mark.crash


def test_a_batch_killed_sixty_times_loses_nothing_and_pays_nothing_twice(tmp_path):
    n = 200
    server, store, books, kills = killed_again_and_again(tmp_path, 60, n=n, seed=5)
    assert kills == 60
    there = rows(tmp_path)
    assert sorted(row["id"] for row in there) == list(range(n))
    assert [row["error"] for row in there] == [None] * n
    assert books["rows"] == n
    assert sum(store.lost.values()) > 0, "no kill met a call in flight: it proves nothing"
    assert sum(store.failed.values()) > 0, "no loser was cancelled"
    assert server.total <= books["calls"] == sum(store.intents.values())


def test_killed_or_not_the_answers_are_the_same(tmp_path):
    """The samples' seeds come from the batch's own, which is on record, and the replies from those."""
    killed, unkilled = tmp_path / "killed", tmp_path / "unkilled"
    killed.mkdir()
    unkilled.mkdir()
    killed_again_and_again(killed, 5, n=12, seed=7)
    asyncio.run(begin_alike(unkilled, killed))
    killed_again_and_again(unkilled, 0, n=12, seed=8)
    assert answers(killed) == answers(unkilled)


async def begin_alike(new, old):
    with SqliteStore(old / "runs.db") as store:
        first = store.read("victim")[0]
    with SqliteStore(new / "runs.db") as store:
        await store.append("victim", (first,))


def answers(folder):
    """But for the race's, whose winner is luck."""
    return {row["id"]: json.loads(row["answer"])[1:] for row in rows(folder)}


def test_the_budget_holds_across_kills_and_a_higher_one_ends_the_batch(tmp_path):
    server, store, books, _ = killed_again_and_again(tmp_path, 8, n=30, seed=11, limit=60)
    assert server.total <= 60
    assert sum(store.intents.values()) <= 60
    assert books["calls"] <= 60
    assert books["statuses"]["not_begun"] > 0
    before = {row["id"]: row for row in rows(tmp_path)}
    with CountingServer(random.Random(1)) as again:
        finish(tmp_path, again.url, 30, 10_000)
    assert all(times == 1 for times in Store(tmp_path).committed.values())
    there = {row["id"]: row for row in rows(tmp_path)}
    assert sorted(there) == list(range(30))
    assert {key: there[key] for key in before} == before
