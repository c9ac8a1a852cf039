"""DSPy's calls as requests, and replies in the forms that DSPy reads. Pure: nothing is called here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from redraft.lm.openai_wire import is_strict
from redraft.types import Choice, Completion, Request, Usage

CONNECTION = frozenset(
    {
        *("api_key", "api_base", "base_url", "headers", "extra_headers", "timeout", "api_version", "extra_query"),
        *("azure_ad_token_provider", "organization", "project", "custom_llm_provider"),
    }
)
"""Settings of a connection, secrets among them: they stay with the LM and are in no request."""

_OWN = frozenset({"cache", "rollout_id", "num_retries", "stream", "stream_options", "model", "messages"})
_CAPS = ("max_tokens", "max_completion_tokens")
_FINISH = {"tool_call": "tool_calls"}


def carried(messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Request:
    """A call that DSPy makes of its own LM: sampling where redraft has a say in it, everything else as it is."""
    given = {k: v for k, v in options.items() if v is not None and k not in CONNECTION | _OWN}
    cap = next((given.pop(name) for name in _CAPS if name in given), None)
    sampling: dict[str, Any] = {name: given.pop(name) for name in ("temperature", "top_p", "n") if name in given}
    if "stop" in given:
        sampling["stop"] = _texts(given.pop("stop"))
    if "reasoning_effort" in given:
        sampling["effort"] = given.pop("reasoning_effort")
    if "response_format" in given:
        given["response_format"] = _as_json_schema(given["response_format"])
    return Request(messages=tuple(messages), max_tokens=cap, extra=given, **sampling)


def read(body: Mapping[str, Any]) -> Request:
    """A chat-completions body as a request to a model of ours."""
    given = {k: v for k, v in body.items() if v is not None and k not in CONNECTION | _OWN}
    cap = next((given.pop(name) for name in _CAPS if name in given), None)
    names = ("temperature", "top_p", "n", "seed", "tool_choice")
    known: dict[str, Any] = {name: given.pop(name) for name in names if name in given}
    known["stop"] = _texts(given.pop("stop", ()))
    known["tools"] = tuple(given.pop("tools", ()))
    known["effort"] = given.pop("reasoning_effort", None)
    top = given.pop("top_logprobs", 0)
    known["logprobs"] = top if given.pop("logprobs", None) else None
    asked = given.pop("response_format", None) or {}
    if asked.get("type") == "json_schema":
        known["schema"] = asked["json_schema"].get("schema", {"type": "object"})
    elif asked.get("type") == "json_object":
        known["schema"] = {"type": "object"}
    return Request(messages=tuple(body["messages"]), max_tokens=cap, extra=given, **known)


def options_of(request: Request, own: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments with which a dspy.LM, whose defaults are `own`, makes this call."""
    cap = _CAPS[1] if _CAPS[1] in own else _CAPS[0]
    plain = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        cap: request.max_tokens,
        "stop": list(request.stop) or None,
        "n": request.n if request.n > 1 else None,
        "response_format": None if request.schema is None else _response_format(request.schema),
        "tools": list(request.tools) or None,
        "tool_choice": request.tool_choice,
        "logprobs": None if request.logprobs is None else True,
        "top_logprobs": request.logprobs or None,
        "reasoning_effort": request.effort,
    }
    return {**{k: v for k, v in plain.items() if v is not None}, **request.extra}


def completion_of(
    outputs: Sequence[Any], entry: Mapping[str, Any] | None, usage: Usage | None, model: str
) -> Completion:
    """What a DSPy LM returned as a completion; `entry` is the call's entry in its history, where one was made."""
    raw = None if entry is None else entry.get("response")
    ends = _finish_reasons(raw)
    choices = tuple(_choice(said, ends[i] if i < len(ends) else None) for i, said in enumerate(outputs))
    return Completion(
        choices=choices or (Choice(),), model=str((entry or {}).get("response_model") or model), usage=usage
    )


def outputs_of(completion: Completion, *, logprobs: bool) -> list[Any]:
    """A completion in the form in which a DSPy LM returns it: texts, or dicts where there is more than text."""
    outputs = [_output(choice, logprobs=logprobs) for choice in completion.choices]
    return [o["text"] for o in outputs] if all(len(o) == 1 for o in outputs) else outputs


def chat_body(completion: Completion, at: int, name: str) -> dict[str, Any]:
    """One choice as a chat-completions reply, which DSPy's own reader turns into its response."""
    choice = completion.choices[at]
    message: dict[str, Any] = {"role": "assistant", "content": choice.text}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        message["tool_calls"] = [*choice.tool_calls]
    said: dict[str, Any] = {"index": 0, "message": message, "finish_reason": choice.finish_reason or "stop"}
    if choice.logprobs is not None:
        said["logprobs"] = {"content": [*choice.logprobs]}
    body: dict[str, Any] = {"model": completion.model or name, "choices": [said]}
    if (used := completion.usage) is not None:
        body["usage"] = usage_dict(used)
    return body


