"""Checks that count, within a range: words, sentences, paragraphs, bullets, characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from redraft.checks import languages
from redraft.checks.base import Check, Guard
from redraft.checks.constraint import Constraint
from redraft.checks.segment import (
    item_starts,
    least_sentences,
    sentence_spans,
    split_paragraphs,
    split_words,
)
from redraft.errors import UsageError

_COMPLETE = re.compile(r"[.!?\u2026\u3002\uff01\uff1f][\"'\u201d\u2019)\]*_]*\Z")
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"), ("\u201c", "\u201d"), ("\u00ab", "\u00bb"))
_TWINS = ('"', "```", "**")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TRIES = 8  # cuts that are tried before a text counts as one that cannot be trimmed


class Count(Check):
    """How many of something a text has, within `low..high`; no `high` means no upper limit."""

    noun = "item"
    how = ""
    """What `tell` adds about their form."""

    def __init__(
        self,
        low: int | None = None,
        high: int | None = None,
        *,
        at_least: int | None = None,
        at_most: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        given = (low, high, at_least, at_most)
        if low is None:
            bottom, top = (0 if at_least is None else at_least), (high if at_most is None else at_most)
        else:
            bottom, top = low, (low if high is None else high)
        whole = all(n is None or (isinstance(n, int) and not isinstance(n, bool)) for n in given)
        mixed = (low is not None or high is not None) and (at_least is not None or at_most is not None)
        if not whole or mixed or (low is None and high is not None) or not _is_range(bottom, top):
            named = zip(("low", "high", "at_least", "at_most"), given, strict=True)
            raise UsageError(
                f"{self.name}({', '.join(f'{key}={n!r}' for key, n in named if n is not None)}): give one whole number, a "
                "range low <= high from 0 up, at_least= or at_most="
            )
        self.low, self.high = bottom, top

    def count(self, text: str) -> int:
        """How many there are."""
        raise TypeError(f"{type(self).__name__} defines no count(text), and cannot count {text[:20]!r}")

    def least(self, prefix: str) -> int:
        """How many any text has that begins like this."""
        return self.count(prefix)

    def want(self) -> str:
        """The range in words."""
        if self.high is None:
            return f"at least {self.low}"
        if self.low == self.high:
            return str(self.low)
        return f"{self.low} to {self.high}" if self.low else f"at most {self.high}"

    def tell_text(self) -> str:
        """See `Check`."""
        exactly = "exactly " if self.low == self.high else ""
        most = self.low if self.high is None else self.high
        return f"Write {exactly}{self.want()} {self._counted(most)}{self.how if most != 1 else ''}."

    def judge(self, value: Any) -> tuple[float, str]:
        """Full credit inside the range, less the farther outside."""
        n = self.count(str(value))
        off = max(self.low - n, 0 if self.high is None else n - self.high, 0)
        if not off:
            return 1.0, ""
        return max(0.0, 1.0 - off / max(self.high or self.low, 1)), f"{n} {self._counted(n)}, want {self.want()}"

    def guard(self, prefix: str) -> Guard:
        """A text only ever gets more of what is counted."""
        n = self.least(prefix)
        if self.high is not None and n > self.high:
            return "fail"
        return "pass" if self.high is None and n >= self.low else "unknown"

    def fix(self, value: Any) -> str | None:
        """A text that is too long, cut where a reader misses nothing of the rest."""
        if not isinstance(value, str) or self.high is None or self.count(value) <= self.high:
            return None
        trimmed = self.trim(value)
        return trimmed if trimmed and self.judge(trimmed)[0] == 1.0 else None

    def trim(self, text: str) -> str | None:
        """The text up to the last sentence that fits."""
        assert self.high is not None
        ends: list[int] = []
        for _, end in sentence_spans(text):
            ends.append(end)
            # Looked at as often as their number doubles: no more of a long text is read than is kept.
            if len(ends).bit_count() == 1 and self.count(text[:end]) > self.high:
                break
        fitting = bisect_right(ends, self.high, key=lambda end: self.count(text[:end]))
        for end in reversed(ends[max(0, fitting - _TRIES) : fitting]):
            if _stands_alone(text[:end]):
                return text[:end]
        return None

    def _counted(self, n: int) -> str:
        return f"{self.noun}{'' if n == 1 else 's'}"


class Words(Count):
    """Words: runs of characters between spaces that hold a letter or digit."""

    name, noun = "words", "word"

    def count(self, text: str) -> int:
        """See `Count`."""
        return len(split_words(text))

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.words(self.low, self.high)


class Chars(Count):
    """Characters, without white space around the text."""

    name, noun = "chars", "character"

    def count(self, text: str) -> int:
        """See `Count`."""
        return len(text.strip())

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.chars(self.low, self.high)


class Sentences(Count):
    """Sentences: ended by . ! ? or the end of a line; abbreviations, initials, decimals and list markers end none."""

    name, noun = "sentences", "sentence"

    def count(self, text: str) -> int:
        """See `Count`."""
        return sum(1 for _ in sentence_spans(text))

    def least(self, prefix: str) -> int:
        """See `Count`."""
        return least_sentences(prefix)

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.sentences(self.low, self.high)


class Paragraphs(Count):
    """Paragraphs: blocks between blank lines."""

    name, noun = "paragraphs", "paragraph"
    how = " with a blank line between them"

    def count(self, text: str) -> int:
        """See `Count`."""
        return len(split_paragraphs(text))

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.paragraphs(self.low, self.high)

    def fix(self, value: Any) -> str | None:
        """Also: whole paragraphs on lines of their own get their blank lines."""
        if not isinstance(value, str) or self.count(value) >= self.low:
            return super().fix(value)
        lines = [line.strip() for line in value.splitlines() if line.strip()]
        spaced = "\n\n".join(lines)
        whole = all(_COMPLETE.search(line) for line in lines) and not item_starts(value)
        return spaced if whole and self.judge(spaced)[0] == 1.0 else None

    def trim(self, text: str) -> str | None:
        """The first paragraphs."""
        kept = "\n\n".join(split_paragraphs(text)[: self.high])
        return kept if _stands_alone(kept) else None


class Bullets(Count):
    """List items: lines that begin with -, *, +, a bullet, 1. or 1)."""

    name, noun = "bullets", "bullet"
    how = ', each on its own line after "- "'

    def count(self, text: str) -> int:
        """See `Count`."""
        return len(item_starts(text))

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.bullets(self.low, self.high)

    def trim(self, text: str) -> str | None:
        """The first items, with what stands before the list and after it."""
        starts = [start for start, _ in item_starts(text)]
        promised = re.search(rf"\b(?:{len(starts)}|{_number(len(starts))})\b", text[: starts[0]], re.IGNORECASE)
        if promised:  # "Here are seven tips:"
            return None
        rest = text[starts[-1] :]
        after = re.search(r"\n\s*\n(?=\S)", rest)
        kept = text[: starts[self.high or 0]].rstrip()
        return kept + (rest[after.start() :] if after else "")


def _is_range(low: int, high: int | None) -> bool:
    return low > 0 if high is None else 0 <= low <= high


def _number(n: int) -> str:
    return _NUMBERS[n] if n < len(_NUMBERS) else str(n)


def _stands_alone(text: str) -> bool:
    """It ends like a sentence, with no quote, bracket or fence left open."""
    balanced = all(text.count(a) == text.count(b) for a, b in _PAIRS) and not any(text.count(t) % 2 for t in _TWINS)
    return balanced and bool(_COMPLETE.search(text[-20:]))


def words(low: int | None = None, high: int | None = None, **options: Any) -> Words:
    """`words(50)`: exactly 50; `words(20, 40)`: 20 to 40; `words(at_least=20)`, `words(at_most=40)`. Options: `field`,
    `hard`, `tell`.
    """
    return Words(low, high, **options)


def sentences(low: int | None = None, high: int | None = None, **options: Any) -> Sentences:
    """`sentences(3)`: exactly 3; `sentences(2, 4)`: 2 to 4; also `at_least=`, `at_most=`. Options: `field`, `hard`,
    `tell`.
    """
    return Sentences(low, high, **options)


def paragraphs(low: int | None = None, high: int | None = None, **options: Any) -> Paragraphs:
    """Blocks between blank lines, counted as in `words`. Options: `field`, `hard`, `tell`."""
    return Paragraphs(low, high, **options)


def bullets(low: int | None = None, high: int | None = None, **options: Any) -> Bullets:
    """List items, numbered or not, counted as in `words`. Options: `field`, `hard`, `tell`."""
    return Bullets(low, high, **options)


def chars(low: int | None = None, high: int | None = None, **options: Any) -> Chars:
    """Characters (code points) of the stripped text, counted as in `words`. Options: `field`, `hard`, `tell`."""
    return Chars(low, high, **options)
