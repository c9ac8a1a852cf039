"""Amazon Bedrock's Converse API, for `FaultServer`: JSON, and Amazon's binary event stream."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from redraft.testing.replies import Reply, _said, as_bytes, spoken
from redraft.testing.words import pieces

_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "content_filtered"}
_CODES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


class Bedrock:
    """`/model/NAME/converse` and `/converse-stream`. A thought is signed with "signed"."""

    base = ""
    stream_type = "application/vnd.amazon.eventstream"

    def reads(self, target: str, body: bytes) -> dict[str, Any] | None:
        """The path names the model and whether to stream."""
        match = re.fullmatch(r"POST /model/([^/]+)/converse(-stream)?", target)
        if match is None:
            return None
        asked = json.loads(body)
        said = [{"content": asked.get("system") or []}, *(asked.get("messages") or ())]
        return {
            "model": unquote(match[1]),
            "stream": match[2] is not None,
            "max_tokens": (asked.get("inferenceConfig") or {}).get("maxTokens"),
            "messages": said,
        }

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """A `ConverseResponse`."""
        said = _said(reply, asked)
        thought = {"reasoningText": {"text": said.reasoning, "signature": "signed"}}
        content: list[dict[str, Any]] = [{"reasoningContent": thought}] if said.reasoning else []
        content += [{"text": said.text}] if said.text else []
        content += [{"toolUse": {**_named(call), "input": json.loads(_arguments(call))}} for call in reply.tool_calls]
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _FINISH.get(said.finish or "", said.finish),
            "usage": _usage(said.usage),
            "metrics": {"latencyMs": 1},
        }

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """`messageStart`, blocks and their deltas, `messageStop`, and the usage in `metadata`."""
        said = _said(reply, asked)
        yield _frame("messageStart", {"role": "assistant"})
        at = 0
        if said.reasoning:
            for piece in pieces(said.reasoning):
                yield _delta(at, {"reasoningContent": {"text": piece}})
            yield _delta(at, {"reasoningContent": {"signature": "signed"}})
            yield _frame("contentBlockStop", {"contentBlockIndex": at})
            at += 1
        for piece in spoken(reply, said.text):
            yield _delta(at, {"text": piece})
        if said.text:
            yield _frame("contentBlockStop", {"contentBlockIndex": at})
            at += 1
        for call in reply.tool_calls:
            yield _frame("contentBlockStart", {"contentBlockIndex": at, "start": {"toolUse": _named(call)}})
            yield _delta(at, {"toolUse": {"input": _arguments(call)}})
            yield _frame("contentBlockStop", {"contentBlockIndex": at})
            at += 1
        if said.finish is not None:
            yield _frame("messageStop", {"stopReason": _FINISH.get(said.finish, said.finish)})
            yield _frame("metadata", {"usage": _usage(said.usage), "metrics": {"latencyMs": 1}})

    def told(self, reply: Reply, headers: dict[str, str]) -> Mapping[str, Any]:
        """The message; the error's code is a header."""
        assert isinstance(reply.body, Mapping)
        error = reply.body.get("error")
        if not isinstance(error, Mapping):
            return reply.body
        headers["x-amzn-errortype"] = _CODES.get(reply.status, "InternalServerException")
        overflow = error.get("code") == "context_length_exceeded"
        return {"message": "Input is too long for requested model." if overflow else error["message"]}


def _named(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"toolUseId": call["id"], "name": call["function"]["name"]}


def _arguments(call: Mapping[str, Any]) -> str:
    return str(call["function"]["arguments"] or "{}")


def _delta(at: int, delta: Mapping[str, Any]) -> bytes:
    return _frame("contentBlockDelta", {"contentBlockIndex": at, "delta": delta})


def _frame(kind: str, body: Mapping[str, Any]) -> bytes:
    """One message of the event stream: lengths, their checksum, headers, body, the checksum of all."""
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in named.items()
    )
    payload = as_bytes(body)
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


def _usage(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Cached tokens are counted apart from the others here; the field is never missing."""
    told = usage or {}
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    given, wrote = told.get("prompt_tokens", 0) - cached, told.get("completion_tokens", 0)
    return {
        "inputTokens": given,
        "cacheReadInputTokens": cached,
        "outputTokens": wrote,
        "totalTokens": given + cached + wrote,
    }


BEDROCK = Bedrock()
