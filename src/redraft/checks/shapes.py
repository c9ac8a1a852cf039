"""Shape: what several checks ask of one text, merged, and written as one regular expression.

The way to clean text from a small model is a narrow path: whole words, sentences that start and end as sentences do,
phrases placed early and never put off. Since a phrase is placed and not searched for, the expression grows by a
little for each check, where an intersection would multiply. All of it is narrower than the checks, on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from redraft.checks.letters import Letters, capital, literal, parts, says

Range = tuple[int, int]
Case = Literal["", "lower", "upper"]

_ROOM = 8
"""Words before a phrase, at most: a weak model puts off what it is allowed to put off."""
_PROSE: Range = (8, 150)
_SENTENCE: Range = (4, 24)
_ITEM: Range = (1, 16)
_PARAGRAPH: Range = (15, 70)
_PLANS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A text's skeleton, letters and phrases; what is None or empty is free."""

    words: Range | None = None
    sentences: Range | None = None
    paragraphs: Range | None = None
    bullets: Range | None = None
    case: Case = ""
    counts: tuple[tuple[str, int, int | None], ...] = ()
    """How often each phrase stands in the text, low to high; a mark is a phrase as well."""
    start: str = ""
    end: str = ""

    def __and__(self, other: Shape) -> Shape | None:
        """What both ask for; None if no text can do both."""
        merged: dict[str, object] = {"counts": (*self.counts, *other.counts)}
        for name in ("words", "sentences", "paragraphs", "bullets"):
            one, two = getattr(self, name), getattr(other, name)
            merged[name] = both = (max(one[0], two[0]), min(one[1], two[1])) if one and two else one or two
            if both and both[0] > both[1]:
                return None
        for name in ("case", "start", "end"):
            one, two = getattr(self, name), getattr(other, name)
            if one and two and one != two:
                return None
            merged[name] = one or two
        return Shape(**merged)  # type: ignore[arg-type]

    def expression(self) -> str | None:
        """As an llguidance terminal expression; None if no text has this shape, or none that can be written simply."""
        placed = self._placed()
        letters = self._letters(placed or ())
        if placed is None or letters is None:
            return None
        return _Writer(self, letters, placed).text()

    def _placed(self) -> tuple[str, ...] | None:
        """The phrases to place, in order; None if they contradict the counts."""
        fixed: list[str] = [self.start, self.end]
        for phrase, low, _ in sorted(self.counts, key=lambda c: -len(c[0])):
            fixed += [phrase] * (low - sum(says(text, phrase) for text in fixed))
        if any(high is not None and sum(says(text, p) for text in fixed) > high for p, _, high in self.counts):
            return None
        if any(_cased(text, self.case) != text for text in fixed[:2]):
            return None
        order = [p for p, _, _ in self.counts]
        return tuple(_cased(p, self.case) for p in sorted(fixed[2:], key=order.index))

    def _letters(self, placed: Sequence[str]) -> Letters | None:
        """The letters, marks and words that may be used; None if a phrase cannot be kept out."""
        texts = (self.start, self.end, *placed)
        marks, words = set(), set()
        for phrase, _, high in self.counts:
            if high is None:
                continue
            if not parts(phrase):
                marks.add(phrase.strip())
                continue
            # Free words never hold this part of the phrase, so the phrase stands only where it was placed.
            elsewhere = {part for text in texts if not says(text, phrase) for part in parts(text)}
            keys = [part for part in parts(phrase) if part not in elsewhere]
            if not keys:
                return None
            words.add(max(keys, key=len))
        if any(mark in text for mark in marks for text in texts) or {".", "!", "?"} <= marks:
            return None
        return Letters(self.case, frozenset(marks), frozenset(words))


def _cased(text: str, case: Case) -> str:
    return text.lower() if case == "lower" else text.upper() if case == "upper" else text


