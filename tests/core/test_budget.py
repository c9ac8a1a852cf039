"""Meter and Gate: what fits, who waits, who goes first. Nothing here calls a model."""

import asyncio
import threading

import pytest

from redraft.budget import Ask, Budget, Meter
from redraft.errors import BudgetExceeded, PriceUnknownError, UsageError
from redraft.turns import Gate
from redraft.types import Usage


def settled(tokens, cost=0.0):
    return Usage(calls=1, output_tokens=tokens, cost=cost)


def tenth(usage):
    """A dime a token: binary floats cannot hold it."""
    return usage.tokens * 0.1


async def waits(task):
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


def in_threads(count, main):
    """Run `main()` (a coroutine function) on event loops of their own, all to their end."""
    ended = []

    def work():
        asyncio.run(main())
        ended.append(True)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    assert len(ended) == count


# Limits


@pytest.mark.parametrize("limits", [{"calls": 0}, {"tokens": -1}, {"cost": float("nan")}, {"seconds": float("inf")}])
def test_a_limit_is_a_number_above_zero(limits):
    with pytest.raises(UsageError, match=f"budget {next(iter(limits))}="):
        Budget(**limits)


async def test_without_limits_everything_fits_as_asked():
    meter = Meter()
    held = [await meter.reserve(Ask(prompt=10**6, cap=cap)) for cap in (None, 0, 10**6)]
    assert [h.cap for h in held] == [None, 0, 10**6]
    assert not meter.limits_tokens
    assert meter.seconds_left is None


async def test_calls_are_counted_when_reserved_and_the_limit_is_exact():
    meter = Meter(Budget(calls=3))
    for _ in range(3):
        (await meter.reserve(Ask(prompt=5, cap=5))).settle(settled(1))
    with pytest.raises(BudgetExceeded, match="limit of 3 calls") as caught:
        await meter.reserve(Ask(prompt=5, cap=5))
    assert (caught.value.limit, caught.value.allowed, caught.value.spent) == ("calls", 3, 3)
    assert "--call-limit" in str(caught.value)
    assert meter.usage.calls == 3


async def test_a_cap_of_zero_is_a_call_like_any_other():
    meter = Meter(Budget(calls=1))
    (await meter.reserve(Ask(prompt=1, cap=0))).settle(settled(0))
    with pytest.raises(BudgetExceeded):
        await meter.reserve(Ask(prompt=1, cap=0))


async def test_the_cap_shrinks_to_what_remains():
    meter = Meter(Budget(tokens=100))
    first = await meter.reserve(Ask(prompt=20, cap=50))
    assert (first.cap, first.tokens) == (50, 70)
    first.settle(Usage(calls=1, input_tokens=20, output_tokens=10))
    second = await meter.reserve(Ask(prompt=20, cap=500))
    assert second.cap == 50
    second.settle(Usage(calls=1, input_tokens=20, output_tokens=49))
    with pytest.raises(BudgetExceeded, match="the next prompt alone may need 20") as caught:
        await meter.reserve(Ask(prompt=20, cap=5))
    assert (caught.value.limit, caught.value.spent) == ("tokens", 99)


async def test_no_cap_asked_gets_all_that_remains():
    assert (await Meter(Budget(tokens=100)).reserve(Ask(prompt=30))).cap == 70


async def test_n_choices_share_what_remains():
    held = await Meter(Budget(tokens=100)).reserve(Ask(prompt=10, cap=1000, n=4))
    assert held.cap == 22
    assert held.tokens == 10 + 4 * 22


async def test_uncertain_tokens_count_as_spent():
    meter = Meter(Budget(tokens=100))
    (await meter.reserve(Ask(prompt=10, cap=50))).settle(Usage(calls=1, uncertain_tokens=60))
    assert (await meter.reserve(Ask(prompt=10, cap=50))).cap == 30


async def test_an_overrun_is_settled_truly():
    meter = Meter(Budget(tokens=100))
    (await meter.reserve(Ask(prompt=10, cap=10))).settle(Usage(calls=1, input_tokens=10, output_tokens=200))
    assert meter.usage.tokens == 210
    with pytest.raises(BudgetExceeded):
        await meter.reserve(Ask(prompt=1, cap=1))


