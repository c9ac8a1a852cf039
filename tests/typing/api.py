"""User code, type-checked by `make check` and never run: what a caller writes must pass `mypy --strict`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_type

from redraft.budget import Budget
from redraft.errors import LMError, RedraftError
from redraft.protocols import LM, Delta, Scorer, Store
from redraft.types import Capabilities, Choice, Completion, Event, Inputs, Prediction, Request, Score, Usage


class Echo:
    """An LM is a plain class: nothing to inherit."""

    name = "test/echo"
    capabilities = Capabilities()
    max_output: int | None = None
    parallel = 1

    async def generate(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Completion:
        """Answer with the last message."""
        if on_delta is not None:
            on_delta(Delta(text="..."))
        return Completion(choices=(Choice(text=str(request.messages[-1]["content"])),))

    def count(self, request: Request) -> int | None:
        """No tokenizer."""
        return None

    def cost(self, usage: Usage) -> float | None:
        """Free."""
        return 0.0


class Length:
    """So is a scorer."""

    async def score(self, inputs: Inputs, prediction: Prediction) -> Score:
        """Longer is better."""
        return Score(value=float(len(prediction.answer)))


class Forgetful:
    """And a store."""

    async def append(self, run_id: str, events: Sequence[Event]) -> None:
        """Keep nothing."""

    def read(self, run_id: str) -> list[Event]:
        """Nothing was kept."""
        return []

    def close(self) -> None:
        """Nothing is open."""


lm: LM = Echo()
scorer: Scorer = Length()
store: Store = Forgetful()


async def ask(question: str) -> str:
    """Values, contracts and errors as a caller meets them."""
    try:
        reply = await lm.generate(Request(messages=({"role": "user", "content": question},)))
    except LMError as error:
        assert_type(error.status, int | None)
        raise RedraftError(str(error)) from error
    assert_type(reply.text, str)
    assert_type(reply.usage, Usage | None)
    return reply.text


limits = Budget(calls=4, cost=0.01)
assert_type(limits.tokens, int | None)
