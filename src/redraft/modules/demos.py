"""Demos: examples that a Predict shows its model, as earlier turns of the conversation.

A demo holds JSON, so that a saved one asks for the same reply as the one that was learned. It is shown in the form that
is asked for: a text as it is, typed outputs as the JSON that the reply shall be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from redraft.errors import InputError, ParseError
from redraft.modules.forms import ask
from redraft.modules.wire import TOOL_CALLS, Style, as_json, asked_of, compose, to_text
from redraft.signature import SignatureSpec
from redraft.types import Message, Prediction

_LONG = 200


class Demo(Prediction):
    """One example: a Predict's inputs and outputs as JSON values, by name."""

    __slots__ = ("came_from",)
    came_from: str
    """A hash of the training example that it was learned from, which is not shown it; empty for one of your own."""

    def __init__(self, fields: Mapping[str, Any] | None = None, /, *, came_from: str = "", **more: Any) -> None:
        super().__init__(fields, **more)
        object.__setattr__(self, "came_from", came_from)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self.to_dict(), self.came_from))


def _rebuilt(fields: dict[str, Any], came_from: str) -> Demo:
    return Demo(fields, came_from=came_from)


def as_demos(signature: SignatureSpec, given: Iterable[Any]) -> tuple[Demo, ...]:
    """Demos for a signature from mappings, Predictions, Examples (DSPy's, too). Each has all inputs that are required and
    all outputs, of their types; what is no field is left out. Raises `InputError` that names the demo.
    """
    things = list(given)
    if things and TOOL_CALLS in signature.outputs:
        raise InputError(f"calls of tools are not shown as demos: the signature has the output {TOOL_CALLS!r}")
    return tuple(_demo(signature, i, thing) for i, thing in enumerate(things))


def _demo(signature: SignatureSpec, i: int, thing: Any) -> Demo:
    fields = _fields(thing)
    if fields is None:
        raise InputError(
            f"demo {i} is {thing!r:.80}; give a mapping of the fields, e.g. {dict.fromkeys(_names(signature), '...')}"
        )
    try:
        inputs = signature.bind({name: fields[name] for name in signature.inputs if name in fields})
        outputs = signature.coerce(fields)
        values = {name: _json(value, name) for name, value in inputs.items()}
        values |= {
            name: _json(value, name, typed=signature.outputs[name].type is not str) for name, value in outputs.items()
        }
    except (InputError, ParseError) as error:
        raise InputError(f"demo {i}: {error}") from error
    if signature.plain and not str(outputs[next(iter(outputs))]).strip():
        raise InputError(f"demo {i}: the output {next(iter(outputs))!r} is empty, which is no reply")
    return Demo(values, came_from=getattr(thing, "came_from", "") if isinstance(thing, Demo) else "")


def _fields(thing: Any) -> dict[str, Any] | None:
    for to_dict in ("to_dict", "toDict"):
        if callable(made := getattr(thing, to_dict, None)):
            return dict(made())
    return dict(thing) if isinstance(thing, Mapping) else None


def _names(signature: SignatureSpec) -> tuple[str, ...]:
    return (*signature.inputs, *signature.outputs)


def _json(value: Any, name: str, *, typed: bool = False) -> Any:
    """The value as JSON: an input as a prompt shows it, a typed output as its JSON schema has it."""
    if isinstance(value, Prediction):
        return to_text(value, name)
    try:
        return json.loads(json.dumps(value, default=_typed if typed else as_json, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{name!r} of type {type(value).__name__} has no JSON form: {error}") from error


def _typed(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)  # the order of a set differs between processes; prompts are keys
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def shown(
    signature: SignatureSpec, demos: Sequence[Demo], style: Style, messages: tuple[Message, ...], *, after: int
) -> tuple[Message, ...]:
    """The messages with the demos as turns after the first `after` of them, which are instructions."""
    return (*messages[:after], *_turns(asked_of(signature), demos, style), *messages[after:])


def _turns(signature: SignatureSpec, demos: Sequence[Demo], style: Style) -> Iterator[Message]:
    form = ask(signature, style)
    # The same words as in the request itself, as small models follow a form that they have seen; a long one is said once.
    form = form if len(form) <= _LONG else ""
    bare = signature.with_instructions("")
    for demo in demos:
        if lacking := [name for name in (*signature.inputs, *signature.outputs) if name not in demo]:
            raise InputError(f"a demo has no field {lacking[0]!r}: the signature was changed after it; set demos again")
        inputs = {name: demo[name] for name in signature.inputs}
        yield from compose(bare, inputs, style=style, form=form)
        yield {"role": "assistant", "content": reply(signature, demo, style)}


def reply(signature: SignatureSpec, demo: Mapping[str, Any] | Prediction, style: Style) -> str:
    """What a model would have written in this style: `parse` gives the outputs again."""
    values = {name: demo[name] for name in signature.outputs}
    if style == "schema" or (style == "json" and len(values) > 1):
        return json.dumps(values, ensure_ascii=False)
    if len(values) == 1:
        return to_text(next(iter(values.values())))
    return "\n".join(f"<{name}>{to_text(value)}</{name}>" for name, value in values.items())
