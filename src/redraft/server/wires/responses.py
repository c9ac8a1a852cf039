"""OpenAI's Responses API: input items as messages, an answer as output items."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

from redraft.server.asked import Answer, Asked, Options
from redraft.server.refusal import Refusal
from redraft.server.wires.base import Body, cannot, model_of, objects_in, pieces, sse, text_in, typed
from redraft.server.wires.chat import CHAT
from redraft.types import Choice, Request, Usage

_KNOWN = frozenset(
    [
        "model",
        "input",
        "instructions",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_logprobs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "include",
        "store",
        "stream",
        "stream_options",
        "metadata",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "service_tier",
        "truncation",
        "redraft",
    ]
)
_PASSED_ON = ("parallel_tool_calls", "user", "safety_identifier", "prompt_cache_key", "service_tier")
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "temperature",
    "tool_choice",
    "tools",
)
_INCLUDED = ("reasoning.encrypted_content", "message.output_text.logprobs", "message.input_image.image_url")
_SHORT = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Responses:
    """`/v1/responses`. Nothing is kept between two: the whole conversation comes in `input`."""

    name = "responses"
    upstream = "openai"

    def read(self, body: Body, options: Options) -> Asked:
        """See `Wire`."""
        if unknown := sorted(k for k, v in body.items() if k not in _KNOWN and v not in (None, False)):
            raise cannot(unknown[0], "a refined answer cannot honour it; send the whole conversation as input")
        if typed(body, "truncation", str, default="disabled") != "disabled":
            raise cannot("truncation", "nothing of the input is left out; give disabled")
        told = typed(body, "text", dict, default={})
        extra = {name: body[name] for name in _PASSED_ON if body.get(name) is not None}
        if told.get("verbosity") is not None:
            extra["verbosity"] = told["verbosity"]
        form = typed(told, "format", dict, default={})
        request = Request(
            messages=tuple(_conversation(body)),
            max_tokens=_count(body, "max_output_tokens"),
            temperature=typed(body, "temperature", int, float),
            top_p=typed(body, "top_p", int, float),
            tools=tuple(_tool(tool) for tool in objects_in(body.get("tools") or [], "tools")),
            tool_choice=_choice(body.get("tool_choice")),
            schema=_schema(form),
            logprobs=_logprobs(body),
            effort=typed(typed(body, "reasoning", dict, default={}), "effort", str),
            extra=extra,
        )
        return Asked(
            preset=model_of(body),
            request=request,
            stream=typed(body, "stream", bool, default=False),
            options=options,
            echo={name: body[name] for name in _ECHOED if body.get(name) is not None},
            strict=form.get("strict") is not False,
        )

    def whole(self, answer: Answer, asked: Asked) -> dict[str, Any]:
        """See `Wire`."""
        choice = answer.completion.choices[0]
        body = _response(asked, answer.run_id, _output(choice, answer.run_id), choice, answer.completion.usage)
        return body if answer.block is None else {**body, "redraft": answer.block}

    def stream(self, asked: Asked, run_id: str) -> ResponsesStream:
        """See `Wire`."""
        return ResponsesStream(asked, run_id)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """As in chat completions."""
        return CHAT.error(refusal)


class ResponsesStream:
    """`response.created`, items and their deltas, `response.completed` with the whole once more."""

    def __init__(self, asked: Asked, run_id: str) -> None:
        self._asked, self._run_id = asked, run_id
        self._number = itertools.count()

    def begin(self) -> Iterator[bytes]:
        """See `Stream`."""
        begun = _response(self._asked, self._run_id, [], None, None)
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)

    def progress(self, told: Body) -> bytes:
        """Once more that it is in progress, with word of it."""
        begun = _response(self._asked, self._run_id, [], None, None)
        return self._event("response.in_progress", response={**begun, "redraft": told})

    def answer(self, answer: Answer) -> Iterator[bytes]:
        """See `Stream`."""
        choice = answer.completion.choices[0]
        output = _output(choice, self._run_id)
        for at, item in enumerate(output):
            where = {"output_index": at, "item_id": item["id"]}
            empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
            yield self._event("response.output_item.added", output_index=at, item={**item, **empty, **_RUNNING})
            for kind, fields in _deltas(item):
                yield self._event(kind, **where, **fields)
            yield self._event("response.output_item.done", output_index=at, item=item)
        ended = RESPONSES.whole(answer, self._asked)
        yield self._event(f"response.{ended['status']}", response=ended)

    def failed(self, refusal: Refusal) -> Iterator[bytes]:
        """An `error` event, which the official client raises, and `response.failed` for those that read on."""
        told = {"code": refusal.code or None, "message": refusal.message, "param": refusal.param}
        yield self._event("error", **told, **RESPONSES.error(refusal))
        error = {"code": refusal.code or "server_error", "message": refusal.message}
        begun = _response(self._asked, self._run_id, [], None, None)
        yield self._event("response.failed", response={**begun, "status": "failed", "error": error})

    def _event(self, kind: str, **fields: Any) -> bytes:
        return sse({"type": kind, "sequence_number": next(self._number), **fields}, kind)


_RUNNING = {"status": "in_progress"}


def _deltas(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if item["type"] != "message":
        yield "response.function_call_arguments.delta", {"delta": item["arguments"]}
        yield "response.function_call_arguments.done", {"arguments": item["arguments"], "name": item["name"]}
        return
    part = item["content"][0]
    yield "response.content_part.added", {"content_index": 0, "part": {**part, "text": "", "logprobs": []}}
    for piece in pieces(part["text"]):
        yield "response.output_text.delta", {"content_index": 0, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {"content_index": 0, "text": part["text"], "logprobs": part["logprobs"]}
    yield "response.content_part.done", {"content_index": 0, "part": part}


def _output(choice: Choice, run_id: str) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if choice.text or not choice.tool_calls:
        logprobs = [{"bytes": [], "top_logprobs": [], **token} for token in choice.logprobs or ()]
        part = {"type": "output_text", "text": choice.text, "annotations": [], "logprobs": logprobs}
        head = {"type": "message", "id": f"msg_{run_id}", "role": "assistant", "status": "completed"}
        output.append({**head, "content": [part]})
    for number, call in enumerate(choice.tool_calls):
        function = call["function"]
        named = {"name": function["name"], "arguments": str(function.get("arguments") or "{}")}
        head = {"type": "function_call", "id": f"fc_{run_id}_{number}", "status": "completed"}
        output.append({**head, "call_id": str(call.get("id") or f"call_{number}"), **named})
    return output


def _response(
    asked: Asked, run_id: str, output: list[dict[str, Any]], choice: Choice | None, used: Usage | None
) -> dict[str, Any]:
    """The response object; without a choice it is in progress."""
    short = _SHORT.get((choice and choice.finish_reason) or "")
    plain = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {}, "temperature": None}
    return {
        "id": f"resp_{run_id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": asked.preset,
        "status": "in_progress" if choice is None else "incomplete" if short else "completed",
        "error": None,
        "incomplete_details": {"reason": short} if short else None,
        "instructions": None,
        "output": output,
        **plain,
        **asked.echo,
        "usage": None if used is None else _usage(used),
    }


def _usage(used: Usage) -> dict[str, Any]:
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.tokens,
    }


def _conversation(body: Body) -> Iterator[dict[str, Any]]:
    if told := typed(body, "instructions", str):
        yield {"role": "system", "content": told}
    given = body.get("input")
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    items = objects_in(given, "input")
    if not items:
        raise cannot("input", "it is empty")
    calls: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        kind, name = item.get("type", "message"), f"input[{number}]"
        if kind != "function_call" and calls:
            yield {"role": "assistant", "content": "", "tool_calls": calls}
            calls = []
        if kind == "function_call":
            function = {"name": text_in(item.get("name"), name), "arguments": str(item.get("arguments") or "{}")}
            calls.append({"id": text_in(item.get("call_id"), name), "type": "function", "function": function})
        elif kind == "function_call_output":
            told = item.get("output") or ""
            told = told if isinstance(told, str) else [_part(part, name) for part in objects_in(told, name)]
            yield {"role": "tool", "tool_call_id": text_in(item.get("call_id"), name), "content": told}
        elif kind == "message":
            yield _message(item, name)
        elif kind != "reasoning":  # of another model than the one that is asked
            raise cannot(f"{name}.type", f"an item of type {kind!r:.40} cannot be passed on")
    if calls:
        yield {"role": "assistant", "content": "", "tool_calls": calls}


def _message(item: dict[str, Any], name: str) -> dict[str, Any]:
    role, content = item.get("role"), item.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        raise cannot(f"{name}.role", f"give system, developer, user or assistant, not {role!r:.40}")
    if isinstance(content, str):
        return {"role": role, "content": content}
    parts = [_part(part, name) for part in objects_in(content, f"{name}.content")]
    if all(part["type"] == "text" for part in parts):
        return {"role": role, "content": "".join(part["text"] for part in parts)}
    return {"role": role, "content": parts}


def _part(part: dict[str, Any], name: str) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": text_in(part.get("text"), name)}
    if kind == "refusal":
        return {"type": "text", "text": text_in(part.get("refusal"), name)}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file" and isinstance(part.get("file_data"), str):
        return {"type": "file", "file": {"filename": part.get("filename") or "file", "file_data": part["file_data"]}}
    raise cannot(
        f"{name}.content", f"a part of type {kind!r:.40} cannot be passed on; send texts, images and files as data"
    )


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise cannot("tools", f"a tool of type {tool.get('type')!r:.40} runs on OpenAI's servers; give functions")
    function = {k: tool[k] for k in ("name", "description", "parameters", "strict") if tool.get(k) is not None}
    text_in(function.get("name"), "tools")
    return {"type": "function", "function": function}


def _choice(told: Any) -> Any:
    if told is None or told in ("auto", "none", "required"):
        return told
    if isinstance(told, dict) and told.get("type") == "function":
        return {"type": "function", "function": {"name": text_in(told.get("name"), "tool_choice")}}
    raise cannot("tool_choice", f"give auto, none, required or a function, not {told!r:.80}")


def _schema(form: Body) -> Mapping[str, Any] | None:
    kind = form.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema" or not isinstance(form.get("schema"), dict):
        raise cannot("text.format", f"give text, json_object, or json_schema with a schema, not {form!r:.80}")
    schema: Mapping[str, Any] = form["schema"]
    return schema


def _count(body: Body, name: str) -> int | None:
    value: int | None = typed(body, name, int)
    if value is not None and value < 1:
        raise cannot(name, "give a whole number, 1 or more")
    return value


def _logprobs(body: Body) -> int | None:
    included = typed(body, "include", list, default=[])
    if wrong := [name for name in included if name not in _INCLUDED]:
        raise cannot("include", f"{wrong[0]!r:.60} cannot be honoured")
    top = typed(body, "top_logprobs", int)
    wanted = top is not None or "message.output_text.logprobs" in included
    return (top or 0) if wanted else None


RESPONSES = Responses()
