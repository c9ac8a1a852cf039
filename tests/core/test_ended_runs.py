"""A run that is used as a block says in its journal how it ended; what was cut off has not."""

import asyncio
import json
from contextlib import closing

import pytest

from redraft import Budget, Predict, Run, SqliteStore
from redraft.config import context
from redraft.errors import BudgetExceeded, DivergedError
from redraft.journal import MemoryStore
from redraft.report.training import sft
from redraft.store.cache import SqliteCache
from redraft.testing import FunctionLM


@pytest.fixture
def ask():
    return Predict("q -> a", lm=FunctionLM(lambda request: "fine"))


def stops(store, run_id="r"):
    return [(e.data["reason"], e.data["error"]) for e in store.read(run_id) if e.kind == "stop"]


def test_a_block_that_is_left_has_ended(ask, tmp_path):
    with SqliteStore(tmp_path / "runs.db") as store:
        with Run(run_id="r", store=store):
            ask(q="x")
            assert store.run("r").ended is None
        run = store.run("r")
        assert (run.stop, run.ended is not None, run.error) == ("done", True, None)
        with Run(run_id="r", store=store):
            ask(q="x")
        assert len(stops(store)) == 1, "a replay adds nothing"


async def test_so_has_one_that_an_error_left_and_it_says_which(ask):
    store = MemoryStore()
    with pytest.raises(ValueError, match="mine"):
        async with Run(run_id="r", store=store):
            raise ValueError("mine")
    assert stops(store) == [("error", "ValueError: mine")]
    with pytest.raises(BudgetExceeded):
        async with Run(run_id="b", store=store, budget=Budget(calls=1)):
            for n in range(2):
                await ask.acall(q=str(n))
    assert [reason for reason, _ in stops(store, "b")] == ["budget"]


async def test_one_that_was_cut_off_has_not():
    store = MemoryStore()
    begun = asyncio.Event()

    async def work():
        async with Run(run_id="r", store=store):
            begun.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert stops(store) == []
    with pytest.raises(KeyboardInterrupt), Run(run_id="k", store=store):
        raise KeyboardInterrupt
    assert stops(store, "k") == []


async def test_a_sync_block_on_a_loop_ends_too(ask):
    store = MemoryStore()
    with Run(run_id="r", store=store) as run:
        await ask.acall(q="x")
        with Run():
            pass
        assert not run.closed
    assert stops(store) == [("done", None)]


def test_strict_is_heard_by_who_leaves_the_block(ask):
    store = MemoryStore()
    with Run(run_id="r", store=store):
        ask(q="x")
    with pytest.raises(DivergedError), Run(run_id="r", store=store, strict=True):
        pass


def test_a_reply_out_of_the_cache_says_what_was_asked(ask, tmp_path):
    with (
        SqliteStore(tmp_path / "runs.db") as store,
        closing(SqliteCache(tmp_path / "cache.db")) as cache,
        context(cache=cache),
    ):
        for run_id in ("bought", "kept"):
            with Run(run_id=run_id, store=store):
                ask(q="what is it?")
        bought, kept = (next(e for e in store.read(run) if "content" in e.data) for run in ("bought", "kept"))
        assert (bought.kind, kept.kind, kept.data["cached"]) == ("intent", "call", True)
        assert kept.data["content"] == bought.data["content"]
        assert "what is it?" in store.run("kept").task
        db = store._connection()
        rows = db.execute("SELECT run_id, status, messages FROM calls ORDER BY run_id").fetchall()
        assert [(run, status) for run, status, _ in rows] == [("bought", "ok"), ("kept", "cached")]
        assert json.loads(rows[0][2]) == json.loads(rows[1][2])
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (1,), "a message is in the file once"


def test_a_run_out_of_the_cache_teaches_as_one_that_was_bought(tmp_path):
    from collections import Counter

    from redraft import Refine

    write = Refine(Predict("task -> line", lm=FunctionLM(lambda request: "one two")), 1, checks=["words:2"])
    with (
        SqliteStore(tmp_path / "runs.db") as store,
        closing(SqliteCache(tmp_path / "cache.db")) as cache,
        context(cache=cache, store=store),
    ):
        ids = [write(task="say it").run_id for _ in range(2)]
        bought, kept = ([*sft(run_id, store.read(run_id), Counter())] for run_id in ids)
    assert bought[0]["prompt"] == kept[0]["prompt"]
    assert bought[0]["completion"] == kept[0]["completion"]
