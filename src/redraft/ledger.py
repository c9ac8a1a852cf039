"""The attempts of one run: what was tried, what was accepted and why, and the best so far. Every entry is journalled."""

from __future__ import annotations

import math
from typing import Any

from redraft.errors import RedraftError, RunFailed, ScoreError
from redraft.frame import within
from redraft.journal import Journal
from redraft.jsonable import plain
from redraft.record import critique_data, digest, score_data, used
from redraft.result import Result
from redraft.scoring import rank
from redraft.types import Attempt, Critique, Usage


class Ledger:
    """Keeps the best, never the last."""

    def __init__(self, journal: Journal, scope: str) -> None:
        self._journal = journal
        self._scope = scope
        self._attempts: dict[int, Attempt] = {}
        self._unjudged: dict[int, Attempt] = {}
        self._next = 0
        self._best: int | None = None

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts that have ended, by index, and the drafts whose judging has not."""
        judged = self._attempts
        open_ = {i: a.but(error=ScoreError(UNJUDGED)) for i, a in self._unjudged.items() if i not in judged}
        return tuple(a for _, a in sorted({**open_, **judged}.items()))

    @property
    def best(self) -> Attempt | None:
        """The best accepted attempt."""
        return None if self._best is None else self._attempts[self._best]

    def scope_of(self, index: int) -> str:
        """An attempt's place in the journal."""
        return f"{self._scope}/attempt[{index}]"

    def reserve(self, attempts: int) -> tuple[list[int], int]:
        """See `Run.reserve`."""
        numbers = list(range(self._next, self._next + attempts))
        self._next += attempts
        if not self._journal.resumed:
            return numbers, 0
        old = {n: e.seq for n in numbers if (e := self._journal.recorded("attempt", self.scope_of(n))) is not None}
        return sorted(numbers, key=lambda n: old.get(n, math.inf)), len(old)

    def begin(self, rung: str, why: str, parent: Attempt | None, inputs: object, index: int | None = None) -> Attempt:
        """A new attempt, on a rung of the ladder and why on that one."""
        index = self.reserve(1)[0][0] if index is None else index
        parent_index = None if parent is None else parent.index
        scope = self.scope_of(index)
        self._journal.begun.add(scope)
        self._journal.note("propose", scope=scope, key=scope, index=index, rung=rung, why=why, parent=parent_index)
        return Attempt(index=index, inputs=inputs, parent=parent_index, rung=rung)  # type: ignore[arg-type]

    def drafted(self, attempt: Attempt) -> None:
        """A draft is there and not judged yet: should judging never end, it is not lost."""
        self._unjudged[attempt.index] = attempt

    def record(self, attempt: Attempt, *, replayable: bool = True) -> Attempt:
        """An attempt has ended. One that was cut off is on record, but is tried again on a resume."""
        self._attempts[attempt.index] = attempt
        self._unjudged.pop(attempt.index, None)
        scope, text = self.scope_of(attempt.index), attempt.text
        error = None if attempt.error is None else plain(attempt.error)
        if isinstance(attempt.error, ScoreError):
            self._journal.note("judge_error", scope=scope, key=scope, error=error)
        self._journal.note(
            "attempt",
            scope=scope,
            key=scope if replayable else "",
            index=attempt.index,
            parent=attempt.parent,
            rung=attempt.rung,
            text=text,
            draft=digest(text),
            score=score_data(attempt.score),
            error=error,
            usage=used(attempt.usage),
        )
        return attempt

    def accept(self, attempt: Attempt, reason: str) -> bool:
        """Make an attempt the best so far; refused (False) if it scores below the best."""
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

    def criticised(self, attempt: Attempt, critique: Critique) -> Attempt:
        """Put a critique beside the attempt it speaks of."""
        attempt = self._attempts[attempt.index].but(critique=critique)
        self._attempts[attempt.index] = attempt
        scope = self.scope_of(attempt.index)
        self._journal.note("critique", scope=scope, key=scope, index=attempt.index, **critique_data(critique))
        return attempt

    def salvage(self, stop: str) -> None:
        """Nothing was accepted when the run ended: take the best of what there is."""
        drafts = [a for a in self.attempts if a.prediction is not None]
        if self._best is None and drafts:
            self.accept(max(drafts, key=rank), f"the best of what there was when the run ended ({stop})")

    def result(self, best: Attempt, **parts: Any) -> Result:
        """What the run returns."""
        events = tuple(e for e in self._journal.events if within(e.scope, self._scope))
        return Result(best, attempts=self.attempts, events=events, **parts)

    def carried_by(self, error: Exception, usage: Usage, run_id: str) -> RedraftError:
        """The error that ends a run with nothing to return, with all that was tried."""
        if not isinstance(error, RedraftError):
            failed = RunFailed(f"no attempt succeeded; the last one failed with {type(error).__name__}: {error}")
            failed.__cause__ = error
            error = failed
        error.attempts, error.usage, error.run_id = self.attempts, usage, run_id
        return error

    def _decide(self, kind: str, attempt: Attempt) -> None:
        self._attempts[attempt.index] = attempt
        scope = self.scope_of(attempt.index)
        self._journal.note(kind, scope=scope, key=scope, index=attempt.index, reason=attempt.reason)


UNJUDGED = "the run ended before this draft was judged"
