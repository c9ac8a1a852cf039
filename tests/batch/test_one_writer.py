"""A run or batch has one writer: the second one is refused at the door, in one process and in several."""

import asyncio
import os
import subprocess
import sys
from contextlib import aclosing

import pytest

from redraft import Batch, BestOfN, Predict, Refine, Run, SqliteStore
from redraft.errors import RunFailed, StoreError
from redraft.journal import MemoryStore
from redraft.testing import FunctionLM

HOLDER = """
import sys
from redraft import SqliteStore, Run
with SqliteStore(sys.argv[1]) as store:
    with Run(run_id="r", store=store):
        print("open", flush=True)
        sys.stdin.read()
"""


def write(lm, **options):
    return Refine(Predict("task -> line", lm=lm), 1, checks=["words:1"], **options)


def items(n):
    return [{"task": str(i)} for i in range(n)]


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    with SqliteStore(tmp_path / "runs.db") if request.param == "file" else MemoryStoreOpen() as store:
        yield store


class MemoryStoreOpen(MemoryStore):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


async def test_a_batch_of_an_id_that_is_at_work_is_refused_and_hurts_nothing(store):
    lm = FunctionLM(lambda request: "ok")
    first = Batch(write(lm), concurrency=1, store=store, batch_id="b")
    async with aclosing(first.as_completed(items(5))) as ended:
        await anext(ended)
        bought = len(lm.requests)
        with pytest.raises(StoreError, match="'b' is open in this process already"):
            await anext(Batch(write(lm), store=store, batch_id="b").as_completed(items(5)))
        assert len(lm.requests) == bought
        rest = [item async for item in ended]
    assert [item.status for item in rest] == ["done"] * 4
    again = [item async for item in Batch(write(lm), store=store, batch_id="b").as_completed(items(5))]
    assert ({item.status for item in again}, len(lm.requests)) == ({"done"}, 5)


def test_a_run_that_another_process_has_open_is_refused_until_that_ends(tmp_path):
    path = tmp_path / "runs.db"
    lm = FunctionLM(lambda request: "ok")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "open\n"
        with SqliteStore(path) as store:
            for _ in range(2):
                said = rf"another process \({holder.pid}\).*nothing was bought"
                with pytest.raises(StoreError, match=said), Run.resume("r", store=store):
                    Predict("q -> a", lm=lm)(q="x")
            assert lm.requests == []
            holder.kill()
            holder.wait()
            with Run.resume("r", store=store):
                Predict("q -> a", lm=lm)(q="x")
            assert len(lm.requests) == 1
    finally:
        holder.kill()
        holder.communicate()
    assert {file.name for file in tmp_path.iterdir()} == {"runs.db"}


def test_a_run_that_went_on_after_it_was_read_is_refused(tmp_path):
    lm = FunctionLM(lambda request: "ok")
    with SqliteStore(tmp_path / "runs.db") as one, SqliteStore(tmp_path / "runs.db") as two:
        with Run(run_id="r", store=one):
            Predict("q -> a", lm=lm)(q="x")
        late = Run(run_id="r", store=two)
        with Run(run_id="r", store=one):
            Predict("q -> a", lm=lm)(q="y")
        with pytest.raises(StoreError, match="gone on with meanwhile"), late:
            pass
        with Run(run_id="r", store=two) as run:
            Predict("q -> a", lm=lm)(q="y")
            assert run.usage.calls == 2


def test_gc_removes_what_the_dead_have_left(tmp_path):
    with SqliteStore(tmp_path / "runs.db") as store:
        (tmp_path / f"runs.db-{'0' * 20}.run").write_text("1")
        with Run(run_id="r", store=store):
            store.gc()
            assert len(list(tmp_path.glob("*.run"))) == 1
    assert not list(tmp_path.glob("*.run"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_holds_nothing_of_its_parents(tmp_path):
    with SqliteStore(tmp_path / "runs.db") as store:
        release = store.claim("r")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        try:
            release()
            store.claim("r")()
        finally:
            os.close(writer)
            os.close(reader)
            os.waitpid(child, 0)


class FullDisk(MemoryStore):
    """Takes no replies after the first one."""

    def append(self, run_id, events):
        if any(event.kind == "call" for event in events) and any(e.kind == "call" for e in self.read(run_id)):
            raise StoreError("the disk is full")
        return super().append(run_id, events)


@pytest.mark.parametrize("strategy", [Refine, BestOfN])
def test_a_store_that_fails_inside_an_attempt_ends_the_run(strategy):
    lm = FunctionLM(lambda request: "one two three")
    made = strategy(Predict("task -> line", lm=lm), N=4, checks=["words:1"])
    with_store = Run(store=FullDisk())
    result = asyncio.run(with_store.execute(made, made.bind({"task": "x"})))
    assert (str(result.stop_reason), str(result.error)) == ("error", "the disk is full")
    assert len(lm.requests) <= 4
    assert not any(isinstance(attempt.error, StoreError) and attempt.accepted for attempt in result.attempts)


def test_user_code_cannot_hide_a_store_that_fails():
    lm = FunctionLM(lambda request: "ok")

    def twice(task):
        ask = Predict("task -> line", lm=lm)
        ask(task=task)
        try:
            return ask(task=f"{task} again")
        except Exception as error:
            raise ValueError("my own") from error

    with pytest.raises(StoreError, match="disk is full"):
        Refine(twice, N=3).batch(items(3), store=FullDisk(), concurrency=1)
    assert len(lm.requests) == 2


async def test_a_source_that_is_cancelled_from_inside_is_no_end_of_the_input():
    async def source():
        for item in items(3):
            yield item
        raise asyncio.CancelledError

    done = []
    with pytest.raises(RunFailed, match="not all were read"):
        async for item in Batch(write(FunctionLM(lambda r: "ok")), concurrency=2).as_completed(source()):
            done += [item.index]
    assert sorted(done) == [0, 1, 2]


async def test_an_item_that_is_cancelled_from_inside_is_a_row():
    class Odd:
        name = "odd"

        async def acall(self, task):
            if task == "1":
                raise asyncio.CancelledError
            return {"line": "ok"}

    done = [item async for item in Batch(Odd(), concurrency=2).as_completed(items(4), ordered=True)]
    assert [item.status for item in done] == ["done", "failed", "done", "done"]
    assert "cancelled from inside" in str(done[1].error)
