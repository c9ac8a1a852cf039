"""What each model refused: dropped once, remembered in the process, said. Which form a run asks for goes by its own record,
so that it replays alike.

What may be left out: an optional parameter, one value of one, or a schema's keyword that only narrows it (what comes
back is judged all the same). A grammar, a tool or a whole schema is never left out in silence.

A complaint of a schema that names no keyword says nothing of other schemas: it is remembered for that one alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from redraft.errors import UnsupportedError
from redraft.frame import current_frame
from redraft.journal import Journal
from redraft.protocols import LM
from redraft.record import digest
from redraft.types import Choice, Completion, Request

OPTIONAL = frozenset({"temperature", "top_p", "seed", "logprobs", "effort", "stop"})
"""Parameters that are dropped when a model refuses them. Where a stop is not taken, the reply is cut here."""

PASSED_ON = frozenset({"parallel_tool_calls"})
"""The same for fields of `Request.extra`."""

DROPPABLE = frozenset(
    [
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "unevaluatedItems",
        "dependentRequired",
        "dependentSchemas",
        "if",
        "then",
        "else",
        "not",
        "default",
        "title",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentEncoding",
        "contentMediaType",
        "discriminator",
        "$schema",
        "$id",
        "$comment",
        "$ref",
    ]
)
"""Schema keywords that a schema can lose and still say what is asked. `$ref` is written out, not lost."""

THIS_SCHEMA = "this schema"
"""The part that a model complains of when it names no keyword."""

_OF_NAMES = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_OF_VALUES = ("enum", "const", "default", "examples", "example", "required")

_refused: dict[str, set[str]] = defaultdict(set)
_by_run: WeakKeyDictionary[Journal, dict[str, set[str]]] = WeakKeyDictionary()


def refuses(lm: LM, parameter: str) -> bool:
    """True if this model refused the parameter before, as far as this run knows: a resumed run goes by its record."""
    return parameter in refused_in_run(lm)


def remember_refusal(lm: LM, parameter: str) -> None:
    """From now on this model is not sent the parameter. A part of one is named as `droppable` does."""
    refused_in_run(lm).add(parameter)
    _refused[_who(lm)].add(parameter)


def refused_by(lm: LM) -> frozenset[str]:
    """Everything that this model refused in this process."""
    return frozenset(_refused.get(_who(lm), ()))


def refused_in_run(lm: LM) -> set[str]:
    """What this model refused, as far as this run knows."""
    frame, who = current_frame(), _who(lm)
    if frame is None:
        return _refused[who]
    journal = frame.run.journal
    known = _by_run.setdefault(journal, {})
    if who not in known:
        old = journal.recorded("refused", who)
        known[who] = set(old.data["parameters"]) if old else set() if journal.resumed else {*_refused[who]}
        if known[who]:
            journal.note("refused", key=who, parameters=sorted(known[who]))
    return known[who]


def _who(lm: LM) -> str:
    """The model, and where it is if it says so: what one server refuses another of the same model may take."""
    address = getattr(lm, "address", "")
    return f"{lm.name} at {address}" if address else lm.name


def droppable(error: UnsupportedError, sent: Request) -> tuple[str, ...]:
    """What of a refused request can be left out on the next try, as it is remembered; empty if the refusal stands.

    A parameter by its name, one value as `effort=minimal`, a schema's keyword as `schema.pattern`, all that one schema can
    lose as `bare` and its digest.
    """
    name = error.parameter
    if name == "schema":
        used = keywords(sent.schema)
        if THIS_SCHEMA in error.parts:
            return (_bare(sent.schema),) if used else ()
        return tuple(f"schema.{part}" for part in error.parts if part in used)
    if name == "effort" and error.parts:
        return (f"effort={sent.effort}",) if sent.effort in error.parts else ()
    was_sent = name in sent.extra if name in PASSED_ON else getattr(sent, name, None) not in (None, ())
    return (name,) if was_sent and (name in OPTIONAL or name in PASSED_ON) else ()


def without_refused(lm: LM, request: Request) -> Request:
    """The request without what this model refuses, as far as it can be left out."""
    refused = refused_by(lm)
    if not refused:
        return request
    changes: dict[str, Any] = {name: () if name == "stop" else None for name in refused & OPTIONAL}
    if f"effort={request.effort}" in refused:
        changes["effort"] = None
    if dropped := refused & PASSED_ON & request.extra.keys():
        changes["extra"] = {k: v for k, v in request.extra.items() if k not in dropped}
    words = {name.partition(".")[2] for name in refused if name.startswith("schema.")}
    if request.schema is not None:
        schema = without(request.schema, words) if words else request.schema
        changes["schema"] = without(schema, DROPPABLE) if _bare(schema) in refused else schema
    return request.but(**changes) if changes else request


def _bare(schema: Any) -> str:
    return f"bare {digest(schema)}"


def as_asked(completion: Completion, request: Request, sent: Request) -> Completion:
    """The reply as if the model had taken what was left out: cut at the first stop."""
    if not request.stop or sent.stop:
        return completion
    return replace(completion, choices=tuple(_stopped(choice, request.stop) for choice in completion.choices))


def _stopped(choice: Choice, stops: Collection[str]) -> Choice:
    ends = [at for stop in stops if stop and (at := choice.text.find(stop)) >= 0]
    return replace(choice, text=choice.text[: min(ends)], finish_reason="stop") if ends else choice


def keywords(schema: Any) -> set[str]:
    """The keywords of a schema, at any depth, that can be left out."""
    if isinstance(schema, list | tuple):
        return {word for part in schema for word in keywords(part)}
    if not isinstance(schema, Mapping):
        return set()
    found: set[str] = {*(DROPPABLE & schema.keys())}
    for key, value in schema.items():
        if key in _OF_NAMES and isinstance(value, Mapping):
            found |= keywords([*value.values()])
        elif key not in _OF_VALUES:
            found |= keywords(value)
    return found


def without(schema: Mapping[str, Any], words: Collection[str]) -> dict[str, Any]:
    """The schema without these keywords. For `$ref`, what is referred to is written out; where that recurs, anything
    goes.
    """
    places = ("$defs", "definitions")
    defs = {f"#/{place}/{name}": part for place in places for name, part in (schema.get(place) or {}).items()}
    gone = {*words, *places} if "$ref" in words else {*words}
    plain: dict[str, Any] = _without(schema, gone, defs if "$ref" in words else {}, ())
    return plain


def _without(part: Any, gone: Collection[str], defs: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(part, list | tuple):
        return [_without(p, gone, defs, inside) for p in part]
    if not isinstance(part, Mapping):
        return part
    while "$ref" in gone and isinstance(ref := part.get("$ref"), str):
        target = {} if ref in inside else defs.get(ref, {})
        part, inside = {**target, **{k: v for k, v in part.items() if k != "$ref"}}, (*inside, ref)
    kept: dict[str, Any] = {}
    for key, value in part.items():
        if key in gone:
            continue
        if key in _OF_NAMES and isinstance(value, Mapping):
            kept[key] = {name: _without(v, gone, defs, inside) for name, v in value.items()}
        else:
            kept[key] = value if key in _OF_VALUES else _without(value, gone, defs, inside)
    return kept
