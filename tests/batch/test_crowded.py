"""Too many requests: fewer at once, for all who ask that upstream; nobody before it wants to be asked; more again by and by."""

import asyncio
import threading
import time

import pytest

from redraft import Batch, Predict, Refine
from redraft.errors import TransientLMError
from redraft.purchase import _gate
from redraft.testing import FunctionLM
from redraft.turns import Gate


async def inside(gate, n):
    return [await gate.enter() for _ in range(n)]


async def test_one_lowering_for_all_calls_that_were_under_way():
    gate = Gate(16)
    entered = await inside(gate, 8)
    assert [gate.slow_down(number, 0) for number in entered] == [True] * 8
    assert gate.limit == 4
    for _ in range(8):
        gate.leave()
    later = await inside(gate, 4)
    assert gate.slow_down(later[0], 0)
    assert gate.limit == 2


async def test_a_call_that_was_alone_was_not_one_too_many():
    gate = Gate(16)
    assert not gate.slow_down(await gate.enter(), 0)
    assert gate.limit == 16


async def test_it_rises_by_one_for_each_round_of_answers_and_never_above_its_most():
    gate = Gate(6)
    for number in await inside(gate, 6):
        gate.slow_down(number, 0)
        gate.leave(number)
    limits = [gate.limit]
    for _ in range(40):
        gate.leave(await gate.enter())
        limits.append(gate.limit)
    assert limits[0] == 3
    assert limits == sorted(limits)
    assert limits.index(4) - limits.index(3) >= 3
    assert limits[-1] == 6


async def test_what_was_sent_before_the_lowering_does_not_raise_the_limit():
    gate = Gate(8)
    first, *others = await inside(gate, 8)
    gate.slow_down(first, 0)
    for number in others:
        gate.leave(number)
    assert gate._limit == 4.0


async def test_those_over_the_limit_leave_before_anybody_enters():
    gate = Gate(4)
    entered = await inside(gate, 4)
    waiting = asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0)
    gate.slow_down(entered[0], 0)
    for _ in range(2):
        gate.leave()
        await asyncio.sleep(0)
        assert not waiting.done()
    gate.leave()
    await asyncio.wait_for(waiting, 2)


async def test_a_shut_gate_opens_by_itself_for_all_who_wait():
    gate = Gate(2)
    entered = await inside(gate, 2)
    early = [asyncio.ensure_future(gate.enter()) for _ in range(2)]
    await asyncio.sleep(0)
    gate.slow_down(entered[0], 0.2)
    opens = time.monotonic() + 0.2
    for _ in range(2):
        gate.leave()  # those inside leave, and nobody comes back who could let others in
    late = asyncio.ensure_future(gate.enter())

    async def visit(waiting):
        await waiting
        assert time.monotonic() >= opens - 0.005
        gate.leave()

    await asyncio.wait_for(asyncio.gather(*(visit(w) for w in [*early, late])), 5)
    assert gate._inside == 0


def test_it_holds_for_loops_in_several_threads():
    gate = Gate(8)
    lock = threading.Lock()
    now = peak = 0

    async def visit(i):
        nonlocal now, peak
        number = await gate.enter()
        with lock:
            now += 1
            peak = max(peak, now)
        await asyncio.sleep(0.0005)
        if i % 10 == 0:
            gate.slow_down(number, 0.002)
        with lock:
            now -= 1
        gate.leave(number if i % 10 else None)

    async def main():
        await asyncio.gather(*(visit(i) for i in range(60)))

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert (now, gate._inside) == (0, 0)
    assert peak <= 8


class Crowded(FunctionLM):
    """Refuses more than so many at once."""

    def __init__(self, most, retry_after=0.0):
        super().__init__(self._reply, name="crowded")
        self.most = most
        self.retry_after = retry_after
        self.now = self.refused = 0
        self.times = []

    async def _reply(self, request):
        self.times.append(time.monotonic())
        if self.now >= self.most:
            self.refused += 1
            raise TransientLMError("too many", status=429, retry_after=self.retry_after)
        self.now += 1
        try:
            await asyncio.sleep(0.002)
        finally:
            self.now -= 1
        return "ok"


async def test_a_batch_adapts_to_what_the_upstream_takes_and_no_item_fails():
    lm = Crowded(3)
    events = []
    from redraft import context

    with context(listeners=(events.append,)):
        work = Batch(Refine(Predict("q -> a", lm=lm), N=1), concurrency=48)
        items = [item async for item in work.as_completed([{"q": f"{i}"} for i in range(300)])]
    assert {item.status for item in items} == {"done"}
    assert lm.refused < 300, "it does not just try again and again"
    assert 1 <= _gate(lm).limit <= 8
    slowed = [event.data for event in events if event.kind == "slowed"]
    assert slowed[0]["before"] > slowed[0]["limit"]


async def test_nobody_sends_before_the_time_it_asks_for_has_passed():
    lm = Crowded(4, retry_after=0.3)
    items = [{"q": f"{i}"} for i in range(12)]
    await asyncio.wait_for(_all(Batch(Refine(Predict("q -> a", lm=lm), N=1), concurrency=12), items), 20)
    gaps = [later - before for before, later in zip(lm.times, lm.times[1:], strict=False)]
    assert max(gaps) >= 0.29, "all were quiet"
    first_refusal = lm.times[4]
    assert [t for t in lm.times if first_refusal + 0.05 < t < first_refusal + 0.29] == []


async def _all(work, items):
    return [item async for item in work.as_completed(items)]


@pytest.mark.parametrize("status", [429, 529])
async def test_a_call_that_is_refused_alone_is_still_given_up(status):
    from redraft import Run
    from redraft.types import Request

    lm = FunctionLM(lambda request: "")

    async def refuse(request, on_delta=None):
        lm.requests.append(request)
        raise TransientLMError("too many", status=status, retry_after=0)

    lm.generate = refuse
    async with Run() as run:
        with pytest.raises(TransientLMError):
            await run.complete(Request(messages=({"role": "user", "content": "x"},)), lm=lm)
    assert len(lm.requests) == run.tries
