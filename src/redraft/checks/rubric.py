"""A rubric as a check: told to the author as requirements, judged by an LM after everything that code can see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.checks.base import Check
from redraft.errors import ParseError, ScoreError, UsageError
from redraft.frame import Advice, current_frame, entered
from redraft.jsonable import as_text
from redraft.types import Inputs, Prediction, Verdict

if TYPE_CHECKING:
    from redraft.judges import Rubric
    from redraft.protocols import LM

_SAME = 1e-9  # expectations are sums of floats
_SHOWN = 3


class RubricCheck(Check):
    """A draft scores the threshold or more on the weighted mean of the criteria."""

    name = "rubric"
    asks = True

    def __init__(self, judging: Rubric, *, threshold: float = 0.7, **options: Any) -> None:
        super().__init__(**options)
        if not 0 < threshold <= 1:
            raise UsageError(f"threshold={threshold!r}: give a share of the full score, above 0 and up to 1")
        self.judging = judging
        self.threshold = threshold

    def tell_text(self) -> str:
        """The criteria as requirements."""
        lines = [c.text for c in self.judging.criteria]
        return (
            lines[0] if len(lines) == 1 else "\n".join(["A reader will judge it by these criteria:", *_dashed(lines)])
        )

    async def verdict(self, inputs: Inputs, prediction: Prediction) -> Verdict:
        """Ask the judge. One that has no opinion on criteria of half the weight or more has given no verdict."""
        draft = as_text(self.value_of(prediction))
        if not draft.strip():
            return self._as_verdict(0.0, "the text is empty")
        try:
            with _asking(self.judging):
                said = await self.judging.acall(task=inputs, draft=draft)
        except ParseError as error:
            raise ScoreError(f"the rubric's judge gave no verdict: {error}") from error
        weights = {c.name: c.weight for c in self.judging.criteria}
        if 2 * sum(weights[name] for name in said.abstained) >= sum(weights.values()):
            raise ScoreError(f"the rubric's judge has no opinion on {', '.join(said.abstained)}: too few for a verdict")
        if said.score >= self.threshold - _SAME:
            return self._as_verdict(1.0, "")
        return self._as_verdict(min(said.score / self.threshold, 0.999), self._complaint(said))

    def _complaint(self, said: Prediction) -> str:
        low = sorted((score, name) for name, score in said.scores.items() if score < self.threshold)
        parts = [f"{name} ({score:.2f}){f': {hint}' if (hint := said.hints.get(name)) else ''}" for score, name in low]
        return f"scored {said.score:.2f}, want {self.threshold:g}: {'; '.join(parts[:_SHOWN])}".rstrip(".")


@contextmanager
def _asking(judging: Rubric) -> Iterator[None]:
    """Without a model of its own the rubric asks the author's, not whichever is configured."""
    frame = current_frame()
    calls = frame.run.journal.calls(frame.scope) if frame is not None and judging.lm is None else ()
    author = next((e.data["model"] for e in calls if e.data["role"] == "author"), None)
    if frame is None or author not in frame.run.models:
        yield
        return
    with entered(replace(frame, advice=Advice(lm=frame.run.models[author]))):
        yield


def rubric(
    criteria: str | Path | Mapping[str, str] | Iterable[str],
    *,
    lm: LM | str | None = None,
    threshold: float = 0.7,
    hard: bool = False,
    field: str | None = None,
    tell: bool = True,
    **options: Any,
) -> RubricCheck:
    """An LM judges by criteria (a Markdown file, one text, a list, or name to text; `(x2)` is a weight), and the weighted
    mean in 0..1 reaches `threshold`. Without `lm` the author's model is asked. Further options are those of `redraft.judges.Rubric`: persona, scale, samples.
    """
    from redraft.judges import Rubric

    return RubricCheck(Rubric(criteria, lm=lm, **options), threshold=threshold, hard=hard, field=field, tell=tell)


def _dashed(lines: list[str]) -> list[str]:
    return ["- " + line.replace("\n", "\n  ") for line in lines]
