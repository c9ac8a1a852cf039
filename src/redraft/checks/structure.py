"""Checks on structured output: JSON, JSON under a schema, one number.

What `fix` may mend (a code fence, prose around the answer, broken quotes and commas) a guard lets go on: it only stops
a text that nothing can save any more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from redraft.checks.base import Check, Guard
from redraft.checks.constraint import Constraint
from redraft.checks.mend import as_json, load, values_in
from redraft.errors import UsageError
from redraft.jsonable import plain
from redraft.schemas import faults, validator
from redraft.scoring import is_number

_LONGEST = 160
_SHOWN = 3  # errors named in an explanation: more only confuse
_DOOMED = 200  # characters of prose without a bracket: this is no answer in JSON with a word before it


class JsonValid(Check):
    """The draft (or field) is JSON, and nothing else."""

    name = "json_valid"

    def tell_text(self) -> str:
        """See `Check`."""
        return "Answer with JSON alone."

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return Constraint(schema={"type": ["object", "array"]})

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return "fail" if _never_json(prefix) else "unknown"

    def judge(self, value: Any) -> tuple[float, str]:
        """Half the credit where the JSON has something around it."""
        _, why = _read(value)
        if not why:
            return 1.0, ""
        return (0.5 if isinstance(value, str) and values_in(value, 2) else 0.0), why

    def fix(self, value: Any) -> Any:
        """See `Check`."""
        if not isinstance(value, str) or not _read(value)[1]:
            return None
        return next(iter(as_json(value)), None)


class JsonSchema(Check):
    """The draft (or field) is JSON that follows a schema."""

    name = "json_schema"

    def __init__(self, schema: Any, **options: Any) -> None:
        super().__init__(**options)
        self.schema: Mapping[str, Any] = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
        if not isinstance(self.schema, Mapping):
            raise UsageError(f"json_schema({schema!r}): give a JSON schema as a dict, or a pydantic model")
        self._validator = validator(self.schema, "json_schema")

    def tell_text(self) -> str:
        """See `Check`."""
        schema = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        return f"Answer with JSON alone, following this schema: {schema}"

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return Constraint(schema=self.schema)

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return "fail" if _never_json(prefix) else "unknown"

    def judge(self, value: Any) -> tuple[float, str]:
        """0 for what is not JSON; above a half for JSON, less the more places break the schema."""
        value, why = _read(value)
        if why:
            return 0.0, why
        problems = faults(self._validator, value)
        if not problems:
            return 1.0, ""
        shown = "; ".join(f"{e.json_path}: {_brief(e)}" for e in problems[:_SHOWN])
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        return 0.5 + 0.5 / (1 + len(problems)) - 0.01, shown + more

    def fix(self, value: Any) -> Any:
        """The one value in the text that follows the schema best, without what stands around it. A key that is missing stays
        missing; a value of another type than the schema's own is a fragment of something else.
        """
        if not isinstance(value, str) or not _read(value)[1]:
            return None
        scored = [(self.judge(text)[0], text) for text in as_json(value, several=True) if self._of_its_type(text)]
        best = max(scored, default=(0.0, None), key=lambda pair: pair[0])
        alone = sum(score == best[0] for score, _ in scored) == 1
        return best[1] if alone else None

    def _of_its_type(self, text: str) -> bool:
        return not any(_foreign(error) for error in faults(self._validator, _read(text)[0]))


class Number(Check):
    """The draft (or field) is one number."""

    name = "number"

    def __init__(
        self, low: float | None = None, high: float | None = None, *, integer: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        bounds = [bound for bound in (low, high) if bound is not None]
        if not all(map(is_number, bounds)) or bounds != sorted(bounds):
            raise UsageError(f"number({low!r}, {high!r}): give finite numbers with low <= high, or None for no bound")
        self.low, self.high, self.integer = low, high, integer

    def tell_text(self) -> str:
        """See `Check`."""
        return f"Answer with one {self._want()}, in digits, and nothing else."

    def _want(self) -> str:
        kind = "whole number" if self.integer else "number"
        if self.low is not None and self.high is not None:
            return f"{kind} from {self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"{kind} of at least {self.low:g}"
        return kind if self.high is None else f"{kind} of at most {self.high:g}"

    def constraint(self) -> Constraint | None:
        """See `Check`. A range of some hundred whole steps is held exactly, any other by form alone."""
        return Constraint(f"/{'|'.join(_spelled(self.low, self.high, integer=self.integer))}/", bounded=True)

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        if _BEGUN.fullmatch(prefix.strip()):
            return "unknown"
        if len(prefix) > _DOOMED:
            return "fail"
        over = [run for run in _RUN.finditer(prefix) if run.end() < len(prefix) and re.search(r"\d", run.group())]
        return "fail" if len(over) > 1 else "unknown"

    def judge(self, value: Any) -> tuple[float, str]:
        """Half the credit for a number that breaks the bounds, a quarter where it has text around it."""
        text = value.strip() if isinstance(value, str) else str(value)
        if isinstance(value, bool) or not _NUMBER.fullmatch(text):
            return (0.25 if _only_number(text) else 0.0), f"this is not one number alone; want one {self._want()}"
        number = Decimal(text)
        if self.integer and ("." in text or number != number.to_integral_value()):
            return 0.5, "the number is not a whole number in digits alone"
        if self.low is not None and number < Decimal(repr(self.low)):
            return 0.5, f"the number is below {self.low:g}"
        if self.high is not None and number > Decimal(repr(self.high)):
            return 0.5, f"the number is above {self.high:g}"
        return 1.0, ""

    def fix(self, value: Any) -> Any:
        """The number of a text that holds exactly one."""
        found = _only_number(value) if isinstance(value, str) else ""
        if self.integer:
            found = re.sub(r"\.0+$", "", found)
        return found if found and self.judge(found)[0] > self.judge(value)[0] else None


_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_BEGUN = re.compile(r"[+-]?[0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{0,3})?")
_RUN = re.compile(r"[\d.,eE+]+")
# Not from inside a word, a version or a date; "1,234" may mean either of two numbers and is neither here.
_INSIDE = re.compile(r"(?<![\w.,])(?:(?<![\d)])[+-])?[0-9]{1,40}(?:\.[0-9]{1,40})?(?![\w]|[.,]\d)")
_MINUS = str.maketrans({"\u2212": "-"})
_STEPS = 300


def _foreign(error: Any) -> bool:
    """True if a value as a whole is of no type that the schema allows, whichever of its branches is taken."""
    if error.path:
        return False
    if error.validator not in ("anyOf", "oneOf"):
        return error.validator in ("type", "enum", "const")
    branches: dict[Any, bool] = {}
    for inner in error.context:
        branch = inner.schema_path[0]
        branches[branch] = branches.get(branch, False) or _foreign(inner)
    return bool(branches) and all(branches.values())


def _only_number(text: str) -> str:
    text = text.translate(_MINUS)
    found = list(_INSIDE.finditer(text))
    alone = len(found) == 1 and not re.search(r"\d", text[: found[0].start()] + text[found[0].end() :])
    return found[0].group() if alone else ""


def _spelled(low: float | None, high: float | None, *, integer: bool) -> Iterator[str]:
    """Regexes of the numbers in a range."""
    fraction = "" if integer else r"(\.[0-9]{1,6})?"
    if low is None or high is None or high - low > _STEPS or (low < 0 and not integer):
        yield f"{'-?' if low is None or low < 0 else ''}[0-9]{{1,12}}{fraction}"
        return
    first, last = math.ceil(low), math.floor(high)
    for whole in range(first, last + 1):
        yield f"{whole}{'' if whole == last else fraction}"
    if first > last:  # such as 0.2 to 0.8
        yield f"{last}{fraction}"


def _read(value: Any) -> tuple[Any, str]:
    """The value that a text in JSON holds (others are values already), and why there is none."""
    if isinstance(value, str):
        try:
            value = load(value)
        except (ValueError, RecursionError) as error:
            fenced = value.lstrip().startswith(("```", "~~~"))
            return None, "not JSON: a code fence stands around it" if fenced else f"not JSON: {error}"
    elif not isinstance(value, bool | int | float | None):
        value = json.loads(json.dumps(value, default=plain))
    return (value, "") if _finite(value) else (None, "not JSON: a number is too large")


def _brief(error: Any) -> str:
    """What is wrong without the draft in it: an explanation may become a hint, and a hint never shows the draft."""
    return str(error.message).replace(repr(error.instance), "the value")[:_LONGEST]


def _finite(value: Any) -> bool:
    """False if a number in it was written so large that it reads as infinite."""
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _never_json(prefix: str) -> bool:
    """True for prose that went on so long without a bracket that `fix` will find no JSON in it either."""
    text = prefix.lstrip(" \t\r\n")
    return len(text) > _DOOMED and text[0] not in '{["-0123456789' and not re.search(r"[{\[`~]", text)


def json_valid(**options: Any) -> JsonValid:
    """The draft is JSON and nothing else. Options: `field`, `hard`, `tell`."""
    return JsonValid(**options)


def json_schema(schema: Any, **options: Any) -> JsonSchema:
    """The draft is JSON following `schema` (a dict or a pydantic model). Options: `field`, `hard`, `tell`."""
    return JsonSchema(schema, **options)


def number(low: float | None = None, high: float | None = None, *, integer: bool = False, **options: Any) -> Number:
    """The draft is one number: `number(0, 10)`, `number(integer=True)`. Options: `field`, `hard`, `tell`."""
    return Number(low, high, integer=integer, **options)
