"""Many items through one module: what each of them gets, what is read when, what ends them, what a resume buys."""

import asyncio
import gc
import re
from contextlib import aclosing

import pytest

from redraft import Batch, Budget, Module, Predict, Refine, Run, SqliteStore
from redraft.errors import BudgetExceeded, InputError, StoreError
from redraft.journal import Journal, MemoryStore
from redraft.testing import FunctionLM


def echo(latency=0.0, **options):
    """Says what it was asked."""

    async def reply(request):
        await asyncio.sleep(latency(request) if callable(latency) else latency)
        return "on " + re.search("Q: (.*)", request.messages[-1]["content"])[1]

    return FunctionLM(reply, name="echo", **options)


def refine(lm, N=1, **options):
    return Refine(Predict("q -> a", lm=lm), N=N, **options)


def never(inputs, prediction):
    return 0.0


def questions(n):
    return [{"q": f"question {i}"} for i in range(n)]


def statuses(items):
    return [item.status for item in items]


async def taken(batch, items, **options):
    return [item async for item in batch.as_completed(items, **options)]


def test_each_item_gets_its_own_answer_in_the_order_of_the_input():
    lm = echo()
    items = refine(lm).batch(questions(20), concurrency=7)
    assert [item.result.a for item in items] == [f"on question {i}" for i in range(20)]
    assert [item.index for item in items] == list(range(20))
    assert {item.result.run_id for item in items} == {item.run_id for item in items}
    assert len({item.run_id for item in items}) == 20
    assert [item.usage.calls for item in items] == [1] * 20


def test_a_plain_module_and_a_function_in_a_strategy_work_alike():
    lm = echo()
    assert [i.result.a for i in Predict("q -> a", lm=lm).batch(questions(3))] == [f"on question {i}" for i in range(3)]

    def twice(q):
        return {"a": Predict("q -> a", lm=lm)(q=q).a * 2}

    assert Refine(twice, N=1).batch(questions(2))[1].result.a == "on question 1" * 2


async def test_as_completed_hands_out_what_ends_first():
    lm = echo(lambda request: 0.05 if "question 0" in request.messages[-1]["content"] else 0.0)
    order = [item.index async for item in refine(lm).abatch_as_completed(questions(6), concurrency=2)]
    assert order[-1] == 0
    assert sorted(order) == list(range(6))


async def test_an_input_without_end_is_read_as_it_is_needed_and_runs_are_forgotten():
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield {"q": f"question {read}"}

    lm = echo()
    work = Batch(refine(lm), concurrency=4)
    async with aclosing(work.as_completed(endless())) as ended:
        for _ in range(300):
            await anext(ended)
        gc.collect()
        assert len([o for o in gc.get_objects() if isinstance(o, Journal)]) < 30
    assert read <= 300 + 4 + 64 + 1


async def test_items_may_come_by_and_by():
    async def source():
        for item in questions(5):
            await asyncio.sleep(0.001)
            yield item

    assert statuses(await taken(Batch(refine(echo()), concurrency=2), source())) == ["done"] * 5


def test_an_items_error_is_a_row():
    def fail(q):
        if q == "question 1":
            raise ValueError("no")
        return {"a": q}

    items = Refine(fail, N=1).batch([*questions(3), {"z": 1}, "text"])
    assert statuses(items) == ["done", "failed", "done", "failed", "failed"]
    assert "ValueError: no" in str(items[1].error)
    assert isinstance(items[3].error, InputError)
    assert "mapping of a module's inputs" in str(items[4].error)


async def test_what_reading_raises_comes_after_what_was_read():
    def source():
        yield from questions(3)
        raise OSError("the disk is gone")

    done = []
    with pytest.raises(OSError, match="disk is gone"):
        async for item in Batch(refine(echo()), concurrency=2).as_completed(source()):
            done += [item.index]
    assert sorted(done) == [0, 1, 2]


def test_when_the_whole_budget_ends_nothing_is_lost_and_more_goes_on():
    lm, store = echo(), MemoryStore()
    strategy = refine(lm, N=3, reward_fn=never, threshold=1.0, advisor=False)
    part = strategy.batch(questions(10), concurrency=2, budget=Budget(calls=10), store=store, batch_id="b")
    assert len(lm.requests) == 10
    assert statuses(part)[-1] == "not_begun"
    assert isinstance(part[-1].error, BudgetExceeded)
    again = strategy.batch(questions(10), concurrency=2, budget=Budget(calls=10), store=store, batch_id="b")
    assert (len(lm.requests), statuses(again)[-1]) == (10, "not_begun"), "what was spent before counts"
    whole = strategy.batch(questions(10), concurrency=2, budget=Budget(calls=30), store=store, batch_id="b")
    assert (statuses(whole), len(lm.requests)) == (["done"] * 10, 30)


def test_an_items_own_budget_ends_it_alone():
    lm = echo()
    strategy = refine(lm, N=3, reward_fn=never, threshold=1.0, advisor=False, budget=Budget(calls=5, tokens=10_000))
    items = strategy.batch(questions(4), item_budget=Budget(calls=2))
    assert statuses(items) == ["done"] * 4
    assert {str(item.result.stop_reason) for item in items} == {"budget"}
    assert len(lm.requests) == 8


