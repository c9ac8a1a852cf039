r"""tool_call: which tools a reply calls, and with which arguments.

The calls are read from the output `tool_calls` of a prediction, in OpenAI's form:
`[{"function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from redraft.checks.base import Check
from redraft.checks.structure import JsonSchema, json_schema
from redraft.errors import ScoreError, UsageError
from redraft.jsonable import plain

FIELD = "tool_calls"
"""The output that holds a reply's tool calls, unless `field` names another."""


class ToolCall(Check):
    """The reply calls the tools that it should, with arguments that fit, and none that it should not."""

    name = "tool_call"

    def __init__(
        self,
        tool: str | None = None,
        arguments: Any = None,
        *,
        required: Sequence[str] = (),
        forbidden: Sequence[str] = (),
        none: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**{"field": FIELD, **options})
        required, forbidden = _names(required, "required"), _names(forbidden, "forbidden")
        if not (tool is None or isinstance(tool, str)) or not isinstance(none, bool):
            raise UsageError(f"tool_call({tool!r}, none={none!r}): give the name of a tool, and none=True or False")
        self.tool, self.none, self.forbidden = tool, none, forbidden
        self.required = tuple(dict.fromkeys([*([tool] if tool else []), *required]))
        arguments = getattr(arguments, "parameters", arguments)  # a Tool knows them
        self._schema: JsonSchema = json_schema({} if arguments is None else arguments)
        if none and (self.required or forbidden or arguments is not None):
            raise UsageError("tool_call(none=True) forbids every call; drop the other arguments")
        if both := set(self.required) & set(forbidden):
            raise UsageError(f"tool_call: {', '.join(sorted(both))} cannot be both required and forbidden")

    def tell_text(self) -> str:
        """See `Check`."""
        if self.none:
            return "Call no tool."
        told = [f"Call the tool{'s' if len(self.required) > 1 else ''} {', '.join(self.required) or 'that fits'}."]
        if self._schema.schema:
            schema = json.dumps(self._schema.schema, ensure_ascii=False, separators=(",", ":"))
            told.append(f"The arguments{f' of {self.tool}' if self.tool else ''} follow this schema: {schema}")
        if self.forbidden:
            told.append(f"Do not call {' or '.join(self.forbidden)}.")
        return " ".join(told)

    def judge(self, value: Any) -> tuple[float, str]:
        """The mean over what is required, what is forbidden and the arguments of each call."""
        calls = [_read(call) for call in _listed(value)]
        called = [name for name, _ in calls]
        if self.none:
            return 1.0 / (1 + len(calls)), f"{', '.join(called)} called, want no tool call"
        marks = [(float(tool in called), f"{tool} is not called") for tool in self.required]
        marks += [(float(tool not in called), f"{tool} is called, which is forbidden") for tool in self.forbidden]
        if not calls and not self.required:
            marks.append((0.0, "no tool is called"))
        marks += [self._judge_arguments(name, arguments) for name, arguments in calls]
        score = sum(mark for mark, _ in marks) / len(marks)
        return score, "; ".join(fault for mark, fault in marks if mark < 1.0)

    def _judge_arguments(self, name: str, arguments: Any) -> tuple[float, str]:
        schema = self._schema if self.tool in (None, name) else _any_object()
        score, why = schema.judge(arguments)
        return score, f"the arguments of {name}: {why}"

    def fix(self, value: Any) -> Any:
        """The calls with arguments that are nearly JSON repaired, and with the names of required tools spelt right."""
        fixed = [self._renamed(_with_arguments(c, _any_object().fix(_read(c)[1]))) for c in _listed(value)]
        return fixed if self.judge(fixed)[0] > self.judge(value)[0] else None

    def _renamed(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        """A name that differs from one required tool's in case and marks alone: `Get-Weather`."""
        name = _read(call)[0]
        meant = [known for known in self.required if _bare(known) == _bare(name)]
        return call if name in (*self.required, *self.forbidden) or len(meant) != 1 else _changed(call, name=meant[0])


@cache
def _any_object() -> JsonSchema:
    return json_schema({"type": "object"})


def _names(given: Sequence[str], what: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(name, str) and name for name in names):
        raise UsageError(f"tool_call({what}={given!r}): give the names of tools")
    return names


def _listed(value: Any) -> list[Any]:
    """The calls as dicts; an SDK's objects are taken apart."""
    if value is None:
        return []
    if isinstance(value, Mapping) or not isinstance(value, list | tuple):
        value = [value]
    calls = [call if isinstance(call, Mapping) else plain(call) for call in value]
    if wrong := [call for call in calls if not isinstance(call, Mapping)]:
        raise ScoreError(
            f"tool_call looks for tool calls, but found {type(wrong[0]).__name__}; give the signature an output "
            f"{FIELD}: list[dict], or name the output that holds them with field="
        )
    return calls


def _read(call: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and arguments. No arguments at all are an empty object, as some models send them."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    arguments = function.get("arguments")
    return str(function.get("name") or "?"), {} if arguments in (None, "") else arguments


def _with_arguments(call: Mapping[str, Any], arguments: str | None) -> Mapping[str, Any]:
    return call if arguments is None else _changed(call, arguments=arguments)


def _changed(call: Mapping[str, Any], **changes: Any) -> Mapping[str, Any]:
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": {**call["function"], **changes}}
    return {**call, **changes}


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.rpartition(".")[2]).casefold()


def tool_call(
    name: str | None = None,
    arguments: Any = None,
    *,
    required: Sequence[str] = (),
    forbidden: Sequence[str] = (),
    none: bool = False,
    **options: Any,
) -> ToolCall:
    """The reply calls `name`, with arguments that follow a JSON schema (or pydantic model), and every `required` tool;
    no `forbidden` one; `none=True`: no tool at all. Options: `field` (default `tool_calls`), `hard`, `tell`.
    """
    return ToolCall(name, arguments, required=required, forbidden=forbidden, none=none, **options)
