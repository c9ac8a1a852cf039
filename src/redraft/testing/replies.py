"""What `FaultServer` answers: a chat completion, an error, or something broken."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redraft.testing.words import cut, pieces, prompt_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of the server. The plain `Reply()` is a healthy one, with exact usage (a token is a word)."""

    text: str | Sequence[str] = "ok"
    """Streamed word by word, or in exactly these pieces."""
    reasoning: str = ""
    """Sent as `reasoning_content`."""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    finish_reason: str | None = "auto"
    """"auto": what fits the reply. None: it never comes, and a stream just ends."""
    usage: bool | Mapping[str, Any] = True
    """False: none is reported. A mapping: this is."""
    honour_cap: bool = True
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Mapping[str, Any] | None = None
    """Sent in place of a completion, as it stands."""
    delay: float = 0.0
    """Seconds before the headers."""
    pause: float = 0.0
    """Seconds before each chunk of a stream."""
    cut: int | None = None
    """Close the connection after this many chunks; 0: before the headers. A plain reply is cut in its middle."""

    @classmethod
    def error(cls, status: int, message: str, *, headers: Mapping[str, str] | None = None, **fields: Any) -> Reply:
        """An error in OpenAI's form; `fields` are further ones: code, param, type."""
        told = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}
        return cls(status=status, headers=headers or {}, body={"error": told})

    @classmethod
    def busy(cls, retry_after: str | None = None, *, milliseconds: int | None = None) -> Reply:
        """429, with `Retry-After` and `retry-after-ms` as given."""
        headers = {"retry-after": retry_after, "retry-after-ms": milliseconds}
        said = {name: str(value) for name, value in headers.items() if value is not None}
        return cls.error(429, "Rate limit reached", headers=said, code="rate_limit_exceeded")

    @classmethod
    def unsupported(cls, parameter: str) -> Reply:
        """400 in OpenAI's words for a parameter that the model does not take."""
        message = f"Unsupported parameter: '{parameter}' is not supported with this model."
        return cls.error(400, message, param=parameter, code="unsupported_parameter")

    @classmethod
    def overflow(cls, limit: int = 4096) -> Reply:
        """400 in OpenAI's words for a prompt that does not fit."""
        message = f"This model's maximum context length is {limit} tokens. However, your messages resulted in more."
        return cls.error(400, message, param="messages", code="context_length_exceeded")

    @classmethod
    def thought_only(cls, reasoning: str = "hm") -> Reply:
        """A model that thought until its limit and said nothing."""
        return cls(text="", reasoning=reasoning, finish_reason="length")


def completion_json(reply: Reply, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The reply as a `chat.completion` object."""
    said = _said(reply, asked)
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [dict(call) for call in reply.tool_calls]
    choice = {"message": message, "finish_reason": said.finish, "logprobs": _logprobs(said.text, asked)}
    choices = [{"index": index, **choice} for index in range(asked.get("n") or 1)]
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": asked.get("model"),
        "choices": choices,
    }
    return whole if said.usage is None else {**whole, "usage": said.usage}


def chunks_json(reply: Reply, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The reply as `chat.completion.chunk` objects; usage comes last, if it was asked for."""
    said = _said(reply, asked)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(said.reasoning)]
    deltas += [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(reply.tool_calls)]
    deltas += [{"content": piece} for piece in spoken(reply, said.text)]
    n = asked.get("n") or 1
    choices: list[dict[str, Any]] = [
        {"index": index, "delta": delta, "finish_reason": None, "logprobs": _logprobs(delta.get("content"), asked)}
        for delta in deltas
        for index in range(n)
    ]
    if said.finish is not None:
        choices += [{"index": index, "delta": {}, "finish_reason": said.finish} for index in range(n)]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": asked.get("model")}
    chunks = [{**head, "choices": [choice]} for choice in choices]
    if said.usage is not None and (asked.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": said.usage})
    return chunks


def spoken(reply: Reply, text: str) -> Sequence[str]:
    """The pieces that a reply's text is streamed in; `text` is what its cap has left of it."""
    exact = not isinstance(reply.text, str) and "".join(reply.text) == text
    return reply.text if exact else pieces(text)


@dataclass(frozen=True, slots=True)
class _Said:
    """What is left of a reply under the request's cap, which covers the reasoning too."""

    reasoning: str
    text: str
    finish: str | None
    usage: Mapping[str, Any] | None


def _said(reply: Reply, asked: Mapping[str, Any]) -> _Said:
    cap = asked.get("max_completion_tokens") or asked.get("max_tokens") if reply.honour_cap else None
    reasoning, short = cut(reply.reasoning, cap)
    thought = len(reasoning.split())
    text, shorter = cut(reply.text if isinstance(reply.text, str) else "".join(reply.text), cap and cap - thought)
    fits = "length" if short or shorter else "tool_calls" if reply.tool_calls else "stop"
    given, wrote = prompt_words(asked.get("messages") or ()), (thought + len(text.split())) * (asked.get("n") or 1)
    counted = {
        "prompt_tokens": given,
        "completion_tokens": wrote,
        "total_tokens": given + wrote,
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    return _Said(
        reasoning=reasoning,
        text=text,
        finish=fits if reply.finish_reason == "auto" else reply.finish_reason,
        usage=(counted if reply.usage else None) if isinstance(reply.usage, bool) else reply.usage,
    )


def _logprobs(text: str | None, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    if not asked.get("logprobs") or not text:
        return None
    return {"content": [{"token": word, "logprob": -0.5, "top_logprobs": []} for word in pieces(text)]}


def as_bytes(value: object) -> bytes:
    """JSON, as it goes over the wire."""
    return json.dumps(value).encode()
