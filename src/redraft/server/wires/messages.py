"""Anthropic's Messages API: a request as messages in the OpenAI form, an answer as content blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from redraft.server.asked import Answer, Asked, Options
from redraft.server.refusal import Refusal
from redraft.server.wires.base import Body, cannot, model_of, objects_in, pieces, sse, text_in, typed
from redraft.types import Choice, Request, Usage

_KNOWN = frozenset(
    [
        "model",
        "messages",
        "system",
        "max_tokens",
        "metadata",
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "service_tier",
        "cache_control",
        "redraft",
    ]
)
_WITHOUT_EFFECT = frozenset(["context_management", "anthropic_beta", "betas"])
"""What Claude Code sends to Anthropic's own servers; it changes nothing of what is asked."""
_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
_KINDS |= {429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error"}
_LITTLE, _MUCH = 4096, 16_384
"""Thinking budgets in tokens, up to and from which the effort is low and high."""


class Messages:
    """`/v1/messages`."""

    name = "messages"
    upstream = "anthropic"

    def read(self, body: Body, options: Options) -> Asked:
        """See `Wire`."""
        if unknown := sorted(set(body) - _KNOWN - _WITHOUT_EFFECT):
            raise cannot(unknown[0], "a refined answer cannot honour it")
        cap = typed(body, "max_tokens", int)
        if cap is None or cap < 1:
            raise cannot("max_tokens", "give a whole number, 1 or more")
        user = typed(typed(body, "metadata", dict, default={}), "user_id", str)
        top_k = typed(body, "top_k", int)
        parallel = _parallel(typed(body, "tool_choice", dict, default={}))
        extra = {"user": user, "top_k": top_k, "parallel_tool_calls": parallel}
        request = Request(
            messages=tuple(_conversation(body)),
            max_tokens=cap,
            temperature=typed(body, "temperature", int, float),
            top_p=typed(body, "top_p", int, float),
            stop=tuple(text_in(s, "stop_sequences") for s in typed(body, "stop_sequences", list, default=[])),
            tools=tuple(_tool(tool) for tool in objects_in(body.get("tools") or [], "tools")),
            tool_choice=_choice(body.get("tool_choice")),
            schema=_schema(body),
            effort=_effort(body),
            extra={name: value for name, value in extra.items() if value is not None},
        )
        stream = typed(body, "stream", bool, default=False)
        return Asked(preset=model_of(body), request=request, stream=stream, options=options)

    def whole(self, answer: Answer, asked: Asked) -> dict[str, Any]:
        """See `Wire`."""
        choice = answer.completion.choices[0]
        body = {
            **_head(asked, answer.run_id),
            "content": _blocks(choice),
            "stop_reason": _finish(choice),
            "stop_sequence": None,
            "usage": _usage(answer.completion.usage or Usage()),
        }
        return body if answer.block is None else {**body, "redraft": answer.block}

    def stream(self, asked: Asked, run_id: str) -> MessagesStream:
        """See `Wire`."""
        return MessagesStream(asked, run_id)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """`{"type": "error", "error": {"type": ..., "message": ...}}`."""
        kind = _KINDS.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": refusal.message, "code": refusal.code or None}}


class MessagesStream:
    """`message_start` (which has to tell the tokens of the prompts, and so comes with the answer), blocks, `message_stop`."""

    def __init__(self, asked: Asked, run_id: str) -> None:
        self._asked = asked
        self._run_id = run_id

    def begin(self) -> Iterator[bytes]:
        """Nothing: see the class."""
        return iter(())

    def progress(self, told: Body) -> bytes:
        """A ping with word of it."""
        return sse({"type": "ping", "redraft": told}, "ping")

    def answer(self, answer: Answer) -> Iterator[bytes]:
        """See `Stream`."""
        choice, usage = answer.completion.choices[0], _usage(answer.completion.usage or Usage())
        more = {} if answer.block is None else {"redraft": answer.block}
        begun = {**_head(self._asked, self._run_id), "content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**begun, "usage": {**usage, "output_tokens": 1}})
        for at, block in enumerate(_blocks(choice)):
            empty, deltas = _in_pieces(block)
            yield _event("content_block_start", index=at, content_block=empty)
            for delta in deltas:
                yield _event("content_block_delta", index=at, delta=delta)
            yield _event("content_block_stop", index=at)
        end = {"stop_reason": _finish(choice), "stop_sequence": None}
        yield _event("message_delta", delta=end, usage=usage, **more)
        yield _event("message_stop")

    def failed(self, refusal: Refusal) -> Iterator[bytes]:
        """An `error` event, which the official client raises."""
        yield sse(MESSAGES.error(refusal), "error")


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _head(asked: Asked, run_id: str) -> dict[str, Any]:
    return {"id": f"msg_{run_id}", "type": "message", "role": "assistant", "model": asked.preset}


def _finish(choice: Choice) -> str:
    return _FINISH.get(choice.finish_reason or "stop", "end_turn")


def _blocks(choice: Choice) -> list[dict[str, Any]]:
    texts = [{"type": "text", "text": choice.text}] if choice.text else []
    return [*texts, *(_use(call) for call in choice.tool_calls)]


def _use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    given = function.get("arguments") or "{}"
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = None
    told = value if isinstance(value, dict) else {"arguments": given}
    return {"type": "tool_use", "id": str(call.get("id") or "toolu_0"), "name": function["name"], "input": told}


def _in_pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    told = json.dumps(block["input"], ensure_ascii=False)
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": told}]


def _usage(used: Usage) -> dict[str, Any]:
    return {
        "input_tokens": used.input_tokens - used.cached_tokens,
        "cache_read_input_tokens": used.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": used.output_tokens,
    }


def _conversation(body: Body) -> Iterator[dict[str, Any]]:
    system = body.get("system")
    if isinstance(system, list):
        system = "\n\n".join(text_in(part.get("text"), "system") for part in objects_in(system, "system"))
    if system is not None and text_in(system, "system"):
        yield {"role": "system", "content": system}
    messages = objects_in(body.get("messages"), "messages")
    if not messages:
        raise cannot("messages", "there is none")
    for number, message in enumerate(messages):
        name = f"messages[{number}]"
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = objects_in(content, f"{name}.content")
        if message.get("role") == "user":
            yield from _of_user(blocks, name)
        elif message.get("role") == "assistant":
            yield _of_assistant(blocks, name)
        else:
            raise cannot(f"{name}.role", f"give user or assistant, not {message.get('role')!r:.40}")


def _of_user(blocks: list[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    """Results of tools are messages of their own, and come first."""
    rest: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            told = block.get("content") or ""
            if not isinstance(told, str):
                told = [_part(part, name) for part in objects_in(told, name)]
                told = told if any(p["type"] != "text" for p in told) else "\n".join(p["text"] for p in told)
            if block.get("is_error"):
                told = f"Error: {told}" if isinstance(told, str) else [{"type": "text", "text": "Error:"}, *told]
            yield {"role": "tool", "tool_call_id": text_in(block.get("tool_use_id"), name), "content": told}
        else:
            rest.append(_part(block, name))
    if rest:
        alone = len(rest) == 1 and rest[0]["type"] == "text"
        yield {"role": "user", "content": rest[0]["text"] if alone else rest}


def _of_assistant(blocks: list[dict[str, Any]], name: str) -> dict[str, Any]:
    texts, calls = [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(text_in(block.get("text"), name))
        elif kind == "tool_use":
            function = {"name": text_in(block.get("name"), name), "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": text_in(block.get("id"), name), "type": "function", "function": function})
        elif kind not in ("thinking", "redacted_thinking"):  # signed by another model than the one that is asked
            raise cannot(f"{name}.content", f"a block of type {kind!r:.40} cannot be passed on")
    said: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    return {**said, "tool_calls": calls} if calls else said


def _part(block: dict[str, Any], name: str) -> dict[str, Any]:
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return {"type": "text", "text": text_in(block.get("text"), name)}
    if kind in ("image", "document") and isinstance(source, dict):
        if kind == "document" and source.get("type") == "text":
            return {"type": "text", "text": text_in(source.get("data"), name)}
        url = source.get("url")
        if source.get("type") == "base64":
            url = f"data:{source.get('media_type')};base64,{text_in(source.get('data'), name)}"
        if isinstance(url, str) and kind == "image":
            return {"type": "image_url", "image_url": {"url": url}}
        if isinstance(url, str) and url.startswith("data:"):
            named = str(block.get("title") or "document")
            return {"type": "file", "file": {"filename": named, "file_data": url}}
    raise cannot(f"{name}.content", f"a block of type {kind!r:.40} cannot be passed on; send text, images or documents")


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type", "custom") != "custom" or not isinstance(tool.get("input_schema"), dict):
        kind = tool.get("type") or tool.get("name")
        raise cannot("tools", f"{kind!r:.60} is a tool of Anthropic's servers; give tools with an input_schema")
    function = {"name": text_in(tool.get("name"), "tools"), "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _choice(told: Any) -> Any:
    kind = told.get("type") if isinstance(told, dict) else told
    if kind is None:
        return None
    if kind == "tool":
        return {"type": "function", "function": {"name": text_in(told.get("name"), "tool_choice")}}
    if kind not in ("auto", "any", "none"):
        raise cannot("tool_choice", f"give auto, any, none or tool, not {kind!r:.40}")
    return {"any": "required"}.get(kind, kind)


def _parallel(told: Body) -> bool | None:
    return False if told.get("disable_parallel_tool_use") else None


def _schema(body: Body) -> Mapping[str, Any] | None:
    config = typed(body, "output_config", dict, default={})
    told = config.get("format") or typed(body, "output_format", dict)
    if told is None:
        return None
    if not isinstance(told, dict) or told.get("type") != "json_schema" or not isinstance(told.get("schema"), dict):
        raise cannot("output_config", f"its format has to be a json_schema, not {told!r:.80}")
    schema: Mapping[str, Any] = told["schema"]
    return schema


def _effort(body: Body) -> str | None:
    effort: str | None = typed(typed(body, "output_config", dict, default={}), "effort", str)
    told = typed(body, "thinking", dict, default={})
    budget = typed(told, "budget_tokens", int, default=0)
    if effort is not None or told.get("type") != "enabled":
        return effort
    return "low" if budget <= _LITTLE else "high" if budget >= _MUCH else "medium"


MESSAGES = Messages()
