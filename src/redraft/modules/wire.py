"""How a signature becomes messages, and a reply becomes fields.

Styles: `plain` (the reply's text is the one field), `schema` (the upstream enforces a JSON schema), `json` (the model is
only asked for JSON), `tags` (it is asked for `<name>...</name>`: for long texts and code, which escapes garble). Small
models follow JSON best. What is the same on each try comes first, what changes comes last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Literal

from redraft.errors import InputError, ParseError
from redraft.modules.fields import BrokenJSON, Found, find, whole
from redraft.modules.forms import ask
from redraft.modules.written import calls_in
from redraft.signature import Field, SignatureSpec
from redraft.types import Capabilities, Choice, Completion, Message, Prediction, draft_text

Style = Literal["plain", "schema", "json", "tags"]

TOOL_CALLS = "tool_calls"
"""The output that takes a reply's tool calls, where a signature has it; the model is not asked to write it."""

_PARTS = ("text", "image_url", "input_audio", "file")
_HISTORY = ("history", "messages")
_LONG = 200
_WORDED = frozenset({"datetime", "decimal", "uuid", "pathlib"})


def style_for(signature: SignatureSpec, capabilities: Capabilities) -> Style:
    """The style that asks least of the model."""
    if asked_of(signature).plain or (len(signature.outputs) == 1 and TOOL_CALLS in signature.outputs):
        return "plain"
    return "schema" if capabilities.json_schema else "json"


def asked_of(signature: SignatureSpec) -> SignatureSpec:
    """The signature without the outputs that the model does not write as text; its schema is what to send."""
    if TOOL_CALLS not in signature.outputs or len(signature.outputs) == 1:
        return signature
    return _without_tool_calls(signature)


@lru_cache(maxsize=256)
def _without_tool_calls(signature: SignatureSpec) -> SignatureSpec:
    return signature.without_output(TOOL_CALLS)


def compose(
    signature: SignatureSpec,
    inputs: Mapping[str, Any],
    *,
    style: Style,
    system: str = "",
    requirements: Sequence[str] = (),
    hint: str = "",
    error: str = "",
    form: str | None = None,
) -> tuple[Message, ...]:
    """The messages for one try. `inputs` are as `bind` returned them.

    `error` is why the last reply could not be used; the reply itself is not shown, as small models repeat it. `form` asks
    for the reply in other words than the style's.
    """
    signature = asked_of(signature)
    form = ask(signature, style) if form is None else form
    history, blocks = _blocks(signature, inputs, labelled=style == "plain" and bool(form))
    if requirements:
        blocks.append(listed(requirements))
    if hint:
        blocks.append(hint)
    if form:
        blocks.append(form)
    if error:
        blocks.append(f"Your last reply could not be used: {error}")
    top = "\n\n".join(filter(None, (system, signature.instructions))) if system else signature.instructions
    messages: list[Message] = [{"role": "system", "content": top}] if top else []
    messages += history
    if blocks or not history:
        messages.append({"role": "user", "content": blocks[0] if _is_text(blocks) else _content(blocks)})
    return tuple(messages)


def listed(requirements: Sequence[str]) -> str:
    """Requirements as a paragraph of a prompt."""
    return "Requirements:\n" + "\n".join("- " + line.replace("\n", "\n  ") for line in requirements)


def _is_text(blocks: list[Any]) -> bool:
    return len(blocks) == 1 and isinstance(blocks[0], str)


def _content(blocks: list[Any]) -> Any:
    """Text blocks as paragraphs of one text; where there are content parts, a list of parts in the same order."""
    if all(isinstance(block, str) for block in blocks):
        return "\n\n".join(blocks)
    content: list[Any] = []
    paragraphs: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            paragraphs.append(block)
            continue
        if paragraphs:
            content.append({"type": "text", "text": "\n\n".join(paragraphs)})
            paragraphs = []
        content.append(block)
    if paragraphs:
        content.append({"type": "text", "text": "\n\n".join(paragraphs)})
    return content


