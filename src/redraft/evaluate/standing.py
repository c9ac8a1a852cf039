"""How one strategy stands: its score, what it cost, and how it compares with what it has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from statistics import fmean
from typing import Any

from redraft.evaluate.arms import Arm
from redraft.evaluate.item import Item
from redraft.evaluate.stats import (
    LEVEL,
    UNTOLD,
    Estimate,
    mcnemar,
    mean_of,
    paired_difference,
    quantile,
    sign_flips,
    wilson,
)
from redraft.jsonable import plain
from redraft.result import count, dollars
from redraft.types import Usage

ONE = "its calls pay for one sample, which is the single shot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One strategy against another, on the examples that both have a score for."""

    ours: str
    theirs: str
    pairs: int
    difference: Estimate | None
    """Of the scores, ours minus theirs; None for less than two pairs."""
    wrong_to_right: int
    """Examples that theirs failed and ours passed."""
    right_to_wrong: int
    p: float
    """Of the difference of the scores: by sign flips, which for right and wrong is McNemar's exact test."""
    p_passes: float
    """McNemar's exact test of these two counts."""

    @classmethod
    def of(cls, ours: str, theirs: str, items: Sequence[Item], seed: int) -> Comparison:
        """Compare pair by pair."""
        a = {item.index: item for item in items if item.strategy == ours and item.counted}
        b = {item.index: item for item in items if item.strategy == theirs and item.counted}
        pairs = [(a[i], b[i]) for i in a if i in b]
        gained = sum(1 for mine, other in pairs if mine.passed and not other.passed)
        lost = sum(1 for mine, other in pairs if other.passed and not mine.passed)
        scores = [x.score or 0.0 for x, _ in pairs], [y.score or 0.0 for _, y in pairs]
        return cls(
            ours=ours,
            theirs=theirs,
            pairs=len(pairs),
            difference=paired_difference(*scores, seed),
            wrong_to_right=gained,
            right_to_wrong=lost,
            p=sign_flips(*scores, seed),
            p_passes=mcnemar(gained, lost),
        )

    @property
    def outcome(self) -> str:
        """`better`, `worse`, `no difference` (the interval spans 0, and luck does as much in more than one of 20),
        `not told from luck` (one of the two, but not the other), or `too few pairs`.
        """
        if self.difference is None:
            return "too few pairs"
        unclear = (self.difference.spans_zero, self.p > 1 - LEVEL)
        if any(unclear):
            return "no difference" if all(unclear) else UNTOLD
        return "better" if self.difference.mean > 0 else "worse"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**own, "difference": self.difference and plain(self.difference), "outcome": self.outcome}

    def __str__(self) -> str:
        d = self.difference
        if d is None:
            return f"{self.ours} against {self.theirs}: too few pairs ({self.pairs})"
        by, p = f"{d.mean:+.3f} ({d.low:+.3f} to {d.high:+.3f})", f"p = {self.p:.2g}"
        said = f"{self.outcome} {by}, {p},"
        if self.outcome == UNTOLD:  # the figure that decides comes first: the other one seems to say the opposite
            said = f"{UNTOLD} (the interval spans 0): {by}, {p}," if d.spans_zero else f"{UNTOLD} ({p}): {by}"
        passes = "" if self.p == self.p_passes else f", McNemar p = {self.p_passes:.2g}"
        return (
            f"{self.ours} against {self.theirs}: {said} on {count(self.pairs, 'pair')}; wrong->right "
            f"{self.wrong_to_right}, right->wrong {self.right_to_wrong}{passes}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One line of a report."""

    name: str
    baseline: bool
    note: str
    """For a baseline: how it was made equal; for another one, which of those that were given is its baseline."""
    no_best: str
    """Why there is no equal-cost best of N beside it, if there is none and the budget is not why."""
    n: int
    """Items with a score, failed ones included."""
    failed: int
    judge_errors: int
    cut_off: int
    score: float | None
    """The mean; None without items."""
    interval: Estimate | None
    passed: int
    """How many of the n."""
    usage: Usage
    """Of all items, those without a score too."""
    judging: Usage
    """What the metric spent."""
    p50: float
    """Seconds an item."""
    p95: float
    no_effort: bool
    """The model refused the effort that it was asked for: it thought as it does by itself."""
    seconds: float
    """Of all items together, as if one after the other."""
    single_shot: Comparison | None = None
    best_of: Comparison | None = None

    @classmethod
    def of(cls, arm: Arm, once: Arm | None, best: Arm | None, items: Sequence[Item], seed: int) -> Standing:
        """Sum up an arm's items, and compare with its baselines'."""
        own = [item for item in items if item.strategy == arm.name]
        counted = [item for item in own if item.counted]
        scores = [item.score or 0.0 for item in counted]
        times = [item.seconds for item in own]
        against = [None if peer is None else Comparison.of(arm.name, peer.name, items, seed) for peer in (once, best)]
        return cls(
            name=arm.name,
            baseline=arm.baseline,
            note="; ".join(filter(None, (arm.note, *(peer.stands_for for peer in (once, best) if peer is not None)))),
            no_best=arm.no_best or (ONE if counted else "no item has a score"),
            n=len(counted),
            failed=sum(item.status == "failed" for item in own),
            judge_errors=sum(item.status == "judge_error" for item in own),
            cut_off=sum(item.status == "cut_off" for item in own),
            score=fmean(scores) if scores else None,
            interval=mean_of(scores, seed),
            passed=sum(bool(item.passed) for item in counted),
            usage=reduce(add, (item.usage for item in own), Usage()),
            judging=reduce(add, (item.judging for item in own), Usage()),
            p50=quantile(times, 0.5),
            p95=quantile(times, 0.95),
            no_effort=any(item.no_effort for item in own),
            seconds=sum(times),
            single_shot=against[0],
            best_of=against[1],
        )

    @property
    def items(self) -> int:
        """All of them, with a score or without."""
        return self.n + self.judge_errors + self.cut_off

    @property
    def pass_rate(self) -> float | None:
        """The share that passed; None without items."""
        return self.passed / self.n if self.n else None

    @property
    def comparisons(self) -> list[Comparison]:
        """Those that were made."""
        return [c for c in (self.single_shot, self.best_of) if c is not None]

    @property
    def cost(self) -> str:
        """In dollars: an amount, a range, or that a price is unknown."""
        low = dollars(None if self.usage.unpriced else self.usage.cost)
        if self.usage.unpriced or not self.usage.uncertain_cost:
            return low
        return f"{low} to {dollars(self.usage.cost + self.usage.uncertain_cost)}"

    @property
    def tokens_an_item(self) -> str:
        """The mean; marked where it was counted here, a range where it is not known."""
        each = max(1, self.items)
        low = f"{'~' if self.usage.estimated else ''}{self.usage.tokens / each:,.0f}"
        most = (self.usage.tokens + self.usage.uncertain_tokens) / each
        return f"{low} to {most:,.0f}" if self.usage.uncertain_tokens else low

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        nested = {name: None if own[name] is None else plain(own[name]) for name in ("interval", "usage", "judging")}
        for name in ("single_shot", "best_of"):
            c: Comparison | None = own[name]
            nested[name] = None if c is None else c.to_dict()
        low, high = wilson(self.passed, self.n)
        return {**own, "pass_rate": self.pass_rate, "pass_interval": [low, high], **nested}
