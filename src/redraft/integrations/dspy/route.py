"""How the calls of a DSPy program become purchases of a run, while its modules stay as they are.

A program runs inside `routed`: DSPy's own settings carry a routing adapter, which hands each predictor's LM on as a
`Routed` one, and the same for the LM of the settings. So predictors keep their identity (traces, stream listeners and
optimizers see the originals), two predictors keep two LMs, and nothing is copied or changed. What goes past all that (an
LM of its own under an adapter of its own) is caught by the usage tracker and charged afterwards.
"""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import dspy
from dspy.utils.usage_tracker import UsageTracker

from redraft.errors import BudgetExceeded, RedraftError, RunClosed, ends_run
from redraft.foreign import charge
from redraft.frame import Frame, current_frame, entered
from redraft.integrations.advice import as_paragraphs
from redraft.integrations.dspy.failures import told_to_dspy
from redraft.integrations.dspy.wire import carried, outputs_of, told_in, usage_of
from redraft.protocols import LM, Delta
from redraft.sync import on_loop, run_sync
from redraft.types import Completion, Request

T = TypeVar("T")

FRAME, _HINTS, _BARE, LIVE = "redraft_frame", "redraft_hints", "redraft_bare", "redraft_live"
"""Settings of DSPy's that only this door reads; like all of them they reach the threads that DSPy starts."""


def here() -> Frame | None:
    """The frame of the running code, also in a thread that DSPy started."""
    return current_frame() or dspy.settings.get(FRAME)


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
        FRAME: frame,
        _HINTS: {**(settings.get(_HINTS) or {}), **(hints or {})},
        _BARE: False,
    }
    with tracker, dspy.context(**changes):
        yield


class Escaped(UsageTracker):
    """Sees the calls that no run has bought. They are charged softly, and told to whoever tracks usage outside."""

    def __init__(self, around: Any) -> None:
        super().__init__()
        self.around: Any = around.around if isinstance(around, Escaped) else around
        self.escaped: dict[str, list[Any]] = defaultdict(list)
        if self.around is not None:
            self.usage_data = self.around.usage_data  # a tracker inside rolls up into it
        self.ours: set[str] = set()
        """Models whose calls are bought by the run behind DSPy's back: their usage is only passed on."""
        self.end: RedraftError | None = None
        """Why the run bought nothing more. DSPy's thread pools raise an error of their own in its place."""

    def __enter__(self) -> Escaped:
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        self.charge()
        if self.end is not None and isinstance(error, Exception) and ends_run(error) is None:
            raise self.end from error

    def __deepcopy__(self, memo: object) -> Escaped:
        return self  # DSPy copies trackers for its threads, and forgets the copies

    def add_usage(self, lm: str, usage_entry: dict[str, Any]) -> None:
        """See `UsageTracker`."""
        if lm not in self.ours and usage_entry:
            self.escaped[lm].append(usage_entry)
        if self.around is not None:
            self.around.add_usage(lm, usage_entry)

    def charge(self) -> None:
        """What was used in here, as spent by the program itself."""
        for lm, entries in self.escaped.items():
            usage = usage_of(entries)
            if usage is not None:
                charge(replace(usage, calls=len(entries), unpriced=len(entries)), by=f"dspy {lm}")


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
        with dspy.context(**{LIVE: True, _BARE: self.redraft_bare}):
            asked = self._asked()
            if engine_lm(asked) is not None:
                with as_an_adapter(asked, messages):
                    return asked(prompt, messages=messages, **options)
            request, lm = _read(asked, prompt, messages, options)
            with told_to_dspy():
                completion = purchased(request, lm)
        return outputs_of(completion, logprobs=bool(request.extra.get("logprobs")))

    async def acall(self, prompt: Any = None, *, messages: Any = None, **options: Any) -> Any:
        """See `dspy.BaseLM`."""
        if here() is None or not _is_plain_call(prompt, options):
            return await self.redraft_lm.acall(prompt, messages=messages, **options)
        with dspy.context(**{LIVE: True, _BARE: self.redraft_bare}):
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
        from redraft.integrations.dspy.lms import dspy_lm

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
    from redraft.integrations.dspy.lms import from_dspy

    request = carried(messages or [{"role": "user", "content": prompt}], {**lm.kwargs, **options})
    own = {name: options[name] for name in ("cache", "rollout_id") if options.get(name) is not None}
    return request.but(extra={**request.extra, **own}), from_dspy(lm)


