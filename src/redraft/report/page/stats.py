"""What a run's improvement cost: figures made of its drafts and calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redraft.report.page.calls import Call
from redraft.report.page.rounds import Refinement
from redraft.types import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one role used."""

    role: str
    calls: int
    usage: Usage
    share: float
    """0..1, of all tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Of one run."""

    usage: Usage
    failed: int
    """Tries that got no reply."""
    cached: int
    waiting: float
    """Seconds in which at least one call was in flight."""
    own: float
    """Seconds of the rest: redraft's own work, checks, tools, waits between tries."""
    roles: tuple[Share, ...]
    gain: float | None
    """Score of the kept draft less the first one's; None where they have none."""
    cost_per_point: float | None
    """Dollars for each whole point of score gained; None: nothing was gained, or it is not known."""
    tokens_per_point: float | None
    rejected: int
    cut_off: int
    """Drafts that a limit, or the caller, ended before they were judged."""
    undecided: int
    """Drafts that have not ended, or on which nobody has decided."""
    unchanged: int
    """Rejected because they equal an earlier draft."""
    wasted: Usage
    """What the drafts that were not accepted took, those that were cut off too."""
    wasted_share: float


def stats_of(refinements: Sequence[Refinement], calls: Sequence[Call], seconds: float) -> Stats:
    """The figures of a run."""
    usage = sum((call.usage for call in calls), Usage())
    outer = [r for refinement in refinements if not refinement.inside for r in refinement.rounds]
    undecided = sum(r.undecided for r in outer)
    lost = [r for r in outer if not r.attempt.accepted and not r.undecided]
    cut = sum(r.cut_off for r in lost)
    wasted = sum((r.attempt.usage for r in lost), Usage())
    gain = _gain(refinements)
    waiting = _in_flight(calls)
    won = gain if gain is not None and gain > 0 else None
    return Stats(
        usage=usage,
        failed=sum(call.status in ("failed", "refused", "cut off") for call in calls),
        cached=sum(call.status == "cached" for call in calls),
        waiting=waiting,
        own=max(0.0, seconds - waiting),
        roles=tuple(_shares(calls, usage)),
        gain=gain,
        cost_per_point=usage.cost / won if won and not usage.unpriced else None,
        tokens_per_point=usage.tokens / won if won else None,
        rejected=len(lost) - cut,
        cut_off=cut,
        undecided=undecided,
        unchanged=sum(r.attempt.reason.startswith("equals draft") for r in lost),
        wasted=wasted,
        wasted_share=wasted.tokens / usage.tokens if usage.tokens else 0.0,
    )


def _gain(refinements: Sequence[Refinement]) -> float | None:
    for refinement in refinements:
        scores = [r.attempt.score.value for r in refinement.rounds if r.attempt.score is not None]
        best = refinement.best
        if scores and best is not None and best.attempt.score is not None:
            return best.attempt.score.value - scores[0]
    return None


def _shares(calls: Sequence[Call], whole: Usage) -> list[Share]:
    by_role: dict[str, list[Call]] = {}
    for call in calls:
        by_role.setdefault(call.role, []).append(call)
    found = []
    for role, of_role in by_role.items():
        usage = sum((call.usage for call in of_role), Usage())
        share = usage.tokens / whole.tokens if whole.tokens else 0.0
        found.append(Share(role=role, calls=len(of_role), usage=usage, share=share))
    return sorted(found, key=lambda share: -share.share)


def _in_flight(calls: Sequence[Call]) -> float:
    """Seconds covered by at least one call."""
    total, until = 0.0, 0.0
    for begun, ended in sorted((call.begun, call.ended) for call in calls):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total