async def test_killed_half_way_only_what_is_missing_is_bought(tmp_path):
    lm = echo(latency=0.002)
    strategy = refine(lm, N=2, reward_fn=never, threshold=1.0, advisor=False)
    with SqliteStore(tmp_path / "runs.db") as store:
        async with aclosing(
            Batch(strategy, concurrency=3, store=store, batch_id="b").as_completed(questions(12))
        ) as ended:
            for _ in range(5):
                await anext(ended)
    with SqliteStore(tmp_path / "runs.db") as store:
        work = Batch(strategy, concurrency=3, store=store, batch_id="b")
        items = await taken(work, questions(12), ordered=True)
    assert [item.result.a for item in items] == [f"on question {i}" for i in range(12)]
    assert len(lm.requests) <= 24 + 3, "bought again: only what was in flight"
    assert len(lm.requests) <= work.usage.calls <= len(lm.requests) + 3
    silent = FunctionLM(lambda request: 1 / 0, name="echo")
    with SqliteStore(tmp_path / "runs.db") as store:
        again = refine(silent, N=2, reward_fn=never, threshold=1.0, advisor=False)
        items = again.batch(questions(12), store=store, batch_id="b")
    assert [item.result.a for item in items] == [f"on question {i}" for i in range(12)]


def test_an_id_names_an_item_and_other_inputs_make_it_another_run():
    lm, store = echo(), MemoryStore()
    strategy = refine(lm)
    first = strategy.batch([{"id": "x", "q": "one"}, {"id": "y", "q": "two"}], store=store, batch_id="b")
    assert [item.key for item in first] == ["x", "y"]
    again = strategy.batch([{"id": "y", "q": "two"}, {"id": "x", "q": "other"}], store=store, batch_id="b")
    assert [item.result.a for item in again] == ["on two", "on other"]
    assert len(lm.requests) == 3
    assert first[0].run_id != again[1].run_id


def test_equal_items_are_samples_of_their_own():
    lm = FunctionLM(lambda request: f"seed {request.seed}")
    items = refine(lm).batch([{"q": "the same"}] * 3)
    assert len({item.result.a for item in items}) == 3
    assert len({item.run_id for item in items}) == 3


async def test_stopped_what_is_under_way_ends():
    lm = echo(latency=0.01)
    work = Batch(refine(lm), concurrency=3)
    items = []
    async for item in work.as_completed(questions(50)):
        items.append(item)
        work.stop()
    assert 1 <= len(items) <= 3 + 3
    assert set(statuses(items)) == {"done"}
    assert len(lm.requests) == len(items)


def test_inside_a_run_it_is_part_of_it():
    lm = echo()

    class Several(Module):
        def __init__(self):
            self.inner = refine(lm)

        async def aforward(self, n):
            answers = [
                i async for i in self.inner.abatch_as_completed(questions(n), ordered=True, budget=Budget(calls=3))
            ]
            return {"answers": [i.result and i.result.a for i in answers], "statuses": statuses(answers)}

    store = MemoryStore()
    for _ in range(2):
        with Run(run_id="r", store=store) as run:
            said = Several()(n=5)
            assert run.usage.calls == 3
        assert said.answers[:3] == [f"on question {i}" for i in range(3)]
        assert said.statuses.count("done") == 3
    assert len(lm.requests) == 3, "a resumed run asks for nothing again"


def test_who_listens_and_fails_hurts_nothing(caplog):
    heard = []

    def listen(item):
        heard.append(item.index)
        raise ValueError("mine")

    assert statuses(refine(echo()).batch(questions(4), on_result=listen)) == ["done"] * 4
    assert len(heard) == 1
    assert "mine" in caplog.text


async def test_a_store_that_fails_ends_the_batch():
    class Full(MemoryStore):
        def append(self, run_id, events):
            if run_id.endswith("#3"):
                raise StoreError("full")
            return super().append(run_id, events)

    done = []
    with pytest.raises(StoreError, match="full"):
        async for item in Batch(refine(echo()), concurrency=2, store=Full()).as_completed([{"q": "x"}] * 50):
            done += [item]
    assert 2 <= len(done) < 10


@pytest.mark.parametrize(("wrong", "said"), [({"concurrency": 0}, "1 or more"), ({"batch_id": "a:b"}, "without ':'")])
def test_what_cannot_be_is_refused_at_the_door(wrong, said):
    with pytest.raises(InputError, match=said):
        refine(echo()).batch([], **wrong)


async def test_a_batch_that_is_left_is_left_whole(tmp_path):
    lm = FunctionLM(lambda request: "a b c")
    write = Refine(Predict("task -> line", lm=lm), 1, checks=["words:3"])
    items = [{"task": str(i)} for i in range(8)]
    with SqliteStore(tmp_path / "runs.db") as store:
        async with aclosing(write.abatch_as_completed(items, concurrency=3, store=store, batch_id="b")) as ended:
            async for _ in ended:
                break
        rest = [item async for item in write.abatch_as_completed(items, concurrency=3, store=store, batch_id="b")]
    assert {item.status for item in rest} == {"done"}
    assert len(lm.requests) <= 8 + 3


def test_an_id_may_look_like_anothers_second():
    done = Predict("task -> line", lm=FunctionLM(lambda request: "ok")).batch(
        [{"id": i, "task": "t"} for i in ("x", "x", "x#2", "x", "x#2")]
    )
    assert [item.status for item in done] == ["done"] * 5
    assert len({item.key for item in done}) == 5


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_a_failed_row(odd, tmp_path):
    module = Predict("x: float -> line", lm=FunctionLM(lambda request: "ok"))
    with SqliteStore(tmp_path / "runs.db") as store:
        done = module.batch([{"x": 1.0}, {"x": odd}, {"x": 2.0}], store=store, concurrency=1)
    assert [item.status for item in done] == ["done", "failed", "done"]
    assert isinstance(done[1].error, InputError)
