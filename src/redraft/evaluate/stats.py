"""The statistics of a report, as pure functions: bootstrap intervals, paired differences, McNemar's exact test.

Intervals are 95 % percentile bootstraps, seeded: the same values give the same interval. Where all values are equal the
interval is that value, which says too much for few of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and where it may lie."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def spans_zero(self) -> bool:
        """True if the interval leaves open whether the mean is above or below 0."""
        return self.low <= 0.0 <= self.high


def bootstrap(values: Sequence[float], seed: int = 0) -> Estimate | None:
    """The mean with its interval; None for less than two values."""
    n = len(values)
    if n < 2:
        return None
    draw = random.Random(seed).choices
    means = sorted(math.fsum(draw(values, k=n)) / n for _ in range(RESAMPLES))
    tail = (1.0 - LEVEL) / 2.0
    low, high = math.floor(tail * RESAMPLES), math.ceil((1.0 - tail) * RESAMPLES) - 1
    return Estimate(math.fsum(values) / n, means[low], means[high], n)


def paired_difference(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Estimate | None:
    """The mean of ours minus theirs, pair by pair; None for less than two pairs."""
    return bootstrap([a - b for a, b in zip(ours, theirs, strict=True)], seed)


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p of as uneven a split of the changed pairs by luck; 1 where nothing changed."""
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / (1 << n))


def quantile(values: Sequence[float], q: float) -> float:
    """The value that a share `q` of all does not exceed (nearest rank); 0 for none."""
    if not values:
        return 0.0
    ordered: list[float] = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]