def as_routed(lm: Any, *, bare: bool = False) -> Any:
    """The LM with its calls routed; whatever is no `dspy.BaseLM` stays as it is."""
    inner = lm.redraft_lm if isinstance(lm, Routed) else lm
    if not isinstance(inner, dspy.BaseLM):
        return lm
    twin = copy.copy(inner)
    twin.__class__ = _routed_class(inner.__class__)
    twin.redraft_lm, twin.redraft_bare = inner, bare
    return twin


def unrouted(lm: Any) -> Any:
    """The LM itself."""
    return lm.redraft_lm if isinstance(lm, Routed) else lm


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


def engine_lm(lm: Any) -> LM | None:
    """The model of ours that a DSPy LM asks, if it is one (`dspy_lm`)."""
    model = getattr(getattr(lm, "_engine_spec", None), "redraft_model", None)
    return model if isinstance(model, LM) else None


def _is_plain_call(prompt: Any, options: Mapping[str, Any]) -> bool:
    """A call with a prompt or messages; explicit lm15 requests go past, and are charged afterwards."""
    return (prompt is None or isinstance(prompt, str)) and "request" not in options


def as_an_adapter(lm: Any, messages: Any) -> AbstractContextManager[Any]:
    """DSPy 3.4 warns of message dictionaries that no adapter of its own sends; this one is on the way from an adapter."""
    try:
        from dspy.clients._deprecation import adapter_message_call
    except ImportError:
        return nullcontext()
    marked: AbstractContextManager[Any] = adapter_message_call(lm, messages)
    return marked


async def buy(request: Request, lm: LM, on_delta: Callable[[Delta], None] | None = None) -> Completion:
    """A reply for DSPy's code, bought by the run it is part of, and told what its predictor is advised."""
    frame = here()
    assert frame is not None
    with entered(frame):
        return await on_loop(lambda: _bought(frame, request, lm, on_delta), frame.run.loop)


def purchased(request: Request, lm: LM) -> Completion:
    """The same for sync code."""
    frame = here()
    assert frame is not None
    return awaited(lambda: buy(request, lm), frame)


def awaited(make: Callable[[], Coroutine[Any, Any, T]], frame: Frame | None) -> T:
    """Run a coroutine from sync code, on the loop of the run around it."""
    return run_sync(make, home=frame.run.loop if frame else None)


async def _bought(frame: Frame, request: Request, lm: LM, on_delta: Callable[[Delta], None] | None) -> Completion:
    settings = dspy.settings
    if hasattr(lm, "look_up"):
        await lm.look_up()
    predictor = (settings.caller_modules or [None])[-1]
    predictor = predictor if isinstance(predictor, dspy.Predict) else None
    place = frame
    stand_in = getattr(frame.owner, "stand_in", None)
    if predictor is not None and stand_in is not None:
        place = frame.inner(stand_in(predictor), {"messages": request.messages})
    if predictor is not None and not settings.get(_BARE):
        request = advised(request, frame, (settings.get(_HINTS) or {}).get(id(predictor), ""), lm)
    try:
        with entered(place):
            return await place.run.complete(request, lm=lm, on_delta=on_delta)
    except (BudgetExceeded, RunClosed) as end:
        if isinstance(settings.usage_tracker, Escaped):
            settings.usage_tracker.end = end
        raise


def advised(request: Request, frame: Frame, own_hint: str, lm: LM) -> Request:
    """The request with what the attempt's author is told: requirements and hints, temperature and effort."""
    advice = frame.advice
    told = "\n\n".join(filter(None, (as_paragraphs(advice), own_hint)))
    changes: dict[str, Any] = {}
    if told:
        changes["messages"] = told_in(request.messages, told)
    if advice.temperature is not None and lm.capabilities.temperature:
        changes["temperature"] = advice.temperature
    if advice.effort is not None and lm.capabilities.reasoning:
        changes["effort"] = advice.effort
    return request.but(**changes) if changes else request


class Stream:
    """A DSPy stream that may be sent to from another event loop."""

    def __init__(self, stream: Any, home: asyncio.AbstractEventLoop) -> None:
        self.stream, self.home = stream, home

    async def send(self, chunk: Any) -> None:
        """Hand a chunk to whoever listens."""
        await on_loop(lambda: self.stream.send(chunk), self.home)
