"""Baselines beyond single shot and equal-cost best of N: the same module with more thinking, and on a larger model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redraft.evaluate.arms import Arm
from redraft.evaluate.identity import fingerprint
from redraft.evaluate.report import Report
from redraft.evaluate.standing import Comparison
from redraft.modules import Predict
from redraft.protocols import LM
from redraft.strategies import Refine

MOST_THOUGHT = "high"


def more_thinking(module: Predict, checks: Sequence[Any], effort: str = MOST_THOUGHT) -> Arm:
    """The module once, told the same requirements, thinking at `effort`: what the money might buy instead."""
    once = Refine(module, N=1, checks=checks, effort=effort, fix=False)
    return _peer(f"effort {effort}", once, f"one attempt at effort {effort}, told the same requirements")


def larger_model(module: Predict, checks: Sequence[Any], lm: LM) -> Arm:
    """The module once on another model, told the same requirements."""
    once = Refine(module, N=1, checks=checks, models=[lm], fix=False)
    return _peer(lm.name, once, f"one attempt of {lm.name}, told the same requirements")


def comparisons(report: Report, peers: Sequence[str]) -> list[Comparison]:
    """Those that `report` has not: each strategy against each of the `peers`."""
    ours = [s.name for s in report.standings if not s.baseline]
    there = {s.name for s in report.standings}
    return [Comparison.of(a, b, report.items, report.seed) for a in ours for b in peers if b in there]


def _peer(name: str, strategy: Refine, note: str) -> Arm:
    return Arm(name=name, label=name, strategy=strategy, identity=fingerprint(strategy), baseline=True, note=note)
