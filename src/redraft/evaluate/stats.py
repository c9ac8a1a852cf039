"""The statistics of a report, as pure functions: intervals of means, shares and paired differences, exact tests.

Right or wrong has closed forms that hold for few examples (Wilson 1927; Bonett and Price 2012, for pairs). Other scores have
95 % percentile bootstraps, seeded: the same values give the same interval. Where all of those are equal the interval is
that value, which says too much for few of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from operator import mul

RESAMPLES = 2000
LEVEL = 0.95
UNTOLD = "not told from luck"
"""The verdict where one of interval and p tells a difference, but not the other: to say that there is none would be wrong, too."""
_Z = 1.959964
_ENUMERATED = 10


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


def mean_of(values: Sequence[float], seed: int = 0) -> Estimate | None:
    """The mean of scores with its interval: of right and wrong Wilson's, of others a bootstrap's. None for less than two."""
    if len(values) < 2 or any(v not in (0.0, 1.0) for v in values):
        return bootstrap(values, seed)
    hits = round(sum(values))
    return Estimate(hits / len(values), *wilson(hits, len(values)), len(values))


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Where a share lies that was `hits` of `n`; 0 to 1 without any."""
    if not n:
        return 0.0, 1.0
    p = hits / n
    middle, half = p + _Z * _Z / (2 * n), _Z * math.sqrt(p * (1 - p) / n + _Z * _Z / (4 * n * n))
    return max(0.0, (middle - half) / (1 + _Z * _Z / n)), min(1.0, (middle + half) / (1 + _Z * _Z / n))


def paired_difference(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Estimate | None:
    """The mean of ours minus theirs, pair by pair; None for less than two pairs."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    if len(differences) < 2 or any(v not in (0.0, 1.0) for v in (*ours, *theirs)):
        return bootstrap(differences, seed)
    return changed(differences.count(1.0), differences.count(-1.0), len(differences))


def changed(gained: int, lost: int, n: int) -> Estimate:
    """The difference of two shares of the same `n` examples, of which `gained` changed to right and `lost` to wrong."""
    more, less = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    half = _Z * math.sqrt((more + less - (more - less) ** 2) / (n + 2))
    mean = (gained - lost) / n
    return Estimate(mean, max(-1.0, min(mean, more - less - half)), min(1.0, max(mean, more - less + half)), n)


def sign_flips(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> float:
    """The two-sided p of a mean difference as large by luck, if the sign of each pair's were a coin's (Fisher 1935): exact
    for right and wrong, where it is McNemar's, and for up to 10 pairs that differ; else of RESAMPLES seeded flips.
    """
    differences = [d for a, b in zip(ours, theirs, strict=True) if (d := a - b)]
    sizes = {abs(d) for d in differences}
    if len(sizes) < 2:
        gained = sum(d > 0 for d in differences)
        return mcnemar(gained, len(differences) - gained)
    seen = abs(math.fsum(differences)) * (1 - 1e-9)
    if len(differences) <= _ENUMERATED:
        flips = list(product((1, -1), repeat=len(differences)))
        return sum(abs(math.fsum(map(mul, f, differences))) >= seen for f in flips) / len(flips)
    draw = random.Random(seed).choices
    reached = sum(
        abs(math.fsum(map(mul, draw((1, -1), k=len(differences)), differences))) >= seen for _ in range(RESAMPLES)
    )
    return (reached + 1) / (RESAMPLES + 1)


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
