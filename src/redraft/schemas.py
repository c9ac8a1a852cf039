"""JSON schemas as validators. What a `$ref` names outside of its schema is never fetched: a schema may be a stranger's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from redraft.errors import InputError, UsageError
from redraft.linear import is_linear, linear, matcher


def validator(schema: Mapping[str, Any], what: str) -> Any:
    """A validator of the schema, by jsonschema. Raises `InputError`, which begins with `what`, if it is no schema."""
    from jsonschema import SchemaError, validators
    from jsonschema_specifications import REGISTRY

    kind = validators.validator_for(schema)
    if is_linear():
        if '"patternProperties"' in json.dumps(schema, default=str):  # jsonschema matches those in several places
            raise InputError(f"{what}: patternProperties is not taken of strangers; name the properties")
        kind = validators.extend(kind, {"pattern": _pattern})
    try:
        kind.check_schema(schema)
    except (SchemaError, AttributeError, TypeError) as error:
        raise InputError(f"{what}: this is no valid JSON schema: {getattr(error, 'message', error)}") from error
    return kind(schema, registry=REGISTRY)  # without a registry of its own it would fetch http and file addresses


def faults(held: Any, value: Any) -> list[Any]:
    """Where a value breaks the validator's schema, in the order of the places. Raises `UsageError` for a `$ref` that
    leads nowhere.
    """
    from referencing.exceptions import Unresolvable

    try:
        return sorted(held.iter_errors(value), key=lambda e: list(map(str, e.absolute_path)))
    except Unresolvable as error:
        raise UsageError(
            f"the JSON schema refers to {error.ref!r}, which is not in it, and nothing is fetched: write that part into "
            "its $defs"
        ) from error
    except RecursionError as error:
        raise UsageError(
            "the JSON schema refers to itself without end: a $ref has to lead into a part of the value"
        ) from error


def _found(pattern: str, text: str) -> bool:
    with linear():
        return bool(matcher(re.compile(pattern)).search(text))


def _pattern(held: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
    del schema
    from jsonschema import ValidationError

    if held.is_type(value, "string") and not _found(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")
