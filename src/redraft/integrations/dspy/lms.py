"""A DSPy LM as a redraft LM, and a redraft LM as a DSPy LM."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import anyio
import dspy

from redraft.config import resolve_lm
from redraft.errors import InputError, UnsupportedError
from redraft.frame import wants_new
from redraft.integrations.dspy.engine import AsyncRedraftEngine, RedraftEngine
from redraft.integrations.dspy.failures import translated
from redraft.integrations.dspy.purchases import FRAME, LIVE, Escaped, as_an_adapter, engine_lm, unrouted
from redraft.integrations.dspy.wire import CAPS, completion_of, usage_of
from redraft.lm.openai_wire import options_of, refuse_unsupported
from redraft.lm.prices import price
from redraft.protocols import LM, Delta
from redraft.types import Capabilities, Completion, Request, Usage

_PARALLEL = 256


def dspy_lm(model: LM | str | None = None, **options: Any) -> Any:
    """A redraft model as a `dspy.LM`: `dspy.configure(lm=dspy_lm("local/smollm2-135m"))`.

    `model` is a name or an LM, by default the configured one; `options` are sampling defaults (temperature, max_tokens...).
    Calls inside a run spend from its budget; outside, each is a run of its own. Redraft retries what fails transiently, so
    DSPy does not; nothing is cached unless `cache=True`.
    """
    if isinstance(model, dspy.BaseLM):  # it is one already
        return model.copy(**options) if options else model
    lm = resolve_lm(model)
    if isinstance(lm, DspyLM):
        return lm.lm.copy(**options) if options else lm.lm
    engines = {"engine": RedraftEngine(lm), "async_engine": AsyncRedraftEngine(lm)}
    return dspy.LM(lm.name, **{"cache": False, "num_retries": 0, **engines, **options})


_known: WeakKeyDictionary[Any, DspyLM] = WeakKeyDictionary()


def from_dspy(lm: Any) -> LM:
    """A DSPy LM as a redraft model, for `Predict(lm=...)`, `advisor=`, `judge=` or `models=`."""
    lm = unrouted(lm)
    if not isinstance(lm, dspy.BaseLM):
        raise InputError(f"{lm!r} is no dspy.BaseLM; give a dspy.LM")
    return engine_lm(lm) or cast("LM", _known.get(lm) or _known.setdefault(lm, DspyLM(lm)))


def known_lms() -> list[DspyLM]:
    """Those that are in use: DSPy sees their calls, whoever asks."""
    return list(_known.values())


class DspyLM:
    """See `from_dspy`. DSPy's cache answers where the LM has it on and nothing was tried before; its retries are off."""

    max_output: int | None = None
    parallel = _PARALLEL

    def __init__(self, lm: Any) -> None:
        self.lm = lm
        self.name: str = lm.model
        self.address = str(lm.kwargs.get("api_base") or lm.kwargs.get("base_url") or "")
        self._waits = _is_async(lm)

    def __deepcopy__(self, memo: object) -> DspyLM:
        return self  # an LM is no part of a program's state

    @cached_property
    def capabilities(self) -> Capabilities:
        """What DSPy knows of the model."""
        params = self.lm.supported_params
        return Capabilities(
            json_schema=bool(self.lm.supports_response_schema),
            n=True,
            logprobs="logprobs" in params,
            temperature="max_completion_tokens" not in self.lm.kwargs,
            tools=bool(self.lm.supports_function_calling),
            reasoning=bool(self.lm.supports_reasoning),
        )

    async def look_up(self) -> None:
        """Find `capabilities` out in a thread: for some models DSPy has to import a client that takes seconds."""
        if "capabilities" not in vars(self):
            await asyncio.to_thread(getattr, self, "capabilities")

    async def generate(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Completion:
        """One call of the LM, as DSPy makes it: its callbacks, its history and usage trackers hear of it."""
        del on_delta
        settings = dspy.settings
        live = bool(settings.get(LIVE))
        if not live:
            refuse_unsupported(request, self.capabilities, self.name)
        if request.grammar is not None:
            raise UnsupportedError(f"{self.name} takes no grammar", parameter="grammar")
        seen, used, around = _Entries(), _Used(), settings.usage_tracker
        changes: dict[str, Any] = {} if live else {"send_stream": None}
        modules, cache = [*(settings.caller_modules or ()), seen], self._cache()
        changes |= {"usage_tracker": used, "caller_modules": modules, FRAME: None}
        with translated(self.name), dspy.context(**changes):
            outputs = await self._called(request, cache)
        entry = seen.history[-1] if seen.history else None
        for tracker in filter(None, (around.around if isinstance(around, Escaped) else around,)):
            for said in used.entries:
                tracker.add_usage(self.name, said)
        cached = entry is not None and not entry["usage"] and _was_billed_before(entry)
        usage = Usage() if cached else usage_of(used.entries)
        return completion_of(outputs, entry, usage, self.name)

    async def _called(self, request: Request, cache: Mapping[str, Any]) -> Any:
        lm = _once(self.lm)
        options = {**options_of(request, next((n for n in CAPS if n in self.lm.kwargs), CAPS[0])), **cache}
        messages = [dict(m) for m in request.messages]
        if request.prefill is not None:
            messages.append({"role": "assistant", "content": request.prefill})
        with as_an_adapter(lm, messages):
            if self._waits:
                return await lm.acall(messages=messages, **options)
            # A thread of anyio's: DSPy sends to its streams through one.
            call = partial(lm, messages=messages, **options)
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))

    def _cache(self) -> dict[str, Any]:
        """A retry is never answered by what was not good enough."""
        return {"cache": False} if wants_new() else {}

    def count(self, request: Request) -> int | None:  # noqa: ARG002 - the contract's signature
        """None: DSPy has no tokenizer."""
        return None

    def cost(self, usage: Usage) -> float | None:
        """Dollars by the provider's price list; None for a model that is not listed."""
        provider, _, model = self.name.rpartition("/")
        return price(model, provider.rpartition("/")[2] or "openai", None, usage)


