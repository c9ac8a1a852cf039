"""Calls of tools as models write them: in the wire form, or as JSON in a text. Lenient; nothing raises."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from redraft.jsonable import as_text
from redraft.modules.fields import objects, plain_name

_LONGEST = 20_000  # characters; json-repair takes quadratic time on degenerate texts


_TOOL_KEYS = ("tool", "tool_name", "name", "action", "function", "next_tool_name")
_ARGUMENT_KEYS = (
    "arguments",
    "args",
    "parameters",
    "tool_args",
    "tool_input",
    "action_input",
    "input",
    "next_tool_args",
)


def named(tools: Collection[str], name: str) -> str:
    """The tool that a model means: by its name, or by one that differs in case, marks or a prefix if it is the only one."""
    if name in tools:
        return name
    said = _bare(name.rpartition(".")[2])
    same = [known for known in tools if _bare(known) == said]
    return same[0] if len(same) == 1 else ""


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


def calls_in(text: str, *, cut: bool = False) -> Iterator[tuple[str, Any]]:
    """The calls that stand in a text as JSON: name and arguments as they are written, "" and None where there are none. Where
    no whole call stands in it and it was not `cut`, nearly JSON is mended.
    """
    complete = False
    for found in objects(text):
        name, given = _call(found)
        complete = complete or bool(name and given is not None)
        yield name, given
    if not complete and not cut and (mended := mended_object(text)) is not None:
        yield _call(mended)


def _call(found: Mapping[str, Any]) -> tuple[str, Any]:
    """What stands in the object, or in its `action` or `function`."""
    inner: Mapping[str, Any] = next(
        (found[key] for key in ("action", "function") if isinstance(found.get(key), Mapping)), {}
    )
    flat = {plain_name(str(key)): value for key, value in {**found, **inner}.items()}
    name = next((flat[key] for key in _TOOL_KEYS if isinstance(flat.get(key), str)), "")
    return name, next((flat[key] for key in _ARGUMENT_KEYS if key in flat), None)


def arguments_of(call: Mapping[str, Any]) -> tuple[str, Any, str]:
    """Name and arguments of a call in wire form, and why the arguments cannot be read. None at all are an empty object."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    arguments, why = read_arguments(function.get("arguments"))
    return str(function.get("name") or "").strip(), arguments, why


def read_arguments(raw: Any) -> tuple[Any, str]:
    """Arguments as JSON values: of a JSON text, nearly JSON (mended), or values already. Else the text, and what is wrong."""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}, ""
    if not isinstance(raw, str):
        try:
            return json.loads(as_text(raw), parse_constant=_nothing), ""
        except (TypeError, ValueError, RecursionError) as error:
            return {}, f"the arguments are no JSON: {error}"
    try:
        value = json.loads(raw, strict=False, parse_constant=_nothing)
        if isinstance(value, str) and value.strip().startswith("{"):  # encoded twice
            value = json.loads(value, strict=False, parse_constant=_nothing)
        return _finite(value), ""
    except (ValueError, RecursionError) as error:
        mended = mended_object(raw)
        return (raw, f"the arguments are no JSON: {str(error)[:200]}") if mended is None else (mended, "")


def mended_object(text: str) -> dict[str, Any] | None:
    """The object of a text that is nearly JSON; None for what is none, or was cut: half an argument is none."""
    start = text.find("{")
    part = text[start:].strip().removesuffix("```").rstrip()
    if start < 0 or len(part) > _LONGEST or not part.endswith(("}", "]", '"', "'")):
        return None
    from json_repair import loads

    try:
        value = json.loads(json.dumps(loads(part)), parse_constant=_nothing)
    except (TypeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value else None


def _nothing(_: str) -> None:
    """NaN and infinity are no JSON: nothing is there."""


def _finite(value: Any) -> Any:
    """Numbers that were written so large that they read as infinite are none."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