def usage_dict(used: Usage) -> dict[str, Any]:
    """Tokens in the wire form."""
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def usage_of(entries: Sequence[Mapping[str, Any]]) -> Usage | None:
    """The tokens of DSPy's usage entries together; None if they report none."""
    total = Usage()
    for entry in entries:
        given, written = _number(entry, "prompt_tokens"), _number(entry, "completion_tokens")
        if not given and not written:
            continue
        total += Usage(
            input_tokens=given,
            output_tokens=written,
            cached_tokens=min(given, _number(entry.get("prompt_tokens_details"), "cached_tokens")),
            reasoning_tokens=min(written, _number(entry.get("completion_tokens_details"), "reasoning_tokens")),
        )
    return total if total.tokens else None


def told_in(messages: Sequence[Mapping[str, Any]], text: str) -> tuple[dict[str, Any], ...]:
    """The messages with a text in the last user message: before a closing paragraph that says how to answer, which has
    to stay the last thing that a small model reads.
    """
    told = [dict(m) for m in messages]
    last = next((m for m in reversed(told) if m.get("role") == "user"), None)
    if last is None:
        return (*told, {"role": "user", "content": text})
    content = last.get("content") or ""
    if isinstance(content, str):
        last["content"] = _before_the_form(content, text)
    elif content and content[-1].get("type") == "text":
        last["content"] = [*content[:-1], {**content[-1], "text": _before_the_form(content[-1]["text"], text)}]
    else:
        last["content"] = [*content, {"type": "text", "text": text}]
    return tuple(told)


def _before_the_form(content: str, text: str) -> str:
    before, mark, form = content.rpartition("\n\nRespond with ")
    return f"{before}\n\n{text}{mark}{form}" if mark else f"{content}\n\n{text}"


def _choice(said: Any, finish_reason: str | None) -> Choice:
    output = said if isinstance(said, Mapping) else {"text": said}
    tokens = (plain(output.get("logprobs")) or {}).get("content")
    more = {k: plain(v) for k, v in output.items() if k not in ("text", "reasoning_content", "tool_calls", "logprobs")}
    return Choice(
        text=output.get("text") or "",
        reasoning=output.get("reasoning_content") or "",
        tool_calls=tuple(plain(output.get("tool_calls")) or ()),
        finish_reason=finish_reason,
        logprobs=None if tokens is None else tuple(tokens),
        items=({"provider": "dspy", **more},) if more else (),
    )


def _output(choice: Choice, *, logprobs: bool) -> dict[str, Any]:
    output: dict[str, Any] = {"text": choice.text or (None if choice.tool_calls else "")}
    if choice.reasoning:
        output["reasoning_content"] = choice.reasoning
    if logprobs:
        output["logprobs"] = {"content": [*(choice.logprobs or ())]}
    if choice.tool_calls:
        output["tool_calls"] = [*choice.tool_calls]
    for item in choice.items:
        if item.get("provider") == "dspy":
            output |= {k: v for k, v in item.items() if k != "provider"}
    return output


def _finish_reasons(raw: Any) -> list[str | None]:
    if raw is None:
        return []
    if isinstance(raw, tuple):
        return [end for one in raw for end in _finish_reasons(one)]
    choices = raw.get("choices") if isinstance(raw, Mapping) else getattr(raw, "choices", None)
    found = [raw] if choices is None else choices
    ends = [c.get("finish_reason") if isinstance(c, Mapping) else getattr(c, "finish_reason", None) for c in found]
    return [None if end is None else _FINISH.get(str(end), str(end)) for end in ends]


def plain(value: Any) -> Any:
    """JSON values out of what SDKs return: their objects, and dicts with attributes."""
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _as_json_schema(asked: Any) -> Any:
    """A response format that is a pydantic class as JSON; others are JSON."""
    if not isinstance(asked, type) or not hasattr(asked, "model_json_schema"):
        return asked
    return _response_format(asked.model_json_schema(), asked.__name__)


def _response_format(schema: Mapping[str, Any], name: str = "answer") -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema), "strict": is_strict(schema)}}


def _texts(stop: Any) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _number(entry: Any, key: str) -> int:
    value = entry.get(key) if isinstance(entry, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def as_tool_arguments(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls whose arguments are a JSON object: DSPy's reader takes no others."""
    told = []
    for call in calls:
        function = dict(call.get("function") or {})
        try:
            json.loads(function.get("arguments") or "{}")
        except ValueError:
            function["arguments"] = json.dumps({"arguments": function.get("arguments")})
        told.append({**call, "function": function})
    return told
