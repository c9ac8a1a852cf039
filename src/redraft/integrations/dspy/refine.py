"""Refine and BestOfN as dspy.Modules: DSPy's constructors and calls, redraft's loop inside."""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import dspy

from redraft import strategies
from redraft.errors import InputError
from redraft.frame import entered
from redraft.integrations.dspy.lms import from_dspy, known_lms
from redraft.integrations.dspy.program import Program, as_module
from redraft.integrations.dspy.purchases import Stream, awaited, here
from redraft.integrations.dspy.results import returned
from redraft.integrations.dspy.rewards import as_reward
from redraft.journal import CALL
from redraft.lm.openai_chat import usage_dict
from redraft.result import Result
from redraft.types import Usage


class Refine(dspy.Module):
    """`dspy.Refine` with redraft inside: `Refine(module, N, reward_fn, threshold, fail_count=None)`, and the options of
    `redraft.Refine` by name (`checks`, `revise`, `models`, `advisor`, `judge`, `width`, `temperature`, `effort`, `fix`,
    `clean`, `budget`), where a `dspy.LM` or dspy.Module will do as well.

    `reward_fn(args, pred)` may return a number, `(number, "feedback")` or a `dspy.Prediction(score=, feedback=)`, and be
    async; a metric `(example, pred, trace=None)` or GEPA's is taken, too, with the inputs as its example.

    A call returns the best attempt's `dspy.Prediction`; `result_of(prediction)` is its receipt. If there is none, an error
    is raised that carries all attempts. The module is used as it is: it is not copied, its predictors keep their LMs.
    Every reply is bought within the budget, and the caller's trace gets the best attempt's steps and nothing else. Where
    the program is streamed, listeners hear each draft as it is written (`allow_reuse=True`: not only the first).
    """

    _strategy: Any = strategies.Refine

    def __init__(
        self,
        module: Any,
        N: int = 3,
        reward_fn: Callable[..., Any] | None = None,
        threshold: float | None = None,
        fail_count: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(module, dspy.Module):
            raise InputError(f"{module!r} is no dspy.Module; for modules of redraft's own there is redraft.Refine")
        self.module = module
        self.N = N
        self.reward_fn = _hidden(reward_fn)
        self.threshold = threshold
        self.fail_count = fail_count
        self.options = Options(options)
        self.strategy()  # a wrong option is known before anything is spent

    def strategy(self, *, awaits: bool = False) -> Any:
        """The strategy of one call, out of what this module holds now."""
        return self._strategy(
            Program(self.module, awaits=awaits, once=True),
            self.N,
            as_reward(self.reward_fn),
            self.threshold,
            self.fail_count,
            **self.options.settings,
        )

    def forward(self, *unnamed: Any, **inputs: Any) -> Any:
        """The best attempt's prediction."""
        _named_only(unnamed)
        frame = here()
        with _streaming(_home_of_this_thread), entered(frame) if frame else nullcontext():
            if frame is not None:
                frame.run.check_open()
            result = awaited(lambda: self.strategy().acall(**inputs), frame)
        return _handed_over(result, outermost=frame is None)

    async def aforward(self, *unnamed: Any, **inputs: Any) -> Any:
        """The same, awaited."""
        _named_only(unnamed)
        frame = here()
        home = asyncio.get_running_loop()
        elsewhere = frame is not None and frame.run.loop not in (None, home)
        with _streaming(lambda: home if elsewhere else None), entered(frame) if frame else nullcontext():
            result = await self.strategy(awaits=True).acall(**inputs)
        return _handed_over(result, outermost=frame is None)


class BestOfN(Refine):
    """`dspy.BestOfN` with redraft inside: `BestOfN(module, N, reward_fn, threshold, fail_count=None)`: independent
    samples; `concurrency` of them at the same time. Everything else is said at `Refine`.
    """

    _strategy = strategies.BestOfN


class Options:
    """The options by name. They are no part of a program's state: copies of a program share them, and the predictors of a
    judge are none of its parameters.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.settings = {name: _ours(name, value) for name, value in given.items()}

    def __deepcopy__(self, memo: object) -> Options:
        return copy.copy(self)


def _ours(name: str, value: Any) -> Any:
    """A DSPy LM or module in redraft's form, where one is given for a role."""
    if isinstance(value, dspy.BaseLM):
        return from_dspy(value)
    if name == "models" and isinstance(value, list | tuple):
        return [from_dspy(one) if isinstance(one, dspy.BaseLM) else one for one in value]
    return as_module(value) if isinstance(value, dspy.Module) else value


def _hidden(reward_fn: Any) -> Any:
    """A reward that is a DSPy module of its own must not become a parameter of the program."""
    return functools.partial(reward_fn) if isinstance(reward_fn, dspy.Module) else reward_fn


def _named_only(unnamed: tuple[Any, ...]) -> None:
    if unnamed:
        raise InputError(f"inputs are given by name, e.g. refine(question=...); got {unnamed[0]!r:.40}")


def _handed_over(result: Result, *, outermost: bool) -> Any:
    """The best prediction; its steps go into the caller's trace, as if the best attempt had been the only one."""
    prediction, steps = returned(result)
    if outermost and dspy.settings.usage_tracker is not None:
        _tell_usage(result, dspy.settings.usage_tracker)
    trace, most = dspy.settings.trace, dspy.settings.max_trace_size
    if trace is not None and most > 0:
        trace.extend(steps)
        del trace[: max(0, len(trace) - most)]
    return prediction


def _tell_usage(result: Result, tracker: Any) -> None:
    """What advisors, judges and revisers used: they ask models of ours directly, which DSPy does not see."""
    theirs = {lm.name for lm in known_lms()}
    for event in result.events:
        if event.kind == CALL and event.data["role"] != "author" and event.data["model"] not in theirs:
            tracker.add_usage(event.data["model"], usage_dict(Usage(**event.data["usage"])))


@contextmanager
def _streaming(home_of: Callable[[], asyncio.AbstractEventLoop | None]) -> Iterator[None]:
    """A stream that somebody listens to on another loop is made safe to send to from the run's."""
    stream = dspy.settings.send_stream
    home = None if stream is None or isinstance(stream, Stream) else home_of()
    if home is None:
        yield
        return
    with dspy.context(send_stream=Stream(stream, home)):
        yield


def _home_of_this_thread() -> asyncio.AbstractEventLoop | None:
    """The loop that started this worker thread; None in any other thread."""
    import anyio

    try:
        loop: asyncio.AbstractEventLoop = anyio.from_thread.run_sync(asyncio.get_running_loop)
    except RuntimeError:
        return None
    return loop
