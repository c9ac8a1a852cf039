"""Models for tests: a script, a function, and faults around any other model. No network, no tokenizer, no clock."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Literal

from redraft.errors import BadRequestError, TransientLMError
from redraft.protocols import LM, Delta
from redraft.testing.words import EVERYTHING, prompt_words, refuse_unsupported, tell, written
from redraft.types import Capabilities, Completion, Request, Usage

Answer = str | Completion
ReplyFunction = Callable[[Request], Answer | Awaitable[Answer]]
Fault = Exception | Literal["no_usage", "ignore_cap", "cut"] | tuple[Literal["slow", "hang"], float] | None
"""What goes wrong with one call:

- an exception: raised before the inner model is called;
- `("slow", seconds)`: the reply comes late;
- `("hang", seconds)`: late as well, and deaf to cancellation until then;
- `"no_usage"`: the reply reports no usage;
- `"ignore_cap"`: `max_tokens` is not honoured;
- `"cut"`: half of the text is streamed, then the connection breaks;
- None: nothing.
"""


class FunctionLM:
    """A model that is a function of the request, sync or async, returning a text or a `Completion`.

    A text gets exact usage (a token is a word), n choices, and is cut at `max_tokens`. `price` is dollars a token,
    None for a model without a known price. `requests` holds every request in the order of arrival; the other
    attributes of the contract may be set.
    """

    def __init__(
        self,
        fn: ReplyFunction,
        *,
        name: str = "function",
        capabilities: Capabilities = EVERYTHING,
        price: float | None = 0.0,
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.max_output: int | None = None
        self.parallel = 64
        self.requests: list[Request] = []
        self._fn = fn
        self._price = price

    async def generate(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Completion:
        """Call the function."""
        refuse_unsupported(request, self.capabilities, self.name)
        self.requests.append(request)
        answer = self._fn(request)
        if inspect.isawaitable(answer):
            answer = await answer
        completion = answer if isinstance(answer, Completion) else written(answer, request, self.name)
        tell(completion, on_delta)
        return completion

    def count(self, request: Request) -> int | None:
        """The prompt's words: what it will be charged."""
        return prompt_words(request.messages)

    def cost(self, usage: Usage) -> float | None:
        """All tokens at the one price."""
        return None if self._price is None else usage.tokens * self._price


class ScriptedLM(FunctionLM):
    """A model that gives its replies in order, each once, whichever thread or task asks.

    A reply is a text, a `Completion`, an exception to raise, or a function of the request. Asked once too often it
    raises `BadRequestError`, which nothing retries. `latency` is seconds before each reply.
    """

    def __init__(
        self,
        replies: Iterable[Answer | Exception | ReplyFunction],
        *,
        name: str = "scripted",
        capabilities: Capabilities = EVERYTHING,
        latency: float = 0.0,
        price: float | None = 0.0,
    ) -> None:
        super().__init__(self._next, name=name, capabilities=capabilities, price=price)
        self._replies = list(replies)
        self._given = 0
        self._lock = threading.Lock()
        self._latency = latency

    @property
    def left(self) -> int:
        """How many replies were not asked for yet."""
        return len(self._replies) - self._given

    async def _next(self, request: Request) -> Answer:
        with self._lock:
            if not self.left:
                raise BadRequestError(
                    f"{self.name} was called {self._given + 1} times and its script has {self._given} replies: "
                    "add a reply, or find out who makes the extra call"
                )
            reply = self._replies[self._given]
            self._given += 1
        await asyncio.sleep(self._latency)
        if isinstance(reply, Exception):
            raise reply
        if not callable(reply):
            return reply
        answer = reply(request)
        return await answer if inspect.isawaitable(answer) else answer


class FaultyLM:
    """Another model, with one fault a call in order of arrival; after the last fault it is that model again."""

    def __init__(self, inner: LM, faults: Iterable[Fault]) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities = inner.capabilities
        self.max_output = inner.max_output
        self.parallel = inner.parallel
        self.calls = 0
        self._faults = iter(faults)
        self._lock = threading.Lock()

    async def generate(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Completion:
        """Call the inner model, with the next fault."""
        with self._lock:
            self.calls += 1
            fault = next(self._faults, None)
        if isinstance(fault, Exception):
            raise fault
        if isinstance(fault, tuple):
            kind, seconds = fault
            await (asyncio.sleep(seconds) if kind == "slow" else _deaf_sleep(seconds))
        if fault == "ignore_cap":
            request = replace(request, max_tokens=None)
        if fault == "cut":
            return await self._broken_off(request, on_delta)
        completion = await self.inner.generate(request, on_delta)
        return replace(completion, usage=None) if fault == "no_usage" else completion

    def count(self, request: Request) -> int | None:
        """The inner model's."""
        return self.inner.count(request)

    def cost(self, usage: Usage) -> float | None:
        """The inner model's."""
        return self.inner.cost(usage)

    async def _broken_off(self, request: Request, on_delta: Callable[[Delta], None] | None) -> Completion:
        deltas: list[Delta] = []
        await self.inner.generate(request, deltas.append)
        half = deltas[: len(deltas) // 2]
        if on_delta is not None:
            for delta in half:
                on_delta(delta)
        raise TransientLMError(
            f"{self.name}: the connection broke after {len(half)} of {len(deltas)} pieces", sent=True
        )


async def _deaf_sleep(seconds: float) -> None:
    """Sleep through every cancellation, and obey the last one at the end: a model in the middle of its prefill."""
    end = time.monotonic() + seconds
    cancelled: asyncio.CancelledError | None = None
    while (left := end - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
