"""Anthropic's Messages API, for `FaultServer`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from redraft.testing.replies import Reply, _said, spoken
from redraft.testing.wires import sse
from redraft.testing.words import pieces

_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Anthropic:
    """`/v1/messages`, plain and as events. A thought is signed with "signed"."""

    base = ""
    stream_type = "text/event-stream"

    def reads(self, target: str, body: bytes) -> dict[str, Any] | None:
        """Its own path only; the beta API differs by a query."""
        if target.partition("?")[0] != "POST /v1/messages":
            return None
        asked = json.loads(body)
        system = [{"content": asked["system"]}] if asked.get("system") else []
        return {**asked, "messages": [*system, *asked.get("messages", ())]}

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """A `message`."""
        said = _said(reply, asked)
        return {
            **_head(asked),
            "content": [*_thought(said.reasoning), *_text(said.text), *(_use(call) for call in reply.tool_calls)],
            "stop_reason": _FINISH.get(said.finish or "", said.finish),
            "usage": _usage(said.usage),
        }

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """`message_start` (which tells the input tokens), blocks and their deltas, `message_delta`, `message_stop`."""
        said = _said(reply, asked)
        usage = _usage(said.usage)
        start = {**_head(asked), "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield _event("message_start", message=start)
        for at, block in enumerate([*_thought(said.reasoning), *_text(said.text), *map(_use, reply.tool_calls)]):
            yield from _block(at, block, reply, said.text)
        if said.finish is None:
            return
        stop = {"stop_reason": _FINISH.get(said.finish, said.finish), "stop_sequence": None}
        yield _event("message_delta", delta=stop, usage={"output_tokens": usage["output_tokens"]})
        yield _event("message_stop")

    def told(self, reply: Reply, headers: dict[str, str]) -> Mapping[str, Any]:  # noqa: ARG002 - the wire's signature
        """`{"type": "error", "error": {"type": ..., "message": ...}}`."""
        assert isinstance(reply.body, Mapping)
        error = reply.body.get("error")
        if not isinstance(error, Mapping):
            return reply.body
        kind = _KINDS.get(reply.status, "invalid_request_error" if reply.status < 500 else "api_error")
        kind = "overloaded_error" if reply.status == 529 else kind
        overflow = error.get("code") == "context_length_exceeded"
        message = "prompt is too long: 208310 tokens > 200000 maximum" if overflow else error["message"]
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _head(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": asked.get("model"), "stop_sequence": None}


def _thought(reasoning: str) -> list[dict[str, Any]]:
    return [{"type": "thinking", "thinking": reasoning, "signature": "signed"}] if reasoning else []


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def _use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": json.loads(function["arguments"] or "{}"),
    }


def _block(at: int, block: dict[str, Any], reply: Reply, text: str) -> Iterator[bytes]:
    empty, deltas = dict(block), []
    if block["type"] == "thinking":
        empty |= {"thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] == "text":
        empty |= {"text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in spoken(reply, text)]
    else:
        empty |= {"input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    yield _event("content_block_start", index=at, content_block=empty)
    for delta in deltas:
        yield _event("content_block_delta", index=at, delta=delta)
    yield _event("content_block_stop", index=at)


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _usage(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Cached tokens are counted apart from the others here; the field is never missing."""
    told = usage or {}
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return {
        "input_tokens": told.get("prompt_tokens", 0) - cached,
        "cache_read_input_tokens": cached,
        "output_tokens": told.get("completion_tokens", 0),
    }


ANTHROPIC = Anthropic()
