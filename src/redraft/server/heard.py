"""What passes through, overheard: the tokens it reports, and a chat completion's text. Never changes a byte of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2

from redraft.errors import LMError
from redraft.lm.openai_wire import Reply, read_usage
from redraft.lm.prices import price
from redraft.server.connections import Headers
from redraft.server.upstreams import Upstream
from redraft.types import Completion, Usage

_MOST = 4 * 1024 * 1024


class Heard:
    """The pieces of one response."""

    def __init__(self, headers: Headers) -> None:
        told = {name.lower(): value.decode("latin-1") for name, value in headers}
        self._kind = told.get(b"content-type", "")
        self._coding = told.get(b"content-encoding", "")
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Keep a piece, as long as there are few."""
        self._size += len(piece)
        if self._size <= _MOST:
            self._pieces.append(piece)

    def values(self) -> list[Any]:
        """The JSON values of the reply: one, or those of a stream's events; none where it is no such thing."""
        if self._size > _MOST:
            return []
        try:
            content = b"".join(self._pieces)
            if self._coding:
                content = httpx2.Response(200, headers={"content-encoding": self._coding}, content=content).content
            text = content.decode("utf-8", "replace")
            if "text/event-stream" not in self._kind:
                return [json.loads(text)]
            lines = (line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:"))
            return [json.loads(line) for line in lines if line and line != "[DONE]"]
        except (ValueError, httpx2.HTTPError):
            return []

    def completion(self) -> Completion | None:
        """The chat completion; None for what is none."""
        reply = Reply("upstream")
        try:
            for value in self.values():
                reply.add(value)
            return reply.completion()
        except LMError:
            return None


def usage_in(values: list[Any], model: str, upstream: Upstream) -> Usage:
    """One call's tokens and money, as far as the upstream told them."""
    told: dict[str, Any] = {}
    for value in values:
        if not isinstance(value, Mapping):
            continue
        for place in (value, value.get("response"), value.get("message")):
            used = place.get("usage") if isinstance(place, Mapping) else None
            told |= dict(used) if isinstance(used, Mapping) else {}
    used = read_usage(told) if told else None
    if used is None:
        return Usage(calls=1, soft=1, unbounded=1, unpriced=1)
    provider = "anthropic" if upstream.kind == "anthropic" else "openai"
    cost = price(model, provider, upstream.base_url, used)
    return Usage(calls=1, soft=1, cost=cost or 0.0, unpriced=int(cost is None)) + used
