"""Hard limits: what may be spent (Budget), what is reserved and spent (Meter).

Thread-safe and bound to no event loop. Nothing here calls a model or knows what a run is.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import add, attrgetter
from typing import Protocol

from redraft.errors import BudgetExceeded, PriceUnknownError, RunClosed, StoreError, UsageError, ends_run
from redraft.turns import Waiters
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


UNLIMITED = Budget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one try of a call may use at most."""

    prompt: int
    """Upper bound of the prompt's tokens."""
    cap: int | None = None
    """Tokens asked for, per choice; None: as many as there are."""
    n: int = 1
    price: Price | None = None


class Above(Protocol):
    """The meter of another process that stands over a chain of this one: what is granted here has to be granted there."""

    async def granted(self, held: Reservation, ask: Ask) -> Reservation:
        """Have a reservation granted above, perhaps with a lower cap. Raises what `Meter.reserve` raises, and gives it back."""

    def settled(self, held: Reservation, usage: Usage) -> None:
        """A reservation was settled here."""

    def charged(self, usage: Usage) -> None:
        """Something was charged here without a reservation."""


class Reservation:
    """Room set aside for one try. Settle it exactly once; settling again does nothing."""

    __slots__ = ("_meter", "above", "cap", "open", "pico", "tokens")

    def __init__(self, meter: Meter, cap: int | None, tokens: int, pico: int) -> None:
        self._meter = meter
        self.open = True
        self.cap = cap
        """Cap on the reply to send with the request; None if nothing limits it."""
        self.tokens = tokens
        self.pico = pico
        self.above: int | None = None
        """Its number in the process above, if it was granted there."""

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
        self.budget = budget or UNLIMITED
        self.parent = parent
        self._chain: tuple[Meter, ...] = (self, *(parent._chain if parent else ()))
        self._lock: threading.RLock = parent._lock if parent else threading.RLock()
        self._waiters: Waiters = parent._waiters if parent else Waiters()
        self._above: Above | None = parent._above if parent else None
        self._spent = _Tally()
        self._reserved_tokens = 0
        self._reserved_pico = 0
        self._in_flight = 0
        self._started = time.monotonic()
        # Asked on every call, and a chain never changes: worked out once.
        self._timed = tuple(m for m in self._chain if m.budget.seconds is not None)
        self.limits_money = any(m.budget.cost is not None for m in self._chain)
        """A money limit stands somewhere up the chain: then a model without a price is an error."""
        self.limits_tokens = self.limits_money or any(m.budget.tokens is not None for m in self._chain)
        """A token or money limit stands somewhere up the chain: then every request carries a cap."""
        self._limited = tuple(m for m in self._chain if m.budget.calls is not None or self.limits_tokens)

    @property
    def usage(self) -> Usage:
        """What was spent so far, settled calls only."""
        with self._lock:
            return self._spent.usage()

    @property
    def calls(self) -> int:
        """How many calls were settled so far."""
        return self._spent.calls

    @property
    def seconds_left(self) -> float | None:
        """Until the nearest deadline of the chain; None without one."""
        if not self._timed:
            return None
        return min(m._started + (m.budget.seconds or 0) for m in self._timed) - time.monotonic()

    def preload(self, usage: Usage, seconds: float = 0.0) -> None:
        """Count what earlier processes spent in this meter's scope, before the first reservation. Only this meter: those
        up the chain count it for themselves.
        """
        with self._lock:
            self._spent.add(usage)
            self._started -= seconds

    async def reserve(self, ask: Ask) -> Reservation:
        """Set room aside, shrinking the cap to what remains. Waits while calls in flight may still give room back.

        Raises `BudgetExceeded` when it cannot fit and nothing is in flight, `PriceUnknownError` for a money limit
        without a price.
        """
        while True:
            with self._lock:
                granted = self._try(ask)
                if isinstance(granted, Reservation):
                    break
                ticket = self._waiters.ticket() if granted.meter._in_flight else None
            if ticket is None:
                raise granted.error()
            await ticket.wait()
        return granted if self._above is None else await self._above.granted(granted, ask)

    def _try(self, ask: Ask) -> Reservation | _Shortage:
        cap = ask.cap
        for m in self._limited:
            for limit, room in m._rooms(ask):
                if limit != "calls" and cap is not None and room >= cap:
                    continue
                if m._in_flight or room < 1:
                    return _Shortage(m, limit, ask)
                cap = room
        held = Reservation(self, cap, *self._worst(ask, cap))
        self._hold(held, 1)
        return held

    def _worst(self, ask: Ask, cap: int | None) -> tuple[int, int]:
        """Tokens and picodollars."""
        out = ask.n * (cap or 0)
        return ask.prompt + out, _to_pico(_dollars(ask, out)) if self.limits_money else 0

    def shrink(self, held: Reservation, ask: Ask, cap: int | None) -> None:
        """Lower the cap of a reservation of this meter, and give back what that leaves."""
        with self._lock:
            self._hold(held, -1)
            held.cap, (held.tokens, held.pico) = cap, self._worst(ask, cap)
            self._hold(held, 1)
        self._waiters.wake()

    def _rooms(self, ask: Ask) -> list[tuple[str, int]]:
        """For each limit of this meter, the largest cap per choice that still fits."""
        rooms: list[tuple[str, int]] = []
        b = self.budget
        if b.calls is not None and b.calls <= self._spent.calls + self._in_flight:
            rooms.append(("calls", 0))
        if b.tokens is not None:
            left = b.tokens - self._spent.tokens - self._reserved_tokens
            rooms.append(("tokens", (left - ask.prompt) // ask.n))
        if b.cost is not None:
            room = _affordable(ask, _to_pico(b.cost) - self._spent.pico - self._reserved_pico)
            if room is not None:
                rooms.append(("cost", room))
        return rooms

    def _settle(self, held: Reservation, usage: Usage) -> bool:
        with self._lock:
            if not held.open:
                return False
            held.open = False
            self._hold(held, -1)
            for m in self._chain:
                m._spent.add(usage)
        self._waiters.wake()
        if self._above is not None:
            self._above.settled(held, usage)
        return True

    def _hold(self, held: Reservation, sign: int) -> None:
        for m in self._chain:
            m._in_flight += sign
            m._reserved_tokens += sign * held.tokens
            m._reserved_pico += sign * held.pico

    def charge(self, usage: Usage) -> None:
        """Count what was spent without a reservation, here and up the chain."""
        with self._lock:
            for m in self._chain:
                m._spent.add(usage)
        if self._above is not None:
            self._above.charged(usage)

    def check_room(self, by: str = "") -> None:
        """For what is bought without a reservation, `by` whom: raises `BudgetExceeded` if a limit is reached,
        `PriceUnknownError` if there is a money limit and something was bought at an unknown price.
        """
        with self._lock:
            for m in self._chain:
                b, spent = m.budget, m._spent
                if b.cost is not None and (unpriced := spent.usage().unpriced):
                    raise PriceUnknownError(
                        f"a money limit is set, and the price of {unpriced} calls{f' of {by}' if by else ''} is not known; "
                        "limit tokens or calls instead"
                    )
                for limit, used in (("calls", spent.calls), ("tokens", spent.tokens), ("cost", spent.pico / _PICO)):
                    allowed = getattr(b, limit)
                    if allowed is not None and used >= allowed:
                        raise _Shortage(m, limit).error()
        self.check_time()

    def ended_by(self, error: BaseException) -> BudgetExceeded | RunClosed | StoreError | None:
        """The ended run or limit, or failed store, that an error means, or hides; None for a smaller budget inside, which ended alone."""
        ended = ends_run(error)
        inside = isinstance(ended, BudgetExceeded) and ended.of is not None and ended.of not in self._chain
        return None if inside else ended

    def sets(self, error: BudgetExceeded) -> bool:
        """True if the limit that was reached is this meter's, or one further up; a smaller budget's inside of that very size
        would be reached later.
        """
        return any(getattr(m.budget, error.limit) == error.allowed for m in self._chain)

    def check_time(self) -> None:
        """Raises `BudgetExceeded` once the nearest deadline has passed."""
        left = self.seconds_left
        if left is not None and left <= 0:
            raise self.out_of_time()

    def out_of_time(self, after: str = "") -> BudgetExceeded:
        """The error for the nearest deadline of the chain; `after`: what led to it."""
        late = min(self._timed, key=lambda m: m._started + (m.budget.seconds or 0))
        return _Shortage(late, "seconds").error(after)


class _Tally:
    """A running sum of usages. `tokens` and `pico` are upper ends: what a limit has to assume was spent."""

    __slots__ = ("calls", "parts", "pico", "tokens")

    def __init__(self) -> None:
        self.calls = self.tokens = self.pico = 0
        self.parts = [0] * len(_FIELDS)

    def add(self, usage: Usage) -> None:
        self.calls += usage.calls
        self.tokens += usage.input_tokens + usage.output_tokens + usage.uncertain_tokens
        if usage.cost or usage.uncertain_cost:
            self.pico += _to_pico(usage.cost) + _to_pico(usage.uncertain_cost)
        self.parts = list(map(add, self.parts, _values(usage)))

    def usage(self) -> Usage:
        return Usage(**dict(zip(_FIELDS, self.parts, strict=True)))


class _Shortage:
    """Why a reservation does not fit."""

    def __init__(self, meter: Meter, limit: str, ask: Ask | None = None) -> None:
        self.meter = meter
        self.limit = limit
        self.ask = ask
        """What did not fit; None where a limit was reached without anything being asked for."""

    def error(self, after: str = "") -> BudgetExceeded:
        """`after`: what led to it, for the message."""
        m = self.meter
        allowed = getattr(m.budget, self.limit)
        spent = {
            "calls": m._spent.calls,
            "tokens": m._spent.tokens,
            "cost": m._spent.pico / _PICO,
            "seconds": round(time.monotonic() - m._started, 3),
        }[self.limit]
        unit = _UNITS[self.limit].rstrip("s") if allowed == 1 else _UNITS[self.limit]
        return BudgetExceeded(
            f"the limit of {_shown(allowed)} {unit} is reached ({_shown(spent)} spent{self._need()}{after}); "
            f"raise it (Budget({self.limit}=...), --{_FLAGS[self.limit]}) to go on",
            limit=self.limit,
            allowed=allowed,
            spent=spent,
            of=m,
        )

    def _need(self) -> str:
        """What the next call would take at least."""
        if self.ask is None or self.limit not in ("tokens", "cost"):
            return ""
        if self.limit == "tokens":
            return f", and the next prompt alone may need {self.ask.prompt:,}"
        return f", and the next prompt with one token of reply may need {_shown(_dollars(self.ask, self.ask.n))}"


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"


def _dollars(ask: Ask, output_tokens: int) -> float:
    price = ask.price(Usage(input_tokens=ask.prompt, output_tokens=output_tokens)) if ask.price else None
    if price is None:
        raise PriceUnknownError(
            "a money limit is set, but the price of this model is not known; "
            "limit tokens instead (Budget(tokens=...), --token-limit), or give the model a price"
        )
    return price


def _affordable(ask: Ask, pico: int) -> int | None:
    """The largest cap per choice that `pico` pays for; None if the reply's length costs nothing."""
    if _to_pico(_dollars(ask, ask.n * _CAP_CEILING)) <= pico:
        return None
    low, high = 0, _CAP_CEILING
    while low < high:
        middle = (low + high + 1) // 2
        if _to_pico(_dollars(ask, ask.n * middle)) <= pico:
            low = middle
        else:
            high = middle - 1
    return low


def _to_pico(dollars: float) -> int:
    """Rounding is monotone: what is settled never exceeds what was reserved for at least as many tokens."""
    return round(dollars * _PICO)


_FIELDS = tuple(Usage.__dataclass_fields__)
_values = attrgetter(*_FIELDS)
_UNITS = {"calls": "calls", "tokens": "tokens", "cost": "dollars", "seconds": "seconds"}
_FLAGS = {"calls": "call-limit", "tokens": "token-limit", "cost": "cost-limit", "seconds": "time-limit"}
