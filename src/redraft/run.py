"""Run: the one object through which strategies act, and the only caller of an LM.

`complete` buys a reply (`purchase.py`: journal, reserve, call, commit, settle, emit). `attempt` tries a module and has
the outcome judged; `accept` and `reject` keep the best (`ledger.py`). `execute` drives a strategy to its end and
returns a Result whatever happens. What improves an answer is not here: strategies decide that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redraft import sync
from redraft.budget import UNLIMITED, Budget, Meter
from redraft.config import check_fits, settings, store_in_force
from redraft.errors import (
    BudgetExceeded,
    DivergedError,
    LMError,
    RedraftError,
    RunClosed,
    RunFailed,
    ScoreError,
    StoreError,
    UsageError,
)
from redraft.frame import Advice, Frame, current_frame, entered, paying, recorded, within
from redraft.journal import Journal, new_run_id
from redraft.jsonable import plain, showable
from redraft.ledger import Ledger
from redraft.protocols import LM, OnDelta, Scorer, Store, Strategy
from redraft.purchase import Purchase
from redraft.record import digest, score_from, spec_of
from redraft.result import Result
from redraft.scoring import as_prediction, name_of
from redraft.sync import LeftBehind, being_cancelled, call_user, on_loop, private_loop, supervised
from redraft.types import (
    Attempt,
    Completion,
    Critique,
    Event,
    Inputs,
    Prediction,
    Request,
    Score,
    StopReason,
    Usage,
    draft_text,
)

T = TypeVar("T")


class Run:
    """One refinement: a budget, a journal, attempts, and the best so far.

    A strategy makes its own. Use one as a context manager (`with` or `async with`) to put several module calls under
    one budget. Inside another run it is nested: it shares the journal and spends from both budgets. With a `run_id`,
    a `store` or a meter `around` it is none, and spends from that meter, too. A Run lives on one event loop; everything in
    it is called there.
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
        around: Meter | None = None,
    ) -> None:
        here = settings()
        check_fits({"budget": budget or here.budget, "store": store, "seed": seed, "listeners": listeners})
        frame = None if store or run_id or around else current_frame()
        self.parent: Run | None = frame.run if frame else None
        self.root: Run = self.parent.root if self.parent else self
        self.run_id: str = self.root.run_id if self.parent else run_id or new_run_id()
        self.strict = here.strict if strict is None else strict
        self.tries = here.tries
        self.budget = budget or (UNLIMITED if self.parent else here.budget)
        self.meter = Meter(self.budget, frame.meter if frame else around)
        self.scope = frame.nested_run() if frame else ""
        self._frame = Frame(run=self, scope=self.scope, meter=self.meter)
        if frame:
            self._frame.advice, self._frame.fresh = frame.advice, frame.fresh
        self.loop: asyncio.AbstractEventLoop | None = self.parent.loop if self.parent else None
        self.closed = self.stop_asked = False
        self.models: dict[str, LM] = self.parent.models if self.parent else {}
        self.open_calls: set[Purchase] = self.parent.open_calls if self.parent else set()
        self.nested: set[Run] = set()
        self._stop: asyncio.Future[None] | None = None
        self._process = sync.generation
        self._entered: entered | None = None
        shared = self.parent.journal if self.parent else None
        self.journal: Journal = shared or Journal(store_in_force(store), self.run_id, [*here.listeners, *listeners])
        self._seed = here.seed if seed is None else seed
        self._begun = False
        if self.journal.resumed:
            self.meter.preload(self.journal.spent(self.scope), 0.0 if self.parent else self.journal.seconds())
        self._ledger = Ledger(self.journal, self.scope)

    @classmethod
    def resume(cls, run_id: str, *, store: Store | None = None, **options: Any) -> Run:
        """The run of that id, to go on where it was; `options` as for a new one. Its replies are not bought again.

        Raises `StoreError` if the store has no such run.
        """
        run = cls(run_id=run_id, store=store, **options)
        if not run.journal.resumed:
            raise StoreError(f"there is no run {run_id!r} in the store; `redraft runs list` shows those that are")
        return run

    @property
    def seed(self) -> int:
        """Seed of all sampling in the run, drawn once and recorded when the run begins; a resumed run keeps it."""
        root = self.root
        if not root._begun:
            root._begun = True
            root._seed = root.journal.begin(root._seed, root.budget)
        return int(root._seed or 0)

    # What a strategy uses

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Everything tried so far, by index."""
        return self._ledger.attempts

    @property
    def best(self) -> Attempt | None:
        """The best accepted attempt."""
        return self._ledger.best

    @property
    def usage(self) -> Usage:
        """What this run spent so far, nested runs included."""
        return self.meter.usage

    async def complete(self, request: Request, *, lm: LM, role: str = "author", on_delta: OnDelta = None) -> Completion:
        """One reply, paid at most once. `role` says who asks (author, critic, reviser, judge, advisor); `on_delta` hears the
        reply while it is written, and a recorded one at once.

        Raises `LMError`, `BudgetExceeded`, or `RunClosed`; is cancellable at any point, and then charged truly.
        """
        self.models[lm.name] = lm
        purchase = Purchase(self, self._here(), lm, request, role=role, on_delta=on_delta)
        if self.loop is None or self.loop is asyncio.get_running_loop():
            return await purchase.complete()
        return await on_loop(purchase.complete, self.loop)

    async def send(self, lm: LM, request: Request, on_delta: OnDelta) -> Completion:
        """The one place where a model is called, and the boundary to the wire: only `LMError` comes out."""
        try:
            with paying():
                return await lm.generate(request, on_delta)
        except (LMError, UsageError):
            raise
        except Exception as error:
            raise LMError(f"{lm.name} failed with {type(error).__name__}: {showable(error)}", sent=True) from error

    async def attempt(
        self,
        module: Any,
        inputs: Inputs,
        *,
        scorer: Scorer | None = None,
        parent: Attempt | None = None,
        advice: Advice | None = None,
        rung: str = "tell",
        why: str = "",
        index: int | None = None,
    ) -> Attempt:
        """Try a module (or any function) once and have the outcome judged.

        `rung` of the ladder, and `why` that one, go on record; `index` is a number from `reserve`. What user code raises
        is recorded as the attempt's error, not raised; an ended budget, a closed run and bad input are raised. The
        attempt is neither accepted nor rejected yet.
        """
        outer = self._here()
        outer.meter.check_time()
        tried = self._ledger.begin(rung, why, parent, inputs, index)
        scope = self._ledger.scope_of(tried.index)
        frame = outer.attempt(
            self, scope, self.journal.metered(scope, outer.meter), advice or outer.advice, again=tried.index > 0
        )
        drafts: list[Prediction] = []
        try:
            with entered(frame):
                drafts.append(as_prediction(await call_user(module, **inputs)))
                self._ledger.drafted(tried.but(prediction=drafts[0]))
                score = await self._judge(scorer, inputs, drafts[0], frame)
        except UsageError:
            raise
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - user code: a bad attempt is data
            self._cut_off(scope)
            return self._failed(tried, frame, drafts, error)
        return self._ledger.record(tried.but(prediction=drafts[0], score=score, usage=frame.meter.usage))

    def reserve(self, attempts: int) -> tuple[list[int], int]:
        """Numbers for attempts that will begin in any order, those on record first in their old order; how many are."""
        return self._ledger.reserve(attempts)

    def _failed(self, tried: Attempt, frame: Frame, drafts: list[Prediction], error: BaseException) -> Attempt:
        """Put an attempt that did not end well on record, with the draft if there is one; raise what ends the run."""
        ended: BaseException | None = frame.meter.ended_by(error)
        kept = showable(error) if isinstance(error, Exception) else RuntimeError("the module was cancelled from inside")
        if isinstance(error, asyncio.CancelledError) and being_cancelled():
            ended, kept = error, RunClosed("cancelled")
        tried = tried.but(prediction=drafts[0] if drafts else None, error=kept, usage=frame.meter.usage)
        self._ledger.record(tried, replayable=ended is None)
        if ended is not None:
            raise ended
        return tried

    async def _judge(self, scorer: Scorer | None, inputs: Inputs, draft: Prediction, frame: Frame) -> Score | None:
        if scorer is None:
            return None
        old = self.journal.recorded("attempt", frame.scope)
        if old and old.data["score"] and old.data["draft"] == digest(draft_text(draft)):
            self.journal.settled(frame.scope)
            return score_from(old.data["score"])
        return await self.judging(scorer, scorer.score(inputs, draft))

    async def judging(self, judge: Any, work: Awaitable[T]) -> T:
        """Await a scorer, critic or judge: it hears nothing of what the author is advised, and whatever it raises comes
        out as a `ScoreError` that names it.
        """
        try:
            with entered(self._here().unadvised()):
                return await work
        except RedraftError:
            raise
        except Exception as error:
            where = " ".join(getattr(error, "__notes__", ())) or f"in {name_of(judge)}"
            raise ScoreError(f"{type(error).__name__} {where}: {error}; mend it: no score was recorded") from error

    def accept(self, attempt: Attempt, reason: str) -> bool:
        """Make an attempt the best so far; refused (False) if it scores below the best."""
        return self._ledger.accept(attempt, reason)

    def reject(self, attempt: Attempt, reason: str) -> None:
        """Keep the best so far, and say why this one is not it."""
        self._ledger.reject(attempt, reason)

    def criticised(self, attempt: Attempt, critique: Critique) -> Attempt:
        """Put a critique on record beside the attempt it speaks of."""
        return self._ledger.criticised(attempt, critique)

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Do a user's own effect once: its JSON result is journalled, and a replay returns it without calling `fn`."""
        return await recorded(self._here(), name, lambda: call_user(fn, *args, **kwargs), ready=self.check_open)

    def _here(self) -> Frame:
        """The frame of the running code if it is part of this run, else the run's own."""
        return frame if (frame := current_frame()) and frame.run.root is self.root else self._frame

    # Life and death

    def check_open(self) -> None:
        """Raises `RunClosed` once this run, or one around it, has ended or was told to, and in a forked process."""
        if self._process != sync.generation:
            raise RunClosed(f"run {self.run_id} lives in the parent of this process, which buys nothing in it")
        run: Run | None = self
        while run is not None:
            if run.closed or run.stop_asked:
                raise RunClosed(f"run {self.run_id} has ended and buys nothing more; start a new one")
            run = run.parent

    def cancel(self) -> None:
        """End the run, from any thread: calls in flight are cut off and charged, nothing more is bought, and `execute`
        returns the best so far with stop reason `cancelled`.
        """
        self.stop_asked = True
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        for purchase in [p for p in self.open_calls if within(p.frame.scope, self.scope)]:
            purchase.interrupt()
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(None)

    def _cut_off(self, scope: str) -> None:
        """End and charge calls in flight that nobody waits for any more: they would hold places and connections."""
        for purchase in list(self.open_calls):
            if within(purchase.frame.scope, scope):
                purchase.interrupt()
                purchase.abandon()

    async def execute(self, strategy: Strategy, inputs: Inputs) -> Result:
        """Drive a strategy to its end. Returns the best so far and why it stopped, or raises an error that carries
        every attempt (`error.attempts`, `error.usage`) when there is none to return.
        """
        if self.closed:
            self.check_open()
        self.journal.spec = self.journal.spec or spec_of(strategy, inputs)
        _ = self.seed  # the run begins
        self.loop, self._stop = self.loop or asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        self._frame.owner = strategy
        if self.parent:
            self.parent.nested.add(self)
        stop = StopReason.ERROR
        error: Exception | None = None
        try:
            self.check_open()
            with entered(self._frame):
                work, left = strategy.steps(self, inputs), self.meter.seconds_left
                # Nested runs end before those around them: their best so far still has to get out.
                stop = await supervised(work, left, self._stop, lambda: bool(self.nested))
        except LeftBehind:
            error = None if self._stopping() else self.meter.out_of_time()
        except asyncio.CancelledError:
            if being_cancelled() and not self._stopping():
                self._close()
                raise
            error = RunFailed("the strategy was cancelled from inside")
        except Exception as caught:  # noqa: BLE001 - the boundary to user code: a strategy is one, too
            error = caught
        if error is not None or stop is StopReason.ERROR:
            stop = self._reason(error)
        return self._finished(stop, error)

    def _stopping(self) -> bool:
        return self.stop_asked or (self.parent is not None and self.parent._stopping())

    def _reason(self, error: Exception | None) -> StopReason:
        if self._stopping():
            return StopReason.CANCELLED
        return StopReason.BUDGET if isinstance(error, BudgetExceeded) else StopReason.ERROR

    def _finished(self, stop: StopReason, error: Exception | None) -> Result:
        if not isinstance(error, UsageError):
            self._ledger.salvage(stop)
        if error is None and (diverged := self._diverged()) is not None and self.strict:
            error = diverged
        end = {"reason": str(stop), "error": error and plain(error)}
        self.journal.note("stop", scope=self.scope, key=f"{self.scope}|stop", **end)
        self._close()
        best = self.best
        if best is None or isinstance(error, UsageError | DivergedError):
            error = error or RunFailed(f"the run ended ({stop}) before any attempt was finished")
            raise self._ledger.carried_by(error, self.usage, self.run_id)
        return self._ledger.result(best, stop_reason=stop, usage=self.usage, run_id=self.run_id, error=error)

    def _diverged(self) -> DivergedError | None:
        return self.journal.diverged() if self.parent is None else None

    def _close(self) -> None:
        self.closed = True
        self._cut_off(self.scope)
        if self.parent:
            self.parent.nested.discard(self)
        if self.parent is None:
            self.journal.close()

    def __enter__(self) -> Run:
        self.loop = self.loop or private_loop()
        return self._enter()

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        self._leave()
        if self._process == sync.generation:  # else it goes on in the parent
            sync.call_on(self.loop, lambda: self._ended(error))

    async def __aenter__(self) -> Run:
        self.loop = self.loop or asyncio.get_running_loop()
        return self._enter()

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        self._leave()
        if self._process == sync.generation:
            self._ended(error)

    def _enter(self) -> Run:
        self.check_open()
        if self._entered is not None:
            raise UsageError("this run is entered already; make a new Run() inside it to nest one")
        assert self.seed is not None  # the run begins
        self._entered = entered(self._frame)
        self._entered.__enter__()
        return self

    def _leave(self) -> None:
        assert self._entered is not None
        self._entered.__exit__()
        self.closed = True

    def _ended(self, error: BaseException | None) -> None:
        """The block was left, through `error` or not; on record, one that was cut off (cancelled, Ctrl-C) has not ended."""
        diverged = self._diverged() if error is None else None
        if self.parent is None and (error is None or isinstance(error, Exception)):
            reason = "done" if error is None and not self.stop_asked else str(self._reason(error))
            end = {"reason": reason, "error": error and plain(error)}
            self.journal.note("stop", scope=self.scope, key=f"{self.scope}|stop", **end)
        self._close()
        if diverged is not None and self.strict:
            raise diverged
