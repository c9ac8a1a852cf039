"""The drafts of a run, each with what changed, how it was judged, what was decided and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from redraft.frame import within
from redraft.report.diff import _TOKEN as _WORD
from redraft.report.diff import Piece, word_diff
from redraft.report.kept import Drafts, unended
from redraft.report.page.calls import Call, Clock, of_scope
from redraft.report.page.cells import Cell
from redraft.report.page.issues import Review, reviewed
from redraft.report.page.remarks import Remark, remark
from redraft.result import cut_off
from redraft.types import Attempt, Critique, Event, Issue

_AKIN = 0.1  # below this share of common words a diff is harder to read than the draft itself
_FEW = 60  # drafts up to which each is compared with more than the one that it revises
_LONGEST = 200_000  # characters of two drafts up to which they are compared word by word
_MOST_WORK = 1_000_000  # pairs of equal words up to which they are: about a second

RUNGS = {
    "tell": "told what is wanted",
    "fix": "mended by code",
    "constrain": "decoded under a constraint",
    "resample": "written anew",
    "edit": "edited, with the issues in view",
    "escalate": "a stronger model",
    "rewind": "taken back, and written on",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a draft changed in another one."""

    number: int
    """Of the other one."""
    what: str
    kin: float
    """0..1: the share of words in common."""
    pieces: tuple[Piece, ...]
    """Empty if it was written anew: few words in common, or too long to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One draft, from being proposed to being decided on."""

    attempt: Attempt
    anchor: str
    why: str
    """Why this rung of the ladder."""
    changes: tuple[Change, ...]
    """Against the draft it revises or the last accepted one, and against the first one, if these differ."""
    gain: float | None
    """Its score less that of the best one before."""
    reviews: tuple[Review, ...]
    remarks: tuple[Remark, ...]
    calls: tuple[Call, ...]
    cells: tuple[Cell, ...]
    nested: tuple[str, ...]
    """Anchors of refinements inside it."""
    best: bool
    seconds: float | None

    @property
    def number(self) -> int:
        """From 1."""
        return self.attempt.index + 1

    @property
    def parent_anchor(self) -> str:
        """The place of the draft that it revises."""
        return f"{self.anchor.removesuffix(str(self.number))}{(self.attempt.parent or 0) + 1}"

    @property
    def decision(self) -> str:
        """In a word or two."""
        if self.attempt.accepted:
            return "accepted"
        if self.cut_off or self.unended:
            return "cut off" if self.cut_off else "not ended"
        if self.attempt.error is not None and self.attempt.prediction is None:
            return "failed"
        return "rejected" if self.attempt.reason else "not decided"

    @property
    def cut_off(self) -> bool:
        """A limit, or the caller, ended it before it was judged."""
        return cut_off(self.attempt)

    @property
    def unended(self) -> bool:
        """No end of it is on record: it is at work, or its process has died."""
        return unended(self.attempt)

    @property
    def undecided(self) -> bool:
        """It has neither won nor lost: it has not ended, or nobody has decided."""
        return self.decision in ("not ended", "not decided")

    @property
    def rung(self) -> str:
        """The rung in words."""
        return RUNGS.get(self.attempt.rung, self.attempt.rung)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """The drafts of one strategy; a run has one, and one more for each that is nested in it."""

    anchor: str
    scope: str
    ended: bool
    stop: str
    rounds: tuple[Round, ...]
    inside: str
    """The anchor of the draft that it is nested in; empty for an outermost one."""
    remarks: tuple[Remark, ...]
    """Those that speak of no draft."""

    @property
    def best(self) -> Round | None:
        """The one that was kept."""
        return next((r for r in self.rounds if r.best), None)

    @property
    def checks(self) -> tuple[str, ...]:
        """Names of the checks that judged its drafts, in order."""
        names: dict[str, None] = {}
        for r in self.rounds:
            names.update({v.check: None for v in (r.attempt.score.verdicts if r.attempt.score else ())})
        return tuple(names)


