"""One reply being bought, in the order of docs/design.md section 4: journal (already paid? return it), reserve, call
under deadline with the one retry loop, commit the reply before anyone uses it, settle, emit.

`Run.complete` makes a Purchase for each call; nothing else does.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.budget import Ask, Reservation
from redraft.cached import place_of
from redraft.errors import AuthError, BudgetExceeded, LMError, RunClosed, TransientLMError, UnsupportedError
from redraft.frame import Frame
from redraft.journal import CALL, CALL_ERROR, CALL_FAILED, INTENT
from redraft.jsonable import canonical
from redraft.protocols import LM, Delta, OnDelta
from redraft.record import completion_data, completion_from, content, derived_seed, digest, error_data, error_from, used
from redraft.refusals import as_asked, droppable, remember_refusal, without_refused
from redraft.retry import LONGEST_WAIT, wait_before
from redraft.sync import leave_behind, seen
from redraft.takeover import room_for
from redraft.turns import Gate, gate_of
from redraft.types import Completion, Event, Request, Usage

if TYPE_CHECKING:
    from redraft.run import Run

UNASKED_CAP = 4096
"""Cap under a limit where neither the request nor the model names one: else one call reserves all that is left."""

_GOODBYE = 0.01  # seconds for a connection to close after the deadline; those who wait have a deadline, too

_CROWDED = frozenset({429, 529})
"""HTTP statuses that say: too many requests."""


class Purchase:
    """One reply being bought. Settled exactly once, whatever happens."""

    def __init__(
        self, run: Run, frame: Frame, lm: LM, request: Request, *, role: str, on_delta: OnDelta = None
    ) -> None:
        self.run = run
        self.frame = frame
        self.lm = lm
        self.request = request
        self.role = role
        self._hears = None if on_delta is None else run.journal.guarded(on_delta)
        self.content = content(lm.name, request)
        self.key = run.journal.key(frame.scope, digest(self.content))
        self.place = place_of(frame, lm, request, self.content)
        self._held: Reservation | None = None
        self._intent: Event | None = None
        self._task: asyncio.Task[Any] | None = None
        self._interrupted = self._crowded = False
        self._begun_at = 0
        """Where the try's intent is in the journal; the first event is the run's."""
        self._sent = request
        self._bound: int | None = None

    async def complete(self) -> Completion:
        """The reply: the journal's, or a new one."""
        self.run.check_open()
        journal = self.run.journal
        if (old := journal.recorded(CALL, self.key)) is not None:
            journal.tell(old)
            return self._told(completion_from(old.data["completion"]), self._hears)
        if (old := journal.recorded(CALL_ERROR, self.key)) is not None:
            journal.tell(old)
            raise error_from(old.data)
        if self.place is not None and (kept := self.place.read()) is not None:
            return await self._given(kept)
        self.run.open_calls.add(self)
        try:
            return await self._until_deadline()
        finally:
            self.run.open_calls.discard(self)
            self.abandon()

    async def _given(self, completion: Completion) -> Completion:
        """A reply that another run has paid for: on record like a bought one, and charged nothing."""
        self._told(completion, self._on_delta())
        await self.run.journal.commit(
            CALL,
            scope=self.frame.scope,
            key=self.key,
            content=self.content,
            intent=None,
            role=self.role,
            model=self.lm.name,
            usage={},
            completion=completion_data(completion),
            seconds=0.0,
            cached=True,
        )
        return completion

    @staticmethod
    def _told(completion: Completion, on_delta: OnDelta) -> Completion:
        if on_delta is not None:
            for at, choice in enumerate(completion.choices):
                on_delta(Delta(reasoning=choice.reasoning, text=choice.text, choice=at))
        return completion

    def abandon(self) -> None:
        """Charge a try that was left behind: its reservation if it may have been sent, a call if only its intent is on record."""
        held, sent = self._held, self._intent
        if held is None or not held.open:
            return
        intent = sent or self._unsent()
        usage = Usage(**self._worst(held)) if sent else Usage(calls=1) if intent else Usage()
        if held.settle(usage) and intent is not None:
            self.run.journal.note(
                CALL_FAILED,
                scope=self.frame.scope,
                key=self.key,
                intent=intent.seq,
                usage=used(usage),
                error=f"cancelled {'after' if sent else 'before'} sending",
            )

    def _unsent(self) -> Event | None:
        """The intent that was not yet durable when the try was left."""
        found = self.run.journal.events[self._begun_at : self._begun_at + 1] if self._begun_at else ()
        return next((e for e in found if e.kind == INTENT and e.key == self.key), None)

    async def _until_deadline(self) -> Completion:
        """No longer than the nearest deadline, even if the LM ignores its cancellation."""
        left = self.frame.meter.seconds_left
        if left is None:
            return await self._until_stopped()
        self.frame.meter.check_time()
        task = asyncio.ensure_future(self._until_stopped())
        task.add_done_callback(seen)
        try:
            await asyncio.wait({task}, timeout=left)
        finally:
            if not task.done():
                task.cancel()
        if task.done():
            return task.result()
        await leave_behind(task, _GOODBYE)
        raise self.frame.meter.out_of_time()

    async def _until_stopped(self) -> Completion:
        self._task = asyncio.current_task()
        try:
            return await self._buy()
        except asyncio.CancelledError:
            if self._task is None or not self._interrupted:
                raise
            self._task.uncancel()
            self.run.check_open()
            raise
        finally:
            self._task = None

    def interrupt(self) -> None:
        """The run was told to stop: end this call with `RunClosed`, which leaves room to keep the best so far."""
        if self._task is not None:
            self._interrupted = True
            self._task.cancel()

    async def _buy(self) -> Completion:
        tried = 0
        last: LMError | None = None
        while True:
            try:
                return await self._try()
            except BudgetExceeded as error:
                if last is None:
                    raise
                raise error.after(str(last)) from last
            except UnsupportedError as error:
                dropped = droppable(error, self._sent)
                if not dropped:
                    raise
                for name in dropped:
                    remember_refusal(self.lm, name)
                parts = {"parts": list(error.parts)} if error.parts else {}
                self._say("dropped", parameter=error.parameter, model=self.lm.name, error=str(error), **parts)
            except LMError as error:
                tried += not self._crowded  # one too many is no fault of this call: fewer at once cure it
                wait = wait_before(error, tried, self.run.tries)
                if wait is None:
                    raise
                self._say("retry", wait=wait, error=str(error), tried=tried)
                last = error
                left = self.frame.meter.seconds_left
                if left is not None and wait >= left:
                    waits = f", and the next try has to wait {wait:.1f} s after: {error}"
                    raise self.frame.meter.out_of_time(waits) from error
                await asyncio.sleep(wait)

    async def _try(self) -> Completion:
        self._intent, self._crowded, self._begun_at = None, False, 0
        asked = lambda: self._as_sent(self.request.max_tokens)  # noqa: E731
        held, begun = await room_for(self._ask(), frame=self.frame, key=self.key, lm=self.lm, sent=asked)
        self._held, self._intent = held, begun
        gate = _gate(self.lm)
        entered, answered = await gate.enter(), None
        try:
            self.run.check_open()
            self._begun_at = len(self.run.journal.events)
            self._intent = begun or await self.run.journal.commit(
                INTENT,
                scope=self.frame.scope,
                key=self.key,
                content=self.content,
                role=self.role,
                cap=held.cap,
                reserved=self._worst(held),
            )
            started = time.perf_counter()
            self._sent = self._as_sent(held.cap)
            completion = await self.run.send(self.lm, self._sent, self._on_delta())
            completion, answered = as_asked(completion, self.request, self._sent), entered
        except LMError as error:
            await self._make_way(gate, entered, error)
            await self._failed(error, held)
            raise
        finally:
            gate.leave(answered)
        await self._bought(completion, held, time.perf_counter() - started)
        return completion

    async def _make_way(self, gate: Gate, entered: int, error: LMError) -> None:
        """Too many requests, the upstream says: from here on fewer at once, whoever sends them."""
        if error.status not in _CROWDED:
            return
        wait = getattr(error, "retry_after", None) or 0.0
        self._crowded, before, now = await gate.refused(entered, wait if wait <= LONGEST_WAIT else 0.0)
        if now < before:
            self._say("slowed", model=self.lm.name, limit=now, before=before, error=str(error))

    def _ask(self) -> Ask:
        meter, request = self.frame.meter, self.request
        if not meter.limits_tokens:
            return Ask(prompt=0, cap=request.max_tokens, n=request.n)
        caps = [c for c in (request.max_tokens, self.lm.max_output) if c is not None] or [UNASKED_CAP]
        price = self.lm.cost if meter.limits_money else None
        return Ask(prompt=self._prompt_bound(), cap=min(caps), n=request.n, price=price)

    def _prompt_bound(self) -> int:
        """Most tokens that the prompt can be: a tokenizer's count, else a byte a token and room for chat markup."""
        if self._bound is None:
            counted = self.lm.count(self.request) if self.frame.meter.limits_tokens else None
            size = len(self.content.encode("utf-8", "surrogatepass"))
            self._bound = size + 16 * len(self.request.messages) + 64 if counted is None else counted
        return self._bound

    def _worst(self, held: Reservation) -> dict[str, Any]:
        """The usage a sent try is charged when its own never comes: its reservation, as a range from nothing."""
        prompt = self._prompt_bound()
        out = self.request.n * (held.cap or 0)
        worst: dict[str, Any] = {"calls": 1, "uncertain_tokens": prompt + out}
        if held.cap is None:
            worst["unbounded"] = 1
        cost = self.lm.cost(Usage(input_tokens=prompt, output_tokens=out))
        if cost is None:
            worst["unpriced"] = 1
        elif cost:
            worst["uncertain_cost"] = cost
        return worst

    def _as_sent(self, cap: int | None) -> Request:
        """The request with its cap and seed, without what this model refuses."""
        changes: dict[str, Any] = {}
        if cap != self.request.max_tokens:
            changes["max_tokens"] = cap
        if self.request.seed is None and self.lm.capabilities.seed:
            changes["seed"] = derived_seed(self.run.root.seed, self.key)
        return without_refused(self.lm, self.request.but(**changes) if changes else self.request)

    def _on_delta(self) -> OnDelta:
        journal, scope, hears = self.run.journal, self.frame.scope, self._hears
        if not journal.streams:
            return hears

        def show(delta: Delta) -> None:
            data = {"text": delta.text, "reasoning": delta.reasoning, "role": self.role}
            journal.tell(Event(seq=-1, kind="delta", time=time.time(), scope=scope, data=data))
            if hears is not None:
                hears(delta)

        return show

    async def _bought(self, completion: Completion, held: Reservation, seconds: float) -> None:
        usage = self._measured(completion, held)
        if not held.settle(usage):
            raise RunClosed("the reply came after its call was given up and charged")
        assert self._intent is not None
        await self.run.journal.commit(
            CALL,
            scope=self.frame.scope,
            key=self.key,
            intent=self._intent.seq,
            role=self.role,
            model=self.lm.name,
            usage=used(usage),
            completion=completion_data(completion),
            seconds=round(seconds, 6),
        )
        if self.place is not None:
            self.place.keep(completion, held.cap)
        if usage.overrun:
            self._say("overrun", tokens=usage.overrun, cap=held.cap, model=self.lm.name)

    async def _failed(self, error: LMError, held: Reservation) -> None:
        """Refused before sending or 4xx: one call and no tokens. Failed after sending: its reservation, as a range."""
        if error.reported is not None:
            usage = self._priced(error.reported)
        elif error.sent:
            usage = Usage(**self._worst(held))
        else:
            usage = Usage(calls=1)
        if not held.settle(usage) or self._intent is None:
            return
        dropped = isinstance(error, UnsupportedError) and droppable(error, self._sent)
        transient = dropped or isinstance(error, TransientLMError | AuthError)  # a key can be mended
        await self.run.journal.commit(
            CALL_FAILED if transient else CALL_ERROR,
            scope=self.frame.scope,
            key=self.key,
            intent=self._intent.seq,
            usage=used(usage),
            **error_data(error),
        )

    def _measured(self, completion: Completion, held: Reservation) -> Usage:
        """Reported usage is exact. A finished reply without one is counted, marked, and given an upper end."""
        if (reported := completion.usage) is not None:
            limit = self.request.n * held.cap if held.cap is not None else None
            over = 0 if limit is None else max(0, reported.output_tokens - limit)
            return self._priced(reported, over)
        prompt = self._prompt_bound()
        texts = [c.text + c.reasoning + (canonical(c.tool_calls) if c.tool_calls else "") for c in completion.choices]
        written = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        if held.cap is not None:
            written = min(written, self.request.n * held.cap)
        # A word is at least one token, a byte at most one: the truth lies between.
        asked = sum(len(m["content"].split()) for m in self.request.messages if isinstance(m.get("content"), str))
        low = Usage(
            calls=1,
            estimated=1,
            input_tokens=min(asked, prompt),
            output_tokens=min(sum(len(text.split()) for text in texts), written),
        )
        least, most = self.lm.cost(low), self.lm.cost(Usage(input_tokens=prompt, output_tokens=written))
        return replace(
            low,
            uncertain_tokens=prompt + written - low.tokens,
            cost=least or 0.0,
            uncertain_cost=(most or 0.0) - (least or 0.0),
            unpriced=int(least is None),
        )

    def _priced(self, u: Usage, overrun: int = 0) -> Usage:
        """Reported tokens as one call's usage. Spelled out: `replace` costs five times as much, on every call."""
        cost = self.lm.cost(u)
        usage = Usage(
            calls=1,
            input_tokens=u.input_tokens,
            output_tokens=u.output_tokens,
            cached_tokens=u.cached_tokens,
            reasoning_tokens=u.reasoning_tokens,
            cost=cost or 0.0,
            unpriced=int(cost is None),
            overrun=overrun,
        )
        if not u.uncertain_tokens:
            return usage
        more = self.lm.cost(Usage(output_tokens=u.uncertain_tokens)) or 0.0  # of a reply that was cut short
        return replace(usage, uncertain_tokens=u.uncertain_tokens, uncertain_cost=more)

    def _say(self, kind: str, **data: Any) -> None:
        self.run.journal.note(kind, scope=self.frame.scope, **data)


def _gate(lm: LM) -> Gate:
    """One gate an upstream, shared by every run of the process."""
    return gate_of((lm.name, lm.parallel, str(getattr(lm, "address", ""))))
