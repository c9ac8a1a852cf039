"""Where the marks of the page's charts stand; the templates draw them as SVG, with a table beside each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redraft.report.page.rounds import Refinement, Round
from redraft.report.page.shown import score

WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 24, 22, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One draft on the curve."""

    x: float
    y: float
    round: Round
    labelled: bool
    """There is room for its number and score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The scores of a refinement's drafts."""

    marks: tuple[Mark, ...]
    best: str
    """SVG path of the best score so far."""
    ticks: tuple[tuple[float, str], ...]
    """(y, what stands beside it)."""
    bar: float | None
    """y of the score that is wanted; None: it is not on record."""
    bar_text: str

    @property
    def left(self) -> float:
        """Where the lines begin."""
        return _LEFT

    @property
    def right(self) -> float:
        """Where they end."""
        return WIDTH - _RIGHT

    @property
    def text(self) -> str:
        """The curve in words, for those who do not see it."""
        return "; ".join(f"draft {m.round.number} {score(_value(m.round))} {m.round.decision}" for m in self.marks)


def curve_of(refinement: Refinement, threshold: float | None = None) -> Curve | None:
    """The curve; None for fewer than two scored drafts, which are no curve."""
    scored = [r for r in refinement.rounds if r.attempt.score is not None]
    if len(scored) < 2:
        return None
    values = [_value(r) for r in scored]
    wanted = threshold if threshold is not None else 1.0 if refinement.checks else None
    low, high = min(values), max(values)
    if wanted is not None:
        low, high = min(low, wanted), max(high, wanted)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif high == low:
        low, high = low - 1, high + 1

    def up(value: float) -> float:
        share = (value - low) / (high - low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _BOTTOM - _TOP), 1)

    step = (WIDTH - _LEFT - _RIGHT - 40) / max(1, len(scored) - 1)
    marks = tuple(
        Mark(x=round(_LEFT + 20 + n * step, 1), y=up(_value(r)), round=r, labelled=step >= 36 or r.best or n == 0)
        for n, r in enumerate(scored)
    )
    return Curve(
        marks=marks,
        best=_best(marks),
        ticks=tuple((up(value), score(value)) for value in (low, (low + high) / 2, high)),
        bar=None if wanted is None else up(wanted),
        bar_text="threshold" if threshold is not None else "all checks pass",
    )


def _value(r: Round) -> float:
    assert r.attempt.score is not None
    return r.attempt.score.value


def _best(marks: Sequence[Mark]) -> str:
    """From one accepted draft to the next, and on to the end."""
    path, y = "", None
    for mark in marks:
        if y is None:
            if mark.round.attempt.accepted:
                path, y = f"M{mark.x} {mark.y}", mark.y
        elif mark.round.attempt.accepted:
            path, y = f"{path}L{mark.x} {mark.y}", mark.y
    return f"{path}H{marks[-1].x}" if path else ""
