"""The oracle as an LM in this process, for the examples and for small studies."""

from __future__ import annotations

from typing import Any

from oracle import Oracle, as_text, tokens

from redraft.protocols import OnDelta
from redraft.types import Capabilities, Choice, Completion, Request, Usage


class OracleLM:
    """One role of an oracle, by the contract `redraft.protocols.LM`. Free of charge; a token is four characters."""

    capabilities = Capabilities(seed=True, temperature=True, json_schema=True)
    max_output: int | None = None
    parallel = 16

    def __init__(self, oracle: Oracle, role: str) -> None:
        self.name = f"oracle/{role}"
        self._oracle, self._role = oracle, role

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:  # noqa: ARG002 - comes at once
        said = self._oracle.reply(self._role, request.messages)
        usage = Usage(input_tokens=self.count(request), output_tokens=tokens(said))
        return Completion(choices=(Choice(text=said, finish_reason="stop"),), model=self.name, usage=usage)

    def count(self, request: Request) -> int:
        return sum(tokens(as_text(m["content"])) + 4 for m in request.messages)

    def cost(self, usage: Usage) -> float:  # noqa: ARG002
        return 0.0


def pair(oracle: Oracle) -> tuple[Any, Any]:
    """Root and sub-model."""
    return OracleLM(oracle, "root"), OracleLM(oracle, "sub")