class _Entries:
    """Stands among the calling modules: DSPy writes each call's entry into its `history`."""

    def __init__(self) -> None:
        self.history: list[Mapping[str, Any]] = []


class _Used:
    """A usage tracker for one call."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add_usage(self, lm: str, usage_entry: dict[str, Any]) -> None:
        """See DSPy's `UsageTracker`."""
        del lm
        self.entries.append(usage_entry)


def _was_billed_before(entry: Mapping[str, Any]) -> bool:
    """DSPy's cache answered: the call used nothing, but the reply says what it cost when it was written."""
    raw = entry.get("response")
    raw = raw[0] if isinstance(raw, tuple) and raw else raw
    if bool(getattr(raw, "cache_hit", False)):
        return True
    return bool(getattr(getattr(raw, "usage", None), "output_tokens", None))


def _once(lm: Any) -> Any:
    """The LM without DSPy's own retries. One with code of its own keeps its state: it is called as it is."""
    plain = hasattr(lm, "_engine_spec") and type(lm).__call__ is dspy.BaseLM.__call__
    if not plain or not lm.num_retries:
        return lm
    twin = copy.copy(lm)
    twin.num_retries = 0
    return twin


def _is_async(lm: Any) -> bool:
    """True if the LM can be awaited: engines may be sync only, and so may LMs of a user's own."""
    kind, base = type(lm), dspy.BaseLM
    if kind.acall is not base.acall:
        return True
    if kind.__call__ is not base.__call__:
        return False
    spec = getattr(lm, "_engine_spec", None)
    if spec is not None and not isinstance(spec, str):
        return getattr(lm, "_async_engine_spec", None) is not None
    overridden = "forward" in vars(lm) or (spec is not None and kind.forward is not dspy.LM.forward)
    return kind.aforward is not (dspy.LM.aforward if overridden else base.aforward)
