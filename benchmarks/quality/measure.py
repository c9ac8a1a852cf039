"""What is said about an arm: pass rates with intervals, clean passes, how varied the texts are, what they cost.

The interval is over prompts: a prompt's seeds are averaged first, since a second seed is no second prompt.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from redraft.checks.clean import faults

Line = Mapping[str, Any]
DRAWS = 4000


@dataclass(frozen=True)
class Rate:
    """A share in percent with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.0f} ({self.low:.0f}-{self.high:.0f})"


def clean(line: Line, prompt: str) -> bool:
    """It passed, and reads like a text."""
    return bool(line["passed"]) and not faults(line["text"], prompt)


def by_prompt(lines: Iterable[Line], value: Any) -> dict[str, float]:
    """The mean over seeds for each prompt."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        found[line["prompt"]].append(float(value(line)))
    return {prompt: sum(values) / len(values) for prompt, values in found.items()}


def rate(values: Sequence[float]) -> Rate:
    """The mean in percent, with a bootstrap interval."""
    low, high = interval(values)
    return Rate(100 * sum(values) / len(values), 100 * low, 100 * high)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95% of the means of resampled prompts."""
    draw = random.Random(0)
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(DRAWS))
    return means[int(DRAWS * 0.025)], means[int(DRAWS * 0.975)]


def difference(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Rate | None:
    """Paired by prompt, in points; None if the two have no prompt in common."""
    shared = sorted(ours.keys() & theirs.keys())
    return rate([ours[prompt] - theirs[prompt] for prompt in shared]) if shared else None


def distinct_2(texts: Iterable[str]) -> float:
    """The mean share of different word pairs in a text: 1 where nothing is said twice."""
    shares = []
    for text in texts:
        found = text.lower().split()
        pairs = list(pairwise(found))
        if pairs:
            shares.append(len(set(pairs)) / len(pairs))
    return sum(shares) / max(1, len(shares))


def mean(lines: Sequence[Line], key: str) -> float:
    """The mean of a number a prompt."""
    return sum(line[key] for line in lines) / len(lines)
