"""Did refining pay? A run beside single shots of the same task that cost as much, where the store has both.

A single shot is a run that could make one draft only (`--strategy predict`, `-n 1`, an evaluation's arm of that name). They
are set beside a run if task, models and the checks that judged are the same; as many are taken, in the order in which they
began, as the run's money would have bought (its tokens, where a model costs nothing or has no price), rounded up to a whole
one. The best of them has won, tied or lost. Where the store has fewer, there is no verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from redraft.journal import INTENT
from redraft.jsonable import canonical
from redraft.record import digest
from redraft.report.kept import Drafts, drafts_of, outermost
from redraft.report.page.calls import calls_of
from redraft.types import Attempt, Event, Usage

Outcome = Literal["win", "tie", "loss"]

SAME = 1e-9
"""Scores closer than this are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """What of a run is compared."""

    run_id: str
    begun: float
    like: str
    """Equal for runs that can be compared: task, models, checks."""
    score: float | None
    tokens: int
    cost: float | None
    single: bool
    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A run beside single shots."""

    outcome: Outcome | None
    text: str
    """What it was compared with, or why it was not."""


def shot_of(run_id: str, events: Sequence[Event]) -> Shot:
    """What of a run that has ended is compared."""
    begun = next((e for e in reversed(events) if e.kind == "run"), None)
    spec: Mapping[str, Any] = (begun.data.get("spec") if begun else None) or {}
    found = list(drafts_of(events))
    drafts = _judged(found)
    best = None if drafts is None else _kept(drafts)
    calls = calls_of(events)
    usage = sum((call.usage for call in calls), Usage())
    models = sorted({call.model for call in calls if call.role == "author"})
    checks = [v.check for v in best.score.verdicts] if best is not None and best.score is not None else []
    return Shot(
        run_id=run_id,
        begun=events[0].time if events else 0.0,
        like=digest([_asked(spec, events), models, checks]),
        score=best.score.value if best is not None and best.score is not None else None,
        tokens=usage.tokens,
        cost=None if usage.unpriced else usage.cost,
        single=_single(run_id, spec, found),
        strategy=str(spec.get("strategy") or ""),
    )


def standing(run: Shot, singles: Iterable[Shot]) -> Standing:
    """How a run stands beside those single shots that can be compared with it."""
    alike = sorted((s for s in singles if s.like == run.like and s.run_id != run.run_id), key=lambda s: s.begun)
    if run.score is None or not alike:
        return Standing(
            outcome=None, text="no single shot of this task is kept" if run.score is not None else "no score"
        )
    price, unit = _unit(run, alike)
    taken, spent = list[Shot](), 0.0
    for single in alike:
        if spent >= price(run):
            break
        taken.append(single)
        spent += price(single)
    if spent < price(run):
        return Standing(outcome=None, text=f"{len(alike)} kept, fewer single shots than its {unit} would have bought")
    scores = [s.score for s in taken if s.score is not None]
    if not scores:
        return Standing(outcome=None, text="the single shots have no score")
    best = max(scores)
    outcome: Outcome = "tie" if abs(run.score - best) <= SAME else "win" if run.score > best else "loss"
    shots = "1 single shot" if len(taken) == 1 else f"the best of {len(taken)} single shots"
    return Standing(outcome=outcome, text=f"{run.score:.2f} against {best:.2f}, {shots} (equal {unit})")


def totals(rows: Iterable[tuple[str, Standing]]) -> list[tuple[str, Counter[str]]]:
    """By strategy, how often each outcome came; `none` where there is no verdict."""
    found: dict[str, Counter[str]] = {}
    for strategy, stands in rows:
        found.setdefault(strategy or "unnamed", Counter())[stands.outcome or "none"] += 1
    return sorted(found.items())


def _unit(run: Shot, alike: Sequence[Shot]) -> tuple[Callable[[Shot], float], str]:
    if all(shot.cost for shot in (run, *alike)):
        return lambda shot: shot.cost or 0.0, "money"
    return lambda shot: float(shot.tokens), "tokens"


def _judged(found: Sequence[Drafts]) -> Drafts | None:
    """The outermost refinement that judged its drafts."""
    outer = list(outermost(found))
    judged = [d for d in found if any(a.score is not None for a in d.attempts)]
    return next((d for d in outer if d in judged), judged[0] if judged else None)


def _kept(drafts: Drafts) -> Attempt | None:
    return drafts.best


def _single(run_id: str, spec: Mapping[str, Any], found: Sequence[Drafts]) -> bool:
    """It could make one draft only, whatever came of that one: runs that happened to stop after one are no yardstick."""
    if any(len(d.attempts) > 1 for d in found):
        return False
    options = spec.get("options") or {}
    one = isinstance(options, Mapping) and options.get("attempts") == 1
    return one or str(spec.get("strategy", "")).lower() == "predict" or run_id.startswith("single-shot-")


def _asked(spec: Mapping[str, Any], events: Sequence[Event]) -> str:
    """What the run was asked: its task, its inputs, or its first prompt."""
    given = spec.get("inputs") or spec.get("task")
    if isinstance(given, Mapping) and set(given) == {"task"}:
        given = given["task"]
    if given:
        return given if isinstance(given, str) else canonical(given)
    first = next((e.data.get("content") for e in events if e.kind == INTENT), "")
    return str(first)
