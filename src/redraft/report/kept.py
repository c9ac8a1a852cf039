"""What a run's journal says of its attempts: the same that the run itself held, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.errors import RedraftError
from redraft.frame import within
from redraft.record import score_from
from redraft.result import cut_off
from redraft.types import Attempt, Critique, Event, Issue, Prediction, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """The attempts of one refinement; a run has one, and one more for each that is nested in it."""

    scope: str
    """Where in the run: "" is the run itself."""
    attempts: tuple[Attempt, ...]
    """By index; the fields of their predictions are one `text`."""
    best: Attempt | None
    """The last one that was accepted."""
    ended: bool

    def scope_of(self, attempt: Attempt) -> str:
        """Where in the run an attempt worked."""
        return f"{self.scope}/attempt[{attempt.index}]"


def drafts_of(events: Sequence[Event]) -> list[Drafts]:
    """Every refinement of a run, in the order in which they began."""
    found: dict[str, dict[int, Attempt]] = {}
    last: dict[str, int] = {}
    ends = {e.scope for e in events if e.kind == "stop"}
    for event in events:
        index = event.data.get("index")
        if event.kind not in _READ or type(index) is not int or not event.scope.endswith(f"/attempt[{index}]"):
            continue
        scope = event.scope.removesuffix(f"/attempt[{index}]")
        attempts = found.setdefault(scope, {})
        attempts[index] = _READ[event.kind](attempts.get(index) or _begun(index), event.data)
        if event.kind == "attempt" and event.key:
            attempts[index] = _ended_alone(attempts[index])
        if event.kind == "accept":
            last[scope] = index
    return [_drafts(scope, attempts, last.get(scope), ended=scope in ends) for scope, attempts in found.items()]


def auto_of(events: Sequence[Event]) -> str:
    """What `auto` took and why, for a run or a whole batch: `refine: nothing was calibrated for ...`; empty where a strategy
    was named.
    """
    begun = next((e.data.get("spec") for e in reversed(events) if e.kind in ("run", "batch")), None)
    auto = begun.get("auto") if isinstance(begun, Mapping) else None
    return f"{auto.get('took')}: {auto.get('why')}" if isinstance(auto, Mapping) else ""


def outermost(found: Sequence[Drafts]) -> Iterator[Drafts]:
    """Those that are not nested in an attempt of another one."""
    for drafts in found:
        others = (other.scope_of(attempt) for other in found if other is not drafts for attempt in other.attempts)
        if not any(within(drafts.scope, scope) for scope in others):
            yield drafts


def told(found: Sequence[Drafts]) -> Iterator[Drafts]:
    """The outermost ones, and what is inside where that is a single attempt: of an evaluation's item, the strategy's drafts."""
    for drafts in outermost(found):
        yield drafts
        if len(drafts.attempts) == 1:
            inside = drafts.scope_of(drafts.attempts[0])
            yield from outermost([one for one in found if one is not drafts and within(one.scope, inside)])


def _drafts(scope: str, attempts: Mapping[int, Attempt], best: int | None, *, ended: bool) -> Drafts:
    """What never ended is left out, as in a Result, unless that is how the whole ended."""
    kept = tuple(attempt for _, attempt in sorted(attempts.items()) if not (ended and unended(attempt)))
    return Drafts(scope=scope, attempts=kept, best=None if best is None else attempts[best], ended=ended)


def unended(attempt: Attempt) -> bool:
    """True for an attempt that is at work, or whose process has died."""
    return isinstance(attempt.error, NeverEndedError)


class NeverEndedError(RedraftError):
    """For an attempt of which no end is on record."""


def _begun(index: int) -> Attempt:
    return Attempt(index=index, inputs={}, error=NeverEndedError("not ended: cut off, or at work"))


def _proposed(attempt: Attempt, data: Mapping[str, Any]) -> Attempt:
    return attempt.but(parent=data["parent"], rung=data["rung"])


def _attempted(attempt: Attempt, data: Mapping[str, Any]) -> Attempt:
    text, error = data["text"], data["error"]
    return attempt.but(
        parent=data["parent"],
        rung=data["rung"],
        prediction=Prediction(text=text) if text or error is None else None,
        score=score_from(data["score"]),
        usage=Usage(**data["usage"]),
        error=None if error is None else error_of(error),
    )


def _ended_alone(attempt: Attempt) -> Attempt:
    """An attempt whose end is replayed, which the end of a run never is: a limit of its module's own made it fail."""
    return attempt.but(reason=f"failed: {attempt.error}") if cut_off(attempt) else attempt


def _criticised(attempt: Attempt, data: Mapping[str, Any]) -> Attempt:
    issues = tuple(Issue(**issue) for issue in data["issues"])
    return attempt.but(
        critique=Critique(verdict=data["verdict"], issues=issues, keep=tuple(data["keep"]), by=data["by"])
    )


def _accepted(attempt: Attempt, data: Mapping[str, Any]) -> Attempt:
    return attempt.but(accepted=True, reason=data["reason"])


def _rejected(attempt: Attempt, data: Mapping[str, Any]) -> Attempt:
    return attempt.but(accepted=False, reason=data["reason"])


_READ = {
    "propose": _proposed,
    "attempt": _attempted,
    "critique": _criticised,
    "accept": _accepted,
    "reject": _rejected,
}


def error_of(said: str) -> RedraftError:
    """An error with the type's name and the message that are on record as `Name: message`."""
    name, _, message = said.partition(": ")
    kind = type(name if name.isidentifier() else "RedraftError", (RedraftError,), {})
    error: RedraftError = kind(message)
    return error
