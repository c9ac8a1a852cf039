"""Checks that count: words and sentences, within a range."""

from __future__ import annotations

import re
from typing import Any

from redraft.checks import languages
from redraft.checks.base import Check
from redraft.checks.constraint import Constraint
from redraft.errors import UsageError

_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc eg ie e.g i.e cf al fig vol inc ltd co corp dept approx "  # noqa: SIM905 - reads better
    "jan feb mar apr jun jul aug sep sept oct nov dec a.m p.m u.s u.k".split()
)
_MARKS = ".!?\u2026\u3002\uff01\uff1f"
# Possessive, and never from inside a run: degenerate drafts hold thousands of marks in a row.
_END = re.compile(rf"(?<![{_MARKS}])[{_MARKS}]++[\"'\u201d\u2019)\]*_]*+(?=\s|$)|[\u3002\uff01\uff1f]")
_MARKER = re.compile(r"^\s*(?:[-*+\u2022]|\d+[.)]|#{1,6})\s+")
_WORD = re.compile(r"\w")


class Count(Check):
    """How many of something a text has, within `low..high`."""

    noun = "item"

    def __init__(self, low: int, high: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        high = low if high is None else high
        if not (isinstance(low, int) and isinstance(high, int) and 0 <= low <= high):
            raise UsageError(f"{self.name}({low!r}, {high!r}): give one whole number, or a range low <= high from 0 up")
        self.low, self.high = low, high

    def count(self, text: str) -> int:
        """How many there are."""
        raise TypeError(f"{type(self).__name__} defines no count(text), and cannot count {text[:20]!r}")

    def want(self) -> str:
        """The range in words."""
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def tell_text(self) -> str:
        """See `Check`."""
        if self.low == 0:
            return f"Write at most {self.high} {self.noun}{'' if self.high == 1 else 's'}."
        exactly = "exactly " if self.low == self.high else ""
        return f"Write {exactly}{self.want()} {self.noun}{'' if self.high == 1 else 's'}."

    def judge(self, value: Any) -> tuple[float, str]:
        """Full credit inside the range, less the farther outside."""
        n = self.count(str(value))
        off = max(self.low - n, n - self.high, 0)
        if not off:
            return 1.0, ""
        return max(0.0, 1.0 - off / max(self.high, 1)), f"{n} {self.noun}{'' if n == 1 else 's'}, want {self.want()}"


class Words(Count):
    """Words: runs of characters between spaces that hold a letter or digit."""

    name, noun = "words", "word"

    def count(self, text: str) -> int:
        """See `Count`."""
        return sum(1 for run in text.split() if _WORD.search(run))

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.words(self.low, self.high)


class Sentences(Count):
    """Sentences: ended by . ! ? or the end of a line; abbreviations, initials, decimals and list markers end none."""

    name, noun = "sentences", "sentence"

    def count(self, text: str) -> int:
        """See `Count`."""
        return len(split_sentences(text))

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.sentences(self.low, self.high)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in order. A line without an end mark (a heading, a list item) counts as one."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+\u2022]|\d+[.)]|#{1,6})\s)", text):
        found += _split_block(_MARKER.sub("", " ".join(block.split())))
    return found


def _split_block(line: str) -> list[str]:
    found, start = [], 0
    for mark in _END.finditer(line):
        if _ends_sentence(line, start, mark):
            found.append(line[start : mark.end()].strip())
            start = mark.end()
    found.append(line[start:].strip())
    return [s for s in found if re.search(r"\w", s)]


def _ends_sentence(line: str, start: int, mark: re.Match[str]) -> bool:
    rest = line[mark.end() :].lstrip()
    if mark.group()[0] not in ".\u2026":
        return not (mark.group()[-1] not in _MARKS and rest[:1].islower())  # '"Stop!" she said.' goes on
    words = line[start : mark.start()].split()
    last = words[-1].lstrip("(\"'\u201c").lower() if words else ""
    if mark.group().startswith("...") or mark.group()[0] == "\u2026":
        return not rest[:1].islower()
    if last == "no" and rest[:1].isdigit():
        return False
    if rest and (last in _ABBREVIATIONS or (len(last) == 1 and last.isalpha() and last != "i")):
        # "Mr. Smith", "J. Doe", "e.g. this"; but "etc. The next one" and "in the U.S. The" do end.
        return last in ("etc", "a.m", "p.m", "u.s", "u.k") and rest[:1].isupper()
    return not (rest and rest[:1].islower())


def words(low: int, high: int | None = None, **options: Any) -> Words:
    """`words(50)`: exactly 50; `words(20, 40)`: 20 to 40. Options: `field`, `hard`, `tell`."""
    return Words(low, high, **options)


def sentences(low: int, high: int | None = None, **options: Any) -> Sentences:
    """`sentences(3)`: exactly 3; `sentences(2, 4)`: 2 to 4. Options: `field`, `hard`, `tell`."""
    return Sentences(low, high, **options)
