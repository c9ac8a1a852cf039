"""The sentence that asks a model for the form of its reply: short, and the same on every try."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin

from redraft.notation import type_name
from redraft.signature import Field, SignatureSpec

_SAYS_NOTHING = frozenset(
    {
        "answer",
        "output",
        "response",
        "reply",
        "result",
        "text",
        "completion",
        "content",
        "message",
        "prediction",
        "tool_calls",
    }
)
_WORDS = {
    str: "",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a JSON object",
}
_BY_NAME = {
    "date": "a date, YYYY-MM-DD",
    "datetime": "a date and time, YYYY-MM-DDTHH:MM:SS",
    "time": "a time, HH:MM:SS",
}


def ask(signature: SignatureSpec, style: str) -> str:
    """The request for the form; empty where the task says it all."""
    key = f"ask {style}"
    found: str | None = signature._cache.get(key)
    if found is None:
        write = {"plain": _plain, "schema": _json, "json": _asked_json, "tags": _tags}[style]
        found = signature._cache[key] = write(signature)
    return found


def _plain(signature: SignatureSpec) -> str:
    field = next(iter(signature.outputs.values()))
    words = field.name.replace("_", " ")
    if field.desc:
        return f"Reply with the {words} only: {field.desc}"
    # "topic -> review" says what to write by the output's name alone
    return "" if signature.instructions or field.name in _SAYS_NOTHING else f"Write the {words}."


def _json(signature: SignatureSpec) -> str:
    fields = signature.outputs.values()
    keys = [f'"{f.name}"' + (f" ({about})" if (about := _about(signature, f)) else "") for f in fields]
    listed = f"{', '.join(keys[:-1])} and {keys[-1]}" if len(keys) > 1 else keys[0]
    return f"Reply with JSON only, an object with the key{'s' if len(keys) > 1 else ''} {listed}."


def _asked_json(signature: SignatureSpec) -> str:
    return _json(signature) if len(signature.outputs) > 1 else _alone(signature)


def _alone(signature: SignatureSpec) -> str:
    (field,) = signature.outputs.values()
    return f"Reply with the {field.name.replace('_', ' ')} only{_colon(_about(signature, field))}"


def _tags(signature: SignatureSpec) -> str:
    fields = list(signature.outputs.values())
    if len(fields) == 1:  # a value alone needs no marks
        return _alone(signature)
    lines = (f"<{f.name}>{_about(signature, f) or '...'}</{f.name}>" for f in fields)
    return "\n".join(["Reply in this form:", *lines])


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def _about(signature: SignatureSpec, field: Field, *, nested: bool = True) -> str:
    return "; ".join(
        filter(None, (field.desc, type_words(field.type) or (_schema(signature, field) if nested else "")))
    )


def type_words(type_: Any) -> str:
    """What to write for a value of the type, in words; empty for text, and for what only a schema can say."""
    if type_ is None or type_ is type(None):
        return "null"
    if type_ in _WORDS:
        return _WORDS[type_]
    origin, args = get_origin(type_), get_args(type_)
    if origin is Literal:
        return " or ".join(str(a) for a in args)
    if type(None) in args:
        rest = [type_words(a) or ("text" if a is str else "") for a in args if a is not type(None)]
        return " or ".join([*rest, "null"]) if all(rest) else ""
    if origin in (list, set, frozenset) or (origin is tuple and args[-1:] == (...,)):
        inner = {str: "texts", int: "whole numbers", float: "numbers"}.get(args[0], "")
        return f"a list of {inner}" if inner else ""
    return _BY_NAME.get(type_name(type_), "")


def _schema(signature: SignatureSpec, field: Field) -> str:
    if field.type is str:
        return ""
    schema = signature.json_schema()
    part = {k: v for k, v in schema["properties"][field.name].items() if k != "description"}
    if "$defs" in schema and "$ref" in json.dumps(part):
        part["$defs"] = schema["$defs"]
    return f"JSON that follows {json.dumps(part, ensure_ascii=False)}"
