"""The gate: does a revision replace the best draft? (docs/design.md section 5.) Keep the best, never the last.

No passed hard check may newly fail, and the score must rise; where code sees no difference, a judge must prefer the
revision in both orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redraft.errors import ParseError
from redraft.run import Run
from redraft.scoring import ask, name_of
from redraft.types import Attempt, Score, StopReason

MIN_GAIN = 1e-6


@dataclass
class Gate:
    """Decides on revisions in one run, and notices when they lead nowhere."""

    run: Run
    judge: Any
    """Called with task, challenger, incumbent; answers with a bool or a field `wins`."""
    task: Any
    patience: int = 2
    """Refusals in a row after which it stops: as `plateau` if the score stood still each time, else `rejected`."""
    refused: int = 0
    still: int = 0

    async def decide(self, revision: Attempt) -> StopReason | None:
        """Accept or reject; a StopReason if further rounds make no sense."""
        best = self.run.best
        assert best is not None
        if revision.error is not None:
            return self._refuse(revision, f"failed: {revision.error}")
        if (same := self._seen(revision)) is not None:
            self.run.reject(revision, f"equals draft {same.index + 1}")
            return StopReason.NO_CHANGE if same.index == best.index else StopReason.CYCLE
        if best.score is None or revision.score is None:
            return await self._ask_judge(best, revision)
        if lost := newly_failed(best.score, revision.score):
            return self._refuse(revision, f"{lost} (draft {best.index + 1} had that right)")
        before, after = best.score.value, revision.score.value
        if after > before + MIN_GAIN:
            return self._accept(revision, f"score {before:.2f} -> {after:.2f}")
        if after < before - MIN_GAIN:
            return self._refuse(revision, f"score {before:.2f} -> {after:.2f}")
        if best.score.verdicts and best.score.passed:  # code has nothing left to improve
            return await self._ask_judge(best, revision)
        self.still += 1
        return self._refuse(revision, f"score stays {before:.2f}")

    async def _ask_judge(self, best: Attempt, revision: Attempt) -> StopReason | None:
        given = {"task": self.task, "challenger": revision.text, "incumbent": best.text}
        try:
            wins = await self.run.judging(self.judge, ask(self.judge, given, "wins"))
        except ParseError as error:
            return self._no_verdict(revision, str(error))
        if not isinstance(wins, bool):
            return self._no_verdict(revision, f"it returned {wins!r:.80}, not True or False")
        if wins:
            return self._accept(revision, "the judge prefers it in both orders")
        return self._refuse(revision, "the judge does not prefer it in both orders")

    def _no_verdict(self, revision: Attempt, why: str) -> StopReason | None:
        self.run.journal.remark("judge_error", scope=self.run.scope, error=f"{name_of(self.judge)}: {why}")
        return self._refuse(revision, "the judge gave no verdict")

    def _accept(self, revision: Attempt, reason: str) -> StopReason | None:
        self.run.accept(revision, reason)
        self.refused = self.still = 0
        return None

    def _refuse(self, revision: Attempt, reason: str) -> StopReason | None:
        self.run.reject(revision, reason)
        self.refused += 1
        if self.refused < self.patience:
            return None
        return StopReason.PLATEAU if self.still == self.refused else StopReason.REJECTED

    def _seen(self, revision: Attempt) -> Attempt | None:
        """The latest earlier draft with the same text, but for white space at its ends."""
        earlier = [a for a in self.run.attempts if a.index < revision.index and a.prediction is not None]
        return next((a for a in reversed(earlier) if a.text.strip() == revision.text.strip()), None)


def newly_failed(before: Score | None, after: Score | None) -> str:
    """What a hard check that passed before says now; empty if none fails. Checks are told apart by their place."""
    if before is None or after is None:
        return ""
    pairs = zip(before.verdicts, after.verdicts, strict=False)
    return next((new.explanation for old, new in pairs if old.passed and old.hard and not new.passed), "")
