"""A model whose reply is watched, token by token, while it is written, and ends where it is told to: nobody pays for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redraft.protocols import LM, Delta, OnDelta
from redraft.record import content
from redraft.types import Choice, Completion, Request, Usage

Watch = Callable[[Sequence[Mapping[str, Any]]], bool]
"""Takes the tokens that are new, as in `Choice.logprobs`; True: that was enough. Fast, and never raises."""

CUT = "cut"
"""The finish reason of a reply that was ended here."""


def cut_by(lm: LM, watch: Watch) -> LM:
    """The same model, with its replies watched; one that can watch by itself (`watched`) does, and ends at that very token."""
    own: Callable[[Watch], LM] | None = getattr(lm, "watched", None)
    return own(watch) if own is not None else Cut(lm, watch)


class Cut:
    """Another model, one choice a reply; it keeps that model's name, so that the journal finds its replies again.

    A reply that is cut has finish reason "cut". Its usage is what was seen, and as `uncertain_tokens` what the upstream may
    have written beyond, before it noticed: its attribute `overshoot`, or, where it has none, all that was left of the cap.
    """

    def __init__(self, inner: LM, watch: Watch) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities = inner.capabilities
        self.max_output = inner.max_output
        self.parallel = inner.parallel
        self.address = str(getattr(inner, "address", ""))
        self._watch = watch

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:
        """One call, streamed."""
        seen: list[Mapping[str, Any]] = []
        said: list[str] = []
        enough = asyncio.get_running_loop().create_future()

        def hear(delta: Delta) -> None:
            if enough.done():
                return
            said.append(delta.text)
            seen.extend(delta.tokens)
            if on_delta is not None:
                on_delta(delta)
            if delta.tokens and self._watch(delta.tokens):
                enough.set_result(None)

        task = asyncio.ensure_future(self.inner.generate(request, hear))
        try:
            await asyncio.wait({task, enough}, return_when=asyncio.FIRST_COMPLETED)
            if not enough.done():
                return task.result()
        finally:
            # What a reply that nobody waits for ends with is nobody's business; its connection has to be given up.
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()
        usage = self._used(request, len(seen))
        choice = Choice(text="".join(said), finish_reason=CUT, logprobs=tuple(seen))
        return Completion(choices=(choice,), model=self.name, usage=usage)

    def _used(self, request: Request, seen: int) -> Usage:
        counted = self.inner.count(request)
        low = most = counted or 0
        if counted is None:
            texts = (m["content"] for m in request.messages if isinstance(m.get("content"), str))
            low = sum(len(text.split()) for text in texts)
            most = len(content(self.name, request).encode("utf-8", "replace")) + 16 * len(request.messages) + 64
        left = max((request.max_tokens or seen) - seen, 0)
        beyond = min(left, getattr(self.inner, "overshoot", left))
        return Usage(input_tokens=low, output_tokens=seen, uncertain_tokens=most - low + beyond)

    def count(self, request: Request) -> int | None:
        """The inner model's."""
        return self.inner.count(request)

    def cost(self, usage: Usage) -> float | None:
        """The inner model's."""
        return self.inner.cost(usage)
