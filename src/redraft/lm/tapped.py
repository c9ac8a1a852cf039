"""A model whose reply one more listener hears while it is written."""

from __future__ import annotations

from collections.abc import Callable

from redraft.protocols import LM, Delta
from redraft.types import Completion, Request, Usage


class TappedLM:
    """Another LM; `tap` is told each piece of its replies, whether or not anyone else listens."""

    def __init__(self, inner: LM, tap: Callable[[Delta], None]) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities = inner.capabilities
        self.max_output = inner.max_output
        self.parallel = inner.parallel
        self._tap = tap

    async def generate(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Completion:
        """The inner model's call."""

        def both(delta: Delta) -> None:
            self._tap(delta)
            if on_delta is not None:
                on_delta(delta)

        return await self.inner.generate(request, both)

    def count(self, request: Request) -> int | None:
        """The inner model's."""
        return self.inner.count(request)

    def cost(self, usage: Usage) -> float | None:
        """The inner model's."""
        return self.inner.cost(usage)
