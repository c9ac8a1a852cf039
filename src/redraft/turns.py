"""How many at once, and whose turn it is. Thread-safe and bound to no event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable


class Gate:
    """At most `limit` calls at once, whatever loops and threads they come from; first come, first served.

    An upstream that has too many requests halves the limit, once for all calls that are under way, and shuts the gate for
    as long as it asks for. Each call that it answers after that raises the limit a little, up to `most`. Never held while
    user code runs.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._limit = float(most)
        self._lowered = 0
        """How often: a refusal of what was sent before the last time says nothing new."""
        self._opens = 0.0
        self._lock = threading.RLock()
        self._inside = 0
        self._waiters = Waiters()

    @property
    def limit(self) -> int:
        """How many may be inside now."""
        return int(self._limit)

    async def enter(self) -> int:
        """Wait for a place and take it. Returns a number for `slow_down` and `leave`."""
        while True:
            with self._lock:
                shut = self._opens - time.monotonic()
                if shut <= 0 and self._inside < self.limit:
                    self._inside += 1
                    return self._lowered
                ticket = self._waiters.ticket()
            try:
                # Nobody else opens a gate that is shut: whoever waits then looks at the clock by himself.
                async with asyncio.timeout(shut if shut > 0 else None):
                    await ticket.wait()
            except TimeoutError:
                pass
            except asyncio.CancelledError:
                if ticket.rung:
                    self.leave()  # the place was handed over already
                raise
            if ticket.rung:
                return self._lowered

    def leave(self, entered: int | None = None) -> None:
        """Hand the place to whoever waits longest, or give it back. `entered`: what `enter` returned, if the upstream has
        answered well.
        """
        with self._lock:
            if entered == self._lowered and self._limit < self.most:
                self._limit = min(self.most, self._limit + 1 / self._limit)
            self._inside -= 1
            while self._inside < self.limit and self._opens <= time.monotonic() and self._waiters.wake_one():
                self._inside += 1

    def slow_down(self, entered: int, wait: float) -> bool:
        """The upstream refused a call that is inside, as one too many, and wants nothing for `wait` seconds. True if others
        are, or were, inside with it: then it was one too many, and fewer at once may do.
        """
        with self._lock:
            now = time.monotonic()
            if wait > 0:
                if self._opens <= now:
                    self._opens = now + wait
                    self._waiters.wake(turn=False)
                self._opens = max(self._opens, now + wait)
            if entered != self._lowered:
                return True
            together = min(self.limit, self._inside)
            if together < 2:
                return False
            self._limit = together / 2
            self._lowered += 1
            return True

    async def refused(self, entered: int, wait: float) -> tuple[bool, int, int]:
        """`slow_down`, with the limit before and after. Awaited, because the gate may be another process's."""
        before = self.limit
        return self.slow_down(entered, wait), before, self.limit


Upstream = tuple[str, int, str]
"""What has a gate of its own: a model's name, how many calls it takes at once, its address."""

_gates: dict[Upstream, Gate] = {}
_makers: list[Callable[[Upstream], Gate]] = [lambda upstream: Gate(upstream[1])]
"""The last one makes the gates."""


def gate_of(upstream: Upstream) -> Gate:
    """The gate of an upstream in this process."""
    gate = _gates.get(upstream)
    return gate if gate is not None else _gates.setdefault(upstream, _makers[-1](upstream))


def gates_elsewhere(make: Callable[[Upstream], Gate]) -> None:
    """From here on `make` makes the gates of this process: those of a worker are its driver's."""
    _gates.clear()
    _makers.append(make)


class Waiters:
    """Tasks of any loop that wait for a change, in order."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def ticket(self) -> Ticket:
        """Join the queue; call it under the lock that guards the state, so that no change is missed."""
        ticket = Ticket()
        self._tickets.append(ticket)
        return ticket

    def wake(self, *, turn: bool = True) -> None:
        """Wake all; without its `turn`, each has to look again."""
        while self.wake_one(turn=turn):
            pass

    def wake_one(self, *, turn: bool = True) -> bool:
        """Wake the longest waiting; False if nobody waits."""
        while self._tickets:
            with contextlib.suppress(IndexError):  # another thread took it
                if self._tickets.popleft().ring(turn=turn):
                    return True
        return False


class Ticket:
    """One waiting task."""

    __slots__ = ("_future", "_lock", "_loop", "_over", "rung")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.Lock()
        self._over = False
        self.rung = False
        """It was this one's turn."""

    async def wait(self) -> None:
        """Until rung."""
        try:
            await self._future
        finally:
            with self._lock:
                self._over = True

    def ring(self, *, turn: bool = True) -> bool:
        """From any thread. False if nobody listens any more: cancelled, or the loop has ended."""
        with self._lock:
            if self._over:
                return False
            self.rung = turn
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        return True

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
