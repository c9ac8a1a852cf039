"""Turns that may call tools: a call is checked, mended or made again; a text goes to the preset's own strategy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.checks import Check
from redraft.checks.mend import as_json
from redraft.errors import UsageError
from redraft.linear import linear
from redraft.modules.wire import TOOL_CALLS
from redraft.run import Run
from redraft.schemas import faults, validator
from redraft.server.conversation import INPUT, Conversation
from redraft.strategies.base import Refining
from redraft.types import Completion, Inputs, Request, StopReason

_SHOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRules:
    """What a preset wants of tool calls beyond what the client's own tools say."""

    required: tuple[str, ...] = ()
    """Called at least once in a turn that calls tools, where the client offers them."""
    forbidden: tuple[str, ...] = ()
    """Never called, and never offered to the model."""
    attempts: int = 3


class CallsFit(Check):
    """Each call names a tool that is offered, with arguments that follow its schema; what has to be called is."""

    name = "tool_calls"

    def __init__(self, asked: Request, rules: ToolRules) -> None:
        super().__init__(field=TOOL_CALLS)
        self._schemas: dict[str, Mapping[str, Any]] = {}
        for tool in asked.tools:
            function = tool.get("function")
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                self._schemas[function["name"]] = function.get("parameters") or {"type": "object"}
        try:
            with linear():
                self._valid = {name: validator(schema, f"tool {name!r}") for name, schema in self._schemas.items()}
        except RecursionError as error:
            raise UsageError("the request's 'tools' cannot be used: a schema is too deep") from error
        except (UsageError, TypeError) as error:
            raise UsageError(f"the request's 'tools' cannot be used: {error}") from error
        self._forbidden = rules.forbidden
        self._wanted = {name for name in rules.required if name in self._schemas}
        if forced := forced_tool(asked.tool_choice):
            self._wanted.add(forced)
        self._some = asked.tool_choice == "required" or bool(forced)
        self._one = asked.extra.get("parallel_tool_calls") is False

    @property
    def forced(self) -> bool:
        """The client wants a call in any case."""
        return self._some

    def tell_text(self) -> str:
        """Nothing: the tools say it."""
        return ""

    def judge(self, value: Any) -> tuple[float, str]:
        """The mean over the calls and what has to be called."""
        calls = list(value or ())
        if (name := forbidden_in(calls, self._forbidden, self._schemas)) is not None:
            return 0.0, f"{name} must not be called; the tools are {', '.join(self._schemas)}"
        marks = [self._mark(call) for call in calls]
        called = {_name(call) for call in calls}
        if calls or self._some:
            marks += [(float(name in called), f"{name} is not called") for name in sorted(self._wanted)]
        if self._some and not calls:
            marks.append((0.0, "no tool is called"))
        if self._one and len(calls) > 1:
            marks.append((0.0, f"{len(calls)} tools are called at once, one was asked for"))
        if not marks:
            return 1.0, ""
        return sum(m for m, _ in marks) / len(marks), "; ".join(why for mark, why in marks if mark < 1)

    def _mark(self, call: Mapping[str, Any]) -> tuple[float, str]:
        name, given = _name(call), (call.get("function") or {}).get("arguments")
        if name not in self._schemas:
            return 0.0, f"there is no tool {name!r}; the tools are {', '.join(self._schemas)}"
        try:
            arguments = json.loads(given or "{}") if isinstance(given, str | None) else given
        except (ValueError, RecursionError) as error:
            return 0.0, f"the arguments of {name} are no JSON: {error}"
        if not isinstance(arguments, dict):
            return 0.0, f"the arguments of {name} are no object"
        wrong = [f"{error.json_path}: {error.message}" for error in faults(self._valid[name], arguments)]
        return (0.5, f"the arguments of {name}: {'; '.join(wrong[:_SHOWN])}") if wrong else (1.0, "")

    def fix(self, value: Any) -> Any:
        """Names that differ in case and marks alone, and arguments that are nearly JSON."""
        return [self._mended(call) for call in value or ()]

    def _mended(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        function = dict(call.get("function") or {})
        name, given = _name(call), function.get("arguments")
        meant = [known for known in self._schemas if _bare(known) == _bare(name)]
        if name not in self._schemas and len(meant) == 1:
            function["name"] = meant[0]
        if isinstance(given, str):
            try:
                json.loads(given or "{}")
            except (ValueError, RecursionError):
                found = next(iter(as_json(given)), None)
                function["arguments"] = found if isinstance(found, str) else given
        return {**call, "function": function}


class Turn:
    """A strategy: the first reply decides whether this turn calls tools. A text becomes the first draft of the preset's own
    strategy, whose later drafts call none.
    """

    def __init__(
        self,
        author: Conversation,
        text: Refining,
        calls: Refining,
        check: CallsFit,
        *,
        first: Completion | None = None,
    ) -> None:
        self.author, self.text, self.calls = author, text, calls
        self._forced = check.forced
        self.first = first

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """See `Strategy`."""
        if self.first is None:
            asked = self.author.request(inputs[INPUT], self.text.judgement.requirements())
            lm: Any = self.author.lm
            self.first = await run.complete(asked, lm=lm, role="author")
        called = bool(self.first.tool_calls) or self._forced
        strategy = self.calls if called else self.text
        conversation: Conversation = strategy.module
        conversation.draft = self.first
        return await strategy.steps(run, inputs)


def without_tools(asked: Request, forbidden: Sequence[str]) -> Request:
    """The request without the tools that a preset forbids."""
    if not forbidden or not asked.tools:
        return asked
    tools = tuple(tool for tool in asked.tools if not named_in(tool) & set(forbidden))
    only_forbidden = asked.tool_choice == "required" and not tools
    if only_forbidden or (isinstance(asked.tool_choice, Mapping) and _all_named(asked.tool_choice) & set(forbidden)):
        raise UsageError(
            f"the request's 'tool_choice' asks for a tool that this preset forbids: {', '.join(forbidden)}"
        )
    return asked.but(tools=tools, tool_choice=asked.tool_choice if tools else None)


def named_in(tool: Mapping[str, Any]) -> set[str]:
    """What a tool may be called by: a function, a custom tool, or one of the provider's own, whose type is its name."""
    places = (tool, tool.get("function"), tool.get("custom"))
    names = {place.get("name") for place in places if isinstance(place, Mapping)} | {tool.get("type")}
    return {name for name in names if isinstance(name, str)} - {"function", "custom"}


def _all_named(choice: Mapping[str, Any]) -> set[str]:
    """The tools of a choice: one, or those that are allowed."""
    allowed = choice.get("allowed_tools")
    listed = allowed.get("tools") if isinstance(allowed, Mapping) else choice.get("tools")
    tools = [tool for tool in listed if isinstance(tool, Mapping)] if isinstance(listed, list) else []
    return {name for tool in (choice, *tools) for name in named_in(tool)}


def forbidden_in(calls: Iterable[Mapping[str, Any]], forbidden: Sequence[str], offered: Iterable[str]) -> str | None:
    """The name of a call that is forbidden, also where only case and marks differ and it is none of the tools offered."""
    known, bare = set(offered), {_bare(name) for name in forbidden}
    names = (name for call in calls for name in named_in(call))
    return next((name for name in names if name in forbidden or (name not in known and _bare(name) in bare)), None)


def forced_tool(choice: Any) -> str | None:
    """The tool that a client asks for by name."""
    function = choice.get("function") if isinstance(choice, Mapping) else None
    return str(function["name"]) if isinstance(function, Mapping) and function.get("name") else None


def _name(call: Mapping[str, Any]) -> str:
    return str((call.get("function") or {}).get("name") or "?")


def _bare(name: str) -> str:
    return "".join(c for c in name.rpartition(".")[2].casefold() if c.isalnum())
