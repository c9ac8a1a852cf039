"""HTTP clients: one per endpoint and event loop, closed when the loop shuts down."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from redraft.errors import ConfigError

if TYPE_CHECKING:
    import openai

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 600.0  # Run's deadline ends a call; this only ends a connection that is dead


class Closing(Protocol):
    """What can be kept for a loop."""

    async def close(self) -> None:
        """Let go of connections."""


Kept = TypeVar("Kept", bound=Closing)


@dataclass(frozen=True, slots=True)
class Upstream:
    """What one client serves. In another process, which it is pickled for, the key is that of the environment there."""

    base_url: str
    api_key: str = field(repr=False)
    parallel: int
    loopback: bool
    variable: str = ""
    """Of the environment: whose value the key is."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_elsewhere, (self.base_url, self.parallel, self.loopback, self.variable))

    def __deepcopy__(self, memo: object) -> Upstream:
        return self

    def __copy__(self) -> Upstream:
        return self


def _elsewhere(base_url: str, parallel: int, loopback: bool, variable: str) -> Upstream:
    key = os.environ.get(variable) or ("none" if loopback else "")
    return Upstream(base_url, key, parallel, loopback, variable)


def no_key_here(variable: str, where: str) -> ConfigError:
    """For a model that came from another process: its key did not."""
    return ConfigError(
        f"no API key for {where} in this process (a worker's?): set {variable} in its environment; keys are not sent along"
    )


class _LoopClients:
    """One loop's clients, closed by the generator's end when the loop shuts down its generators.

    `asyncio.run` does that. A loop that is closed without leaves its connections to the garbage collector.
    """

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Closing] = {}
        self.until_shutdown = self._until_shutdown()

    async def _until_shutdown(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _loops.pop(asyncio.get_running_loop(), None)  # clients refer to their loop: nothing else lets it go
            while self.by_key:
                await self.by_key.popitem()[1].close()


_lock = threading.Lock()
_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClients] = WeakKeyDictionary()


async def client_for(upstream: Upstream) -> openai.AsyncOpenAI:
    """The running loop's client of the `openai` SDK for this upstream."""
    return await kept(upstream, lambda: _client(upstream))


async def kept(key: Hashable, make: Callable[[], Kept]) -> Kept:
    """What the running loop keeps under this key, made when first asked for. One key always means one type."""
    loop = asyncio.get_running_loop()
    mine = _loops.get(loop)
    if mine is None:
        mine = _LoopClients()
        with _lock:
            for closed in [other for other in _loops if other.is_closed()]:
                del _loops[closed]
            _loops[loop] = mine
        await anext(mine.until_shutdown)  # the loop knows of it from here on
    found = mine.by_key.get(key)
    if found is None:
        found = mine.by_key[key] = make()
    return found  # type: ignore[return-value]  # the key's type decides


def _client(upstream: Upstream) -> openai.AsyncOpenAI:
    import httpx2
    import openai

    if not upstream.api_key:
        raise no_key_here(upstream.variable, upstream.base_url)
    limits = httpx2.Limits(max_connections=upstream.parallel, max_keepalive_connections=upstream.parallel)
    # no limit on the wait for a connection: Run lets no more than `parallel` calls through
    timeout = httpx2.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS, pool=None)
    # a redirect would send the prompt again, and to whom the server likes
    http = openai.DefaultAsyncHttpxClient(
        limits=limits, timeout=timeout, trust_env=not upstream.loopback, follow_redirects=False
    )
    return openai.AsyncOpenAI(
        api_key=upstream.api_key, base_url=upstream.base_url, max_retries=0, timeout=timeout, http_client=http
    )