async def test_settling_twice_does_nothing():
    meter = Meter(Budget(tokens=100))
    held = await meter.reserve(Ask(prompt=10, cap=10))
    assert held.settle(settled(5))
    assert not held.settle(settled(99))
    assert meter.usage == Usage(calls=1, output_tokens=5)


# Money


async def test_money_shrinks_the_cap_and_is_exact():
    meter = Meter(Budget(cost=0.3))
    held = await meter.reserve(Ask(prompt=1, cap=100, price=tenth))
    assert held.cap == 2, "0.3 dollars are three tokens of 0.1, whatever 3 * 0.1 is in binary"
    held.settle(settled(3, cost=tenth(Usage(output_tokens=3))))
    with pytest.raises(BudgetExceeded) as caught:
        await meter.reserve(Ask(prompt=0, cap=1, price=tenth))
    assert caught.value.limit == "cost"
    assert caught.value.spent == pytest.approx(0.3)
    with pytest.raises(
        BudgetExceeded, match=r"\(0 spent, and the next prompt with one token of reply may need 0\.3\);"
    ):
        await Meter(Budget(cost=0.2)).reserve(Ask(prompt=2, cap=9, price=tenth))


async def test_what_was_not_asked_for_needs_nothing():
    meter = Meter(Budget(tokens=1, cost=1.0))
    meter.charge(settled(1, cost=1.0))
    with pytest.raises(BudgetExceeded, match=r"limit of 1 token is reached \(1 spent\); raise it"):
        meter.check_room()


@pytest.mark.parametrize(("limit", "price"), [(1.0, 0.1), (0.29, 0.01), (0.07, 0.001), (1.234, 1e-6), (0.5, 2.5e-7)])
async def test_a_limit_buys_exactly_its_number_of_tokens(limit, price):
    """One token a call: not one too few, not one too many, in any order of additions."""
    tokens = round(limit / price)
    meter = Meter(Budget(cost=limit))
    big = await meter.reserve(Ask(prompt=0, cap=10**7, price=lambda usage: usage.tokens * price))
    assert big.cap == tokens
    left = min(5, tokens)
    big.settle(settled(tokens - left, cost=(tokens - left) * price))
    for _ in range(left):
        one = await meter.reserve(Ask(prompt=0, cap=1, price=lambda usage: usage.tokens * price))
        one.settle(settled(1, cost=price))
    with pytest.raises(BudgetExceeded):
        await meter.reserve(Ask(prompt=0, cap=1, price=lambda usage: usage.tokens * price))


async def test_money_with_an_unknown_price_is_an_error_and_holds_nothing():
    meter = Meter(parent=Meter(Budget(cost=1.0)))
    for price in (None, lambda usage: None):
        with pytest.raises(PriceUnknownError, match="price of this model is not known"):
            await meter.reserve(Ask(prompt=1, cap=1, price=price))
    assert meter.usage == meter.parent.usage == Usage()
    free = await meter.reserve(Ask(prompt=1, price=lambda usage: 0.0))
    assert free.cap is None, "what costs nothing needs no cap for money's sake"


# Waiting


async def test_what_does_not_fit_waits_for_a_settlement():
    meter = Meter(Budget(tokens=100))
    first = await meter.reserve(Ask(prompt=10, cap=70))
    second = asyncio.create_task(meter.reserve(Ask(prompt=10, cap=40)))
    assert await waits(second)
    first.settle(settled(20))
    assert (await second).cap == 40


async def test_it_stops_only_when_nothing_is_in_flight():
    meter = Meter(Budget(tokens=100))
    first = await meter.reserve(Ask(prompt=10, cap=80))
    second = asyncio.create_task(meter.reserve(Ask(prompt=50, cap=40)))
    assert await waits(second)
    first.settle(settled(90))
    with pytest.raises(BudgetExceeded):
        await second


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind():
    meter = Meter(Budget(tokens=100))
    first = await meter.reserve(Ask(prompt=0, cap=100))
    gone, stays = (asyncio.create_task(meter.reserve(Ask(prompt=0, cap=60))) for _ in range(2))
    assert await waits(gone)
    gone.cancel()
    first.settle(settled(1))
    second = await stays
    assert second.cap == 60
    second.settle(settled(1))
    assert meter.usage.calls == 2
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_a_waiter_cancelled_in_the_very_moment_of_its_wake_up_wakes_the_next():
    meter = Meter(Budget(tokens=100))
    first = await meter.reserve(Ask(prompt=0, cap=100))
    gone, stays = (asyncio.create_task(meter.reserve(Ask(prompt=0, cap=60))) for _ in range(2))
    assert await waits(gone)
    first.settle(settled(1))
    gone.cancel()
    assert (await asyncio.wait_for(stays, 2)).cap == 60


