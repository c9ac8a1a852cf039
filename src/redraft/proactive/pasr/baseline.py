"""What refinement is compared with: the mean accuracy of plain answers, written without a second look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from redraft.errors import InputError
from redraft.proactive.pasr.grading import Grader, Row


class BaselineProvider(Protocol):
    """Knows how well plain answers do on a row."""

    def means(self, rows: Sequence[Row], grader: Grader, step: int) -> list[float]:
        """The mean accuracy of plain answers to each row, 0..1. `step` is the training step that asks."""

    def age(self, step: int) -> int:
        """By how many training steps the policy has moved on since the answers of the last `means` were written, at most."""


class ColumnBaseline:
    """A column of the data, computed beforehand with the model as it is before training: cheap, and staler with each step."""

    def __init__(self, column: str = "baseline") -> None:
        self.column = column

    def means(self, rows: Sequence[Row], grader: Grader, step: int) -> list[float]:  # noqa: ARG002 - the contract's
        """See `BaselineProvider`. Raises `InputError` for a row without a number in 0..1."""
        return [self._mean(row) for row in rows]

    def age(self, step: int) -> int:
        """See `BaselineProvider`: all steps so far."""
        return step

    def _mean(self, row: Row) -> float:
        try:
            value = float(row[self.column])
        except (KeyError, TypeError, ValueError):
            value = -1.0
        if not 0.0 <= value <= 1.0:
            raise InputError(
                f"the row {dict(row)!r:.100} has no number from 0 to 1 in {self.column!r}: the mean accuracy of plain answers"
            )
        return value


Writer = Callable[[Sequence[str], int], list[list[str]]]
"""Takes questions and a number n; returns n plain answers to each."""


class SampledBaseline:
    """`n` plain answers a row, written by the current policy when they are asked for (the paper: n = 8), and kept for `fresh`
    further steps; 0 writes them anew at each step.
    """

    def __init__(self, write: Writer, *, n: int = 8, fresh: int = 0) -> None:
        if n < 1 or fresh < 0:
            raise InputError(f"n={n!r}, fresh={fresh!r}: give 1 answer or more, and 0 steps or more")
        self.write, self.n, self.fresh = write, n, fresh
        self._known: dict[str, tuple[int, float]] = {}
        self._oldest = 0

    def means(self, rows: Sequence[Row], grader: Grader, step: int) -> list[float]:
        """See `BaselineProvider`. Answers that the judge gives no verdict on are left out of the mean. Raises `InputError` where
        none got one.
        """
        # Each question once, in order: a group asks for the same one many times.
        asked = {question_of(row): row for row in rows}
        stale = [q for q in asked if q not in self._known or step - self._known[q][0] > self.fresh]
        if stale:
            for question, answers in zip(stale, self.write(stale, self.n), strict=True):
                self._known[question] = (step, _mean(grader, asked[question], answers))
        self._oldest = min(self._known[q][0] for q in asked)
        return [self._known[question_of(row)][1] for row in rows]

    def age(self, step: int) -> int:
        """See `BaselineProvider`."""
        return step - self._oldest


def _mean(grader: Grader, row: Row, answers: Sequence[str]) -> float:
    judged = [value for value in grader.grade([(row, answer.strip()) for answer in answers]) if value is not None]
    if not judged:
        raise InputError(
            f"the judge gave no verdict on any of {len(answers)} plain answers to {question_of(row)!r:.80}"
        )
    return sum(judged) / len(judged)


def question_of(row: Row) -> str:
    """The question of a row. Raises `InputError` without one."""
    if not str(row.get("question") or "").strip():
        raise InputError(f"the row {dict(row)!r:.100} has no 'question'")
    return str(row["question"])
