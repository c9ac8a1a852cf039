"""OpenAI's Responses API, for `FaultServer`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from redraft.testing.replies import Reply, _said, spoken
from redraft.testing.wires import sse
from redraft.testing.words import pieces


class Responses:
    """`/v1/responses`, plain and as events. A thought has a summary and the encrypted content "sealed"."""

    base = "/v1"
    stream_type = "text/event-stream"

    def reads(self, target: str, body: bytes) -> dict[str, Any] | None:
        """Instructions and input count as messages."""
        if target != "POST /v1/responses":
            return None
        asked = json.loads(body)
        given = asked.get("input") or []
        items = [{"content": given}] if isinstance(given, str) else [i for i in given if i.get("content")]
        return {
            "model": asked.get("model"),
            "stream": asked.get("stream"),
            "max_tokens": asked.get("max_output_tokens"),
            "messages": [{"content": asked.get("instructions") or ""}, *items],
            "logprobs": "message.output_text.logprobs" in (asked.get("include") or ()),
        }

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """A `response`."""
        said = _said(reply, asked)
        return _response(asked, _output(reply, said.reasoning, said.text, asked), said.finish, said.usage)

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """`response.created`, items and their deltas, and the whole response once more at the end."""
        said = _said(reply, asked)
        output = _output(reply, said.reasoning, said.text, asked)
        begun = {**_response(asked, [], None, None), "status": "in_progress"}
        number = iter(range(10_000))

        def event(kind: str, **fields: Any) -> bytes:
            return sse({"type": kind, "sequence_number": next(number), **fields}, kind)

        yield event("response.created", response=begun)
        for at, item in enumerate(output):
            at_item = {"output_index": at, "item_id": item["id"]}
            yield event("response.output_item.added", output_index=at, item={**item, **_empty(item)})
            for kind, fields in _deltas(item, reply, said.text):
                yield event(kind, **at_item, **fields)
            yield event("response.output_item.done", output_index=at, item=item)
        if said.finish is not None:
            ended = _response(asked, output, said.finish, said.usage)
            yield event(f"response.{ended['status']}", response=ended)

    def told(self, reply: Reply, headers: dict[str, str]) -> Mapping[str, Any]:  # noqa: ARG002 - the wire's signature
        """As it stands: the errors are those of chat completions."""
        assert isinstance(reply.body, Mapping)
        return reply.body


def _output(reply: Reply, reasoning: str, text: str, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if reasoning:
        summary = [{"type": "summary_text", "text": reasoning}]
        output.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed"})
    if text:
        logprobs = [{"token": word, "logprob": -0.5, "bytes": [], "top_logprobs": []} for word in pieces(text)]
        part = {
            "type": "output_text",
            "text": text,
            "annotations": [],
            "logprobs": logprobs if asked["logprobs"] else [],
        }
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [part]})
    for number, call in enumerate(reply.tool_calls):
        function = call["function"]
        named = {"call_id": call["id"], "name": function["name"], "arguments": function["arguments"]}
        output.append({"type": "function_call", "id": f"fc_{number}", "status": "completed", **named})
    return output


def _empty(item: Mapping[str, Any]) -> dict[str, Any]:
    """What an item lacks when it begins."""
    blank: dict[str, dict[str, Any]] = {
        "reasoning": {"summary": [], "encrypted_content": None},
        "message": {"content": [], "status": "in_progress"},
        "function_call": {"arguments": "", "status": "in_progress"},
    }
    return blank[item["type"]]


def _deltas(item: Mapping[str, Any], reply: Reply, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if item["type"] == "reasoning":
        whole = item["summary"][0]["text"]
        blank = {"type": "summary_text", "text": ""}
        yield "response.reasoning_summary_part.added", {"summary_index": 0, "part": blank}
        for piece in pieces(whole):
            yield "response.reasoning_summary_text.delta", {"summary_index": 0, "delta": piece}
        yield "response.reasoning_summary_text.done", {"summary_index": 0, "text": whole}
        yield "response.reasoning_summary_part.done", {"summary_index": 0, "part": item["summary"][0]}
    elif item["type"] == "message":
        part = item["content"][0]
        yield "response.content_part.added", {"content_index": 0, "part": {**part, "text": "", "logprobs": []}}
        for piece in spoken(reply, text):
            yield "response.output_text.delta", {"content_index": 0, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {"content_index": 0, "text": text, "logprobs": part["logprobs"]}
        yield "response.content_part.done", {"content_index": 0, "part": part}
    else:
        yield "response.function_call_arguments.delta", {"delta": item["arguments"]}
        yield "response.function_call_arguments.done", {"arguments": item["arguments"], "name": item["name"]}


def _response(
    asked: Mapping[str, Any], output: list[dict[str, Any]], finish: str | None, usage: Mapping[str, Any] | None
) -> dict[str, Any]:
    short = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish or "")
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": asked.get("model"),
        "status": "incomplete" if short else "completed",
        "incomplete_details": {"reason": short} if short else None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None if usage is None else _usage(usage),
    }


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
    return {
        "input_tokens": usage.get("prompt_tokens", 0),
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage.get("completion_tokens", 0),
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0),
    }


RESPONSES = Responses()
