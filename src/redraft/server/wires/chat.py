"""OpenAI's chat completions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from redraft.lm.openai_chat import read_request, reply_body, usage_dict
from redraft.server.asked import Answer, Asked, Options
from redraft.server.refusal import Refusal
from redraft.server.wires.base import Body, cannot, model_of, objects_in, pieces, sse, text_in, typed

_ROLES = ("system", "developer", "user", "assistant", "tool")
_PARTS = {"text": "text", "image_url": "image_url", "input_audio": "input_audio", "file": "file", "refusal": "refusal"}


class Chat:
    """`/v1/chat/completions`."""

    name = "chat"
    upstream = "openai"

    def read(self, body: Body, options: Options) -> Asked:
        """See `Wire`."""
        stream_options = typed(body, "stream_options", dict, default={})
        for number, message in enumerate(objects_in(body.get("messages"), "messages")):
            _check(message, f"messages[{number}]")
        known = {k: v for k, v in body.items() if k != "redraft"}
        if "audio" in (known.get("modalities") or ()):
            raise cannot("modalities", "a refined answer is text")
        asked = read_request(known)
        held = (body.get("response_format") or {}).get("json_schema") or {}
        return Asked(
            preset=model_of(body),
            request=asked,
            stream=typed(body, "stream", bool, default=False),
            stream_usage=typed(stream_options, "include_usage", bool, default=False),
            options=options,
            strict=held.get("strict") is not False,
        )

    def whole(self, answer: Answer, asked: Asked) -> dict[str, Any]:
        """See `Wire`."""
        body = {**reply_body(answer.completion, asked.preset), **_head(asked, answer.run_id)}
        return body if answer.block is None else {**body, "redraft": answer.block}

    def stream(self, asked: Asked, run_id: str) -> ChatStream:
        """See `Wire`."""
        return ChatStream(asked, run_id)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """`{"error": {"message": ..., "type": ..., "param": ..., "code": ...}}`."""
        told = {"message": refusal.message, "type": refusal.kind, "param": refusal.param, "code": refusal.code or None}
        return {"error": told}


class ChatStream:
    """`chat.completion.chunk` events."""

    def __init__(self, asked: Asked, run_id: str) -> None:
        self._asked = asked
        self._head = {**_head(asked, run_id), "object": "chat.completion.chunk"}

    def begin(self) -> Iterator[bytes]:
        """The role, so that clients know that it has begun."""
        for at in range(self._asked.request.n):
            yield self._chunk(at, {"role": "assistant", "content": ""})

    def progress(self, told: Body) -> bytes:
        """A chunk without choices."""
        return sse({**self._head, "choices": [], "redraft": told})

    def answer(self, answer: Answer) -> Iterator[bytes]:
        """See `Stream`."""
        whole = reply_body(answer.completion)
        for choice in whole["choices"]:
            at, message, tokens = choice["index"], choice["message"], choice.get("logprobs")
            if thought := message.get("reasoning_content"):
                yield self._chunk(at, {"reasoning_content": thought})
            if kept := message.get("items"):
                yield self._chunk(at, {"items": kept})
            texts = pieces(message.get("content") or "")
            for number, piece in enumerate(texts):
                yield self._chunk(at, {"content": piece}, logprobs=tokens if number == 0 else None)
            for number, call in enumerate(message.get("tool_calls") or ()):
                yield self._chunk(at, {"tool_calls": [{"index": number, **call}]})
            yield self._chunk(at, {}, finish_reason=choice["finish_reason"])
        more = {} if answer.block is None else {"redraft": answer.block}
        used = answer.completion.usage
        if self._asked.stream_usage and used is not None:
            yield sse({**self._head, "choices": [], "usage": usage_dict(used), **more})
        elif more:
            yield sse({**self._head, "choices": [], **more})
        yield sse("[DONE]")

    def failed(self, refusal: Refusal) -> Iterator[bytes]:
        """An error in place of a chunk, which the official client raises."""
        told = CHAT.error(refusal)
        yield sse({"error": {**told["error"], "status": refusal.status, **_wait(refusal)}})

    def _chunk(self, at: int, delta: Body, *, finish_reason: str | None = None, logprobs: Any = None) -> bytes:
        choice = {"index": at, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        return sse({**self._head, "choices": [choice]})


def _head(asked: Asked, run_id: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{run_id}", "created": int(time.time()), "model": asked.preset}


def _wait(refusal: Refusal) -> dict[str, Any]:
    return {} if refusal.retry_after is None else {"retry_after": refusal.retry_after}


def _check(message: dict[str, Any], name: str) -> None:
    """Wrong in a message is what no model could make anything of."""
    if message.get("role") not in _ROLES:
        raise cannot(f"{name}.role", f"give one of {', '.join(_ROLES)}, not {message.get('role')!r:.40}")
    content = message.get("content")
    if isinstance(content, list):
        for part in objects_in(content, f"{name}.content"):
            if part.get("type") not in _PARTS:
                raise cannot(f"{name}.content", f"no model is sent a part of type {part.get('type')!r:.40}")
            if part["type"] == "text":
                text_in(part.get("text"), f"{name}.content")
    elif content is not None:
        text_in(content, f"{name}.content")
    elif message["role"] in ("system", "developer", "user", "tool"):
        raise cannot(f"{name}.content", "it is missing")
    if (calls := message.get("tool_calls")) is not None:
        for call in objects_in(calls, f"{name}.tool_calls"):
            if not isinstance(call.get("function"), dict) or not isinstance(call["function"].get("name"), str):
                raise cannot(f"{name}.tool_calls", "each needs a function with a name")


CHAT = Chat()
