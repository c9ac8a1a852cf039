"""DSPy's calls as requests, and replies in the forms that DSPy reads. Pure: nothing is called here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from redraft.lm.openai_wire import read_usage, response_format
from redraft.types import Choice, Completion, Request, Usage

CONNECTION = frozenset(
    {
        *("api_key", "api_base", "base_url", "headers", "extra_headers", "timeout", "api_version", "extra_query"),
        *("azure_ad_token_provider", "organization", "project", "custom_llm_provider"),
    }
)
"""Settings of a connection, secrets among them: they stay with the LM and are in no request."""

_OWN = frozenset({"cache", "rollout_id", "num_retries", "stream", "stream_options", "model"})
CAPS = ("max_tokens", "max_completion_tokens")
"""What the cap on a reply is called."""
_FINISH = {"tool_call": "tool_calls"}


def without_own(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call that are the model's to read, not DSPy's or the connection's."""
    return {k: v for k, v in options.items() if k not in CONNECTION | _OWN}


def carried(messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Request:
    """A call that DSPy makes of its own LM: sampling where redraft has a say in it, everything else as it is."""
    given = {k: v for k, v in without_own(options).items() if v is not None}
    cap = next((given.pop(name) for name in CAPS if name in given), None)
    sampling: dict[str, Any] = {name: given.pop(name) for name in ("temperature", "top_p", "n") if name in given}
    if "stop" in given:
        sampling["stop"] = (stop,) if isinstance(stop := given.pop("stop"), str) else tuple(stop)
    if "reasoning_effort" in given:
        sampling["effort"] = given.pop("reasoning_effort")
    if "response_format" in given:
        given["response_format"] = _as_json_schema(given["response_format"])
    return Request(messages=tuple(messages), max_tokens=cap, extra=given, **sampling)


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


def usage_of(entries: Sequence[Mapping[str, Any]]) -> Usage | None:
    """The tokens of DSPy's usage entries together; None if they report none."""
    nothing = {"prompt_tokens": 0, "completion_tokens": 0}
    told = [read_usage({**nothing, **{k: v for k, v in plain(e).items() if v is not None}}) for e in entries]
    total = sum((used for used in told if used is not None), Usage())
    return total if total.tokens else None


def before_the_form(content: str, text: str) -> str:
    """A user's text with a paragraph more: before a closing paragraph that says how to answer, which has to stay the last
    thing that a small model reads.
    """
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
    return response_format(asked.model_json_schema(), asked.__name__)


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