def _blocks(signature: SignatureSpec, inputs: Mapping[str, Any], *, labelled: bool) -> tuple[list[Message], list[Any]]:
    """The messages among the inputs, and the other inputs as texts and content parts in order."""
    history: list[Message] = []
    values: list[tuple[str, Any]] = []
    for name, value in inputs.items():
        if type(value) is str:
            values.append((name, value))
        elif _all_have(value, "role") or (value in ([], (), None) and name in _HISTORY):
            history += value or ()
        else:
            values.append((name, value))
    alone = len(values) == 1
    blocks: list[Any] = []
    for name, value in values:
        parts = parts_of(value)
        if parts is None:
            text = value if type(value) is str else to_text(value, name)
            blocks.append(text if alone and not labelled else _paragraph(signature.inputs.get(name), name, text))
        else:
            blocks += parts if alone else [f"{_label(signature.inputs.get(name), name)}:", *parts]
    return history, blocks


def _all_have(value: Any, key: str) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(item, Mapping) and isinstance(item.get(key), str) for item in value)


def parts_of(value: Any) -> list[Any] | None:
    """The content parts (texts, images) that a value is, or None."""
    items = [value] if isinstance(value, Mapping) else value
    return list(items) if _all_have(items, "type") and all(i["type"] in _PARTS for i in items) else None


def _label(field: Field | None, name: str) -> str:
    words = name.replace("_", " ")
    described = f" ({field.desc})" if field is not None and field.desc else ""
    return words[:1].upper() + words[1:] + described


def _paragraph(field: Field | None, name: str, text: str) -> str:
    return f"{_label(field, name)}:{chr(10) if len(text) > _LONG or chr(10) in text else ' '}{text}"


def to_text(value: Any, name: str = "input") -> str:
    """A value as a prompt shows it: text as it is, everything else as JSON. `name` is for the error."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return value
    if isinstance(value, Prediction):
        return draft_text(value)
    if _is_worded(value):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, default=as_json)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the input {name!r} of type {type(value).__name__} cannot be shown to a model: {error}; pass text, numbers,"
            " lists, dicts, dataclasses, pydantic models or content parts"
        ) from error


def _is_worded(value: Any) -> bool:
    """True for dates, decimals, UUIDs and paths, told by their modules' names: importing those takes a while."""
    return any(base.__module__.partition(".")[0] in _WORDED for base in type(value).__mro__)


def restate(inputs: Mapping[str, Any], before: str, after: str) -> Any:
    """Inputs as one value for those who judge the output: a text, or content parts where an input holds an image. Messages
    are told in order: another model's calls of tools are no calls of the judge's.
    """
    blocks: list[Any] = [before] if before else []
    for name, value in inputs.items():
        parts = parts_of(value)
        if _all_have(value, "role"):
            blocks += [block for message in value for block in _told(message)]
        elif parts is None:
            text = to_text(value, name)
            blocks.append(text if len(inputs) == 1 else f"{name}: {text}")
        else:
            blocks += parts
    return _content([*blocks, after] if after else blocks)


def _told(message: Message) -> list[Any]:
    """A message as texts and content parts."""
    role, content = message["role"], message.get("content")
    who = f"{role} ({message['tool_call_id']})" if message.get("tool_call_id") else str(role)
    told: list[Any] = []
    if isinstance(content, str) and content:
        told.append(f"{who}: {content}")
    elif content and not isinstance(content, str):
        told.append(f"{who}:")
        for part in content:
            known = parts_of(part)
            told += [part["text"]] if known and part["type"] == "text" else known or [to_text(part, "message")]
    if calls := message.get("tool_calls"):
        told.append(f"{who} calls tools: {to_text(list(calls), 'message')}")
    return told


def as_json(value: Any) -> Any:
    """What a prompt shows of a value that JSON does not know: for `json`'s `default=`."""
    if isinstance(value, Prediction):
        return value.to_dict()
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)  # the order of a set differs between processes; prompts are keys
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Enum):
        return value.value
    if _is_worded(value):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def parse(signature: SignatureSpec, completion: Completion, style: Style, choice: int = 0) -> Prediction:
    """The fields that a reply holds. A field that is missing or does not fit is a `ParseError` that names it."""
    reply = completion.choices[choice]
    text = reply.text
    if style == "plain" and signature.plain and text and not text.isspace():
        return Prediction(dict.fromkeys(signature.outputs, text))
    try:
        return Prediction(_fields(signature, completion, reply, style))
    except ParseError as error:
        error.completion = completion
        raise


