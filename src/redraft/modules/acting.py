"""How a model is asked to act with tools, and how its reply is read: by its own tool calls, or as JSON in words where it
has none. Both keep what changes at the end, so that prefix caches pay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from redraft.errors import ParseError
from redraft.modules.fields import objects
from redraft.modules.forms import ask
from redraft.modules.toolbox import Tool
from redraft.modules.wire import Style, parse
from redraft.modules.written import arguments_of, calls_in, named, read_arguments
from redraft.protocols import LM
from redraft.refusals import refuses
from redraft.signature import SignatureSpec
from redraft.types import Choice, Completion, Message, Prediction

FINISH = "finish"
"""What a model calls to give its answer, where that is not a text."""

THOUGHT = 400
"""Characters of a thought that is decoded under a grammar: a small model that loses the thread thinks for ever."""


class Call(NamedTuple):
    """One call as a model made it; `fault` says why it cannot be carried out."""

    id: str
    name: str
    arguments: Any
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a reply says: calls, an answer, or what is wrong with it."""

    thought: str = ""
    calls: tuple[Call, ...] = ()
    answer: Prediction | None = None
    error: ParseError | None = None
    message: Message = field(default_factory=dict)
    """The reply as the next request carries it back, where the model made calls of its own."""


@dataclass(slots=True)
class Turn:
    """What was said and what came of it: an observation for each call, in their order."""

    said: Said
    seen: list[dict[str, Any]]


class Acting(Protocol):
    """One of the two ways."""

    native: bool
    offered: tuple[str, ...]
    """The names that the model may call."""

    def system(self) -> str:
        """What stands in the system message."""

    def form(self) -> str:
        """What is asked for at the end of the task."""

    def options(self, lm: LM, *, last: bool, constrained: bool) -> dict[str, Any]:
        """Fields of the request."""

    def read(self, completion: Completion, turns: Sequence[Turn]) -> Said:
        """What a reply says, after these turns."""

    def messages(self, turn: Turn) -> list[Message]:
        """A turn as the next request shows it."""


class Native:
    """The model's own tool calls. Typed outputs come as a call of `finish`, a lone text as the reply itself."""

    native = True

    def __init__(self, signature: SignatureSpec, tools: Mapping[str, Tool]) -> None:
        self.signature = signature
        self.names = (*tools, FINISH)
        self.offered = tuple(tools) if signature.plain else self.names
        self.wire = tuple(tool.wire for tool in tools.values())
        if not signature.plain:
            about = "Give the final answer: call this once, when you know enough."
            schema = signature.json_schema()
            finish = {"name": FINISH, "description": about, "parameters": schema}
            self.wire += ({"type": "function", "function": finish},)

    def system(self) -> str:
        """See `Acting`."""
        return ""

    def form(self) -> str:
        """See `Acting`."""
        if self.signature.plain:
            return ask(self.signature, "plain")
        return f"Use the tools as needed. When you know enough, call {FINISH} with the answer."

    def options(self, lm: LM, *, last: bool, constrained: bool) -> dict[str, Any]:
        """See `Acting`. At the last turn the tools stay where they are: histories with calls in them need them."""
        options: dict[str, Any] = {"tools": self.wire}
        if last and not refuses(lm, "tool_choice"):
            options["tool_choice"] = "none"
        if last and constrained and not self.signature.plain and _takes(lm, "json_schema", "schema"):
            options["schema"] = self.signature.json_schema()
        return options

    def read(self, completion: Completion, turns: Sequence[Turn]) -> Said:
        """See `Acting`."""
        choice = completion.choices[0]
        if not choice.tool_calls:
            if (call := _written(choice, self.names, f"call_{len(turns)}_0")) is None:
                return _answered(self.signature, completion, "plain" if self.signature.plain else "json")
            return self._called(choice, [call])
        taken = {call.id for turn in turns for call in turn.said.calls}
        calls: list[Call] = []
        for i, raw in enumerate(choice.tool_calls):
            name, arguments, fault = arguments_of(raw)
            said = raw.get("id")  # none at all, or one for every call, with some servers
            known = said if isinstance(said, str) and said and said not in taken else f"call_{len(turns)}_{i}"
            taken.add(known)
            cut = "; the reply was cut at its token limit" if fault and choice.finish_reason == "length" else ""
            calls.append(Call(known, named(self.names, name) or name, arguments, fault + cut))
        return self._called(choice, calls)

    def _called(self, choice: Choice, calls: list[Call]) -> Said:
        message = choice.message()
        if not choice.tool_calls:  # it was written as text: shown as what it is
            message["content"] = _thought_in(choice.text)
        message["tool_calls"] = [_wire_call(call, raw) for call, raw in _beside(calls, choice.tool_calls)]
        return _decided(self.signature, choice, calls, message)

    def messages(self, turn: Turn) -> list[Message]:
        """See `Acting`. A tool's message holds text only: images follow in one of the user's."""
        told: list[Message] = [turn.said.message]
        images: list[Any] = []
        for call, seen in zip(turn.said.calls, turn.seen, strict=True):
            parts = shown_parts(seen)
            content = shown_text(seen) if parts is None else "The result follows in the next message."
            told.append({"role": "tool", "tool_call_id": call.id, "content": content})
            if parts is not None:
                images += [{"type": "text", "text": f"Result of {call.name}:"}, *parts]
        return [*told, {"role": "user", "content": images}] if images else told


