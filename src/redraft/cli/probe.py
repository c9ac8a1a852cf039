"""What a model declares, and what it does when tried: one or two small calls a capability, all through one Run.

What is not declared would be refused before it is sent, so it is not tried; reasoning is seen in the other replies.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from redraft.errors import LMError
from redraft.protocols import LM
from redraft.result import count, dollars, tokens
from redraft.run import Run
from redraft.types import Completion, Event, Request, Usage

_ASK = Request(messages=({"role": "user", "content": "Name one colour."},), max_tokens=24)
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
    "additionalProperties": False,
}
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "paint", "description": "Paints the wall.", "parameters": _SCHEMA},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One capability: declared or not, and what was seen when it was tried."""

    name: str
    declared: bool
    seen: str
    held: bool = True
    """False if it is declared and did not work."""


class _Listener:
    """Counts the pieces of replies and keeps the parameters that the model refused."""

    deltas = True

    def __init__(self) -> None:
        self.pieces = 0
        self.dropped: set[str] = set()

    def __call__(self, event: Event) -> None:
        if event.kind == "delta":
            self.pieces += 1
        elif event.kind == "dropped":
            self.dropped.add(event.data["parameter"])


class _Trial:
    """The model under trial, in its Run."""

    def __init__(self, run: Run, lm: LM, heard: _Listener) -> None:
        self.run, self.lm, self.heard = run, lm, heard
        self.replies = self.thoughts = 0
        """Replies, and those of them that came with reasoning, as text or as tokens."""

    async def ask(self, **fields: Any) -> Completion:
        """One small call."""
        reply = await self.run.complete(replace(_ASK, **fields), lm=self.lm, role="probe")
        thinking = any(choice.reasoning for choice in reply.choices) or (reply.usage and reply.usage.reasoning_tokens)
        self.replies += 1
        self.thoughts += bool(thinking)
        return reply

    async def stream(self) -> tuple[bool, str]:
        """More than one piece came."""
        before = self.heard.pieces
        await self.ask(max_tokens=25)
        came = self.heard.pieces - before
        return came > 1, count(came, "piece")

    async def json_schema(self) -> tuple[bool, str]:
        """The reply is JSON of the schema's form."""
        said = (await self.ask(schema=_SCHEMA, max_tokens=256)).text
        try:
            fits = set(json.loads(said)) == {"colour"}
        except (ValueError, TypeError):
            fits = False
        return fits, "held" if fits else f"not held: {said[:60]!r}"

    async def grammar(self) -> tuple[bool, str]:
        """The reply is one of two words."""
        said = (await self.ask(grammar='start: "yes" | "no"')).text
        return said in ("yes", "no"), "held" if said in ("yes", "no") else f"not held: {said[:60]!r}"

    async def seed(self) -> tuple[bool, str]:
        """Two sampled replies with one seed are equal."""
        one, two = [(await self.ask(seed=7, temperature=1.0)).text for _ in range(2)]
        return "seed" not in self.heard.dropped, "refused" if "seed" in self.heard.dropped else _repeats(one, two)

    async def temperature(self) -> tuple[bool, str]:
        """It is taken."""
        await self.ask(temperature=0.5)
        refused = "temperature" in self.heard.dropped
        return not refused, "refused" if refused else "taken"

    async def n(self) -> tuple[bool, str]:
        """Two choices come."""
        came = len((await self.ask(n=2)).choices)
        return came == 2, f"{came} of 2 came"

    async def logprobs(self) -> tuple[bool, str]:
        """Log probabilities come."""
        came = (await self.ask(logprobs=0)).logprobs
        return bool(came), "came" if came else "none came"

    async def prefill(self) -> tuple[bool, str]:
        """The reply goes on where the prefill ends, and does not repeat it."""
        said = (await self.ask(prefill="The colour is")).text
        return not said.startswith("The colour is"), f"went on with {said[:30]!r}"

    async def tools(self) -> tuple[bool, str]:
        """The one tool is called, with arguments of its form."""
        wish = {"role": "user", "content": "Paint the wall red: call the tool."}
        reply = await self.ask(messages=(wish,), tools=(_TOOL,), max_tokens=128)
        called = [call["function"] for call in reply.tool_calls]
        if not called:
            return False, f"not called: {reply.text[:60]!r}"
        try:
            fits = called[0]["name"] == "paint" and set(json.loads(called[0]["arguments"])) == {"colour"}
        except (ValueError, TypeError, KeyError):
            fits = False
        return fits, "called" if fits else f"called with {str(called[0])[:80]}"

    async def reasoning(self) -> tuple[bool, str]:
        """A question that needs some thought comes back with reasoning, apart from the answer."""
        before = self.thoughts
        await self.ask(messages=({"role": "user", "content": "What is 17 * 23? Think first."},), max_tokens=1024)
        return self.thoughts > before, self.thinking()

    def thinking(self) -> str:
        """What was seen of reasoning so far."""
        return f"came with {self.thoughts} of {self.replies} replies" if self.thoughts else "none came"


def limits(lm: LM) -> str:
    """What is known before any call: the longest reply, the calls at once, the price of a million tokens."""
    reply = "longest reply not known" if lm.max_output is None else f"replies up to {lm.max_output:,} tokens"
    prices = [lm.cost(Usage(input_tokens=1_000_000)), lm.cost(Usage(output_tokens=1_000_000))]
    known = [price for price in prices if price is not None]
    price = f"${known[0]:,.2f} in, ${known[1]:,.2f} out a million tokens" if len(known) == 2 else "price not known"
    return f"{reply} | {count(lm.parallel, 'call')} at once | {price if any(known) or len(known) < 2 else 'free'}"


async def probe(lm: LM) -> tuple[list[Finding], str]:
    """Every capability, and a line on what it cost. Raises `LMError` if not even a plain call works."""
    heard = _Listener()
    async with Run(listeners=[heard]) as run:
        trial = _Trial(run, lm, heard)
        await trial.ask()
        findings = []
        for name in type(lm.capabilities).__dataclass_fields__:
            declared = getattr(lm.capabilities, name)
            attempt = getattr(trial, name, None)
            seen = trial.thinking() if name == "reasoning" else "not tried"
            plain = Finding(name=name, declared=declared, seen=seen)
            findings.append(await _tried(name, attempt) if declared and attempt else plain)
        usage = run.usage
    cost = dollars(None if usage.unpriced else usage.cost)
    return findings, f"{count(usage.calls, 'call')} | {tokens(usage)} | {cost}"


async def _tried(name: str, attempt: Callable[[], Awaitable[tuple[bool, str]]]) -> Finding:
    try:
        held, seen = await attempt()
    except LMError as error:
        held, seen = False, f"failed: {error}"
    return Finding(name=name, declared=True, seen=seen, held=held)


def _repeats(one: str, two: str) -> str:
    return "repeats" if one == two else "taken, but does not repeat"
