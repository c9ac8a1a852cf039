"""Finds a signature's fields in a reply: JSON, tags, or lines that open with a field's name.

Lenient about what surrounds them and how they are written; whether a value fits is `SignatureSpec.coerce`'s business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_origin

from redraft.coerce import is_none_word, takes_none
from redraft.signature import Field, SignatureSpec

_DECODER = json.JSONDecoder(strict=False)  # small models write line breaks into strings
_TRIES = 50  # objects to look for; bounds the time that garbage takes
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_KEY = re.compile(r'(?<=[{,\s])"(\w[\w \-]{0,60})"\s{0,3}:')
# every repeat is bounded, so that garbage takes linear time
_TAG = re.compile(r"<\s{0,3}(/?)\s{0,3}([^\W\d][\w \-]{0,60}?)\s{0,3}>")


class Found(NamedTuple):
    """Field values as the reply has them, and the field that the reply's end may have cut, if there is one."""

    values: dict[str, Any]
    open: str = ""


class BrokenJSON(ValueError):  # says what it is
    """The reply is JSON that does not end, or that is no JSON at some place."""


def find(signature: SignatureSpec, text: str, *, json_first: bool) -> Found:
    """The fields that the reply has, in whatever form; for one output without any mark, the whole text is it.

    Raises `BrokenJSON` if the reply is nothing but JSON that cannot be read.
    """
    names = {plain_name(name): name for name in signature.outputs}
    found = (json_first and _in_json(signature, names, text)) or _in_tags(signature, names, text)
    if found := found or _in_json(signature, names, text):
        return found
    bare = _unfenced(text)
    if bare.startswith("{"):
        if found := _in_broken_json(names, bare):
            return found
        if next(objects(bare), None) is not None:
            return Found({})
        raise BrokenJSON(bare)
    found = _in_lines(signature, names, text)
    if not found and len(signature.outputs) == 1:
        field = next(iter(signature.outputs.values()))
        return Found({field.name: _value(field, bare)}, field.name)
    return found or Found({})


def whole(field: Field) -> bool:
    """True if a value of this type that was cut off would be noticed, or is worth having as far as it goes."""
    return field.type in (str, bool) or get_origin(field.type) is Literal


def plain_name(name: str) -> str:
    """A name without what models change in it: case, spaces, hyphens."""
    return re.sub(r"[\s_-]+", "_", name.strip()).casefold()


def _unfenced(text: str) -> str:
    text = text.strip()
    if text.startswith("```") and (match := _FENCED.match(text)) and match.end() == len(text):
        return match[1].strip()
    return text


def _value(field: Field, text: str) -> Any:
    """The text of a field, stripped; None where it says so and may."""
    text = text.strip()
    return None if field.type is not str and is_none_word(text) and takes_none(field.type) else text


# JSON


def _in_json(signature: SignatureSpec, names: Mapping[str, str], text: str) -> Found | None:
    for candidate in objects(text):
        values = {names[plain]: v for k, v in candidate.items() if (plain := plain_name(k)) in names}
        if len(names) == 1 and len(candidate) != len(values) and _is_object(signature):
            return Found(dict.fromkeys(signature.outputs, candidate))  # the value itself, without the field's name
        if values:
            return Found(values)
    return None


def _in_broken_json(names: Mapping[str, str], text: str) -> Found | None:
    """JSON whose only fault is a quote or a comma inside a text: the known keys say where each value ends."""
    if not text.endswith("}"):
        return None
    marks = [m for m in _KEY.finditer(text) if plain_name(m[1]) in names]
    values: dict[str, Any] = {}
    for i, match in enumerate(marks):
        end = marks[i + 1].start() if i + 1 < len(marks) else len(text) - 1
        part = text[match.end() : end].strip().removesuffix(",").strip()
        try:
            value = json.loads(part, strict=False)
        except (ValueError, RecursionError):
            if len(part) < 2 or part[0] != '"' or part[-1] != '"':
                return None
            value = part[1:-1].replace("\\n", "\n").replace('\\"', '"')
        values.setdefault(names[plain_name(match[1])], value)
    return Found(values) if len(values) == len(names) else None


