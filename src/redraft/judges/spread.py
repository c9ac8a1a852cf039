"""Test and retest: how far a judge's scores of one and the same draft lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from redraft.errors import InputError, ParseError, ScoreError
from redraft.judges.asking import side_by_side
from redraft.modules import Module
from redraft.scoring import as_score, name_of
from redraft.sync import call_user
from redraft.types import Prediction


class Spread(Module):
    """Asks a judge several times: `Spread(Rubric("rubric.md"), times=8)(task=..., draft=...).deviation`.

    `judge` is a module, or a function of the inputs: it gives a number, a Score, or an output `score`. None, a
    `ScoreError` or a `ParseError` is an abstention.
    """

    def __init__(self, judge: Any, times: int = 5) -> None:
        if not isinstance(times, int) or times < 2:
            raise InputError(f"times={times!r}: give how often the judge is asked, 2 or more")
        self.judge = judge
        self.times = times

    async def aforward(self, **inputs: Any) -> Prediction:
        """Inputs: the judge's. Outputs: `scores`, `mean`, `deviation` (of the sample), `low`, `high`, and `abstained`, a
        share of the times asked. Without any score the numbers are None; a deviation takes two.
        """
        asked = await side_by_side(self._ask(inputs) for _ in range(self.times))
        scores = [score for score in asked if score is not None]
        return Prediction(
            scores=scores,
            mean=statistics.fmean(scores) if scores else None,
            deviation=statistics.stdev(scores) if len(scores) > 1 else None,
            low=min(scores, default=None),
            high=max(scores, default=None),
            abstained=1 - len(scores) / self.times,
        )

    async def _ask(self, inputs: Mapping[str, Any]) -> float | None:
        judge = self.judge.acall if hasattr(self.judge, "acall") else self.judge
        try:
            said = await call_user(judge, **inputs)
        except (ParseError, ScoreError):
            return None
        if isinstance(said, Prediction | Mapping) and "score" in said:
            said = said["score"]
        return None if said is None else as_score(said, f"judge {name_of(self.judge)!r}").value
