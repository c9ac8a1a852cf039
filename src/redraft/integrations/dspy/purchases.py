"""Purchases for DSPy's code: the run and the advice around a call, wherever DSPy makes it, and what escaped the run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import dspy
from dspy.utils.usage_tracker import UsageTracker

from redraft.errors import BudgetExceeded, RedraftError, RunClosed, ends_run
from redraft.foreign import charge
from redraft.frame import Frame, current_frame, entered
from redraft.integrations.advice import as_paragraphs, told_in
from redraft.integrations.dspy.wire import before_the_form, usage_of
from redraft.protocols import LM, Delta
from redraft.sync import on_loop, run_sync
from redraft.types import Completion, Request

T = TypeVar("T")

FRAME, HINTS, BARE, LIVE = "redraft_frame", "redraft_hints", "redraft_bare", "redraft_live"
"""Settings of DSPy's that only this door reads; like all of them they reach the threads that DSPy starts."""


def here() -> Frame | None:
    """The frame of the running code, also in a thread that DSPy started."""
    return current_frame() or dspy.settings.get(FRAME)


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


def engine_lm(lm: Any) -> LM | None:
    """The model of ours that a DSPy LM asks, if it is one (`dspy_lm`)."""
    model = getattr(getattr(lm, "_engine_spec", None), "redraft_model", None)
    return model if isinstance(model, LM) else None


def unrouted(lm: Any) -> Any:
    """The LM itself."""
    return getattr(lm, "redraft_lm", lm)


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
    if predictor is not None and not settings.get(BARE):
        request = advised(request, frame, (settings.get(HINTS) or {}).get(id(predictor), ""), lm)
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
        changes["messages"] = tuple(told_in(request.messages, told, into=before_the_form))
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
