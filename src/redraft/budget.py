"""Hard limits: what may be spent (Budget), what is reserved and spent (Meter), how many at once (Gate).

Thread-safe and bound to no event loop. Nothing here calls a model or knows what a run is.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields

from redraft.errors import BudgetExceeded, PriceUnknownError, UsageError
from redraft.types import Usage

Price = Callable[[Usage], float | None]
"""Dollars for some tokens, or None if unknown (`LM.cost`)."""

_PICO = 10**12  # money is summed in whole picodollars: a limit is then exact, whatever the order of additions
_CAP_CEILING = 10**7  # no model writes more tokens in one reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one run; None is no limit. `cost` is in dollars, `seconds` is wall time from the run's start."""

    calls: int | None = None
    tokens: int | None = None
    """Input and output tokens together, reasoning included."""
    cost: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise UsageError(f"budget {f.name}={value!r}: a limit is a number above 0, or None for no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one try of a call may use at most."""

    prompt: int
    """Upper bound of the prompt's tokens."""
    cap: int | None = None
    """Tokens asked for, per choice; None: as many as there are."""
    n: int = 1
    price: Price | None = None


class Reservation:
    """Room set aside for one try. Settle it exactly once; settling again does nothing."""

    __slots__ = ("_meter", "_open", "cap", "pico", "tokens")

    def __init__(self, meter: Meter, cap: int | None, tokens: int, pico: int) -> None:
        self._meter = meter
        self._open = True
        self.cap = cap
        """Cap on the reply to send with the request; None if nothing limits it."""
        self.tokens = tokens
        self.pico = pico

    @property
    def cost(self) -> float:
        """Dollars set aside."""
        return self.pico / _PICO

    def settle(self, usage: Usage) -> bool:
        """Replace the reservation by what was used. False if it was settled before."""
        return self._meter._settle(self, usage)


class Meter:
    """What a run may spend and has spent. A child's spending counts on every meter up its chain, atomically."""

    def __init__(self, budget: Budget | None = None, parent: Meter | None = None) -> None:
        self.budget = budget or Budget()
        self.parent = parent
        self._chain: tuple[Meter, ...] = (self, *(parent._chain if parent else ()))
        self._lock: threading.RLock = parent._lock if parent else threading.RLock()
        self._waiters: Waiters = parent._waiters if parent else Waiters()
        self._spent = Usage()
        self._spent_pico = 0
        self._reserved_tokens = 0
        self._reserved_pico = 0
        self._in_flight = 0
        self._started = time.monotonic()

    @property
    def usage(self) -> Usage:
        """What was spent so far, settled calls only."""
        return self._spent

    @property
    def limits_tokens(self) -> bool:
        """True if a token or money limit stands anywhere up the chain: then every request carries a cap."""
        return any(m.budget.tokens is not None or m.budget.cost is not None for m in self._chain)

    @property
    def seconds_left(self) -> float | None:
        """Until the nearest deadline of the chain; None without one."""
        ends = [m._started + m.budget.seconds for m in self._chain if m.budget.seconds is not None]
        return min(ends) - time.monotonic() if ends else None

    def preload(self, usage: Usage, seconds: float = 0.0) -> None:
        """Count what an earlier process of the same run spent. Only this meter; before the first reservation."""
        with self._lock:
            self._add(usage)
            self._started -= seconds

    def replayed(self, usage: Usage) -> None:
        """Count a replayed call on the nested meters; the root was preloaded with all of them."""
        with self._lock:
            for m in self._chain[:-1]:
                m._add(usage)

    async def reserve(self, ask: Ask) -> Reservation:
        """Set room aside, shrinking the cap to what remains. Waits while calls in flight may still give room back.

        Raises `BudgetExceeded` when it cannot fit and nothing is in flight, `PriceUnknownError` for a money limit
        without a price.
        """
        while True:
            with self._lock:
                granted = self._try(ask)
                if isinstance(granted, Reservation):
                    return granted
                ticket = self._waiters.ticket() if granted.in_flight else None
            if ticket is None:
                raise granted.error()
            await ticket.wait()

    def _try(self, ask: Ask) -> Reservation | _Shortage:
        cap = ask.cap
        shrunk: _Shortage | None = None
        for m in self._chain:
            for limit, room in m._rooms(ask):
                if cap is not None and room >= cap:
                    continue
                if limit == "calls" and room > 0:
                    continue
                short = _Shortage(m, limit, m._in_flight > 0)
                if short.in_flight or room < 1:
                    return short
                cap, shrunk = room, short
        del shrunk
        out = ask.n * cap if cap is not None else 0
        pico = 0
        if any(m.budget.cost is not None for m in self._chain):
            pico = _to_pico(_dollars(ask, out))
        tokens = ask.prompt + out if self.limits_tokens or cap is not None else 0
        held = Reservation(self, cap, tokens, pico)
        for m in self._chain:
            m._in_flight += 1
            m._reserved_tokens += tokens
            m._reserved_pico += pico
            m._spent = m._spent + _ONE_CALL
        return held

    def _rooms(self, ask: Ask) -> list[tuple[str, int]]:
        """For each limit of this meter, the largest cap per choice that still fits."""
        rooms: list[tuple[str, int]] = []
        b = self.budget
        if b.calls is not None:
            rooms.append(("calls", b.calls - self._spent.calls))
        if b.tokens is not None:
            left = b.tokens - self._spent.tokens - self._spent.uncertain_tokens - self._reserved_tokens
            rooms.append(("tokens", (left - ask.prompt) // ask.n))
        if b.cost is not None:
            rooms.append(("cost", _affordable(ask, _floor_pico(b.cost) - self._spent_pico - self._reserved_pico)))
        return rooms

    def _settle(self, held: Reservation, usage: Usage) -> bool:
        with self._lock:
            if not held._open:
                return False
            held._open = False
            for m in self._chain:
                m._in_flight -= 1
                m._reserved_tokens -= held.tokens
                m._reserved_pico -= held.pico
                # The call itself was counted when it was reserved.
                m._add(usage, calls=0)
        self._waiters.wake()
        return True

    def _add(self, usage: Usage, calls: int | None = None) -> None:
        self._spent = self._spent + usage
        if calls is not None:
            self._spent = self._spent + Usage(calls=calls - usage.calls)
        self._spent_pico += _to_pico(usage.cost) + _to_pico(usage.uncertain_cost)
