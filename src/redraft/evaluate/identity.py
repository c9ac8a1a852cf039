"""What tells a strategy from others, the same in every process: of this and its inputs a run's id is made.

Functions are known by their source, models by their name. What a closure holds is not seen.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from redraft.checks import Check, Judgement
from redraft.config import resolve_lm
from redraft.journal import digest
from redraft.jsonable import canonical
from redraft.modules import Module, Predict
from redraft.protocols import LM
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
        model = [resolve_lm(thing.lm).name] if isinstance(thing, Predict) else []
        return [type(thing).__qualname__, *model, _described(vars(thing), around)]
    if isinstance(thing, LM):
        return thing.name
    return _source(thing) if inspect.isroutine(thing) or inspect.isclass(thing) else thing


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # typed into an interpreter, or written in C
        code = getattr(thing, "__code__", None)
        return f"{getattr(thing, '__qualname__', thing)} {'' if code is None else code.co_code.hex()}"
