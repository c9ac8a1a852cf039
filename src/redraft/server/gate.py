"""How much is under way at once: so many requests are answered, so many wait, the next one is told to come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redraft.server.keys import Key
from redraft.server.refusal import Refusal


class Gate:
    """First come, first served, on one event loop."""

    def __init__(self, active: int, waiting: int, patience: float = 30.0) -> None:
        self._most, self._queue_most, self._patience = active, waiting, patience
        self.active = 0
        self.closing = False
        """The server drains: what is under way ends, nothing new begins."""
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    @asynccontextmanager
    async def place(self, key: Key | None) -> AsyncIterator[None]:
        """A place for one request. Raises `Refusal`: 429 with Retry-After where the queue is full, the wait too long or the
        key at one of its limits, 503 while the server drains.
        """
        if self.closing:
            raise Refusal(503, "the server is closing", code="closing", retry_after=1)
        if key is not None:
            key.admit()
            key.active += 1
        try:
            await self._enter()
            try:
                yield
            finally:
                self._leave()
        finally:
            if key is not None:
                key.active -= 1

    async def _enter(self) -> None:
        if self.active < self._most and not self._queue:
            self.active += 1
            return
        if len(self._queue) >= self._queue_most:
            told = f"{self.active} requests are under way and {len(self._queue)} wait: as many as this server takes"
            raise Refusal(429, told, code="overloaded", retry_after=1)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await asyncio.wait({turn}, timeout=self._patience)
        except asyncio.CancelledError:
            self._give_up(turn)
            raise
        if not turn.done():
            self._give_up(turn)
            told = f"no place came free within {self._patience:g} s"
            raise Refusal(429, told, code="overloaded", retry_after=1)

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        """A place that was handed to somebody who has left goes on to the next."""
        if turn.done():
            self._leave()
        else:
            turn.cancel()
            self._queue.remove(turn)

    def _leave(self) -> None:
        """`active` stays as it is where the place is handed on."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.active -= 1
