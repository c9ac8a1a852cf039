"""What user code returns, as values: a module's output as a Prediction, a reward's or check's as a Score."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from redraft.errors import ScoreError
from redraft.jsonable import plain
from redraft.sync import call_user
from redraft.types import Attempt, Prediction, Score

_VALUES = (str, bytes, list, tuple, set, int, float)


def as_prediction(value: Any) -> Prediction:
    """A module's return value as a Prediction: a mapping's or model's fields, or one field `answer`."""
    if isinstance(value, Prediction):
        return value
    if value is None:
        raise ValueError("the module returned None; return a Prediction, a dict of output fields, or the answer itself")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise ValueError("the module returned a generator; join its pieces and return the text")
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a NamedTuple
        return Prediction(value._asdict())
    fields = None if isinstance(value, _VALUES) else plain(value)
    return Prediction(fields) if isinstance(fields, dict) else Prediction(answer=value)


def as_score(value: Any, name: str) -> Score:
    """What a reward function returned as a Score: a number, a bool, `(number, "feedback")`, a Score, or an object with
    `score` and `feedback`. Raises `ScoreError` naming the function for anything else; NaN is an error, not a zero.
    """
    if isinstance(value, Score):
        return value
    feedback = ""
    if isinstance(value, tuple) and len(value) == 2:
        value, feedback = value
    elif hasattr(value, "score"):
        value, feedback = value.score, getattr(value, "feedback", "")
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        raise ScoreError(
            f"{name} returned {value!r} as a score; return a finite number (higher is better), "
            '(number, "feedback"), or a Score'
        )
    return Score(value=float(value), feedback=str(feedback or ""))


def is_number(value: Any) -> bool:
    """True for a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def rank(attempt: Attempt) -> tuple[int, float]:
    """Sort key of attempts, higher is better: fewer hard failures first, then the score; unjudged ones last."""
    return (-1_000_000, 0.0) if attempt.score is None else attempt.score.rank


def name_of(thing: Any) -> str:
    """What to call a user's function, class or object in a message."""
    return str(getattr(thing, "__name__", None) or type(thing).__name__)


async def ask(judge: Any, given: Mapping[str, Any], field: str) -> Any:
    """Call a judge: by the names of what it is given, or, where a function's own differ, in that order. Returns what it said,
    or that field of it.
    """
    by_name = hasattr(judge, "acall") or takes(judge, 0, given)
    said = await (call_user(judge, **given) if by_name else call_user(judge, *given.values()))
    return said[field] if isinstance(said, Mapping | Prediction) and field in said else said


def takes_two(fn: Callable[..., Any]) -> bool:
    """True if a user's function wants `(inputs, prediction)`, False if it wants the draft alone."""
    return not takes(fn, 1) and takes(fn, 2)


def takes(fn: Any, places: int, names: Mapping[str, Any] | None = None) -> bool:
    """True if a function can be called with that many arguments in place and these by name, as far as one can tell."""
    if not callable(fn):
        return hasattr(fn, "acall")
    try:
        inspect.signature(fn).bind(*[None] * places, **(names or {}))
    except TypeError:
        return False
    except ValueError:  # some C callables have no signature
        return True
    return True
