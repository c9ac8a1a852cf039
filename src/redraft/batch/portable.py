"""What travels between a driver and its workers, as bytes: by value where the other side has no module of that name.

Each side trusts the other: both run the same user's code.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from redraft.batch.one import Outcome
from redraft.errors import ConfigError, RedraftError, RunFailed, UsageError
from redraft.jsonable import plain
from redraft.result import Result
from redraft.types import Attempt, Prediction

_DEPTH = 8


def cloudpickle() -> Any:
    """Ray's pickler, which takes functions and classes by value, too. Raises `ConfigError` where there is no Ray."""
    try:
        from ray import cloudpickle as pickler
    except ImportError as error:
        raise ConfigError("batches on a cluster need the package ray: pip install 'redraft[ray]'") from error
    return pickler


def packed(value: Any, what: str) -> bytes:
    """The value as bytes. Raises `UsageError` naming the part of `what` that cannot be pickled."""
    failure = _failure(value)
    if isinstance(failure, bytes):
        return failure
    path, part, failure = _culprit(value, what, failure)
    raise UsageError(
        f"{path} ({type(part).__name__}) cannot be sent to another process: {failure}; make it where it is used, or leave "
        "out of its pickle (__getstate__) what belongs to one process"
    ) from failure


def unpacked(data: bytes) -> Any:
    """The value again."""
    return pickle.loads(data)  # noqa: S301 - see the module's docstring


def sendable(outcome: Outcome) -> bytes:
    """An outcome as bytes. An error that cannot be pickled, or not be read back, becomes a plain one with the same text; a
    result that cannot, an error that says so.
    """
    data = _failure(outcome)
    if isinstance(data, bytes) and (_carries_no_error(outcome) or _reads(data)):
        return data
    data = _failure(_Plain().outcome(outcome))
    if isinstance(data, bytes) and _reads(data):
        return data
    why = data if isinstance(data, Exception) else TypeError("it cannot be read back")
    path, part, why = _culprit(outcome.value, "its result", why)
    error = RunFailed(f"{path} ({type(part).__name__}) cannot leave the worker: {why}; return plain data")
    return pickle.dumps(Outcome(error=error, usage=outcome.usage))


def _carries_no_error(outcome: Outcome) -> bool:
    attempts = outcome.value.attempts if isinstance(outcome.value, Result) else ()
    return outcome.error is None and all(attempt.error is None for attempt in attempts)


def sendable_error(error: Exception) -> bytes:
    """An error as bytes, or its text as a plain one."""
    data = _failure(error)
    return data if isinstance(data, bytes) and _reads(data) else pickle.dumps(_Plain().error(error))


def _failure(value: Any) -> bytes | Exception:
    """The value's bytes, or why there are none."""
    try:
        data: bytes = cloudpickle().dumps(value)
    except Exception as error:  # noqa: BLE001 - user code: an object's own way of being pickled may raise anything
        return error
    return data


def _reads(data: bytes) -> bool:
    try:
        pickle.loads(data)  # noqa: S301 - what was pickled just now
    except Exception:  # noqa: BLE001 - the same: an error's class may want more than it keeps
        return False
    return True


class _Plain:
    """Outcomes without what no pickle holds. An error and the attempts that it carries may hold each other."""

    def __init__(self) -> None:
        self._made: dict[int, Exception] = {}

    def outcome(self, outcome: Outcome) -> Outcome:
        value: Prediction | None = outcome.value
        if isinstance(value, Result):
            parts = {name: getattr(value, name) for name in ("events", "stop_reason", "usage", "run_id")}
            attempts = tuple(map(self._attempt, value.attempts))
            best = next((a for a in attempts if a.index == value.best.index), None) or self._attempt(value.best)
            value = Result(best, attempts=attempts, error=value.error and self.error(value.error), **parts)
        reached: Any = outcome.reached and self.error(outcome.reached)
        return replace(outcome, value=value, error=outcome.error and self.error(outcome.error), reached=reached)

    def error(self, error: Exception) -> Exception:
        if id(error) in self._made:
            return self._made[id(error)]
        if not isinstance(error, RedraftError):
            made: Exception = RuntimeError(f"{type(error).__name__}: {error}")
            self._made[id(error)] = made
            return made
        args = tuple(map(str, error.args))
        own = type(error).__new__(type(error), *args)
        own.args = args
        self._made[id(error)] = own
        own.__dict__.update({name: value for name, value in vars(error).items() if _is_small(value)})
        own.attempts, own.usage = tuple(map(self._attempt, error.attempts)), error.usage
        return own

    def _attempt(self, attempt: Attempt) -> Attempt:
        inputs = {name: _plain_value(value) for name, value in attempt.inputs.items()}
        return attempt.but(inputs=inputs, error=attempt.error and self.error(attempt.error))


def _plain_value(value: Any) -> Any:
    return value if isinstance(_failure(value), bytes) else plain(value)


def _is_small(value: Any) -> bool:
    return isinstance(value, str | int | float | None)


def _culprit(value: Any, path: str, why: Exception, depth: int = _DEPTH) -> tuple[str, Any, Exception]:
    """The innermost part that cannot be pickled, where it is, and why."""
    for name, part in _parts(value) if depth else ():
        failure = _failure(part)
        if isinstance(failure, Exception):
            return _culprit(part, f"{path}{name}", failure, depth - 1)
    return path, value, why


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{i}]", part) for i, part in enumerate(value))
    elif (code := getattr(value, "__code__", None)) is not None:
        cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
        yield from ((f", its variable {name!r}", cell.cell_contents) for name, cell in cells)
        around = value.__globals__
        yield from ((f", its global {name!r}", around[name]) for name in code.co_names if name in around)
    elif (function := getattr(value, "__func__", None)) is not None:
        yield "", value.__self__
        yield "", function
    else:
        slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
        named = dict.fromkeys([*getattr(value, "__dict__", {}), *slots])
        yield from ((f".{name}", getattr(value, name)) for name in named if hasattr(value, name))
