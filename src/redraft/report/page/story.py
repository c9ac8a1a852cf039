"""One run, told for people: plain values made of its events, with no HTML in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redraft.errors import StoreError
from redraft.jsonable import as_text
from redraft.report.kept import auto_of, drafts_of
from redraft.report.page.calls import Call, Clock, calls_of
from redraft.report.page.cells import Cell, cells_of
from redraft.report.page.remarks import Remark, remark
from redraft.report.page.rounds import Refinement, Round, Teller
from redraft.report.page.shown import asked, score
from redraft.report.page.stats import Stats, stats_of
from redraft.types import Event

STOPS = {
    "passed": "every check passed",
    "threshold": "the score reached its threshold",
    "critic_ok": "the critic had nothing left to fix",
    "plateau": "revisions no longer raised the score",
    "no_change": "a revision equals the draft it revises",
    "cycle": "a revision equals an earlier draft",
    "rejected": "several revisions in a row were refused",
    "rounds": "all rounds were used",
    "budget": "a limit was reached",
    "cancelled": "the caller ended it",
    "error": "a failure ended it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All of a run that the page shows."""

    run_id: str
    events: int
    """How many there are: it tells whether something is new."""
    task: str
    inputs: tuple[tuple[str, str], ...]
    strategy: str
    auto: str
    """Why `auto` took which strategy; empty where one was named."""
    models: tuple[tuple[str, str], ...]
    """(role, names of models)."""
    seed: int | None
    redraft: str
    """The version that began it."""
    begun: float | None
    """Unix time."""
    ended: float | None
    """None: it never ended, or is at work."""
    seconds: float
    """How long it worked; the time between its processes does not count."""
    stop: str
    error: str
    limits: tuple[tuple[str, str], ...]
    threshold: float | None
    refinements: tuple[Refinement, ...]
    calls: tuple[Call, ...]
    cells: tuple[Cell, ...]
    """Those that belong to no draft."""
    remarks: tuple[Remark, ...]
    stats: Stats

    @property
    def main(self) -> Refinement | None:
        """The refinement that the run is about: the outermost, or the one inside it if that has judged nothing itself."""
        if not self.refinements:
            return None
        first = self.refinements[0]
        if len(first.rounds) == 1 and first.rounds[0].attempt.score is None and len(self.refinements) > 1:
            return self.refinements[1]
        return first

    @property
    def cards(self) -> int:
        """How many drafts there are, nested ones included."""
        return sum(len(refinement.rounds) for refinement in self.refinements)

    @property
    def best(self) -> Round | None:
        """The draft that was kept."""
        return self.main.best if self.main else None

    @property
    def why(self) -> str:
        """The stop reason in words."""
        if self.stop:
            return STOPS.get(self.stop, self.stop)
        return "it has not ended: it is at work, or was cut off"

    @property
    def verdict(self) -> str:
        """What came of it, in a line: `draft 1 0.55 -> draft 3 0.82 (kept draft 3 of 4)`."""
        main, best = self.main, self.best
        if main is None or not main.rounds:
            return "no draft"
        cut, open_ = sum(r.cut_off for r in main.rounds), sum(r.unended for r in main.rounds)
        beside = f"{f', {cut} cut off' if cut else ''}{f', {open_} not ended' if open_ else ''}"
        made = f"{len(main.rounds) - cut - open_}{beside}"
        if best is None:
            return f"no draft was accepted of {made}"
        kept = f"kept draft {best.number} of {made}"
        first = next((r for r in main.rounds if r.attempt.score is not None), main.rounds[0])
        if first.attempt.score is None or best.attempt.score is None:
            return kept
        if first is best:
            return f"draft {best.number}: {score(best.attempt.score.value)} ({kept})"
        was, now = score(first.attempt.score.value), score(best.attempt.score.value)
        return f"draft {first.number}: {was} \u2192 draft {best.number}: {now} ({kept})"


def story(run_id: str, events: Sequence[Event]) -> Story:
    """The run that these are the events of, as far as it has come. Raises `StoreError` for events that nobody wrote so."""
    with readable(run_id):
        return _told(run_id, events)


@contextmanager
def readable(run_id: str) -> Iterator[None]:
    """Events that are not what redraft writes (a damaged file, another program's) are a `StoreError`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"the events of run {run_id!r} cannot be read ({type(error).__name__}: {error}): they are damaged, or of another "
            "version of redraft; `redraft runs delete` removes it"
        ) from error


def _told(run_id: str, events: Sequence[Event]) -> Story:
    clock = Clock(events)
    calls = calls_of(events, clock)
    cells = cells_of(events, calls)
    refinements = tuple(Teller(events, calls, cells, clock).all(drafts_of(events)))
    begun = next((e for e in reversed(events) if e.kind == "run"), None)
    stop = next((e for e in reversed(events) if e.kind == "stop" and not e.scope), None)
    spec: Mapping[str, Any] = (begun.data.get("spec") if begun else None) or {}
    inputs = _inputs(spec)
    in_drafts = {c.number for r in refinements for each in r.rounds for c in each.cells}
    return Story(
        run_id=run_id,
        events=len(events),
        task=_task(spec, inputs, calls),
        inputs=inputs,
        strategy=str(spec.get("strategy") or ""),
        auto=auto_of(events),
        models=tuple(_models(calls)),
        seed=begun.data.get("seed") if begun else None,
        redraft=str(spec.get("redraft") or ""),
        begun=events[0].time if events else None,
        ended=stop.time if stop else None,
        seconds=clock.total,
        stop=str(stop.data.get("reason") or "") if stop else "",
        error=str(stop.data.get("error") or "") if stop else "",
        limits=tuple(_limits(begun.data.get("budget") if begun else None)),
        threshold=spec.get("threshold") if isinstance(spec.get("threshold"), int | float) else None,
        refinements=refinements,
        calls=tuple(calls),
        cells=tuple(c for c in cells if c.number not in in_drafts),
        remarks=() if refinements else tuple(r for e in events if (r := remark(e)) is not None),
        stats=stats_of(refinements, calls, clock.total),
    )


def _inputs(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What the run was given, by name."""
    given = spec.get("inputs") or {name: spec[name] for name in ("task", "options") if spec.get(name)}
    if not isinstance(given, Mapping):
        return (("input", as_text(given)),)
    return tuple((str(name), as_text(value)) for name, value in given.items())


def _task(spec: Mapping[str, Any], inputs: Sequence[tuple[str, str]], calls: Sequence[Call]) -> str:
    """What was asked for: by the command line, as an input, or in the first prompt."""
    if isinstance(spec.get("task"), str):
        return str(spec["task"])
    if inputs:
        return asked(dict(inputs))
    messages = calls[0].messages if calls else ()
    return messages[-1].text if messages else ""


def _models(calls: Sequence[Call]) -> Iterator[tuple[str, str]]:
    by_role: dict[str, Counter[str]] = {}
    for call in calls:
        if call.model:
            by_role.setdefault(call.role, Counter())[call.model] += 1
    for role, names in by_role.items():
        yield role, ", ".join(names)


def _limits(budget: Any) -> Iterator[tuple[str, str]]:
    for name, value in budget.items() if isinstance(budget, Mapping) else ():
        if value is not None:
            yield name, f"${value:g}" if name == "cost" else f"{value:,}"
