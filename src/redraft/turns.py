"""How many at once, and whose turn it is. Thread-safe and bound to no event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque


class Gate:
    """At most `limit` calls at once, whatever loops and threads they come from; first come, first served.

    Never held while user code runs.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.RLock()
        self._inside = 0
        self._waiters = Waiters()

    async def enter(self) -> None:
        """Wait for a place and take it."""
        with self._lock:
            if self._inside < self.limit:
                self._inside += 1
                return
            ticket = self._waiters.ticket()
        try:
            await ticket.wait()
        except asyncio.CancelledError:
            if ticket.rung:
                self.leave()  # the place was handed over already
            raise

    def leave(self) -> None:
        """Hand the place to whoever waits longest, or give it back."""
        with self._lock:
            if not self._waiters.wake_one():
                self._inside -= 1


class Waiters:
    """Tasks of any loop that wait for a change, in order."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def ticket(self) -> Ticket:
        """Join the queue; call it under the lock that guards the state, so that no change is missed."""
        ticket = Ticket()
        self._tickets.append(ticket)
        return ticket

    def wake(self) -> None:
        """Wake all."""
        while self.wake_one():
            pass

    def wake_one(self) -> bool:
        """Wake the longest waiting; False if nobody waits."""
        while self._tickets:
            with contextlib.suppress(IndexError):  # another thread took it
                if self._tickets.popleft().ring():
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

    def ring(self) -> bool:
        """From any thread. False if nobody listens any more: cancelled, or the loop has ended."""
        with self._lock:
            if self._over:
                return False
            self.rung = True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        return True

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