class Teller:
    """Makes refinements out of a run's events."""

    def __init__(self, events: Sequence[Event], calls: Sequence[Call], cells: Sequence[Cell], clock: Clock) -> None:
        self._events = events
        self._calls, self._cells, self._clock = calls, cells, clock
        self._by_scope: dict[tuple[str, str], Event] = {}
        """The last event of a kind in a scope."""
        for event in events:
            self._by_scope[event.kind, event.scope] = event
        self._remarks = [(event, said) for event in events if (said := remark(event)) is not None]

    def all(self, found: Sequence[Drafts]) -> list[Refinement]:
        """Every refinement, in the order in which they began."""
        anchors = {d.scope: "" if n == 0 else f"s{n + 1}-" for n, d in enumerate(found)}
        return [self._refinement(d, found, anchors) for d in found]

    def _refinement(self, drafts: Drafts, found: Sequence[Drafts], anchors: Mapping[str, str]) -> Refinement:
        prefix = anchors[drafts.scope]
        stop = self._by_scope.get(("stop", drafts.scope))
        rounds = tuple(self._rounds(drafts, found, anchors))
        around = [
            (len(other.scope), f"{anchors[other.scope]}r{attempt.index + 1}")
            for other in found
            if other is not drafts
            for attempt in other.attempts
            if within(drafts.scope, other.scope_of(attempt))
        ]
        said = {id(r) for each in rounds for r in each.remarks}
        inner = [d.scope for d in found if d is not drafts and len(d.scope) > len(drafts.scope)]
        return Refinement(
            anchor=f"{prefix}drafts",
            scope=drafts.scope,
            ended=drafts.ended,
            stop=str(stop.data.get("reason", "")) if stop is not None else "",
            rounds=rounds,
            inside=max(around, default=(0, ""))[1],
            remarks=tuple(
                r
                for event, r in self._remarks
                if id(r) not in said
                and within(event.scope, drafts.scope)
                and not any(within(event.scope, scope) for scope in inner)
            ),
        )

    def _rounds(self, drafts: Drafts, found: Sequence[Drafts], anchors: Mapping[str, str]) -> Iterator[Round]:
        accepted: Attempt | None = None
        best: float | None = None
        by_index = {a.index: a for a in drafts.attempts}
        first = next((a for a in drafts.attempts if a.text), None)
        critiques = self._critiques(drafts)
        few = len(drafts.attempts) <= _FEW
        for attempt in drafts.attempts:
            scope = drafts.scope_of(attempt)
            base = accepted if attempt.parent is None else by_index.get(attempt.parent, accepted)
            value = None if attempt.score is None else attempt.score.value
            nested = [d for d in found if d is not drafts and within(d.scope, scope)]
            inner = [d.scope for d in nested]
            proposed, ended = self._by_scope.get(("propose", scope)), self._by_scope.get(("attempt", scope))
            yield Round(
                attempt=attempt,
                anchor=f"{anchors[drafts.scope]}r{attempt.index + 1}",
                why="" if proposed is None else str(proposed.data.get("why") or ""),
                changes=tuple(_changes(attempt, (base, accepted, first) if few else (base,), accepted, first)),
                gain=None if value is None or best is None else value - best,
                reviews=tuple(self._reviews(attempt, drafts, critiques)),
                remarks=tuple(self._remarks_on(drafts, attempt, inner)),
                calls=tuple(of_scope(self._calls, scope)),
                cells=tuple(c for c in self._cells if within(c.scope, scope) and not _in_any(c.scope, inner)),
                nested=tuple(f"{anchors[d.scope]}drafts" for d in nested),
                best=drafts.best is not None and attempt.index == drafts.best.index,
                seconds=_between(self._clock, proposed, ended),
            )
            if attempt.accepted:
                accepted, best = attempt, value if value is not None else best

    def _remarks_on(self, drafts: Drafts, attempt: Attempt, inner: Sequence[str]) -> Iterator[Remark]:
        scope = drafts.scope_of(attempt)
        for event, said in self._remarks:
            speaks_of_it = event.scope == drafts.scope and event.data.get("index") == attempt.index
            if speaks_of_it or (within(event.scope, scope) and not _in_any(event.scope, inner)):
                yield said

    def _critiques(self, drafts: Drafts) -> list[tuple[int, int, Critique]]:
        """(seq, index of the draft, what was said), in order: one draft may be criticised several times."""
        scopes = {drafts.scope_of(a): a.index for a in drafts.attempts}
        return [
            (e.seq, scopes[e.scope], _critique(e.data))
            for e in self._events
            if e.kind == "critique" and e.scope in scopes
        ]

    def _reviews(
        self, attempt: Attempt, drafts: Drafts, critiques: Sequence[tuple[int, int, Critique]]
    ) -> Iterator[Review]:
        for seq, index, critique in critiques:
            if index != attempt.index:
                continue
            revision = self._next_after(seq, drafts)
            later = [c for s, i, c in critiques if s > seq and revision is not None and i == revision.index]
            yield reviewed(critique, attempt, revision, later)

    def _next_after(self, seq: int, drafts: Drafts) -> Attempt | None:
        """The draft that was proposed next."""
        proposed = [(self._by_scope.get(("propose", drafts.scope_of(a))), a) for a in drafts.attempts]
        after = [(event.seq, a) for event, a in proposed if event is not None and event.seq > seq]
        return min(after, key=lambda pair: pair[0])[1] if after else None


