"""What tells a strategy from others, the same in every process: of this and its inputs a run's id is made.

Functions are known by their source, models by their name, modules, checks and dataclasses by what they hold. What a
closure holds, or an object of another kind, is not seen.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from types import CodeType
from typing import Any

from redraft.checks import Check, Judgement
from redraft.config import resolve_lm
from redraft.jsonable import canonical
from redraft.modules import Module, Predict
from redraft.protocols import LM
from redraft.record import digest
from redraft.signature import SignatureSpec


def fingerprint(strategy: Any) -> str:
    """A short hash of all that can be seen of a strategy."""
    return digest(canonical(_described(strategy, set())))


def _described(thing: Any, around: set[int]) -> Any:
    """JSON values. `around`: what this is part of, so that what contains itself comes to an end."""
    if isinstance(thing, str | int | float | None):
        return thing
    if id(thing) in around:
        return "<around>"
    around = around | {id(thing)}
    if isinstance(thing, Mapping):
        return [[_described(k, around), _described(v, around)] for k, v in thing.items()]
    if isinstance(thing, list | tuple):
        return [_described(item, around) for item in thing]
    if isinstance(thing, SignatureSpec):
        return [str(thing), thing.instructions]
    if isinstance(thing, functools.partial):
        return [_described(part, around) for part in (thing.func, thing.args, thing.keywords)]
    if isinstance(thing, Module | Check | Judgement):
        return [type(thing).__qualname__, *_model(thing), _described(vars(thing), around)]
    if isinstance(thing, LM):
        return thing.name
    if inspect.isroutine(thing) or inspect.isclass(thing):
        return _source(thing)
    if dataclasses.is_dataclass(thing):
        held = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
        return [type(thing).__qualname__, _described(held, around)]
    return thing


def _model(thing: Any) -> list[str]:
    """Of a Predict that names none: the configured one; but an advisor asks whoever wrote the attempt."""
    if not isinstance(thing, Predict) or (thing.lm is None and thing.role == "advisor"):
        return []
    return [resolve_lm(thing.lm).name]


def _source(thing: Any) -> str:
    code = getattr(thing, "__code__", None)
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):  # typed into an interpreter, or written in C
        return f"{getattr(thing, '__qualname__', thing)} {'' if code is None else _compiled(code)}"
    # A lambda's source is the line that it stands in, which may hold another.
    return f"{source} {_compiled(code)}" if code is not None and code.co_name == "<lambda>" else source


def _compiled(code: CodeType) -> str:
    return f"{code.co_code.hex()} {code.co_names} {[_constant(value) for value in code.co_consts]}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _compiled(value)
    return (
        str(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
    )  # a set has no order to rely on
