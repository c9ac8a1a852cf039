"""What comes out: a program's output with what led to it, and a run's receipt on the prediction that is returned."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from redraft.errors import InputError
from redraft.result import Result
from redraft.types import Attempt, Prediction

_RECEIPT = "_redraft"


class Output(Prediction):
    """A DSPy program's output as redraft's Prediction. `said` is what the program returned, `steps` its trace.

    `said` is a copy: a program may return one object again and again, and traces keep theirs, which no receipt is for.
    """

    __slots__ = ("said", "steps")
    said: Any
    steps: Sequence[tuple[Any, dict[str, Any], Any]]

    def __init__(self, said: Any, steps: Sequence[tuple[Any, dict[str, Any], Any]] = ()) -> None:
        super().__init__(fields_of(said))
        object.__setattr__(self, "said", _copied(said))
        object.__setattr__(self, "steps", tuple(steps))


def fields_of(said: Any) -> dict[str, Any]:
    """The output fields: a prediction's or mapping's own, or one field `answer`."""
    if isinstance(said, dspy.Example):
        return dict(said.items())
    if said is None:
        raise ValueError("the program returned None; return a dspy.Prediction")
    return dict(said) if isinstance(said, Mapping) else {"answer": said}


def _copied(said: Any) -> Any:
    """A prediction or example with fields of its own."""
    if not isinstance(said, dspy.Example):
        return said
    twin = copy.copy(said)
    twin._store = dict(said._store)
    return twin


def as_dspy(prediction: Prediction) -> Any:
    """A redraft Prediction as DSPy's code knows it: what the program returned, or its fields as a dspy.Prediction."""
    return prediction.said if isinstance(prediction, Output) else dspy.Prediction(**prediction.to_dict())


def result_of(prediction: Any) -> Result:
    """The redraft Result behind what `Refine` or `BestOfN` returned: attempts, scores, usage, stop reason.

    It stays with copies and pickles of the prediction. Raises `InputError` for any other prediction.
    """
    kept = getattr(prediction, "__dict__", {}).get(_RECEIPT)
    if not isinstance(kept, _Kept):
        raise InputError(f"{prediction!r:.80} did not come out of redraft's Refine or BestOfN: it has no result")
    return kept.result


def returned(result: Result) -> tuple[Any, list[tuple[Any, dict[str, Any], Any]]]:
    """The best attempt as a dspy.Prediction that carries its result, and the steps that led to it."""
    origin = _origin(result, result.best)
    fields = result.to_dict()
    if origin is None:
        prediction, steps = dspy.Prediction(**fields), []
    elif fields == origin.to_dict() and isinstance(origin.said, dspy.Prediction):
        prediction, steps = origin.said, list(origin.steps)
    else:
        changed = {k: v for k, v in fields.items() if k not in origin or origin[k] != v}
        prediction = _with(origin.said, fields)
        steps = _mended(origin, changed)
    object.__setattr__(prediction, _RECEIPT, _Kept(result))
    return prediction, steps


def _origin(result: Result, attempt: Attempt | None) -> Output | None:
    """The output of the program that an attempt is, or was mended or edited from."""
    by_index = {a.index: a for a in result.attempts}
    while attempt is not None:
        if isinstance(attempt.prediction, Output):
            return attempt.prediction
        attempt = None if attempt.parent is None else by_index.get(attempt.parent)
    return None


def _with(said: Any, fields: Mapping[str, Any]) -> Any:
    if not isinstance(said, dspy.Prediction):
        return dspy.Prediction(**fields)
    changed = _copied(said)
    changed._store |= fields
    return changed


def _mended(origin: Output, changed: Mapping[str, Any]) -> list[tuple[Any, dict[str, Any], Any]]:
    """The steps, with the changed fields in the last one where they come from there: demos show what was kept."""
    if not origin.steps:
        return []
    *before, (predictor, inputs, said) = origin.steps
    if not all(k in said and said[k] == origin[k] for k in changed if k in origin):
        return list(origin.steps)
    return [*before, (predictor, inputs, _with(said, changed))]


class _Kept:
    """A Result on a prediction. A Result does not change: copies share it; in a pickle, errors that cannot be pickled
    become texts.
    """

    def __init__(self, result: Result) -> None:
        self.result = result

    def __deepcopy__(self, memo: object) -> _Kept:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (best, parts) = self.result.__reduce__()
        parts = {**parts, "attempts": tuple(map(_picklable, parts["attempts"])), "error": _survivor(parts["error"])}
        return (_kept, (rebuild, _picklable(best), parts))


def _kept(rebuild: Any, best: Attempt, parts: dict[str, Any]) -> _Kept:
    return _Kept(rebuild(best, parts))


def _picklable(attempt: Attempt) -> Attempt:
    return attempt if attempt.error is None else attempt.but(error=_survivor(attempt.error))


def _survivor(error: Exception | None) -> Exception | None:
    """The error itself if it can be pickled and read back; an exception's class may want more than it keeps."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was pickled just now
    except (pickle.PicklingError, TypeError, AttributeError, ValueError):
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
