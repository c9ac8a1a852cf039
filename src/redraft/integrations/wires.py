"""How the official SDKs' bodies read: what a call asks, what its reply says, in which words it may be capped and advised.

Pure: knows nothing of connections, runs or SDKs. One `Wire` for each kind of call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redraft.errors import LMError
from redraft.integrations.advice import told_in
from redraft.lm.openai_errors import Endpoint, Refusal, as_error
from redraft.lm.openai_wire import Reply, read_usage, request_body
from redraft.types import Choice, Completion, Message, Request

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wire:
    """One kind of call."""

    path: str
    """How the URL's path ends."""
    caps: tuple[str, ...]
    """What the cap on the reply is called; the last one is added where the body names none."""
    messages: str
    """The body's field that holds the conversation."""
    provider: str
    """Whose format it is."""
    text_part: str
    """The type of a text part of a user's message."""
    read: Callable[[str, list[Any]], Completion]
    """The completion in a reply's JSON values, in order (one, but for a stream); raises `LMError`."""
    plain: Callable[[Request, str], dict[str, Any]]
    """The body for a request that is not the SDK's: from an advisor or a critic on the same model."""

    def request(self, body: Body) -> Request:
        """What makes the call this call. Everything but the conversation, the cap and n is kept as it is."""
        asked = body.get(self.messages)
        messages = ({"role": "user", "content": asked},) if isinstance(asked, str) else tuple(asked or ())
        known = {"model", "n", self.messages, *self.caps}
        return Request(
            messages=messages,
            max_tokens=next((body[name] for name in self.caps if isinstance(body.get(name), int)), None),
            n=body.get("n") or 1,
            extra={key: value for key, value in body.items() if key not in known},
        )

    def capped(self, body: Body, cap: int | None, *, own: bool) -> dict[str, Any]:
        """The body under a cap. `own`: the provider's own server, which knows the newest name."""
        if cap is None:
            return dict(body)
        name = next((name for name in self.caps if name in body), self.caps[0] if own else self.caps[-1])
        return {**body, name: cap}

    def told(self, body: Body, advice: str) -> dict[str, Any]:
        """The body with a paragraph more in the last message of the user."""
        asked = body.get(self.messages)
        if isinstance(asked, str):
            return {**body, self.messages: f"{asked}\n\n{advice}"}
        return {**body, self.messages: told_in(asked or (), advice, part=self.text_part)}


def wire_of(path: str) -> Wire | None:
    """The wire of a URL's path, or None for what is no call to a model that writes."""
    return next((wire for wire in WIRES if path.rstrip("/").endswith(wire.path)), None)


def values_in(content: str, kind: str) -> list[Any]:
    """The JSON values of a reply: one, or those of a stream's events. Raises `ValueError` for what is none."""
    if "text/event-stream" not in kind:
        return [json.loads(content)]
    lines = (line.removeprefix("data:").strip() for line in content.splitlines() if line.startswith("data:"))
    return [json.loads(line) for line in lines if line and line != "[DONE]"]


def _failed(name: str, value: object) -> LMError | None:
    """The error that a stream, or a reply with status 200, may hold."""
    if isinstance(value, Mapping) and value.get("error") and not value.get("choices"):
        return as_error(Refusal.read(None, value), (), Endpoint(name, name, "its server", "the client"))
    return None


def _chat(name: str, values: list[Any]) -> Completion:
    reply = Reply(name)
    for value in values:
        if (error := _failed(name, value)) is not None:
            raise error
        reply.add(value)
    return reply.completion()


