"""Chat completions from the server's side: a call's body as a request, a completion as the reply. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from redraft.errors import BadRequestError
from redraft.lm.openai_wire import GRAMMAR
from redraft.lm.thoughts import REASONING_FIELDS
from redraft.types import Choice, Completion, Request, Usage

_CALLERS = frozenset({"model", "stream", "stream_options"})
_GONE = {"functions": "tools", "function_call": "tool_choice"}
_Count = Annotated[int, Field(ge=1)]


class _Body(BaseModel, extra="allow", strict=True):
    messages: list[dict[str, Any]] = Field(min_length=1)
    temperature: float | None = None
    top_p: float | None = None
    n: _Count = 1
    seed: int | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    stop: str | list[str] = []
    response_format: dict[str, Any] = {"type": "text"}
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0)
    reasoning_effort: str | None = None


def read_request(body: Mapping[str, Any]) -> Request:
    """A chat-completions body as a request: what `request_body` writes, read back. `model` and the stream flags are the
    caller's to read.

    A field that `Request` has no place for goes to `extra`, for the model to take or refuse. Of the messages, reasoning is
    left out: what a provider wants back is in their `items`. Raises `BadRequestError` (status 400) that names the field.
    """
    try:
        asked = _Body.model_validate({k: v for k, v in body.items() if v is not None and k not in _CALLERS})
    except ValidationError as error:
        wrong = error.errors()[0]
        raise _refused(str(wrong["loc"][0]), wrong["msg"]) from None
    extra = asked.model_extra or {}
    if gone := next((name for name in _GONE if name in extra), None):
        raise _refused(gone, f"use {_GONE[gone]!r}")
    if not all(isinstance(message.get("role"), str) for message in asked.messages):
        raise _refused("messages", "each has to have a role")
    if asked.top_logprobs and not asked.logprobs:
        raise _refused("top_logprobs", "'logprobs' has to be true")
    ours = str(extra.get("grammar", "")).startswith(GRAMMAR)  # others are for the server that knows them
    return Request(
        messages=tuple({k: v for k, v in m.items() if k not in REASONING_FIELDS} for m in asked.messages),
        temperature=asked.temperature,
        top_p=asked.top_p,
        max_tokens=min(filter(None, (asked.max_tokens, asked.max_completion_tokens)), default=None),
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop),
        seed=asked.seed,
        n=asked.n,
        schema=_schema(asked.response_format),
        grammar=extra.pop("grammar").removeprefix(GRAMMAR) if ours else None,
        tools=tuple(asked.tools),
        tool_choice=asked.tool_choice,
        logprobs=asked.top_logprobs if asked.logprobs else None,
        effort=asked.reasoning_effort,
        extra=extra,
    )


def _schema(asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    kind, held = asked.get("type"), asked.get("json_schema")
    if kind == "text":
        return None
    schema = held.get("schema") if kind == "json_schema" and isinstance(held, Mapping) else {"type": "object"}
    if kind not in ("json_object", "json_schema") or not isinstance(schema, Mapping):
        raise _refused("response_format", f"give text, json_object, or json_schema with a schema; got {asked!r:.80}")
    return schema


def _refused(name: str, why: str) -> BadRequestError:
    return BadRequestError(f"the request's {name!r} cannot be read: {why}", status=400)


def reply_body(completion: Completion, name: str = "") -> dict[str, Any]:
    """A completion as a reply; `name` is the model's, where the completion has none. Without `usage` where that is unknown.

    `id` and `created` are the same for every reply: a server that has better ones puts them in.
    """
    said = {"id": "redraft", "object": "chat.completion", "created": 0, "model": completion.model or name}
    choices = [
        {"index": at, "message": _message(choice), **_end(choice)} for at, choice in enumerate(completion.choices)
    ]
    used = {} if completion.usage is None else {"usage": usage_dict(completion.usage)}
    return {**said, "choices": choices, **used}


def reply_chunks(completion: Completion, name: str = "", *, usage: bool = False) -> Iterator[dict[str, Any]]:
    """The same as the chunks of a stream, one a choice; `usage`: the tokens in one more, as `include_usage` asks for."""
    whole = reply_body(completion, name)
    head = {**whole, "object": "chat.completion.chunk"}
    used = {"usage": head.pop("usage")} if "usage" in head else None
    for choice in head.pop("choices"):
        delta = choice.pop("message")
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
        yield {**head, "choices": [{**choice, "delta": delta}]}
    if usage and used:
        yield {**head, "choices": [], **used}


def usage_dict(used: Usage) -> dict[str, Any]:
    """Tokens as a reply tells them."""
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def _message(choice: Choice) -> dict[str, Any]:
    """The message; a client that sends it back as it is sends the provider's `items` back."""
    thought = {"reasoning_content": choice.reasoning} if choice.reasoning else {}
    return {**choice.message(), **thought, "content": choice.text or (None if choice.tool_calls else "")}


def _end(choice: Choice) -> dict[str, Any]:
    tokens = {} if choice.logprobs is None else {"logprobs": {"content": [*choice.logprobs]}}
    return {"finish_reason": choice.finish_reason or ("tool_calls" if choice.tool_calls else "stop"), **tokens}
