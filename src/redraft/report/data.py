"""A run as JSON values, for programs: the same keys whether it ended well or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redraft.jsonable import plain
from redraft.record import critique_data, score_data
from redraft.report.kept import Drafts
from redraft.result import Result
from redraft.types import Attempt, Event, Usage


def result_data(result: Result) -> dict[str, Any]:
    """Everything a Result holds."""
    return {
        "fields": result.to_dict(),
        "text": result.text,
        "score": result.score,
        "passed": None if result.verdict is None and result.best.error is None else result.passed,
        "stop_reason": str(result.stop_reason),
        "error": _error(result.error),
        "best": result.best.index,
        "usage": plain(result.usage),
        "cost": result.cost,
        "run_id": result.run_id,
        "attempts": [attempt_data(a) for a in result.attempts],
        "events": [event_data(e) for e in result.events],
    }


def failure_data(error: Exception, events: Sequence[Event] = ()) -> dict[str, Any]:
    """What a run without a result leaves: the error, and all that was tried and spent."""
    usage: Usage = getattr(error, "usage", None) or Usage()
    stop = next((e.data["reason"] for e in reversed(events) if e.kind == "stop"), "error")
    return {
        "fields": {},
        "text": None,
        "score": None,
        "passed": False,
        "stop_reason": stop,
        "error": _error(error),
        "best": None,
        "usage": plain(usage),
        "cost": None if usage.unpriced else usage.cost,
        "run_id": getattr(error, "run_id", None),
        "attempts": [attempt_data(a) for a in getattr(error, "attempts", ())],
        "events": [event_data(e) for e in events],
    }


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """One attempt; `verdicts` are the checks'."""
    score = score_data(attempt.score) or {"value": None, "feedback": "", "verdicts": []}
    return {
        "index": attempt.index,
        "parent": attempt.parent,
        "rung": attempt.rung,
        "text": attempt.text,
        "fields": {} if attempt.prediction is None else attempt.prediction.to_dict(),
        "score": score["value"],
        "feedback": score["feedback"],
        "verdicts": score["verdicts"],
        "critique": None if attempt.critique is None else critique_data(attempt.critique),
        "usage": plain(attempt.usage),
        "error": _error(attempt.error),
        "accepted": attempt.accepted,
        "reason": attempt.reason,
    }


def drafts_data(drafts: Drafts) -> dict[str, Any]:
    """One refinement of a kept run."""
    return {
        "scope": drafts.scope,
        "ended": drafts.ended,
        "best": None if drafts.best is None else drafts.best.index,
        "attempts": [attempt_data(attempt) for attempt in drafts.attempts],
    }


def event_data(event: Event) -> dict[str, Any]:
    """One line of the journal."""
    return {
        "seq": event.seq,
        "kind": event.kind,
        "time": event.time,
        "scope": event.scope,
        "key": event.key,
        "data": dict(event.data),
    }


def _error(error: Exception | None) -> dict[str, str] | None:
    return None if error is None else {"type": type(error).__name__, "message": str(error)}