def _fields(signature: SignatureSpec, completion: Completion, reply: Choice, style: Style) -> dict[str, Any]:
    asked = asked_of(signature)
    blank = not reply.text.strip()
    if TOOL_CALLS in signature.outputs and (reply.tool_calls or (asked is not signature and not blank)):
        calls = {TOOL_CALLS: [*reply.tool_calls]}
        if asked is signature:
            return calls
        written = dict.fromkeys(asked.outputs, "") if blank else _fields(asked, completion, reply, style)
        if blank and (typed := [f.name for f in asked.outputs.values() if f.type is not str]):
            raise ParseError(f"the model only called tools: {_named(typed)} missing; make such outputs optional text")
        return {name: {**calls, **written}[name] for name in signature.outputs}
    if blank:
        raise ParseError(_why_empty(signature, completion, reply))
    if style == "plain" and asked.plain:
        return dict.fromkeys(asked.outputs, reply.text)
    if [*asked.outputs] == [TOOL_CALLS]:
        return {TOOL_CALLS: _calls_in(reply.text, cut=reply.finish_reason == "length")}
    return _written(asked, completion, reply, style)


def _written(signature: SignatureSpec, completion: Completion, reply: Choice, style: Style) -> dict[str, Any]:
    cut = f"the reply was cut at {_limit(completion)}" if reply.finish_reason == "length" else ""
    more = "; allow more tokens or ask for less" if cut else ""
    try:
        found: Found = find(signature, reply.text, json_first=style != "tags")
    except BrokenJSON as error:
        names = _named(list(signature.outputs))
        shown = _shorten(str(error))
        raise ParseError(f"{cut or 'the reply is broken JSON'}, {names} cannot be read from {shown}{more}") from None
    if cut and found.open and not whole(signature.outputs[found.open]):
        raise ParseError(f"{cut} inside {found.open!r}{more}")
    if not found.values:
        raise ParseError(
            f"{f'{cut} and' if cut else 'the reply'} has none of the fields {_named(list(signature.outputs))}: {_shorten(reply.text)}{more}"
        )
    try:
        return signature.coerce(found.values)
    except ParseError as error:
        raise ParseError(f"{cut}, {error}{more}" if cut else str(error)) from None


def _calls_in(text: str, *, cut: bool) -> list[Any]:
    """The calls that a model without tool calls of its own wrote as JSON; a text that is none calls nothing."""
    calls = []
    for name, given in calls_in(text, cut=cut):
        if name and isinstance(given, Mapping | str):
            arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            calls.append({"type": "function", "function": {"name": name, "arguments": arguments}})
    return calls


def _why_empty(signature: SignatureSpec, completion: Completion, reply: Choice) -> str:
    names = _named(list(signature.outputs))
    if reply.tool_calls:
        tools = _named([str((call.get("function") or {}).get("name", "?")) for call in reply.tool_calls])
        return (
            f"the model called tools ({tools}) and wrote no {names}; pass no tools, or give the signature an output"
            f" {TOOL_CALLS}: list[dict]"
        )
    if reply.reasoning.strip():
        if reply.finish_reason == "length":
            return f"the model only thought until its limit of {_limit(completion)} and wrote no {names}; raise max_tokens or lower the effort"
        return f"the model only thought ({len(reply.reasoning)} characters) and wrote no {names}"
    if reply.finish_reason == "length":
        return f"the reply is empty at its limit ({_limit(completion)}): no {names}; raise max_tokens"
    return f"the reply is empty (finish reason: {reply.finish_reason or 'not given'}): no {names}"


def _limit(completion: Completion) -> str:
    if completion.usage is None or len(completion.choices) != 1 or not completion.usage.output_tokens:
        return "its token limit"
    return f"{completion.usage.output_tokens} tokens"


def _named(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _shorten(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 80 else f"{text[:60]}...{text[-15:]}")
