"""Shape: what several checks ask of one text, merged into one.

The way to clean text from a small model is a narrow path: whole words, sentences that begin and end as sentences do, a
phrase placed early and not put off. Phrases are placed and words kept out, never searched for, so a shape grows by a
little for each check, where an intersection of languages would multiply. All of it is narrower than the checks, on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from redraft.checks.letters import Letters, parts, says

Range = tuple[int, int]
Case = Literal["", "lower", "upper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A text's skeleton, letters and phrases; what is None or empty is free."""

    words: Range | None = None
    sentences: Range | None = None
    paragraphs: Range | None = None
    bullets: Range | None = None
    chars: Range | None = None
    case: Case = ""
    counts: tuple[tuple[str, int, int | None], ...] = ()
    """How often each phrase stands in the text, low to high; a mark is a phrase as well."""
    start: str = ""
    end: str = ""

    def __and__(self, other: Shape) -> Shape | None:
        """What both ask for; None if no text can do both."""
        merged: dict[str, object] = {"counts": (*self.counts, *other.counts)}
        for name in ("words", "sentences", "paragraphs", "bullets", "chars"):
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

    def opposite(self) -> Shape | None:
        """The texts without the one phrase that this asks for, or with the one that it forbids; None if it asks for more."""
        for phrase, low, high in self.counts:
            for one, two in (((1, None), (0, 0)), ((0, 0), (1, None))):
                if (low, high) == one and self == Shape(counts=((phrase, low, high),)):
                    return Shape(counts=((phrase, *two),))
        return None

    def placed(self) -> tuple[str, ...] | None:
        """The phrases to place, in order; None if they contradict the counts or the case."""
        fixed = [self.start, self.end]
        for phrase, low, _ in sorted(self.counts, key=lambda count: -len(count[0])):
            fixed += [phrase] * (low - sum(says(text, phrase) for text in fixed))
        if any(high is not None and sum(says(text, p) for text in fixed) > high for p, _, high in self.counts):
            return None
        if any(self.cased(text) != text for text in fixed[:2]):
            return None
        order = [phrase for phrase, _, _ in self.counts]
        return tuple(map(self.cased, sorted(fixed[2:], key=order.index)))

    def letters(self, placed: Sequence[str]) -> Letters | None:
        """What free words are made of; None if a phrase cannot be kept out of the text."""
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
        return Letters(self.case, frozenset(marks), frozenset(words), numbers=self.bullets is None)

    def cased(self, text: str) -> str:
        """A text in the shape's case."""
        return text.lower() if self.case == "lower" else text.upper() if self.case == "upper" else text
