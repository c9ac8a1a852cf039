"""Google's Gemini API, for `FaultServer`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from redraft.testing.replies import Reply, _said, spoken
from redraft.testing.wires import sse
from redraft.testing.words import pieces

_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "content_filter": "SAFETY"}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_SIGNED = "c2lnbmVk"
"""The base64 of "signed"."""


class Google:
    """`models/NAME:generateContent` and `:streamGenerateContent`. What follows a thought is signed."""

    base = ""
    stream_type = "text/event-stream"

    def reads(self, target: str, body: bytes) -> dict[str, Any] | None:
        """The path names the model and whether to stream."""
        match = re.fullmatch(
            r"POST /v\w+/(?:publishers/google/)?models/([^:]+):(generate|streamGenerate)Content(\?.*)?", target
        )
        if match is None:
            return None
        asked = json.loads(body)
        said = [asked.get("systemInstruction") or {}, *(asked.get("contents") or ())]
        config = asked.get("generationConfig") or {}
        return {
            "model": match[1],
            "stream": match[2] == "streamGenerate",
            "max_tokens": config.get("maxOutputTokens"),
            "messages": [{"content": content.get("parts") or []} for content in said],
            "logprobs": config.get("responseLogprobs"),
        }

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """A `GenerateContentResponse`."""
        said = _said(reply, asked)
        parts = [*_thoughts([said.reasoning]), *({"text": text} for text in [said.text] if text)]
        parts += [_call(call) for call in reply.tool_calls]
        if said.reasoning and len(parts) > 1:
            parts[1] |= {"thoughtSignature": _SIGNED}
        return _response(asked, parts, said.finish, said.usage, _logprobs(said.text, asked))

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """Responses of a part each; the last one tells why it ended and what it used."""
        said = _said(reply, asked)
        thought = _thoughts(pieces(said.reasoning))
        parts = [{"text": piece} for piece in spoken(reply, said.text)]
        parts += [_call(call) for call in reply.tool_calls]
        if thought and parts:
            parts[0] |= {"thoughtSignature": _SIGNED}
        for part in (*thought, *parts):
            yield sse(_response(asked, [part], None, None, None))
        if said.finish is not None:
            yield sse(_response(asked, [], said.finish, said.usage, _logprobs(said.text, asked)))

    def told(self, reply: Reply, headers: dict[str, str]) -> Mapping[str, Any]:  # noqa: ARG002 - the wire's signature
        """`{"error": {"code": 429, "message": ..., "status": "RESOURCE_EXHAUSTED"}}`."""
        assert isinstance(reply.body, Mapping)
        error = reply.body.get("error")
        if not isinstance(error, Mapping):
            return reply.body
        overflow = error.get("code") == "context_length_exceeded"
        message = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
        told = message if overflow else error["message"]
        return {"error": {"code": reply.status, "message": told, "status": _STATUS.get(reply.status, "UNKNOWN")}}


def _thoughts(texts: list[str]) -> list[dict[str, Any]]:
    return [{"text": text, "thought": True} for text in texts if text]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "functionCall": {"id": call["id"], "name": function["name"], "args": json.loads(function["arguments"] or "{}")}
    }


def _response(
    asked: Mapping[str, Any],
    parts: list[dict[str, Any]],
    finish: str | None,
    usage: Mapping[str, Any] | None,
    logprobs: Mapping[str, Any] | None,
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish is not None:
        candidate["finishReason"] = _FINISH.get(finish, finish)
    if logprobs is not None:
        candidate |= {"logprobsResult": logprobs, "avgLogprobs": -0.5}
    response = {"candidates": [candidate], "modelVersion": asked["model"], "responseId": "r1"}
    return response if usage is None else {**response, "usageMetadata": _usage(usage)}


def _logprobs(text: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    if not asked.get("logprobs") or not text:
        return None
    tokens = [{"token": word, "logProbability": -0.5, "tokenId": 1} for word in pieces(text)]
    return {"chosenCandidates": tokens, "topCandidates": [{"candidates": [token]} for token in tokens]}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Thinking is counted apart from the answer here."""
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
    return {
        "promptTokenCount": usage.get("prompt_tokens", 0),
        "cachedContentTokenCount": (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        "candidatesTokenCount": usage.get("completion_tokens", 0) - thought,
        "thoughtsTokenCount": thought,
        "totalTokenCount": usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0),
    }


GOOGLE = Google()
