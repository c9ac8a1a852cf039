"""Cohere's Chat API (v2), for `FaultServer`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from redraft.testing.replies import Reply, _said, spoken
from redraft.testing.wires import sse
from redraft.testing.words import pieces

_FINISH = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL", "content_filter": "ERROR"}


class Cohere:
    """`/v2/chat`, plain and as events."""

    base = ""
    stream_type = "text/event-stream"

    def reads(self, target: str, body: bytes) -> dict[str, Any] | None:
        """Its own path only."""
        return json.loads(body) if target == "POST /v2/chat" else None

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """A chat response."""
        said = _said(reply, asked)
        message: dict[str, Any] = {"role": "assistant", "content": _content(said.reasoning, said.text)}
        if reply.tool_calls:
            message["tool_calls"] = [dict(call) for call in reply.tool_calls]
        finish = _FINISH.get(said.finish or "", said.finish)
        return {"id": "c1", "finish_reason": finish, "message": message, "usage": _usage(said.usage)}

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """`message-start`, contents and their deltas, `message-end` with the usage."""
        said = _said(reply, asked)
        yield _event("message-start", id="c1", delta={"message": {"role": "assistant", "content": []}})
        for at, block in enumerate(_content(said.reasoning, said.text)):
            key = block["type"]
            texts = spoken(reply, said.text) if key == "text" else pieces(block[key])
            yield _event("content-start", index=at, delta={"message": {"content": {"type": key, key: ""}}})
            for text in texts:
                yield _event("content-delta", index=at, delta={"message": {"content": {key: text}}})
            yield _event("content-end", index=at)
        for at, call in enumerate(reply.tool_calls):
            bare = {**call, "function": {**call["function"], "arguments": ""}}
            yield _event("tool-call-start", index=at, delta={"message": {"tool_calls": bare}})
            arguments = {"function": {"arguments": call["function"]["arguments"]}}
            yield _event("tool-call-delta", index=at, delta={"message": {"tool_calls": arguments}})
            yield _event("tool-call-end", index=at)
        if said.finish is not None:
            ended = {"finish_reason": _FINISH.get(said.finish, said.finish), "usage": _usage(said.usage)}
            yield _event("message-end", id="c1", delta=ended)

    def told(self, reply: Reply, headers: dict[str, str]) -> Mapping[str, Any]:  # noqa: ARG002 - the wire's signature
        """`{"message": ...}`."""
        assert isinstance(reply.body, Mapping)
        error = reply.body.get("error")
        return {"id": "c1", "message": error["message"]} if isinstance(error, Mapping) else reply.body


def _content(reasoning: str, text: str) -> list[dict[str, Any]]:
    thought = [{"type": "thinking", "thinking": reasoning}] if reasoning else []
    return [*thought, *([{"type": "text", "text": text}] if text else [])]


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _usage(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    told = usage or {}
    tokens = {"input_tokens": told.get("prompt_tokens", 0), "output_tokens": told.get("completion_tokens", 0)}
    return {"billed_units": tokens, "tokens": tokens}


COHERE = Cohere()