async def test_a_waiter_of_a_loop_that_ended_does_not_swallow_the_wake_up():
    meter = Meter(Budget(tokens=100))
    first = await meter.reserve(Ask(prompt=0, cap=100))

    def other_loop():
        async def start():
            task = asyncio.ensure_future(meter.reserve(Ask(prompt=0, cap=50)))
            await asyncio.sleep(0.01)
            return task

        asyncio.run(start())  # cancels the waiter and closes the loop

    await asyncio.to_thread(other_loop)
    here = asyncio.create_task(meter.reserve(Ask(prompt=0, cap=50)))
    assert await waits(here)
    first.settle(settled(1))
    assert (await asyncio.wait_for(here, 2)).cap == 50


# Chains


async def test_spending_counts_on_every_meter_up_the_chain():
    root = Meter(Budget(tokens=100))
    child = Meter(Budget(tokens=50), root)
    grandchild = Meter(parent=child)
    (await grandchild.reserve(Ask(prompt=5, cap=10))).settle(Usage(calls=1, input_tokens=5, output_tokens=7))
    assert root.usage == child.usage == grandchild.usage == Usage(calls=1, input_tokens=5, output_tokens=7)
    assert (await grandchild.reserve(Ask(prompt=5, cap=500))).cap == 50 - 12 - 5, "the tightest limit of the chain"


async def test_a_reservation_is_made_on_all_meters_or_on_none():
    root = Meter(Budget(calls=1))
    child = Meter(Budget(tokens=50), root)
    other = Meter(parent=root)
    (await other.reserve(Ask(prompt=1, cap=1))).settle(settled(1))
    with pytest.raises(BudgetExceeded) as caught:
        await child.reserve(Ask(prompt=5, cap=5))
    assert caught.value.allowed == 1, "the error names the limit that stopped it, not the nearest one"
    assert child.usage == Usage()
    assert root.usage.calls == 1


async def test_siblings_wait_for_each_other_only_where_they_share_a_limit():
    root = Meter(Budget(tokens=100))
    a, b = Meter(Budget(tokens=40), root), Meter(Budget(tokens=40), root)
    of_a = await a.reserve(Ask(prompt=0, cap=40))
    of_b = await b.reserve(Ask(prompt=0, cap=40))
    again = asyncio.create_task(a.reserve(Ask(prompt=0, cap=10)))
    of_b.settle(settled(40))
    assert await waits(again), "a's own limit is full; b's settlement gives it nothing"
    of_a.settle(settled(30))
    assert (await again).cap == 10


async def test_the_nearest_deadline_of_the_chain_counts():
    root = Meter(Budget(seconds=60))
    child = Meter(Budget(seconds=1), root)
    assert 0 < child.seconds_left <= 1 < root.seconds_left <= 60
    assert Meter(parent=child).seconds_left <= 1
    error = child.out_of_time()
    assert (error.limit, error.allowed) == ("seconds", 1)


async def test_what_an_earlier_process_spent_counts():
    meter = Meter(Budget(calls=3, tokens=100, seconds=60))
    meter.preload(Usage(calls=2, input_tokens=30, uncertain_tokens=20), seconds=45)
    assert meter.seconds_left <= 15
    held = await meter.reserve(Ask(prompt=0, cap=100))
    assert held.cap == 50
    held.settle(settled(1))
    with pytest.raises(BudgetExceeded):
        await meter.reserve(Ask(prompt=0, cap=1))


# Threads