def _is_object(signature: SignatureSpec) -> bool:
    (schema,) = signature.json_schema()["properties"].values()
    return "$ref" in schema or schema.get("type") == "object"


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that stand in a text, in order; those inside another are part of it."""
    at = text.find("{")
    for _ in range(_TRIES):
        if at < 0:
            return
        try:
            value, at_end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at_end = at + 1
        else:
            yield value
        at = text.find("{", at_end)


# tags


def _in_tags(signature: SignatureSpec, names: Mapping[str, str], text: str) -> Found | None:
    """Values between `<name>` and `</name>`; where the end is missing, up to the next field or the end of the text."""
    marks = [(m.start(), m.end(), m[1], names[p]) for m in _TAG.finditer(text) if (p := plain_name(m[2])) in names]
    values: dict[str, Any] = {}
    opened, done = "", 0
    for i, (start, end, slash, name) in enumerate(marks):
        if start < done or name in values:
            continue
        field = signature.outputs[name]
        if slash:  # an end without a start: the start was a prefill, or forgotten
            values[name], done = _value(field, text[done:start]), end
            continue
        stop, after, closed = _end_of_tag(marks[i + 1 :], name, values, len(text))
        values[name], done = _value(field, text[end:stop]), after
        opened = "" if closed else name
    if not values:
        return None
    _reasoning_before(signature, values, text[: marks[0][0]])
    return Found(values, opened)


def _end_of_tag(
    later: list[tuple[int, int, str, str]], name: str, values: Mapping[str, Any], length: int
) -> tuple[int, int, bool]:
    """Where the value ends, where to go on, and whether the tag was closed."""
    for start, end, slash, other in later:
        if other == name:
            return (start, end, True) if slash else (_first_open(later, name, values, start), start, True)
    stop = _first_open(later, name, values, length)
    return stop, stop, stop < length


def _first_open(later: list[tuple[int, int, str, str]], name: str, values: Mapping[str, Any], otherwise: int) -> int:
    return next((s for s, _, slash, o in later if not slash and o != name and o not in values), otherwise)


def _reasoning_before(signature: SignatureSpec, values: dict[str, Any], before: str) -> None:
    """A model that is asked to reason first often just does, and marks only the answer."""
    if "reasoning" in signature.outputs and "reasoning" not in values and before.strip():
        values["reasoning"] = before.strip()


# lines


def _in_lines(signature: SignatureSpec, names: Mapping[str, str], text: str) -> Found | None:
    """Values after `name:` at the start of a line, however decorated, or under a heading `## name`."""
    values: dict[str, Any] = {}
    marks = list(_labels(signature).finditer(text))
    first_of: dict[str, tuple[int, int]] = {}
    for i, match in enumerate(marks):
        end = marks[i + 1].start() if i + 1 < len(marks) else len(text)
        first_of.setdefault(names[plain_name(match[1] or match[2])], (match.end(), end))
    if not first_of:
        return None
    for name, (start, end) in first_of.items():
        values[name] = _value(signature.outputs[name], _without_fence_end(text[start:end]))
    last = max(first_of, key=lambda name: first_of[name])
    opened = last if first_of[last][1] == len(text) else ""
    _reasoning_before(signature, values, text[: marks[0].start()])
    return Found(values, opened)


def _labels(signature: SignatureSpec) -> re.Pattern[str]:
    found: re.Pattern[str] | None = signature._cache.get("labels")
    if found is None:
        words = (re.escape(name).replace("_", r"[ _\-]?") for name in signature.outputs)
        names = "|".join(sorted(words, key=len, reverse=True))
        found = signature._cache["labels"] = re.compile(
            rf"^[ \t>*\-]{{0,8}}(?:\[\[ ?)?#{{0,6}} {{0,3}}[*_`]{{0,3}}({names})[*_`]{{0,3}} {{0,3}}:[*_`]{{0,3}}"
            rf"|^ {{0,3}}(?:\[\[ ?)?#{{1,6}} {{0,3}}({names}) {{0,3}}#{{0,6}} ?(?:\]\])?[ \t]{{0,3}}$",
            re.IGNORECASE | re.MULTILINE,
        )
    return found


def _without_fence_end(text: str) -> str:
    """Without the end of a fence whose start stands before the fields."""
    return text if text.count("```") != 1 else re.sub(r"\n```[ \t]*\s*\Z", "", text)
