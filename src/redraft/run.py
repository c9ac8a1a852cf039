"""Run: the one object through which strategies act, and the only caller of an LM.

`complete` buys a reply: journal (already paid?), reserve, call under deadline and cancellation, commit, settle, emit.
`attempt` tries a module and has the outcome judged; `accept` and `reject` keep the best. `execute` drives a strategy
to its end and returns a Result whatever happens. What improves an answer is not here: strategies decide that.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from redraft.budget import Budget, Meter
from redraft.config import settings
from redraft.errors import (
    BudgetExceeded,
    LMError,
    ParseError,
    RedraftError,
    RunClosed,
    RunFailed,
    ScoreError,
    UsageError,
)
from redraft.frame import NO_ADVICE, Advice, Frame, current_frame, entered
from redraft.journal import Journal, critique_data, digest, plain, score_data, score_from
from redraft.protocols import LM, Delta, Scorer, Store, Strategy
from redraft.purchase import Purchase
from redraft.result import Result
from redraft.scoring import as_prediction, name_of, rank
from redraft.sync import call_user, leave_behind, on_loop, private_loop
from redraft.types import (
    EVENT_VERSION,
    Attempt,
    Completion,
    Critique,
    Event,
    Inputs,
    Request,
    Score,
    StopReason,
    Usage,
)

T = TypeVar("T")

_GRACE = 0.08  # seconds after the deadline for code to end by itself with its best so far


class Run:
    """One refinement: a budget, a journal, attempts, and the best so far. Nested strategies get a Run of their own
    that shares the journal and spends from this budget.

    Use it as a context manager (`with` or `async with`) to put several module calls under one budget, or let a
    strategy make its own. A Run lives on one event loop; everything in it is called there.
    """

    def __init__(
        self,
        *,
        budget: Budget | None = None,
        store: Store | None = None,
        run_id: str | None = None,
        seed: int | None = None,
        listeners: Sequence[Callable[[Event], None]] = (),
        strict: bool | None = None,
        parent: Run | None = None,
    ) -> None:
        here = settings()
        self.parent = parent
        self.root: Run = parent.root if parent else self
        self.run_id: str = run_id or (parent.run_id if parent else _new_id())
        self.strict = here.strict if strict is None else strict
        self.tries = here.tries
        self.budget = budget or (Budget() if parent else here.budget)
        self.stop_asked: StopReason | None = None
        self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = parent.loop if parent else None
        self.open_calls: set[Purchase] = parent.open_calls if parent else set()
        outer = current_frame() if parent else None
        self.meter = Meter(self.budget, outer.meter if outer else None)
        self.scope = outer.scope if outer else ""
        self._frame = Frame(run=self, scope=self.scope, meter=self.meter, advice=outer.advice if outer else NO_ADVICE)
        self._attempts: dict[int, Attempt] = {}
        self._next_index = 0
        self._best: int | None = None
        self._task: asyncio.Task[Any] | None = None
        self._token: Any = None
        self.journal: Journal
        self.seed: int
        if parent:
            self.journal, self.seed = parent.journal, parent.seed
            return
        self.journal = Journal(store or here.store, self.run_id, (*here.listeners, *listeners))
        self.meter.preload(self.journal.spent(), self.journal.seconds())
        self.seed = self._seed(seed if seed is not None else here.seed)

    def _seed(self, wanted: int | None) -> int:
        """The run's seed, drawn once and recorded: a resumed run keeps the first one."""
        drawn = int.from_bytes(os.urandom(4), "big") >> 1 if wanted is None else wanted
        started = self.journal.note("run", key="run", seed=drawn, version=EVENT_VERSION, budget=plain(self.budget))
        return int(started.data["seed"])

    # What a strategy uses

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Everything tried so far, by index."""
        return tuple(self._attempts[i] for i in sorted(self._attempts))

    @property
    def best(self) -> Attempt | None:
        """The best accepted attempt."""
        return None if self._best is None else self._attempts[self._best]

    @property
    def usage(self) -> Usage:
        """What this run spent so far, nested runs included."""
        return self.meter.usage

    async def complete(
        self,
        request: Request,
        *,
        lm: LM,
        role: str = "author",
    ) -> Completion:
        """One reply, paid at most once. `role` says who asks: author, critic, reviser, judge, advisor.

        Raises `LMError`, `BudgetExceeded`, or `RunClosed`; is cancellable at any point, and then charged truly.
        """
        frame = current_frame()
        if frame is None or frame.run.root is not self.root:
            frame = self._frame
        purchase = Purchase(self, frame, lm, request, role)
        return await on_loop(purchase.complete, self.loop)

    async def send(self, lm: LM, request: Request, on_delta: Callable[[Delta], None] | None) -> Completion:
        """The one place where a model is called, and the boundary to the wire: only `LMError` comes out."""
        try:
            return await lm.generate(request, on_delta)
        except (LMError, UsageError):
            raise
        except Exception as error:
            raise LMError(f"{lm.name} failed with {type(error).__name__}: {error}", sent=True) from error

    async def attempt(
        self,
        module: Any,
        inputs: Inputs,
        *,
        scorer: Scorer | None = None,
        parent: Attempt | None = None,
        advice: Advice | None = None,
        rung: str = "tell",
    ) -> Attempt:
        """Try a module (or any function) once and have the outcome judged.

        What user code raises is recorded as the attempt's error, not raised; an ended budget, a closed run and bad
        input are raised. The attempt is neither accepted nor rejected yet.
        """
        index, self._next_index = self._next_index, self._next_index + 1
        outer = current_frame() or self._frame
        frame = Frame(
            run=self,
            scope=f"{self.scope}/attempt[{index}]",
            meter=Meter(parent=outer.meter),
            advice=advice or outer.advice,
            owner=outer.owner,
        )
        parent_index = None if parent is None else parent.index
        tried = Attempt(index=index, inputs=inputs, parent=parent_index, rung=rung)
        self.journal.note("propose", scope=frame.scope, index=index, rung=rung, parent=parent_index)
        try:
            with entered(frame):
                tried = tried.but(prediction=as_prediction(await call_user(module, **inputs)))
                tried = tried.but(score=await self._judge(scorer, inputs, tried, frame))
        except UsageError:
            raise
        except (BudgetExceeded, RunClosed) as error:
            self._record(tried.but(error=error), frame)
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to user code: a bad attempt is data, not a crash
            tried = tried.but(error=error)
        return self._record(tried, frame)

    async def _judge(self, scorer: Scorer | None, inputs: Inputs, tried: Attempt, frame: Frame) -> Score | None:
        if scorer is None or tried.prediction is None:
            return None
        old = self.journal.recorded("attempt", frame.scope)
        if old is not None and old.data["draft"] == digest(tried.text) and old.data["score"] is not None:
            return score_from(old.data["score"])
        try:
            return await scorer.score(inputs, tried.prediction)
        except (RedraftError, asyncio.CancelledError):
            raise
        except Exception as error:
            where = " ".join(getattr(error, "__notes__", ())) or f"in {name_of(scorer)}"
            raise ScoreError(f"{type(error).__name__} {where}: {error}; mend it: no score was recorded") from error

    def _record(self, attempt: Attempt, frame: Frame) -> Attempt:
        attempt = attempt.but(usage=frame.meter.usage)
        self._attempts[attempt.index] = attempt
        kind = "judge_error" if isinstance(attempt.error, ScoreError) else None
        if kind:
            self.journal.note(kind, scope=frame.scope, error=str(attempt.error))
        self.journal.note(
            "attempt",
            scope=frame.scope,
            key=frame.scope,
            index=attempt.index,
            parent=attempt.parent,
            rung=attempt.rung,
            text=attempt.text,
            draft=digest(attempt.text),
            score=score_data(attempt.score),
            error=None if attempt.error is None else plain(attempt.error),
            usage=plain(attempt.usage),
        )
        return attempt

    def accept(self, attempt: Attempt, reason: str) -> bool:
        """Make an attempt the best so far. Refused (False) if it scores below the best: keep the best, never the last."""
        best = self.best
        if best is not None and rank(attempt) < rank(best):
            self.reject(attempt, f"{reason}, but it scores below draft {best.index + 1}")
            return False
        self._decide("accept", attempt.but(accepted=True, reason=reason))
        self._best = attempt.index
        return True

    def reject(self, attempt: Attempt, reason: str) -> None:
        """Keep the best so far, and say why this one is not it."""
        self._decide("reject", attempt.but(reason=reason))

    def _decide(self, kind: str, attempt: Attempt) -> None:
        self._attempts[attempt.index] = attempt
        scope = f"{self.scope}/attempt[{attempt.index}]"
        self.journal.note(kind, scope=scope, key=scope, index=attempt.index, reason=attempt.reason)

    def criticised(self, attempt: Attempt, critique: Critique) -> Attempt:
        """Put a critique on record beside the attempt it speaks of."""
        attempt = self._attempts[attempt.index].but(critique=critique)
        self._attempts[attempt.index] = attempt
        scope = f"{self.scope}/attempt[{attempt.index}]"
        self.journal.note("critique", scope=scope, key=scope, index=attempt.index, **critique_data(critique))
        return attempt

    def parse_failed(self, error: ParseError, frame: Frame) -> None:
        """Put on record that a reply could not be used and is asked for again (the same on a replay)."""
        key = self.journal.key(frame.scope, "parse_error")
        self.journal.note("parse_error", scope=frame.scope, key=key, error=str(error))

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Do a user's own effect once: its JSON result is journalled, and a replay returns it without calling `fn`."""
        frame = current_frame() or self._frame
        key = self.journal.key(frame.scope, f"step:{name}")
        old = self.journal.recorded("step", key)
        if old is not None:
            return old.data["value"]
        self.check_open()
        value = await call_user(fn, *args, **kwargs)
        await self.journal.commit("step", scope=frame.scope, key=key, name=name, value=value)
        return value

    # Life and death

    def check_open(self) -> None:
        """Raises `RunClosed` once this run, or one around it, has ended."""
        run: Run | None = self
        while run is not None:
            if run.closed:
                raise RunClosed(f"run {self.run_id} has ended and buys nothing more; start a new one")
            run = run.parent

    def nested(self) -> Run:
        """A Run for a strategy that is called inside this one."""
        return Run(parent=self)

    def cancel(self) -> None:
        """End the run from any thread; `execute` returns the best so far with stop reason `cancelled`."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stop_now, StopReason.CANCELLED)

    def _stop_now(self, reason: StopReason) -> None:
        self.stop_asked = self.stop_asked or reason
        if self._task is not None:
            self._task.cancel()

    async def execute(self, strategy: Strategy, inputs: Inputs) -> Result:
        """Drive a strategy to its end. Returns the best so far and why it stopped, or raises an error that carries
        every attempt (`error.attempts`, `error.usage`) when there is none to return.
        """
        self._frame.owner = strategy
        stop = StopReason.ERROR
        error: Exception | None = None
        try:
            with self._within():
                stop = await self._supervised(strategy.steps(self, inputs))
        except BudgetExceeded as caught:
            stop, error = StopReason.BUDGET, caught
        except RedraftError as caught:
            error = caught
        except asyncio.CancelledError:
            if self.stop_asked is None:
                raise
            stop = self.stop_asked
        except Exception as caught:  # noqa: BLE001 - the boundary to user code: a strategy is one, too
            error = caught
        return self._finish(stop, error)

    async def _supervised(self, work: Coroutine[Any, Any, T]) -> T:
        """Await under deadline: code gets a moment to end with its best so far, then it is left behind."""
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._task = task
        while not task.done():
            left = self.meter.seconds_left
            try:
                await asyncio.wait({task}, timeout=None if left is None else max(left, 0) + _GRACE)
            except asyncio.CancelledError:
                self.closed = True
                await leave_behind(task)
                raise
            if not task.done():
                self.closed = True
                await leave_behind(task)
                raise self.meter.out_of_time()
        return task.result()

    def _finish(self, stop: StopReason, error: Exception | None) -> Result:
        if not isinstance(error, UsageError) and self._best is None:
            for attempt in sorted((a for a in self.attempts if a.prediction is not None), key=rank, reverse=True)[:1]:
                self.accept(attempt, f"the best of what there was when the run ended ({stop})")
        data = None if error is None else plain(error)
        self.journal.note("stop", scope=self.scope, key=f"{self.scope}|stop", reason=str(stop), error=data)
        self._close()
        best = self.best
        if best is None or isinstance(error, UsageError):
            raise self._carrying(error or RunFailed(f"the run ended ({stop}) before any attempt was finished"))
        return Result(
            best,
            attempts=self.attempts,
            events=tuple(e for e in self.journal.events if e.scope.startswith(self.scope)),
            stop_reason=stop,
            usage=self.usage,
            run_id=self.run_id,
            error=error,
        )

    def _carrying(self, error: Exception) -> RedraftError:
        if not isinstance(error, RedraftError):
            failed = RunFailed(f"no attempt succeeded; the last one failed with {type(error).__name__}: {error}")
            failed.__cause__ = error
            error = failed
        error.attempts, error.usage, error.run_id = self.attempts, self.usage, self.run_id
        return error

    def _close(self) -> None:
        self.closed = True
        for purchase in [p for p in self.open_calls if p.run is self or self.parent is None]:
            purchase.abandon()

    def _within(self) -> Any:
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        return entered(self._frame)

    async def __aenter__(self) -> Run:
        self._token = self._within()
        self._token.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._token.__exit__(None, None, None)
        self._close()

    def __enter__(self) -> Run:
        self.loop = private_loop()
        self._token = entered(self._frame)
        self._token.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._token.__exit__(None, None, None)
        self.closed = True
        private_loop().call_soon_threadsafe(self._close)


def _new_id() -> str:
    """Sortable by time, unique across processes."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(5).hex()}"