def test_a_token_limit_holds_for_threads_with_loops_of_their_own():
    meter = Meter(Budget(tokens=1000, calls=150))
    lock = threading.Lock()
    live, peak = 0, 0

    async def chain():
        nonlocal live, peak
        for _ in range(15):
            try:
                held = await meter.reserve(Ask(prompt=2, cap=18))
            except BudgetExceeded:
                return
            with lock:
                live += held.tokens
                peak = max(peak, live + meter.usage.tokens)
            await asyncio.sleep(0)
            with lock:
                live -= held.tokens
            held.settle(Usage(calls=1, input_tokens=2, output_tokens=min(7, held.cap)))

    async def main():
        await asyncio.gather(*(chain() for _ in range(5)))

    in_threads(4, main)
    assert meter.usage.tokens <= 1000
    assert meter.usage.calls <= 150
    assert 0 <= 1000 - meter.usage.tokens < 9 or meter.usage.calls == 150, "it stopped only when it had to"
    assert live == 0


def test_waiters_on_two_loops_are_all_served():
    meter = Meter(Budget(tokens=10))
    served = []

    async def one(name):
        held = await meter.reserve(Ask(prompt=0, cap=10))
        await asyncio.sleep(0.001)
        served.append(name)
        held.settle(Usage(calls=1))

    async def main():
        await asyncio.gather(*(one(i) for i in range(20)))

    in_threads(2, main)
    assert len(served) == 40


# The gate


async def test_the_gate_lets_in_its_limit():
    gate = Gate(3)
    inside = peak = 0

    async def visit():
        nonlocal inside, peak
        await gate.enter()
        inside += 1
        peak = max(peak, inside)
        await asyncio.sleep(0.001)
        inside -= 1
        gate.leave()

    await asyncio.gather(*(visit() for _ in range(20)))
    assert (peak, inside) == (3, 0)


async def test_the_gate_is_fair():
    """Who leaves and wants in again stands behind those who wait."""
    gate = Gate(1)
    order = []

    async def regular(name):
        for _ in range(4):
            await gate.enter()
            await asyncio.sleep(0.001)
            order.append(name)
            gate.leave()

    await asyncio.gather(regular("a"), regular("b"), regular("c"))
    assert "".join(order) == "abcabcabcabc"


async def test_a_cancelled_waiter_does_not_take_the_place_with_it():
    gate = Gate(1)
    await gate.enter()
    gone, stays = (asyncio.create_task(gate.enter()) for _ in range(2))
    assert await waits(gone)
    gate.leave()
    gone.cancel()  # the place was already meant for it
    await asyncio.wait_for(stays, 2)
    third = asyncio.create_task(gate.enter())
    assert await waits(third)
    gate.leave()
    await asyncio.wait_for(third, 2)
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_cancelled_at_random_moments_the_gate_keeps_its_places():
    gate = Gate(2)

    async def visit():
        await gate.enter()
        try:
            await asyncio.sleep(0.0005)
        finally:
            gate.leave()

    for round_ in range(30):
        tasks = [asyncio.create_task(visit()) for _ in range(6)]
        for _ in range(round_ % 7):
            await asyncio.sleep(0)
        for i, task in enumerate(tasks):
            if (i + round_) % 2:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.wait_for(asyncio.gather(gate.enter(), gate.enter()), 2)
    third = asyncio.create_task(gate.enter())
    assert await waits(third)
    third.cancel()


def test_the_gate_holds_for_threads_with_loops_of_their_own():
    gate = Gate(3)
    lock = threading.Lock()
    inside = peak = visits = 0

    async def visit():
        nonlocal inside, peak, visits
        await gate.enter()
        with lock:
            inside += 1
            visits += 1
            peak = max(peak, inside)
        await asyncio.sleep(0.0005)
        with lock:
            inside -= 1
        gate.leave()

    async def main():
        await asyncio.gather(*(visit() for _ in range(25)))

    in_threads(4, main)
    assert (visits, inside) == (100, 0)
    assert peak <= 3


async def test_a_waiter_whose_loop_ended_does_not_block_the_gate():
    gate = Gate(1)
    await gate.enter()

    def other_loop():
        async def start():
            task = asyncio.ensure_future(gate.enter())
            await asyncio.sleep(0.01)
            return task

        asyncio.run(start())

    await asyncio.to_thread(other_loop)
    here = asyncio.create_task(gate.enter())
    assert await waits(here)
    gate.leave()
    await asyncio.wait_for(here, 2)
