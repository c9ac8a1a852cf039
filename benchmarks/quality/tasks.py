"""Task: a prompt whose requirement is stated in its words, and the same requirement as checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from redraft.checks import Check, Judgement
from redraft.checks.constraint import Constraint
from redraft.sync import run_sync
from redraft.types import Prediction, Score


@dataclass(frozen=True)
class Task:
    """One prompt of a suite."""

    id: str
    family: str
    prompt: str
    checks: tuple[Check, ...]

    @cached_property
    def judgement(self) -> Judgement:
        return Judgement(self.checks)

    @cached_property
    def constraint(self) -> Constraint | None:
        """What the checks compile to; None where decoding can be held to none of them."""
        return self.judgement.constraint("answer")[0]

    @property
    def compilable(self) -> bool:
        return self.constraint is not None

    def score(self, text: str) -> Score:
        """What every arm is judged by. May be called on any thread, also on one with a running loop."""
        given = Prediction({"answer": text.strip()})
        return run_sync(lambda: self.judgement.score({"task": self.prompt}, given))

    def share(self, text: str) -> float:
        """The share of checks that pass: the reward that peers get, 1 where all do."""
        verdicts = self.score(text).verdicts
        return sum(verdict.passed for verdict in verdicts) / len(verdicts)

    def complaints(self, text: str) -> str:
        """What is wrong with a text, empty if nothing is."""
        return "; ".join(verdict.explanation for verdict in self.score(text).verdicts if not verdict.passed)


def numbered(family: str, prompts: Iterable[tuple[Any, ...]]) -> Iterator[Task]:
    """Tasks of one family, each given as (prompt, check, check, ...)."""
    for i, (prompt, *checks) in enumerate(prompts, 1):
        yield Task(f"{family}-{i:02}", family, prompt, tuple(checks))


def with_text(instruction: str, source: str) -> str:
    """An instruction, and the text it is about."""
    return f"{instruction}\n\nText: {source}"


Judge = Callable[[str], tuple[float, str]]