class _Writer:
    """Writes a shape as an expression: texts of units (items, sentences, paragraphs, or one run of prose)."""

    def __init__(self, shape: Shape, letters: Letters, placed: Sequence[str]) -> None:
        self.shape, self.letters, self.placed = shape, letters, placed
        self.listed = shape.bullets is not None
        self.flowing = not self.listed and shape.sentences is None
        """Units are prose in which sentences may end."""
        self.before = shape.start if self.listed or _ends(shape.start) else ""
        self.after = shape.end if self.listed or _ends(shape.end) else ""
        self.first = "" if self.before else shape.start
        self.last = "" if self.after else shape.end

    def text(self) -> str | None:
        """All plans as one expression."""
        numbers = self._numbers()
        if numbers is None:
            return None
        plans = [plan for n in numbers if (plan := self._plan(n))]
        if not plans:
            return None
        text = " | ".join(plans) if len(plans) == 1 else f"({' | '.join(plans)})"
        between = r"/\n/" if self.listed else "/ /"
        before = f"{literal(self.before)} {between} " if self.before else ""
        after = f" {between} {literal(self.after)}" if self.after else ""
        return f"{before}{text}{after}"

    def _numbers(self) -> Sequence[int] | None:
        """How many units the text may have."""
        shape = self.shape
        fixed = sum(len(re.findall(r"[.!?]+(?=\s|$)", text)) for text in (self.before, self.after))
        sentences = shape.sentences and (shape.sentences[0] - fixed, shape.sentences[1] - fixed)
        if sentences and any(re.search(r"[.!?](\s|$)", text) for text in (*self.placed, self.first)):
            return None
        if self.listed:
            if shape.paragraphs and shape.paragraphs[0] > 1 or sentences and (self.before or self.after):
                return None
            span = shape.bullets if not sentences else _both(shape.bullets, sentences)
        else:
            span = sentences or shape.paragraphs or (1, 1)
        if span is None or span[1] < 1:
            return None
        low = max(span[0], 1)
        words = self._words()
        if words is None:
            return range(low, min(span[1], low + _PLANS - 1) + 1)
        fit = [n for n in range(low, span[1] + 1) if n <= words[1]]
        return sorted(fit, key=lambda n: abs(n * 12 - sum(words) / 2))[:_PLANS]

    def _words(self) -> Range | None:
        """How many words the units have together."""
        if self.shape.words is None:
            return None
        fixed = _size(self.before) + _size(self.after)
        return max(self.shape.words[0] - fixed, 0), self.shape.words[1] - fixed

    def _plan(self, n: int) -> str | None:
        """A text of n units."""
        words, units = self._words(), []
        usual = _ITEM if self.listed else _SENTENCE if not self.flowing else _PARAGRAPH if self.shape.paragraphs else _PROSE
        for i in range(n):
            low, high = (_share(words[0], n, i), _share(words[1], n, i)) if words else usual
            phrases = [p for j, p in enumerate(self.placed) if j * n // len(self.placed) == i]
            unit = self._unit(low, high, phrases, self.first if i == 0 else "", self.last if i == n - 1 else "")
            if unit is None:
                return None
            units.append(f"{self._between(i, n)}{unit}")
        return " ".join(units)

    def _between(self, i: int, n: int) -> str:
        """What stands before the i-th unit."""
        if self.listed:
            return r"/\n- / " if i else "/- / "
        if i == 0:
            return ""
        shape = self.shape
        if shape.sentences and not shape.paragraphs:
            return r"/\n\n/ " if shape.case == "lower" else "/ / "
        blocks = shape.paragraphs[0] if shape.paragraphs and shape.sentences else n
        return r"/\n\n/ " if i * blocks // n != (i - 1) * blocks // n else "/ / "

    def _unit(self, low: int, high: int, phrases: Sequence[str], first: str, last: str) -> str | None:
        """One unit of low to high words: a head, the phrases with words before and between them, a tail."""
        size = sum(map(_size, (*phrases, first, last)))
        low, high = low - size, high - size
        if not phrases:
            tail = self._tail(low - 1, high - 1, last)
            return None if tail is None else f"{self._head(first)} {tail}"
        width = min(_ROOM, max(high - low, 0) // len(phrases))
        ways = []
        for least in range(1 if first else 0, _ROOM + 1, width + 1):
            gaps = [(a := max(least, min(i, 1)), a + width) for i in range(len(phrases))]
            spent = [sum(gap[side] for gap in gaps) for side in (0, 1)]
            tail = self._tail(low - spent[0], high - spent[1], last, after=phrases[-1])
            if tail is not None:
                led = (self._led(p, gap, i == 0, first) for i, (p, gap) in enumerate(zip(phrases, gaps, strict=True)))
                ways.append(" ".join([*led, tail]))
        return f"({' | '.join(ways)})" if ways else None

    def _head(self, first: str) -> str:
        """The first word, or the given text and a word."""
        return f"{literal(first)} / / {self.letters.word}" if first else self.letters.head

    def _led(self, phrase: str, gap: Range, leads: bool, first: str) -> str:
        """A phrase and the words before it; `leads` if no other comes before it in the unit."""
        low, high = gap
        said = f"{self.letters.joint} {literal(phrase)}"
        if self.flowing and not self.shape.case:
            said = f"({said} | {self._stop()} {literal(capital(phrase))})"
        if not leads:
            return f"{self._more(low, high)} {said}"
        led = f"{self._head(first)} {self._more(max(low, 1) - 1, high - 1)} {said}"
        opening = literal(phrase if self.shape.case else capital(phrase))
        if low > 0:
            return led
        return f"({opening} | {led})" if high > 0 else opening

    def _more(self, low: int, high: int) -> str:
        """So many more words."""
        word = f"{self.letters.joint} {self.letters.word}"
        if self.flowing:
            word = f"{word} | {self._stop()} {self.letters.head}"
        return f"({word}){{{max(low, 0)},{high}}}" if high > 0 else ""

    def _stop(self) -> str:
        """Between two sentences of prose."""
        return f"{self.letters.end} {'/ /' if self.shape.paragraphs else BREAK}"

    def _tail(self, low: int, high: int, last: str, after: str = "") -> str | None:
        """The words after the last phrase, and the end; None if there is no room for them."""
        if high < 0:
            return None
        if last:
            return f"{self._more(low, high)} / / {literal(last)}"
        end = "/[.]?/" if self.listed and "." not in self.letters.marks else "" if self.listed else self.letters.end
        closing = f"{self._more(low - 1, high - 1)} {self.letters.joint} {self.letters.last} {end}"
        if low > 0:
            return closing if high > 0 else None
        if after and not self.letters.may_end(after):
            return closing if high > 0 else None
        return f"({closing} | {end})" if high > 0 and end else f"({closing})?" if high > 0 else end


BREAK = r"/( |\n\n)/"


def _ends(text: str) -> bool:
    """Whether a text ends as a sentence does."""
    return text.rstrip().endswith((".", "!", "?"))


def _size(text: str) -> int:
    return sum(1 for run in text.split() if parts(run))


def _share(total: int, n: int, i: int) -> int:
    """The i-th of n parts of a total, as even as can be."""
    return total // n + (i < total % n)


def _both(one: Range | None, two: Range | None) -> Range | None:
    if one is None or two is None:
        return one or two
    return max(one[0], two[0]), min(one[1], two[1])
