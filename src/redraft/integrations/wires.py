"""How the official SDKs' bodies read: what a call asks, what its reply says, in which words it may be capped and advised.

Pure: knows nothing of connections, runs or SDKs. One `Wire` for each kind of call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redraft.errors import LMError
from redraft.lm.openai_errors import Endpoint, Refusal, as_error
from redraft.lm.openai_wire import Reply, read_usage, request_body
from redraft.types import Choice, Completion, Message, Request, Usage

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
        messages = list(asked or ())
        for at in reversed(range(len(messages))):
            if messages[at].get("role") == "user" and (content := self._with(messages[at].get("content"), advice)):
                messages[at] = {**messages[at], "content": content}
                return {**body, self.messages: messages}
        return {**body, self.messages: [*messages, {"role": "user", "content": advice}]}

    def _with(self, content: Any, advice: str) -> Any:
        if isinstance(content, str):
            return f"{content}\n\n{advice}"
        if not isinstance(content, list) or any(part.get("type") == "tool_result" for part in content):
            return None
        return [*content, {"type": self.text_part, "text": advice}]


def wire_of(path: str) -> Wire | None:
    """The wire of a URL's path, or None for what is no call to a model that writes."""
    return next((wire for wire in WIRES if path.rstrip("/").endswith(wire.path)), None)


def values_in(content: str, kind: str) -> list[Any]:
    """The JSON values of a reply: one, or those of a stream's events. Raises `ValueError` for what is none."""
    if "text/event-stream" not in kind:
        return [json.loads(content)]
    lines = (line.removeprefix("data:").strip() for line in content.splitlines() if line.startswith("data:"))
    return [json.loads(line) for line in lines if line and line != "[DONE]"]


def usage_from(raw: object) -> Usage | None:
    """The tokens that a reply reports, in the words of OpenAI's or Anthropic's APIs; None if it reports none."""
    if not isinstance(raw, Mapping):
        return None
    if "prompt_tokens" in raw:
        nothing_written = {"completion_tokens": 0} if "total_tokens" in raw else {}  # embeddings do not say so
        return read_usage({**nothing_written, **raw})
    given, written = raw.get("input_tokens"), raw.get("output_tokens")
    if not isinstance(given, int) or not isinstance(written, int):
        return None
    read, made = (raw.get(f"cache_{kind}_input_tokens") or 0 for kind in ("read", "creation"))
    cached = read or (raw.get("input_tokens_details") or {}).get("cached_tokens") or 0
    reasoning = (raw.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    # Anthropic counts cached tokens beside the input, OpenAI within it
    return Usage(
        input_tokens=given + read + made, output_tokens=written, cached_tokens=cached, reasoning_tokens=reasoning
    )


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
    return Completion(choices=(choice,), model=str(whole.get("model") or ""), usage=usage_from(whole.get("usage")))


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
    return Completion(choices=(choice,), model=str(whole.get("model") or ""), usage=usage_from(whole.get("usage")))


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


def chat_body(request: Body) -> Request:
    """A chat-completions body as a `Request` for another model: what only the first one's provider knows is left out."""
    asked = request.get("response_format") or {}
    schema = (asked.get("json_schema") or {}).get("schema") if asked.get("type") == "json_schema" else None
    stop = request.get("stop") or ()
    return Request(
        messages=tuple(request["messages"]),
        temperature=request.get("temperature"),
        top_p=request.get("top_p"),
        max_tokens=request.get("max_completion_tokens") or request.get("max_tokens"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        seed=request.get("seed"),
        n=request.get("n") or 1,
        schema=schema,
        tools=tuple(request.get("tools") or ()),
        tool_choice=request.get("tool_choice"),
        effort=request.get("reasoning_effort"),
    )


def chat_reply(completion: Completion, *, streamed: bool) -> tuple[str, str]:
    """A completion as a chat-completions reply: content type and content."""
    said = "delta" if streamed else "message"
    choices = [
        {
            "index": i,
            said: _said(choice, streamed=streamed),
            "finish_reason": choice.finish_reason or ("tool_calls" if choice.tool_calls else "stop"),
        }
        for i, choice in enumerate(completion.choices)
    ]
    usage = completion.usage or Usage()
    reply = {
        "id": "redraft",
        "object": "chat.completion.chunk" if streamed else "chat.completion",
        "created": 0,
        "model": completion.model,
        "choices": choices,
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.tokens,
        },
    }
    if streamed:
        return "text/event-stream", "".join(_events(reply))
    return "application/json", json.dumps(reply)


def _said(choice: Choice, *, streamed: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": choice.text or (None if choice.tool_calls else "")}
    if choice.tool_calls:
        calls = [dict(call) for call in choice.tool_calls]
        said["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)] if streamed else calls
    return said


def _events(reply: Mapping[str, Any]) -> Iterator[str]:
    yield f"data: {json.dumps(reply)}\n\n"
    yield "data: [DONE]\n\n"
