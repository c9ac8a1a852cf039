"""How the calls of a DSPy program become purchases of a run, while its modules stay as they are.

A program runs inside `routed`: DSPy's own settings carry a routing adapter, which hands each predictor's LM on as a
`Routed` one, and the same for the LM of the settings. So predictors keep their identity (traces, stream listeners and
optimizers see the originals), two predictors keep two LMs, and nothing is copied or changed. What goes past all that (an
LM of its own under an adapter of its own) is caught by the usage tracker and charged afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import dspy

from redraft.frame import current_frame
from redraft.integrations.dspy import purchases
from redraft.integrations.dspy.failures import told_to_dspy
from redraft.integrations.dspy.lms import dspy_lm, from_dspy
from redraft.integrations.dspy.purchases import Escaped, as_an_adapter, awaited, buy, engine_lm, here, unrouted
from redraft.integrations.dspy.wire import carried, outputs_of
from redraft.protocols import LM
from redraft.types import Request


@contextmanager
def routed(*, trace: list[Any] | None, hints: Mapping[int, str] | None = None) -> Iterator[None]:
    """A DSPy program's code, or a reward's, run by this run: its calls are bought here, its steps noted in `trace`."""
    frame = current_frame()
    assert frame is not None
    settings = dspy.settings
    tracker = Escaped(settings.usage_tracker)
    lm, adapter = settings.lm, settings.adapter
    changes = {
        "lm": None if lm is None else as_routed(lm),
        "adapter": _routing(adapter or dspy.ChatAdapter()),
        "trace": trace,
        "usage_tracker": tracker,
        purchases.FRAME: frame,
        purchases.HINTS: {**(settings.get(purchases.HINTS) or {}), **(hints or {})},
        purchases.BARE: False,
    }
    with tracker, dspy.context(**changes):
        yield


class Routed:
    """Mixed into the class of a copy of an LM: calls become purchases of the run in which they are made."""

    redraft_lm: Any
    """The LM itself."""
    redraft_bare = False
    """It does not write for a predictor, but reads what another LM wrote: advice is not for it."""

    def __call__(self, prompt: Any = None, *, messages: Any = None, **options: Any) -> Any:
        """See `dspy.BaseLM`."""
        if here() is None or not _is_plain_call(prompt, options):
            return self.redraft_lm(prompt, messages=messages, **options)
        with dspy.context(**{purchases.LIVE: True, purchases.BARE: self.redraft_bare}):
            asked = self._asked()
            if engine_lm(asked) is not None:
                with as_an_adapter(asked, messages):
                    return asked(prompt, messages=messages, **options)
            request, lm = _read(asked, prompt, messages, options)
            with told_to_dspy():
                completion = awaited(lambda: buy(request, lm), here())
        return outputs_of(completion, logprobs=bool(request.extra.get("logprobs")))

    async def acall(self, prompt: Any = None, *, messages: Any = None, **options: Any) -> Any:
        """See `dspy.BaseLM`."""
        if here() is None or not _is_plain_call(prompt, options):
            return await self.redraft_lm.acall(prompt, messages=messages, **options)
        with dspy.context(**{purchases.LIVE: True, purchases.BARE: self.redraft_bare}):
            asked = self._asked()
            if engine_lm(asked) is not None:
                with as_an_adapter(asked, messages):
                    return await asked.acall(prompt, messages=messages, **options)
            request, lm = _read(asked, prompt, messages, options)
            with told_to_dspy():
                completion = await buy(request, lm)
        return outputs_of(completion, logprobs=bool(request.extra.get("logprobs")))

    def _asked(self) -> Any:
        """The LM itself, or the one that the attempt is to be made with."""
        frame = here()
        other = None if frame is None or self.redraft_bare else frame.advice.lm
        return self.redraft_lm if other is None else dspy_lm(other)

    def copy(self, **changes: Any) -> Any:
        """See `dspy.BaseLM`."""
        return as_routed(self.redraft_lm.copy(**changes), bare=self.redraft_bare)

    def dump_state(self) -> Any:
        """See `dspy.BaseLM`."""
        return self.redraft_lm.dump_state()

    def __reduce__(self) -> tuple[Any, ...]:
        return (copy.copy, (self.redraft_lm,))


def _read(lm: Any, prompt: Any, messages: Any, options: Mapping[str, Any]) -> tuple[Request, LM]:
    """A call of a DSPy LM as a request, and the LM that answers it."""
    request = carried(messages or [{"role": "user", "content": prompt}], {**lm.kwargs, **options})
    own = {name: options[name] for name in ("cache", "rollout_id") if options.get(name) is not None}
    return request.but(extra={**request.extra, **own}), from_dspy(lm)


def as_routed(lm: Any, *, bare: bool = False) -> Any:
    """The LM with its calls routed; whatever is no `dspy.BaseLM` stays as it is."""
    inner = unrouted(lm)
    if not isinstance(inner, dspy.BaseLM):
        return lm
    twin = copy.copy(inner)
    twin.__class__ = _routed_class(inner.__class__)
    twin.redraft_lm, twin.redraft_bare = inner, bare
    return twin


@cache
def _routed_class(kind: Any) -> Any:
    return type(kind.__name__, (Routed, kind), {})


def _routing(adapter: Any) -> Any:
    """A copy of the adapter that routes what it calls: the predictors' LMs, and LMs of its own (TwoStepAdapter)."""
    twin = copy.copy(adapter)
    if not isinstance(adapter, _Routing):
        twin.__class__ = _routing_class(adapter.__class__)
    for name, value in vars(adapter).items():
        if isinstance(value, dspy.BaseLM):
            setattr(twin, name, as_routed(value, bare=True))
    return twin


class _Routing:
    """Mixed into the class of a copy of an adapter."""

    def __call__(self, lm: Any, *args: Any, **options: Any) -> Any:
        return super().__call__(as_routed(lm), *args, **options)  # type: ignore[misc]

    async def acall(self, lm: Any, *args: Any, **options: Any) -> Any:
        return await super().acall(as_routed(lm), *args, **options)  # type: ignore[misc]


@cache
def _routing_class(kind: Any) -> Any:
    made = type(kind.__name__, (_Routing, kind), {})
    for name in ("format", "parse"):  # DSPy wraps them once more in each subclass: callbacks would hear them twice
        if name in vars(made):
            delattr(made, name)
    return made


def _is_plain_call(prompt: Any, options: Mapping[str, Any]) -> bool:
    """A call with a prompt or messages; explicit lm15 requests go past, and are charged afterwards."""
    return (prompt is None or isinstance(prompt, str)) and "request" not in options