class Worded:
    """JSON in words, one call a turn: held by a grammar or schema where the model takes one, else asked for."""

    native = False

    def __init__(self, signature: SignatureSpec, tools: Mapping[str, Tool]) -> None:
        self.signature = signature
        self.tools = tools
        self.names = self.offered = (*tools, FINISH)

    def system(self) -> str:
        """See `Acting`."""
        lines = ["You can use these tools, one at a time:"]
        for tool in self.tools.values():
            about = " ".join(tool.description.split())
            lines += [f"- {tool.name}: {about}", f"  arguments: {_compact(tool.parameters)}"]
        lines += [
            f"- {FINISH}: gives the answer, when you know it",
            f"  arguments: {_compact(_answer_schema(self.signature))}",
        ]
        return "\n".join(lines)

    def form(self) -> str:
        """See `Acting`."""
        # A whole example: a 135M model then used a calculator for most sums, and for none where only the keys were named.
        name, tool = next(iter(self.tools.items()), (FINISH, None))
        properties = (_answer_schema(self.signature) if tool is None else tool.parameters).get("properties", {})
        example = {"thought": "...", "action": {"tool": name, "arguments": dict.fromkeys(properties, "...")}}
        return (
            f"Reply with one JSON object only, such as {json.dumps(example, ensure_ascii=False)}. The result of the tool is "
            f'shown to you. When you know the answer, use "{FINISH}".'
        )

    def options(self, lm: LM, *, last: bool, constrained: bool) -> dict[str, Any]:
        """See `Acting`."""
        if not constrained:
            return {}
        if _takes(lm, "grammar", "grammar"):
            schema = self.signature.json_schema() if last else self._schema(THOUGHT)
            return {"grammar": f"start: %json {_compact({**schema, 'x-guidance': {'whitespace_flexible': False}})}\n"}
        if _takes(lm, "json_schema", "schema"):
            return {"schema": self.signature.json_schema() if last else self._schema(None)}
        return {}

    def _schema(self, thought: int | None) -> dict[str, Any]:
        """A thought and one of the actions; each tool's definitions under a name of their own."""
        definitions: dict[str, Any] = {}
        actions = []
        schemas = {**{name: tool.parameters for name, tool in self.tools.items()}, FINISH: self.signature.json_schema()}
        for name, schema in schemas.items():
            own = json.loads(_compact(schema).replace('"#/$defs/', f'"#/$defs/{name}.'))
            definitions |= {f"{name}.{key}": part for key, part in own.pop("$defs", {}).items()}
            actions.append(_closed({"tool": {"const": name}, "arguments": own}))
        words: dict[str, Any] = {"type": "string"} if thought is None else {"type": "string", "maxLength": thought}
        whole = _closed({"thought": words, "action": {"anyOf": actions}})
        return {**whole, "$defs": definitions} if definitions else whole

    def read(self, completion: Completion, turns: Sequence[Turn]) -> Said:
        """See `Acting`. Only the first call counts: what a model writes after it, it makes up."""
        choice = completion.choices[0]
        call = _written(choice, self.names, f"call_{len(turns)}_0", strangers=True)
        if call is not None:
            return _decided(self.signature, choice, [call], {})
        return _answered(self.signature, completion, "json")

    def messages(self, turn: Turn) -> list[Message]:
        """See `Acting`."""
        told: list[Message] = []
        for i, (call, seen) in enumerate(zip(turn.said.calls, turn.seen, strict=True)):
            thought = turn.said.thought if i == 0 else ""
            said = {"thought": thought, "action": {"tool": call.name, "arguments": call.arguments}}
            told.append({"role": "assistant", "content": json.dumps(said, ensure_ascii=False)})
            parts = shown_parts(seen)
            result = f"Result of {call.name}: "
            content = result + shown_text(seen) if parts is None else [{"type": "text", "text": result}, *parts]
            told.append({"role": "user", "content": content})
        return told


