"""The formats that `FaultServer` speaks: chat completions (OpenAI, Groq, Mistral), and others' own.

    with FaultServer(script, wire=ANTHROPIC) as server: ...

Scripts and replies are the same for all of them; a refusal made by `Reply.error` and the like is put into the
provider's own words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from redraft.testing.replies import Reply, as_bytes, chunks_json, completion_json


class Wire(Protocol):
    """One provider's format."""

    base: str
    """What a base URL ends in, after the port."""
    stream_type: str
    """The content type of a stream."""

    def reads(self, target: str, body: bytes) -> dict[str, Any] | None:
        """The request as chat completions would put it, as far as replies depend on it; None: not this API."""

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """The reply in one piece."""

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """The reply as the pieces of a stream."""

    def told(self, reply: Reply, headers: dict[str, str]) -> Mapping[str, Any]:
        """The body of a reply that brings its own; the provider may say part of it in headers."""


def sse(data: Mapping[str, Any] | str, event: str = "") -> bytes:
    """One server-sent event."""
    body = data.encode() if isinstance(data, str) else as_bytes(data)
    return (b"event: %s\n" % event.encode() if event else b"") + b"data: " + body + b"\n\n"


class Chat:
    """Chat completions and their dialects: `shape` changes each message or delta, `tail` makes what is added to the last
    chunk out of the usage, `more` is added to every chunk.
    """

    stream_type = "text/event-stream"

    def __init__(
        self,
        base: str = "/v1",
        *,
        shape: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        tail: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.base = base
        self._more = dict(more or {})
        self._shape = shape
        self._tail = tail

    def reads(self, target: str, body: bytes) -> dict[str, Any] | None:
        """Any path that ends in it, as bases differ."""
        return json.loads(body) if re.fullmatch(r"POST \S*/chat/completions", target) else None

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """A `chat.completion`."""
        made = completion_json(reply, asked)
        for choice in made["choices"]:
            choice["message"] = self._shape(choice["message"])
        return {**made, **self._more}

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """Chunks, and [DONE] if the reply ends at all."""
        tail = self._tail
        chunks = chunks_json(reply, {**asked, "stream_options": {"include_usage": True}} if tail else asked)
        usage = chunks.pop()["usage"] if tail and "usage" in chunks[-1] else None
        for at, chunk in enumerate(chunks):
            for choice in chunk["choices"]:
                choice["delta"] = self._shape(choice["delta"])
            told = tail(usage) if tail and usage is not None and at == len(chunks) - 1 else {}
            yield sse({**chunk, **self._more, **told})
        if reply.finish_reason is not None:
            yield sse("[DONE]")

    def told(self, reply: Reply, headers: dict[str, str]) -> Mapping[str, Any]:  # noqa: ARG002 - the wire's signature
        """As it stands."""
        assert isinstance(reply.body, Mapping)
        return reply.body


def _groq(message: dict[str, Any]) -> dict[str, Any]:
    return {("reasoning" if key == "reasoning_content" else key): value for key, value in message.items()}


def _mistral(message: dict[str, Any]) -> dict[str, Any]:
    """A thought is a part of the content."""
    thought = message.pop("reasoning_content", "")
    if not thought:
        return message
    text = message.get("content") or ""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
    return {**message, "content": [thinking, *([{"type": "text", "text": text}] if text else [])]}


CHAT = Chat()
GROQ = Chat("", shape=_groq, tail=lambda usage: {"x_groq": {"id": "req_1", "usage": dict(usage)}})
OPENROUTER = Chat(shape=_groq, more={"provider": "Test"})
MISTRAL = Chat("", shape=_mistral, tail=lambda usage: {"usage": dict(usage)})