def _responses(name: str, values: list[Any]) -> Completion:
    held = [v["response"] for v in values if isinstance(v, Mapping) and isinstance(v.get("response"), Mapping)]
    whole = held[-1] if held else values[-1] if values else None
    if (error := _failed(name, whole)) is not None:
        raise error
    if not isinstance(whole, Mapping) or not isinstance(whole.get("output"), list):
        raise Reply(name).garbled("it holds no output")
    calls = [
        {"id": i["call_id"], "type": "function", "function": {"name": i["name"], "arguments": i["arguments"]}}
        for i in whole["output"]
        if i.get("type") == "function_call"
    ]
    parts = [part for i in whole["output"] if i.get("type") == "message" for part in i.get("content") or ()]
    cut = (whole.get("incomplete_details") or {}).get("reason") == "max_output_tokens"
    choice = Choice(
        text="".join(part.get("text") or part.get("refusal") or "" for part in parts),
        tool_calls=tuple(calls),
        finish_reason="length" if cut else "tool_calls" if calls else "stop",
    )
    return Completion(choices=(choice,), model=str(whole.get("model") or ""), usage=read_usage(whole.get("usage")))


_STOPS = {"max_tokens": "length", "tool_use": "tool_calls", "end_turn": "stop", "stop_sequence": "stop"}


def _anthropic(name: str, values: list[Any]) -> Completion:
    for value in values:
        if (error := _failed(name, value)) is not None:
            raise error
    streamed = len(values) != 1 or values[0].get("type") == "message_start"
    whole = _unstreamed(values) if streamed else values[0]
    if not isinstance(whole, Mapping) or not isinstance(whole.get("content"), list):
        raise Reply(name).garbled("it holds no content")
    blocks = whole["content"]
    calls = [
        {"id": b["id"], "type": "function", "function": {"name": b["name"], "arguments": json.dumps(b.get("input"))}}
        for b in blocks
        if b.get("type") == "tool_use"
    ]
    choice = Choice(
        text="".join(b.get("text") or "" for b in blocks if b.get("type") == "text"),
        reasoning="".join(b.get("thinking") or "" for b in blocks if b.get("type") == "thinking"),
        tool_calls=tuple(calls),
        finish_reason=_STOPS.get(str(whole.get("stop_reason")), whole.get("stop_reason")),
    )
    return Completion(choices=(choice,), model=str(whole.get("model") or ""), usage=read_usage(whole.get("usage")))


def _unstreamed(values: list[Any]) -> dict[str, Any]:
    """A streamed message as one; a tool's arguments are the caller's to read out of the stream."""
    whole: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for value in values:
        kind = value.get("type")
        if kind == "message_start":
            whole = dict(value["message"])
        elif kind == "content_block_start":
            blocks[value["index"]] = dict(value["content_block"])
        elif kind == "content_block_delta":
            block, delta = blocks.setdefault(value["index"], {}), value["delta"]
            for part in ("text", "thinking"):
                block[part] = (block.get(part) or "") + (delta.get(part) or "")
        elif kind == "message_delta":
            whole |= value.get("delta") or {}
            whole["usage"] = {**(whole.get("usage") or {}), **(value.get("usage") or {})}
    return {**whole, "content": [blocks[at] for at in sorted(blocks)]}


def _plain_chat(request: Request, model: str) -> dict[str, Any]:
    return request_body(request, model, cap_name="max_tokens")


def _plain_responses(request: Request, model: str) -> dict[str, Any]:
    given = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_tokens,
    }
    asked = {key: value for key, value in given.items() if value is not None}
    return {"model": model, "input": list(request.messages), "store": False, **asked}


def _plain_anthropic(request: Request, model: str) -> dict[str, Any]:
    system = "\n\n".join(str(m["content"]) for m in request.messages if m.get("role") == "system")
    talk: list[Message] = [m for m in request.messages if m.get("role") != "system"]
    given = {"temperature": request.temperature, "system": system or None}
    asked = {key: value for key, value in given.items() if value is not None}
    return {"model": model, "messages": talk, "max_tokens": request.max_tokens or 4096, **asked}


WIRES = (
    Wire(
        "/chat/completions", ("max_completion_tokens", "max_tokens"), "messages", "openai", "text", _chat, _plain_chat
    ),
    Wire("/responses", ("max_output_tokens",), "input", "openai", "input_text", _responses, _plain_responses),
    Wire("/v1/messages", ("max_tokens",), "messages", "anthropic", "text", _anthropic, _plain_anthropic),
)