def _changes(
    attempt: Attempt, others: Sequence[Attempt | None], accepted: Attempt | None, first: Attempt | None
) -> Iterator[Change]:
    """Against each of the others, once."""
    seen: set[int] = set()
    for other in others if attempt.text else ():
        if other is None or not other.text or other.index >= attempt.index or other.index in seen:
            continue
        seen.add(other.index)
        names = [
            "last accepted" if accepted is not None and other.index == accepted.index else "",
            "the original" if first is not None and other.index == first.index else "",
        ]
        kin, pieces = compared(other.text, attempt.text)
        what = " and ".join(filter(None, names)) or "which it revises"
        yield Change(number=other.index + 1, what=what, kin=kin, pieces=pieces)


@lru_cache(maxsize=512)
def compared(old: str, new: str) -> tuple[float, tuple[Piece, ...]]:
    """The share of common words, and the word diff. A page that follows a run compares only what is new."""
    if len(old) + len(new) > _LONGEST or _work(old, new) > _MOST_WORK:
        return 0.0, ()
    pieces = word_diff(old, new)
    words = Counter[str]()
    for piece in pieces:
        words[piece.op] += len(_WORD.findall(piece.text))
    both = words.total() + words["="]
    kin = 2 * words["="] / both if both else 1.0
    return kin, () if kin < _AKIN else tuple(_tidy(pieces))


def _work(old: str, new: str) -> int:
    """How many pairs of equal words there are, which is what comparing takes: a model that repeats itself makes millions."""
    before, after = (Counter(word for _, word in _WORD.findall(text)) for text in (old, new))
    return sum(times * after[word] for word, times in before.items())


def _tidy(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The space before what was put in is not underlined."""
    for piece in pieces:
        body = piece.text.lstrip()
        if piece.op == "+" and body and body != piece.text:
            yield Piece("=", piece.text[: len(piece.text) - len(body)])
            yield Piece("+", body)
        else:
            yield piece


def _critique(data: Mapping[str, Any]) -> Critique:
    issues = tuple(Issue(**issue) for issue in data["issues"])
    return Critique(verdict=data["verdict"], issues=issues, keep=tuple(data["keep"]), by=data["by"])


def _in_any(scope: str, scopes: Sequence[str]) -> bool:
    return any(within(scope, around) for around in scopes)


def _between(clock: Clock, begun: Event | None, ended: Event | None) -> float | None:
    return None if begun is None or ended is None else max(0.0, clock.at(ended.time) - clock.at(begun.time))
