"""What compiling did: which examples became demos, why others did not, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redraft.jsonable import plain
from redraft.result import calls, count, dollars, tokens
from redraft.types import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """How the teacher did on one example."""

    index: int
    run_id: str
    passed: bool
    rounds: int
    """How often it was tried."""
    score: float | None = None
    """The metric's, of the last round."""
    why: str = ""
    """Why it did not pass, or passed and became no demo."""
    error: Exception | None = None
    usage: Usage = field(default_factory=Usage)
    """What it spent, in earlier processes too, the metric's calls included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapReport:
    """`print(optimizer.report)` says how compiling went."""

    examples: int
    tried: tuple[Tried, ...]
    """By index."""
    learned: int
    """How many examples became demos."""
    demos: Mapping[str, int]
    """How many each predictor learned, by its path in the program."""
    labeled: Mapping[str, int]
    """How many labelled examples each one shows besides."""
    seed: int
    stopped: Exception | None = None
    """What ended it early: the budget, or too many errors."""

    @property
    def passed(self) -> int:
        """How many examples passed."""
        return sum(one.passed for one in self.tried)

    @property
    def usage(self) -> Usage:
        """What compiling cost."""
        return sum((one.usage for one in self.tried), Usage())

    @property
    def cost(self) -> float | None:
        """Dollars; None if a model's price is unknown."""
        return None if self.usage.unpriced else self.usage.cost

    @property
    def reasons(self) -> Mapping[str, int]:
        """Why examples became no demos, the most frequent reason first."""
        return dict(Counter(one.why for one in self.tried if one.why).most_common())

    def __str__(self) -> str:
        went = f"{len(self.tried)} tried, {self.passed} passed"
        first = f"{count(self.learned, 'example')} of {self.examples} became demos: {went}"
        if not self.learned:
            first = f"NO example of {self.examples} became a demo: {went}" if self.tried else "no example was tried"
        lines = [first]
        for path, number in self.demos.items():
            more = f" and {count(self.labeled[path], 'labelled example')}" if self.labeled.get(path) else ""
            lines.append(f"{path or 'the predictor'}: {count(number, 'demo')}{more}")
        lines += [f"{number} x {reason}" for reason, number in self.reasons.items()]
        if self.stopped is not None:
            lines.append(f"PARTIAL: {self.stopped}")
        lines.append(f"compiling took {calls(self.usage)} | {tokens(self.usage)} | {dollars(self.cost)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "examples": self.examples,
            "passed": self.passed,
            "learned": self.learned,
            "demos": dict(self.demos),
            "labeled": dict(self.labeled),
            "seed": self.seed,
            "stopped": self.stopped and str(self.stopped),
            "usage": plain(self.usage),
            "tried": [
                {**plain(one), "error": one.error and plain(one.error), "usage": plain(one.usage)} for one in self.tried
            ],
        }
