"""From a model's words to typed values, and from types to a JSON schema.

pydantic judges every value; this module only brings text closer to what it takes: "Yes." for a bool, bullets for a
list. What still does not fit is reported with the type and the value, never replaced.
"""

from __future__ import annotations

import ast
import json
import re
import types as pytypes
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from redraft.errors import ParseError, SignatureError
from redraft.notation import type_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from redraft.signature import Field, SignatureSpec

_SHOWN = 80
_NONE_WORDS = frozenset({"none", "null", "n/a", "nil"})
_WRAPPING = " \t\r\n\"'`*"
_BULLET = re.compile(r"[ \t]*(?:[-*•+]|\(?\d{1,3}[.)])[ \t]+(?=\S)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*)```", re.DOTALL)
_MAPPINGS = (dict, Mapping)
_LISTS = (list, tuple, set, frozenset, Sequence, AbstractSet)


def coerce(spec: SignatureSpec, raw: Mapping[str, Any]) -> dict[str, Any]:
    """What `SignatureSpec.coerce` promises."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field in spec.outputs.values():
        if field.name not in raw:
            problems.append(f"{field.name!r} ({type_name(field.type)}) is missing")
            continue
        value, problem = _read(spec, field, raw[field.name])
        values[field.name] = value
        if problem:
            problems.append(problem)
    if problems:
        raise ParseError(f"{len(problems)} of {len(spec.outputs)} fields cannot be used: {'; '.join(problems)}")
    return values


def _read(spec: SignatureSpec, field: Field, value: Any) -> tuple[Any, str]:
    if field.type is str:  # no pydantic for what needs none
        value = _as_text(value)
        return value, "" if isinstance(value, str) else f"{field.name!r} should be str, got {shorten(value)}"
    fits = _adapter(spec, field).validate_python
    # two tries: what fits as it is must not be bent ("a, b" is a fine str | list[str])
    for bend in (_unchanged, loosen):
        try:
            return fits(bend(field.type, value)), ""
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            problem = error
    return None, f"{field.name!r} should be {type_name(field.type)}, got {shorten(value)}{_detail(problem, value)}"


def _unchanged(_: Any, value: Any) -> Any:
    return value


def shorten(value: Any) -> str:
    """A value as an error message shows it."""
    text = repr(value)
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN - 20]}...{text[-12:]} ({len(text)} characters)"


def _detail(error: Exception, value: Any) -> str:
    errors: Callable[..., list[Any]] | None = getattr(error, "errors", None)
    if errors is None or not isinstance(value, dict | list):
        return ""
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f" ({place}: {first['msg']})" if place else f" ({first['msg']})"


def _adapter(spec: SignatureSpec, field: Field) -> TypeAdapter[Any]:
    adapters: dict[str, TypeAdapter[Any]] = spec._cache.setdefault("adapters", {})
    if (found := adapters.get(field.name)) is None:
        found = adapters[field.name] = _new_adapter(field.type, field.name)
    return found


def _new_adapter(type_: Any, name: str) -> TypeAdapter[Any]:
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(type_)
    except (PydanticUserError, TypeError, NameError) as error:
        raise SignatureError(
            f"the output {name!r} cannot have the type {type_name(type_)}: {str(error).splitlines()[0]}"
            " Use plain types, a dataclass, an enum or a pydantic model"
        ) from error


# from text


def takes_none(type_: Any) -> bool:
    """True if None is a value of the type."""
    return type_ is None or type_ is type(None) or any(takes_none(arg) for arg in _alternatives(type_))


def is_none_word(text: str) -> bool:
    """True for the words that models write where there is no value."""
    return text.strip(_WRAPPING + ".").casefold() in _NONE_WORDS


def _alternatives(type_: Any) -> tuple[Any, ...]:
    return get_args(type_) if get_origin(type_) in (Union, pytypes.UnionType) else ()


def _as_text(value: Any) -> Any:
    """A number where text was asked for is its own text; anything else stays what it is."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def loosen(type_: Any, value: Any) -> Any:
    """The value brought closer to the type; unchanged where nothing is known to help."""
    if hasattr(type_, "__metadata__"):  # Annotated
        return loosen(get_args(type_)[0], value)
    if alternatives := _alternatives(type_):
        return _loosen_union(alternatives, value)
    origin = get_origin(type_) or type_
    if origin is str:
        return _as_text(value)
    if origin is Literal:
        return _one_of({str(option): option for option in get_args(type_)}, value)
    if isinstance(origin, type) and issubclass(origin, Enum):
        return _one_of({**{m.name: m for m in origin}, **{str(m.value): m for m in origin}}, value)
    if origin in _LISTS:
        return _loosen_list(origin, get_args(type_), value)
    if origin in _MAPPINGS:
        return _loosen_dict(get_args(type_), value)
    if not isinstance(value, str):
        return value
    if origin in (bool, int, float) or getattr(origin, "__module__", "") == "decimal":
        text = value.strip(_WRAPPING).rstrip(".!").strip(_WRAPPING)
        return text.replace(",", "") if origin is not bool and _THOUSANDS.fullmatch(text) else text
    # dates and the like take a bare word; models, dataclasses and so on are written as JSON
    return _decode(value, value.strip(_WRAPPING).rstrip("."))


