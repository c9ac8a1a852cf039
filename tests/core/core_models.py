"""Models that misbehave in ways the testing kit does not, and a clock that a busy machine does not spoil."""

import asyncio
import threading
import time

from redraft.testing import FunctionLM
from redraft.types import Request


def ask(text="say something", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


class HangingLM(FunctionLM):
    """Never replies; obeys its cancellation at once."""

    def __init__(self, replies=0, **options):
        super().__init__(self._reply, **options)
        self.good = replies
        self.cancelled = 0
        self.asked = asyncio.Event()
        """Set when a call hangs."""

    async def _reply(self, request):
        if len(self.requests) <= self.good:
            return f"reply {len(self.requests)}"
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class DeafLM(FunctionLM):
    """Replies after `seconds`, whoever cancels it meanwhile: a client that swallows its cancellation."""

    def __init__(self, seconds, replies=0, **options):
        super().__init__(self._reply, **options)
        self.seconds = seconds
        self.good = replies
        self.delivered = 0

    async def _reply(self, request):
        if len(self.requests) > self.good:
            asleep = asyncio.ensure_future(asyncio.sleep(self.seconds))
            while not asleep.done():
                try:
                    await asyncio.shield(asleep)
                except asyncio.CancelledError:
                    continue
        self.delivered += 1
        return f"reply {self.delivered}"


class Stopwatch:
    """Elapsed seconds, without what the machine itself stood still (seen by a thread that only sleeps)."""

    def __enter__(self):
        self._running = True
        self._stalled = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._began = time.monotonic()
        return self

    def _watch(self):
        while self._running:
            before = time.monotonic()
            time.sleep(0.005)
            self._stalled += max(0.0, time.monotonic() - before - 0.006)

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self._began
        self._running = False
        self._thread.join()
        self.seconds -= self._stalled
