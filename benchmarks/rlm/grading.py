"""How right an answer is."""

from __future__ import annotations

from typing import Any

from tasks import Task


def grade(task: Task, answer: dict[str, Any], gold: dict[str, Any]) -> tuple[bool, float]:
    """Whether every graded output is exactly right, and the mean share of what is right in each."""
    shares = [_share(answer.get(name), gold[name]) for name in task.graded]
    return all(answer.get(name) == gold[name] for name in task.graded), sum(shares) / len(shares)


def _share(said: Any, want: Any) -> float:
    """Items and lines: those in common of all (F1). Numbers: one less their relative error."""
    if isinstance(want, dict) and isinstance(said, dict):
        keys = {*want, *said}
        return sum(_share(said.get(k), want.get(k)) for k in keys) / len(keys) if keys else 1.0
    if isinstance(want, int | float) and isinstance(said, int | float):
        return max(0.0, 1 - abs(said - want) / max(abs(want), 1))
    if isinstance(want, list) and isinstance(said, list):
        common = len({*map(str, want)} & {*map(str, said)})
        return 2 * common / (len(want) + len(said)) if want or said else 1.0
    if isinstance(want, str) and isinstance(said, str) and "\n" in want:
        return _share(said.splitlines(), want.splitlines())
    return float(said == want)