def acting(signature: SignatureSpec, tools: Mapping[str, Tool], lm: LM) -> Acting:
    """The way that this model can go."""
    return Native(signature, tools) if _takes(lm, "tools", "tools") else Worded(signature, tools)


def shown_text(seen: Mapping[str, Any]) -> str:
    """An observation as the model sees it now."""
    return str(seen.get("shown", seen["text"]))


def shown_parts(seen: Mapping[str, Any]) -> list[Any] | None:
    """The content parts of an observation, unless they were dropped."""
    return None if "shown" in seen else seen.get("parts")


def _takes(lm: LM, capability: str, parameter: str) -> bool:
    return bool(getattr(lm.capabilities, capability)) and not refuses(lm, parameter)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _answer_schema(signature: SignatureSpec) -> dict[str, Any]:
    schema = signature.json_schema()
    return {key: part for key, part in schema.items() if key in ("properties", "$defs")}


# reading


def _decided(signature: SignatureSpec, choice: Choice, calls: list[Call], message: Message) -> Said:
    """Calls and, where one of them is `finish`, the answer; one that cannot be read stays a call, with its fault."""
    answer: Prediction | None = None
    kept: list[Call] = []
    for call in calls:
        if call.name != FINISH:
            kept.append(call)
            continue
        try:
            if call.fault:
                raise ParseError(call.fault)
            answer = _answer(signature, call.arguments)
        except ParseError as error:
            kept.append(call._replace(fault=f"the answer cannot be used: {error}"))
    thought = choice.text.strip() if choice.tool_calls else _thought_in(choice.text)
    return Said(thought=thought or choice.reasoning.strip(), calls=tuple(kept), answer=answer, message=message)


def _answer(signature: SignatureSpec, arguments: Any) -> Prediction:
    if not isinstance(arguments, Mapping) and len(signature.outputs) == 1:
        arguments = dict.fromkeys(signature.outputs, arguments)
    if signature.plain and isinstance(arguments, Mapping) and len(arguments) == 1:
        # a lone text under whatever name is the lone output
        arguments = dict.fromkeys(signature.outputs, next(iter(arguments.values())))
    text = json.dumps(arguments, ensure_ascii=False)
    return parse(signature, Completion(choices=(Choice(text=text, finish_reason="stop"),)), "json")


def _answered(signature: SignatureSpec, completion: Completion, style: Style) -> Said:
    """A reply without calls: the answer, or what is wrong with it."""
    try:
        return Said(answer=parse(signature, completion, style))
    except ParseError as error:
        return Said(error=error)


def _beside(calls: list[Call], raws: tuple[Mapping[str, Any], ...]) -> Iterator[tuple[Call, Mapping[str, Any]]]:
    """Each call with what the model sent for it; a call that was written as text has nothing."""
    for i, call in enumerate(calls):
        yield call, raws[i] if i < len(raws) else {}


def _wire_call(call: Call, raw: Mapping[str, Any]) -> dict[str, Any]:
    """A call as it came, with an id, and arguments that a server can read."""
    function = raw.get("function")
    function = dict(function) if isinstance(function, Mapping) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or not _is_object(arguments):
        arguments = json.dumps(call.arguments if isinstance(call.arguments, Mapping) else {}, ensure_ascii=False)
    known = {key: value for key, value in raw.items() if key not in ("name", "arguments")}
    name = call.name or "unnamed"
    return {**known, "id": call.id, "type": "function", "function": {**function, "name": name, "arguments": arguments}}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _written(choice: Choice, names: tuple[str, ...], id_: str, *, strangers: bool = False) -> Call | None:
    """The first call that stands in the text as JSON. `strangers`: of a tool that is not known, too."""
    for said, given in calls_in(choice.text, cut=choice.finish_reason == "length"):
        if given is None and not strangers:
            continue  # an object with a name in it is no call
        if name := named(names, said) or (said if strangers and given is not None else ""):
            return Call(id_, name, *read_arguments(given))
    return None


def _thought_in(text: str) -> str:
    for found in objects(text):
        thought = found.get("thought") or found.get("next_thought")
        return thought.strip() if isinstance(thought, str) else ""
    return ""
