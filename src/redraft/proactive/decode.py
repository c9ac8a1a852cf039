"""One text being written, and taken back where that pays: the whole method, without any input or output.

`Decoding.steps` is a generator: it yields what is to be written (`Ask`), judged (`Judge`), known (`Rewind`) or shown as a
finished text (`Draft`), and is sent the answers. Who drives it buys the tokens: a Run, or a loop around a model.

Guards first: a prefix that cannot pass any more is taken back to another likely continuation at once, the nearest first, then
farther and farther. Then signals: a doubtful place is written anew in several ways, and the best is taken.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from redraft.proactive.backtrack import Branch, DynamicBacktracker
from redraft.proactive.signals import Signal
from redraft.proactive.tokens import Token, is_whole, text_of

Cause = Literal["guard", "end", "signal"]
"""Why something is taken back: it cannot pass any more; it has ended and does not pass; it is doubtful."""

Finish = Literal["stop", "length", "cut"]
"""How a continuation ended: by itself, at its cap, or where the one who watched it said so."""

Watch = Callable[[Sequence[Token]], bool]
"""Takes all tokens of a continuation so far; True ends it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Continue these tokens, in each of these ways, by `cap` tokens at most each."""

    kept: tuple[Token, ...]
    cap: int
    branches: tuple[Branch, ...] = (Branch(),)
    watch: tuple[Watch | None, ...] = (None,)
    """One for each branch."""
    why: Cause | None = None
    """What it is written for; None: for the text itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One continuation: its new tokens, without the first one where that was given."""

    tokens: tuple[Token, ...]
    finish: Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What are these finished texts worth? The answer is a number each, 1 or more for one that passes; None: nobody knows."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A text that has come to an end. The answer is True if it is good enough."""

    text: str
    tokens: tuple[Token, ...]
    ended: bool
    """False: its end was not reached, and nothing more can be tried."""
    why: str = "the first draft"
    """How it came about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """Tokens were taken back, or an alternative was looked at in vain."""

    cause: Cause
    by: str
    """The check whose guard failed; what else decided."""
    at: int
    """How many tokens there were."""
    to: int
    """How many are left of them."""
    taken: str
    """The text that was taken back."""
    put: str
    """The text that stands there now."""
    before: str
    """The text before it."""
    tried: int = 0
    """Tokens written for it beyond the text itself: of all alternatives."""
    accepted: bool = True
    consistency: float | None = None
    """Of alternatives: the share that agrees with the original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a text is held to while it is written."""

    guard: Callable[[str], str] = lambda _: ""
    """The name of a check that a text which begins like this cannot pass any more; empty if there is none."""
    signal: Signal | None = None
    back: DynamicBacktracker
    max_tokens: int
    seed: int = 0


Step: TypeAlias = "Ask | Judge | Rewind | Draft"
Steps: TypeAlias = "Generator[Step, Any, None]"
_Path: TypeAlias = "tuple[Hashable, ...]"


class Decoding:
    """The state of one text. `tokens` are what stands now."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.back = plan, plan.back
        self.tokens: list[Token] = []
        self.rewinds = 0
        self._finish: Finish | None = None
        self._seen = 0  # tokens that were looked at already
        self._tabu: defaultdict[_Path, set[Hashable]] = defaultdict(set)  # what was tried after a prefix
        self._points: set[_Path] = set()  # where alternatives were written
        self._quiet = 0  # no signal is heard before this many tokens
        self._front, self._failures = -1, 0  # the farthest failure, and how often it failed around there
        self._chance = random.Random(plan.seed)
        self._for: Cause | Literal["text"] = "text"
        self.spent: Counter[str] = Counter()
        """Tokens written, by what for: the text, and what came after each cause, alternatives included."""

    @property
    def text(self) -> str:
        """What stands now."""
        return text_of(self.tokens)

    @property
    def ended(self) -> bool:
        """Whether what stands now has come to its end, or to its cap."""
        return self._finish is not None

    def steps(self) -> Steps:
        """Write, look, take back, until a text is good enough or nothing is left to try. Ends in any case: each rewind counts,
        none puts the same token in the same place, and between two of them only `max_tokens` are written.
        """
        shown, why = False, "the first draft"
        while True:
            if self._finish is None:
                yield from self._onward()
            cause = self._cause()
            if cause == "signal":
                yield from self._alternatives()
                continue
            if cause is None and self._finish is None:
                continue
            if cause is None:
                shown = True
                if (yield self._draft(why, ended=True)):
                    return
            rewind = yield from self._retreat(cause or "end")
            if rewind is None:
                if cause == "guard" or not shown:
                    yield self._last(cause)
                return
            yield rewind
            why = f"back from token {rewind.at} to {rewind.to}"

    def _last(self, cause: Cause | None) -> Draft:
        """Nothing is left to try: what there is, without the token that cannot stand (but for the first one)."""
        if cause == "guard" and len(self.tokens) > 1:
            del self.tokens[-1]
        return self._draft("every other way on was tried, or the rewinds are used up", ended=False)

    def _draft(self, why: str, *, ended: bool) -> Draft:
        return Draft(text=text_of(self.tokens), tokens=tuple(self.tokens), ended=ended, why=why)

    # Writing on

    def _onward(self) -> Steps:
        room = self.plan.max_tokens - len(self.tokens)
        if room <= 0:
            self._finish = "length"
            return
        kept = tuple(self.tokens)
        written = yield Ask(kept=kept, cap=room, watch=(lambda new: self._cut(kept, new),))
        [only] = written
        self.spent[self._for] += len(only.tokens)
        self._take([*kept, *only.tokens], only.finish)
        if not only.tokens and only.finish != "stop":
            self._finish = "length"  # nothing came: no use to ask again

    def _take(self, tokens: list[Token], finish: Finish | None) -> None:
        self.tokens = tokens
        ended = bool(tokens) and tokens[-1].end
        full = len(tokens) >= self.plan.max_tokens
        self._finish = "stop" if ended or finish == "stop" else "length" if full else None

    def _cut(self, kept: tuple[Token, ...], new: Sequence[Token]) -> bool:
        tokens = [*kept, *new]
        if new[-1].end:
            return False
        return bool(self._doomed(tokens)) or self._doubted(tokens)

    # Looking

    def _cause(self) -> Cause | None:
        """The first thing that is wrong with what is new; tokens beyond a failed guard are dropped."""
        first = self._seen
        self._seen = len(self.tokens)
        failed = self._failed_at(first)
        last = len(self.tokens) if failed is None else failed
        for at in range(first, last):
            if self._doubted(self.tokens[: at + 1]):
                self._seen = at + 1
                return "signal"
        if failed is None:
            return None
        del self.tokens[failed + 1 :]
        self._finish = None
        return "guard"

    def _failed_at(self, first: int) -> int | None:
        """The index of the token with which no continuation can pass any more. Once failed, always failed: halved."""
        low, high = first, len(self.tokens)
        if low == high or not self._doomed(self.tokens):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._doomed(self.tokens[:middle]) else (middle, high)
        return low

    def _doomed(self, tokens: Sequence[Token]) -> str:
        return self.plan.guard(text_of(tokens))

    def _doubted(self, tokens: Sequence[Token]) -> bool:
        signal = self.plan.signal
        if signal is None or len(tokens) < self._quiet or self.rewinds >= self.back.most:
            return False
        return signal.should_refine(tokens) and self._point(tokens) is not None

    def _point(self, tokens: Sequence[Token]) -> int | None:
        assert self.plan.signal is not None
        return self.back.find_refinement_point(
            tokens, self.plan.signal, tabu=lambda at: _path(tokens[:at]) in self._points
        )

    # Taking back: guards, and ends that do not pass

    def _retreat(self, cause: Cause) -> Generator[Step, Any, Rewind | None]:
        """Put another likely token in the place of the last one, or of one before: the likeliest that nothing speaks against,
        in a window that doubles while the text fails around the same place. None: there is none.
        """
        if self.rewinds >= self.back.most:
            return None
        if cause == "end":
            yield from self._look_at_end()
        last = len(self.tokens) - 1
        by = (self._doomed(self.tokens) if cause == "guard" else "") or "the checks"
        self._failures = self._failures + 1 if last <= self._front + self.back.gap else 0
        self._front = max(self._front, last)
        width = 2**self._failures if cause == "guard" or self._failures < 1 else self.back.farthest * self._failures
        # What guards refuse costs nothing: before giving up, every token that was reported is asked about.
        for floor in (self.back.floor, 0.0) if cause == "guard" else (self.back.floor,):
            for wide in _widths(width, last):
                if (found := self._other(last, wide, floor)) is not None:
                    return self._put(*found, cause, by)
        return None

    def _look_at_end(self) -> Steps:
        """See what else might have come where the text ended, at a backend that did not say: one token more."""
        if self._finish != "stop" or (self.tokens and self.tokens[-1].end):
            return
        written = yield Ask(kept=tuple(self.tokens), cap=1, why="end")
        [only] = written
        self.spent["end"] += len(only.tokens)
        if only.tokens and (ends := [t for t in only.tokens[0].top if t.end]):
            end = Token(data=b"", logprob=ends[0].logprob, id=ends[0].id, end=True, top=only.tokens[0].top)
            self.tokens.append(end)
            self._seen = len(self.tokens)

    def _other(self, last: int, width: int, floor: float) -> tuple[int, Token] | None:
        """The likeliest token that may stand in the place of another one, of the last `width`."""
        ways = [
            (token.logprob, at, token)
            for at in range(last, max(last - width, -1), -1)
            if is_whole(self.tokens[:at])
            for token in self.back.likely(self.tokens, at, floor)
            if token.key != self.tokens[at].key and token.key not in self._tabu[_path(self.tokens[:at])]
        ]
        for _, at, token in sorted(ways, key=lambda way: (-way[0], -way[1])):
            if token.end or not self._doomed([*self.tokens[:at], token]):
                return at, token
            self._tabu[_path(self.tokens[:at])].add(token.key)
        return None

    def _put(self, at: int, token: Token, cause: Cause, by: str) -> Rewind:
        before, old = self.tokens[:at], self.tokens[at]
        self._tabu[_path(before)] |= {old.key, token.key}
        self.rewinds += 1
        self._for = cause
        taken, count = text_of(self.tokens)[len(text_of(before)) :], len(self.tokens)
        self._take([*before, _forced(token, old)], None)
        self._seen = len(self.tokens)
        put = text_of(self.tokens)[len(text_of(before)) :]
        return Rewind(cause=cause, by=by, at=count, to=at, taken=taken, put=put, before=text_of(before))

    # Taking back: what is doubtful

    def _alternatives(self) -> Steps:
        """Write a doubtful place anew in several ways, and take the best."""
        tokens, point = self.tokens, self._point(self.tokens)
        if point is None:
            return
        kept = tokens[:point]
        self.rewinds += 1
        self._quiet = len(tokens) + self.back.gap
        self._points.add(_path(kept))
        branches = self._branches(kept)
        cap = min(self.back.room(len(tokens) - point), self.plan.max_tokens - point) - 1
        if not branches or cap < 1:
            return
        watch = tuple(self._branch_watch([*kept, b.first]) for b in branches if b.first)
        written = yield Ask(kept=tuple(kept), cap=cap, branches=tuple(branches), watch=watch, why="signal")
        tried = sum(len(w.tokens) for w in written)
        self.spent["signal"] += tried
        firsts = [_forced(b.first, tokens[point]) for b in branches if b.first]
        tails = [tokens[point:], *([first, *w.tokens] for first, w in zip(firsts, written, strict=True))]
        ended = [tail[-1].end for tail in tails]
        ended[0] |= self._finish == "stop"
        ended[1:] = [end or w.finish == "stop" for end, w in zip(ended[1:], written, strict=True)]
        yield from self._best_of(kept, tails, ended, tried)

    def _branches(self, kept: list[Token]) -> list[Branch]:
        banned = frozenset(self._tabu[_path(kept)])
        branches = self.back.revise_from_point(self.tokens, len(kept), self._chance, banned=banned)
        return [b for b in branches if b.first and not self._doomed([*kept, b.first])]

    def _best_of(self, kept: list[Token], tails: list[list[Token]], ended: list[bool], tried: int) -> Steps:
        """Take the best of the original, which is the first, and its alternatives."""
        texts = [text_of([*kept, *tail]) for tail in tails]
        worth = yield from self._verified(texts, ended)
        best = self.back.select_best_alternative(tails, worth, texts)
        before, count = text_of(kept), len(self.tokens)
        if best.at:
            self._take([*kept, *tails[best.at]], "stop" if ended[best.at] else None)
            self._seen = len(self.tokens)
            self._quiet, self._for = len(self.tokens) + self.back.gap, "signal"
        yield Rewind(
            cause="signal",
            by=best.why,
            at=count,
            to=len(kept),
            taken=texts[0][len(before) :],
            put=texts[best.at][len(before) :],
            before=before,
            tried=tried,
            accepted=bool(best.at),
            consistency=best.consistency,
        )

    def _branch_watch(self, kept: list[Token]) -> Watch:
        return lambda new: not new[-1].end and bool(self._doomed([*kept, *new]))

    def _verified(self, texts: list[str], ended: list[bool]) -> Generator[Step, Any, list[float]]:
        """What is known of each text: -1 it cannot pass, 0 nothing, 1 it passes; one that ended and fails lies below 0."""
        worth = [-1.0 if self.plan.guard(text) else 0.0 for text in texts]
        whole = [i for i, done in enumerate(ended) if done and worth[i] == 0]
        if whole:
            values = yield Judge(texts=tuple(texts[i] for i in whole))
            for i, value in zip(whole, values, strict=True):
                worth[i] = 0.0 if value is None else 1.0 if value >= 1.0 else value - 1.0
        return worth


def _widths(width: int, last: int) -> Iterator[int]:
    """A width, doubled until it covers everything up to the last token."""
    while width <= last:
        yield width
        width *= 2
    yield width


def _path(tokens: Sequence[Token]) -> _Path:
    return tuple(token.key for token in tokens)


def _forced(token: Token, instead: Token) -> Token:
    """A token put in the place of another one."""
    return replace(token, top=instead.top, entropy=instead.entropy, forced=True)
