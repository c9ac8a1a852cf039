"""DSPy's rewards and metrics as redraft's reward functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import dspy

from redraft.frame import current_frame
from redraft.integrations.dspy.results import as_dspy
from redraft.integrations.dspy.route import routed
from redraft.scoring import name_of, takes
from redraft.sync import call_user
from redraft.types import Prediction


def as_reward(fn: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """`reward_fn(args, pred)`, or a metric as DSPy's optimizers take it: `(example, pred, trace=None)`, or GEPA's with
    `pred_name` and `pred_trace`. A metric's example holds the inputs; there is no label and no trace at this time.

    The function sees what the program returned, may call programs itself, and may be async. What it asks of models is
    bought by the run; none of it is in the caller's trace.
    """
    if fn is None or not callable(fn) or _places(fn) == 0:
        return fn  # the strategy says what is wrong with it
    shown: Any = fn
    while isinstance(shown, functools.partial):
        shown = shown.func
    told: Any = _calling(fn)
    told.__name__ = name_of(shown)
    told.__wrapped__ = shown if inspect.isroutine(shown) else type(shown)  # what an advisor reads
    told.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("args", "pred")]
    )
    return told  # type: ignore[no-any-return]


def _calling(fn: Any) -> Callable[..., Any]:
    places, metric = _places(fn), _is_metric(fn)
    plain = functools.partial(fn) if isinstance(fn, dspy.Module) else fn  # called as it is, not awaited

    async def reward(args: Mapping[str, Any], pred: Prediction) -> Any:
        given: Any = dspy.Example(**args).with_inputs(*args) if metric else dict(args)
        every = (given, as_dspy(pred), *[None] * (places - 2))
        if current_frame() is None:
            return await call_user(plain, *every)
        with routed(trace=None if dspy.settings.trace is None else []):
            return await call_user(plain, *every)

    return reward


def _places(fn: Any) -> int:
    """How many arguments it is called with: two, or as many more as it cannot do without; 0 if it takes no two."""
    return next((n for n in (2, 3, 4, 5, 6) if takes(_entry(fn), n)), 0)


def _is_metric(fn: Any) -> bool:
    names = _names(_entry(fn))
    return names[:1] in (["gold"], ["example"]) or not {"trace", "pred_name", "pred_trace"}.isdisjoint(names)


def _entry(fn: Any) -> Any:
    """What says by its parameters how it wants to be called: of a module, its `forward`."""
    module = fn.func if isinstance(fn, functools.partial) else fn  # see refine._hidden
    return functools.partial(type(module).forward, module) if isinstance(module, dspy.Module) else fn


def _names(fn: Any) -> list[str]:
    try:
        return list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):  # some C callables have no signature
        return []
