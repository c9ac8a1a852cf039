"""What an item is judged by: a metric that compares with the example, checks that look at the answer, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redraft.checks import Judgement
from redraft.errors import InputError, ScoreError
from redraft.evaluate.examples import Example
from redraft.scoring import as_score, name_of, takes
from redraft.sync import call_user
from redraft.types import Prediction, Score

_MOST = 1e12
"""Larger scores leave no digits for the others in a mean, and overflow where they are summed."""


class Metric:
    """`metric(example, prediction)`, or DSPy's `(example, pred, trace=None)`; sync or async. It returns a bool, a number
    (higher is better), `(number, "feedback")` or a Score.
    """

    def __init__(self, metric: Callable[..., Any] | None, checks: Sequence[Any]) -> None:
        self.judgement = Judgement(checks)
        if metric is None and not self.judgement.checks:
            raise InputError("there is nothing to judge by: give a metric(example, prediction), or checks=[...]")
        self.metric = metric
        self._trace = () if metric is None or takes(metric, 2) else (None,)
        if metric is not None and not takes(metric, 2 + len(self._trace)):
            raise InputError(f"metric {name_of(metric)!r} does not take (example, prediction)")

    @property
    def __name__(self) -> str:
        """For messages."""
        parts = ["checks"] if self.judgement.checks else []
        return " and ".join([*parts, *([f"metric {name_of(self.metric)!r}"] if self.metric is not None else [])])

    async def judge(self, example: Example, prediction: Prediction) -> tuple[Score, bool]:
        """The score, and whether that is a pass: all checks pass and a bool is True; without checks, 1 or more."""
        score = await self.judgement.score(example.inputs(), prediction)
        if self.metric is None:
            return score, score.passed
        given = await call_user(self.metric, example, prediction, *self._trace)
        if type(given).__module__ == "numpy" and hasattr(given, "item"):
            given = given.item()  # what comparing arrays gives is no bool
        named = as_score(given, f"metric {name_of(self.metric)!r}")
        if abs(named.value) > _MOST:
            raise ScoreError(f"metric {name_of(self.metric)!r} returned {named.value:g}; a score lies within {_MOST:g}")
        verdicts = (*score.verdicts, *named.verdicts)
        feedback = " ".join(filter(None, (score.feedback, named.feedback)))
        whole = Score(value=named.value, feedback=feedback, verdicts=verdicts)
        enough = bool(verdicts) and not isinstance(given, bool)
        return whole, whole.passed and (enough or whole.value >= 1.0)
