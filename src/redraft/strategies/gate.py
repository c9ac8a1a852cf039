"""The gate: does a revision replace the best draft? (docs/design.md section 5.) Keep the best, never the last.

No passed hard check may newly fail, and the score must rise; where code sees no difference, a judge must prefer the
revision in both orders.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from redraft.errors import ParseError
from redraft.run import Run
from redraft.types import Attempt, StopReason

MIN_GAIN = 1e-6


@dataclass
class Gate:
    """Decides on revisions in one run, and notices when they lead nowhere."""

    run: Run
    judge: Any
    """A module with inputs task, challenger, incumbent and output `wins`."""
    task: str
    patience: int = 2
    """Refusals (or rises too small to matter) in a row after which it stops."""
    refused: int = 0
    flat: int = 0

    async def decide(self, revision: Attempt) -> StopReason | None:
        """Accept or reject; a StopReason if further rounds make no sense."""
        best = self.run.best
        assert best is not None
        if revision.error is not None:
            return self._refuse(revision, f"failed: {revision.error}")
        if (same := self._seen(revision)) is not None:
            self.run.reject(revision, f"equals draft {same.index + 1}")
            return StopReason.NO_CHANGE if same.index == best.index else StopReason.CYCLE
        accepted, reason = await self._better(best, revision)
        if not accepted:
            return self._refuse(revision, reason)
        self.run.accept(revision, reason)
        self.refused = 0
        small = best.score is not None and _value(revision) - _value(best) <= MIN_GAIN and not self._judged(best)
        self.flat = self.flat + 1 if small else 0
        return StopReason.PLATEAU if self.flat >= self.patience else None

    async def _better(self, best: Attempt, revision: Attempt) -> tuple[bool, str]:
        if best.score is not None and revision.score is not None:
            before = {v.check: v for v in best.score.verdicts if v.passed and v.hard}
            lost = [v for v in revision.score.verdicts if not v.passed and v.check in before]
            if lost:
                return False, f"{lost[0].explanation} (draft {best.index + 1} had that right)"
            gain = _value(revision) - _value(best)
            if gain > MIN_GAIN:
                return True, f"score {_value(best):.2f} -> {_value(revision):.2f}"
            if gain < -MIN_GAIN:
                return False, f"score {_value(best):.2f} -> {_value(revision):.2f}"
            if not self._judged(best):
                return False, f"score stays {_value(best):.2f}"
        return await self._ask_judge(best, revision)

    async def _ask_judge(self, best: Attempt, revision: Attempt) -> tuple[bool, str]:
        try:
            said = await self.judge.acall(task=self.task, challenger=revision.text, incumbent=best.text)
        except ParseError as error:
            self.run.journal.note("judge_error", scope=self.run.scope, error=str(error))
            return False, "the judge gave no verdict"
        wins = bool(said.wins)
        return wins, f"the judge {'prefers it' if wins else 'does not prefer it'} in both orders"

    def _judged(self, best: Attempt) -> bool:
        """True if code has nothing left to improve, so that only a judge can tell the drafts apart."""
        return best.score is None or (best.score.passed and bool(best.score.verdicts))

    def _refuse(self, revision: Attempt, reason: str) -> StopReason | None:
        self.run.reject(revision, reason)
        self.refused += 1
        return StopReason.REJECTED if self.refused >= self.patience else None

    def _seen(self, revision: Attempt) -> Attempt | None:
        mark = _normal(revision.text)
        earlier = [a for a in self.run.attempts if a.index < revision.index and a.prediction is not None]
        return next((a for a in reversed(earlier) if _normal(a.text) == mark), None)


def _normal(text: str) -> str:
    """Two drafts that differ only in white space and case are one draft."""
    return hashlib.sha256(" ".join(text.split()).casefold().encode("utf-8", "surrogatepass")).hexdigest()


def _value(attempt: Attempt) -> float:
    assert attempt.score is not None
    return attempt.score.value