def _loosen_union(alternatives: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, str) and is_none_word(value) and type(None) in alternatives:
        return None
    others = [a for a in alternatives if a is not type(None)]
    if len(others) == 1:
        return loosen(others[0], value)
    for other in others:
        loosened = loosen(other, value)
        try:
            return _bare_adapter(other).validate_python(loosened)
        except (ValueError, TypeError):
            continue
    return value


@lru_cache(maxsize=256)
def _bare_adapter(type_: Any) -> TypeAdapter[Any]:
    return _new_adapter(type_, "value")


def _one_of(options: Mapping[str, Any], value: Any) -> Any:
    said = str(value).strip(_WRAPPING + ".!").casefold()
    same = list({id(o): o for name, o in options.items() if name.casefold() == said}.values())
    return same[0] if len(same) == 1 else value


def _loosen_list(origin: Any, args: tuple[Any, ...], value: Any) -> Any:
    items = split_items(value) if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        return value
    if origin is tuple and args and args[-1] is not ...:
        return [loosen(t, v) for t, v in zip(args, items, strict=True)] if len(args) == len(items) else items
    return [loosen(args[0], item) for item in items] if args else items


def split_items(text: str) -> Any:
    """The items of a list that was written as text: JSON, bullets, lines, or commas. Unchanged if it is none of them."""
    decoded = _decode(text, None)
    if isinstance(decoded, list | tuple):
        return list(decoded)
    if text.lstrip()[:1] in ("[", "{"):  # a list that was cut off, or one without quotes
        text = text.strip()
        if not text.startswith("[") or not text.endswith("]"):
            return text
        text = text[1:-1]
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if any(_BULLET.match(line) for line in lines):
        return _bullets(lines)
    if len(lines) > 1:
        return [line.strip().rstrip(",").strip("\"'` ") for line in lines]
    parts = [part.strip().strip("\"'`") for part in text.split(",")]
    return parts if all(parts) else text


def _bullets(lines: list[str]) -> Any:
    if not _BULLET.match(lines[0]) and lines[0].endswith(":"):
        lines = lines[1:]  # "Here are the tags:"
    items: list[str] = []
    for line in lines:
        if match := _BULLET.match(line):
            items.append(line[match.end() :])
        elif items:
            items[-1] += "\n" + line.strip()
        else:  # text before the first bullet is neither an item nor an introduction
            return "\n".join(lines)
    return items


def _loosen_dict(args: tuple[Any, ...], value: Any) -> Any:
    decoded = _decode(value, value) if isinstance(value, str) else value
    if not isinstance(decoded, Mapping) or len(args) != 2:
        return decoded
    return {loosen(args[0], k): loosen(args[1], v) for k, v in decoded.items()}


def _decode(text: str, otherwise: Any) -> Any:
    """The list or object that the text holds as JSON or as a Python literal, fenced or not; else `otherwise`."""
    text = text.strip()
    if match := _FENCE.fullmatch(text):
        text = match[1].strip()
    if text[:1] not in ("[", "{"):
        return otherwise
    for reader in (json.loads, ast.literal_eval):
        try:
            return reader(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return otherwise


# to a schema


def json_schema(spec: SignatureSpec) -> dict[str, Any]:
    """What `SignatureSpec.json_schema` promises."""
    typed = [(f.name, "validation", _adapter(spec, f)) for f in spec.outputs.values() if f.type is not str]
    found: dict[Any, Any] = {}
    definitions: dict[str, Any] = {}
    if typed:
        from pydantic import PydanticUserError, TypeAdapter

        try:
            found, rest = TypeAdapter.json_schemas(typed)  # type: ignore[arg-type]  # a str is a Literal here
        except PydanticUserError as error:
            raise SignatureError(f"no JSON schema for the outputs of {spec.name}: {error}") from error
        definitions = {name: _strict(part) for name, part in rest.get("$defs", {}).items()}
    properties = {}
    for field in spec.outputs.values():
        part = {"type": "string"} if field.type is str else _strict(found[field.name, "validation"])
        if field.desc:
            part = {**_inlined(part, definitions), "description": field.desc}
        properties[field.name] = part
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return schema | ({"$defs": definitions} if definitions else {})


def _inlined(part: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Strict modes refuse a `$ref` with a description beside it: the definition itself takes its place."""
    reference = part.get("$ref", "")
    return dict(definitions[reference.removeprefix("#/$defs/")]) if reference else part


def _strict(schema: Any) -> Any:
    """The schema without what strict modes refuse: optional properties, open objects, defaults; titles are noise."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, part in schema.items():
        if key in ("title", "default", "uniqueItems", "discriminator"):
            continue
        if key in ("properties", "$defs"):
            kept[key] = {name: _strict(inner) for name, inner in part.items()}
        elif key in ("enum", "const", "examples"):
            kept[key] = part
        else:
            # alternatives that exclude each other are not supported; pydantic tells them apart afterwards
            kept["anyOf" if key == "oneOf" else key] = _strict(part)
    if "properties" in kept:
        kept["required"] = [*kept["properties"]]
        kept.setdefault("additionalProperties", False)
    return kept
