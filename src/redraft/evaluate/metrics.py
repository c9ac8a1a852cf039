"""A metric from its name: `exact:COLUMN`, a check, or a function in a Python file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from redraft.checks import Check, parse
from redraft.checks.userfile import names_of
from redraft.errors import UsageError
from redraft.evaluate.examples import Example
from redraft.types import APART, Prediction

EXACT = "exact"


class Exact:
    """True if the answer equals the example's `column`: texts but for white space around them, numbers by their value.

    The answer is the output field of that name, or else the first one.
    """

    def __init__(self, column: str) -> None:
        self.column = column
        self.__name__ = f"exact:{column}"

    def __call__(self, example: Example, prediction: Prediction) -> bool:
        """Compare."""
        wanted = example[self.column]
        outputs = {name: value for name, value in prediction.to_dict().items() if name not in APART}
        return same(outputs.get(self.column, next(iter(outputs.values()), None)), wanted)


def same(answer: Any, wanted: Any) -> bool:
    """Whether two values are one: `42` and `"42 "` are, `True` and `1` are not."""
    if type(answer) is type(wanted) and not isinstance(answer, str):
        return bool(answer == wanted)
    a, b = str(answer).strip(), str(wanted).strip()
    if a == b:
        return True
    if not any(isinstance(x, int | float) and not isinstance(x, bool) for x in (answer, wanted)):
        return False
    try:
        return float(a) == float(b)
    except ValueError:
        return False


def metric_from(spec: str) -> tuple[Callable[..., Any] | None, list[Check]]:
    """What a text names: `exact:COLUMN`, `FILE.py:NAME` (NAME may be left out for `metric`), or else a check, as on
    `--check`. A function and no checks, or the reverse.
    """
    name, _, rest = spec.partition(":")
    if name == EXACT:
        if not rest.strip():
            raise UsageError("exact needs the column that holds the right answer: exact:COLUMN")
        return Exact(rest.strip()), []
    if ".py" in spec and (found := _file_and_name(spec)) is not None:
        return function_from(*found), []
    return None, [parse(spec)]


def function_from(path: Path, name: str) -> Callable[..., Any]:
    """The function `name` of a Python file. Raises `UsageError` if there is none, `ConfigError` if the file fails."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    defined = names_of(path)
    found = defined.get(name)
    if not callable(found):
        own = [n for n, v in defined.items() if callable(v) and not n.startswith("_")]
        raise UsageError(f"{path} defines no function {name!r}; it has: {', '.join(own) or 'none'}")
    return found  # type: ignore[no-any-return]


def named_in_file(spec: str, default: str) -> Callable[..., Any]:
    """`FILE.py:NAME`, or `FILE.py` for `default`."""
    found = _file_and_name(spec, default)
    if found is None:
        raise UsageError(f"{spec!r} names no function; write FILE.py:NAME")
    return function_from(*found)


def _file_and_name(spec: str, default: str = "metric") -> tuple[Path, str] | None:
    path, colon, name = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path).expanduser(), name
    return (Path(spec).expanduser(), default) if spec.endswith(".py") else None


def check_column(metric: Any, examples: Sequence[Example]) -> None:
    """Raises `UsageError`, before anything is spent, if an example has not the column that `exact` compares with."""
    if not isinstance(metric, Exact):
        return
    for i, example in enumerate(examples):
        if metric.column not in example:
            raise UsageError(
                f"{metric.__name__}: example {i} has no column {metric.column!r}, only {', '.join(map(repr, example))}"
            )
        wanted = example[metric.column]
        if isinstance(wanted, float) and not math.isfinite(wanted):
            raise UsageError(f"{metric.__name__}: example {i} has {wanted} there, which no answer equals; mend it")
