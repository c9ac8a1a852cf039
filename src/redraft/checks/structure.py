"""Checks on structured output."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from redraft.checks.base import Check
from redraft.errors import UsageError
from redraft.jsonable import plain

_LONGEST = 160
_SHOWN = 3  # errors named in an explanation: more only confuse


class JsonSchema(Check):
    """The draft (or field) is JSON that follows a schema."""

    name = "json_schema"

    def __init__(self, schema: Any, **options: Any) -> None:
        super().__init__(**options)
        self.schema: Mapping[str, Any] = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
        if not isinstance(self.schema, Mapping):
            raise UsageError(f"json_schema({schema!r}): give a JSON schema as a dict, or a pydantic model")
        from jsonschema import SchemaError, validators

        kind = validators.validator_for(self.schema)
        try:
            kind.check_schema(self.schema)
        except SchemaError as error:
            raise UsageError(f"json_schema: this is no valid JSON schema: {error.message}") from error
        self._validator = kind(self.schema)

    def tell_text(self) -> str:
        """See `Check`."""
        schema = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        return f"Answer with JSON alone, following this schema: {schema}"

    def judge(self, value: Any) -> tuple[float, str]:
        """0 for what is not JSON; above a half for JSON, less the more places break the schema."""
        if isinstance(value, str):
            try:
                value = json.loads(value, parse_constant=_no_number)
            except (ValueError, RecursionError) as error:
                return 0.0, f"not JSON: {error}"
        elif not isinstance(value, bool | int | float | None):
            value = json.loads(json.dumps(value, default=plain))
        if not _finite(value):
            return 0.0, "not JSON: a number is too large"
        problems = sorted(self._validator.iter_errors(value), key=lambda e: list(map(str, e.absolute_path)))
        if not problems:
            return 1.0, ""
        shown = "; ".join(f"{e.json_path}: {_brief(e)}" for e in problems[:_SHOWN])
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        return 0.5 + 0.5 / (1 + len(problems)) - 0.01, shown + more


def _brief(error: Any) -> str:
    """What is wrong without the draft in it: an explanation may become a hint, and a hint never shows the draft."""
    return str(error.message).replace(repr(error.instance), "the value")[:_LONGEST]


def _finite(value: Any) -> bool:
    """False if a number in it was written so large that it reads as infinite."""
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def json_schema(schema: Any, **options: Any) -> JsonSchema:
    """The draft is JSON following `schema` (a dict or a pydantic model). Options: `field`, `hard`, `tell`."""
    return JsonSchema(schema, **options)
