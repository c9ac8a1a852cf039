"""What calibration does with one example: a first draft, and from that same draft each rung of the ladder once.

So rungs are compared on the same failing drafts, and nobody's later attempts are bought. A critic is asked about passing
drafts, too: what it spoils there is the price of a critique without a check to hold it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from redraft.checks import Judgement
from redraft.errors import LMError, ParseError, ScoreError
from redraft.evaluate.critiqued import Critiqued
from redraft.modules import Module
from redraft.protocols import LM
from redraft.run import Run
from redraft.strategies.base import is_small
from redraft.strategies.climb import HINT
from redraft.strategies.ladder import Rung, constraint_for, written
from redraft.strategies.options import VARIED
from redraft.types import Attempt, Inputs, Prediction, StopReason, Usage

FIRST, FIX = "first", "fix"
DRAFT = "draft"
"""The first draft as code left it: what every further rung begins with."""
CONSTRAIN, RESAMPLE, AGAIN, HINTED, EDIT, CRITIQUE = "constrain", "resample", "again", "hint", "edit", "critique"
RETRIES = (RESAMPLE, AGAIN, CONSTRAIN, HINTED, EDIT)
"""In the order in which they are tried. `again` is a second blind sample: equal cost for what takes two calls."""
_KIND = "rung_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one rung on one example."""

    passed: bool
    calls: int = 0
    tokens: int = 0
    changed: bool = True
    """False: a critic found nothing to revise."""


Trial = Mapping[str, Outcome]
"""Outcomes by rung; a rung that was not tried, or whose call failed, is not in it."""


class Probe(Module):
    """A module whose prediction says what each rung did: `trial_of(prediction)`."""

    def __init__(
        self,
        module: Any,
        checks: Sequence[Any] = (),
        reward_fn: Any = None,
        threshold: float | None = None,
        *,
        critic: Any = None,
        lm: LM,
    ) -> None:
        self.rungs = Rungs(module, critic, checks=checks, reward_fn=reward_fn, threshold=threshold)
        self.rungs.small = is_small(lm)

    async def aforward(self, **inputs: Any) -> Prediction:
        """One trial."""
        result = await self.rungs.acall(**inputs)
        if result.error is not None:
            raise result.error
        return Prediction(trial={e.data["rung"]: dict(e.data["outcome"]) for e in result.events if e.kind == _KIND})


def trial_of(prediction: Prediction) -> Trial:
    """What a probe's prediction holds."""
    return {name: Outcome(**outcome) for name, outcome in prediction["trial"].items()}


class Rungs(Critiqued):
    """Every rung once, from one first draft. `critic=False` asks none."""

    small = False
    """A small model gets no hints in a Refine, so none is measured."""

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """The first draft, the repair, the critic, and where it fails each retry."""
        first = await run.attempt(self.module, inputs, scorer=self.scorer, advice=self.told(), why="the first draft")
        if first.error is not None:
            raise first.error
        run.accept(first, "the first draft")
        self._note(run, FIRST, first, first.usage)
        draft = first if self._passes(first) else await self._repaired(run, inputs, first)
        self._note(run, DRAFT, draft, Usage())
        if self.critic is not None:
            await self._criticised(run, inputs, draft)
        if not self._passes(draft):
            for rung in self._retries(draft):
                tried = await written(self, run, inputs, rung)
                if tried.rung in (rung.name, EDIT):  # else the constraint was refused
                    self._note(run, rung.name, tried, tried.usage)
        return StopReason.ROUNDS

    def _passes(self, attempt: Attempt) -> bool:
        return self.good_enough(attempt) is not None

    def _note(self, run: Run, name: str, tried: Attempt, spent: Usage, *, changed: bool = True) -> None:
        if isinstance(tried.error, LMError | ScoreError) and not isinstance(tried.error, ParseError):
            return  # says nothing about the rung
        cost = {"calls": spent.calls, "tokens": spent.tokens}
        outcome = {"passed": self._passes(tried), "changed": changed, **cost}
        run.journal.remark(_KIND, scope=run.scope, rung=name, outcome=outcome)

    async def _repaired(self, run: Run, inputs: Inputs, first: Attempt) -> Attempt:
        """The draft as code mends it, or as it was."""
        assert first.prediction is not None
        if first.score is None:
            return first
        judgement: Judgement = self.judgement
        try:
            fixed, how = await run.judging(judgement, judgement.repaired(inputs, first.prediction, first.score))
        except ScoreError:
            return first
        if fixed is None:
            return first

        async def by_code(**_: Any) -> Prediction:
            return fixed

        tried = run.attempt(by_code, inputs, scorer=self.scorer, parent=first, rung=FIX, why=f"code can mend {how}")
        mended = await tried
        if mended.error is not None:
            return first
        run.accept(mended, "mended by code")
        self._note(run, FIX, mended, Usage())
        return mended

    async def _criticised(self, run: Run, inputs: Inputs, draft: Attempt) -> None:
        """The critic is not told what the checks said; what it leaves alone, or says nothing usable of, stays as it is."""
        try:
            critique = await self.asked(run, inputs, draft)
        except (ParseError, ScoreError, LMError) as error:
            run.journal.remark("judge_error", scope=run.scope, error=str(error))
            if isinstance(error, ParseError):
                self._note(run, CRITIQUE, draft, _asking(run), changed=False)
            return
        if critique.verdict == "ok":
            self._note(run, CRITIQUE, draft, _asking(run), changed=False)
            return
        parent = run.criticised(draft, critique).but(critique=critique)
        rung = Rung(name=EDIT, why="the critic found issues", parent=parent)
        revised = await written(self, run, inputs, rung)
        self._note(run, CRITIQUE, revised, _asking(run) + revised.usage)

    def _retries(self, draft: Attempt) -> list[Rung]:
        assert draft.score is not None
        plain: dict[str, Any] = {"why": "to be measured", "temperature": VARIED}
        found = constraint_for(self.module, self.judgement, None, mended=True)
        feedback = self.judgement.feedback(draft.score)
        offered = {
            RESAMPLE: Rung(name=RESAMPLE, **plain),
            AGAIN: Rung(name=AGAIN, **plain),
            CONSTRAIN: found if isinstance(found, Rung) else None,
            HINTED: Rung(name=HINTED, parent=draft, hint=HINT.format(feedback=feedback), **plain)
            if feedback and not self.small
            else None,
            EDIT: Rung(name=EDIT, parent=draft.but(critique=None), **plain),
        }
        return [rung for name in RETRIES if (rung := offered[name]) is not None]


def _asking(run: Run) -> Usage:
    """What the critic's replies cost, those of earlier processes too."""
    asked = [e.data["usage"] for e in run.journal.calls(run.scope) if e.data["role"] == "critic"]
    return reduce(add, (Usage(**usage) for usage in asked), Usage())
