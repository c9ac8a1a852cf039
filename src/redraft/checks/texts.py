"""Checks on what a text must and must not hold."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from redraft.checks import languages
from redraft.checks.base import Check
from redraft.checks.constraint import Constraint
from redraft.errors import UsageError


class _Phrases(Check):
    def __init__(self, *phrases: str, ignore_case: bool = True, **options: Any) -> None:
        super().__init__(**options)
        if not phrases or not all(isinstance(p, str) and p.strip() for p in phrases):
            raise UsageError(f"{self.name}{phrases!r}: give at least one text that is not empty")
        self.phrases = phrases
        self.ignore_case = ignore_case
        self._patterns = {p: _pattern(p, ignore_case=ignore_case) for p in phrases}

    def hits(self, text: str) -> dict[str, int]:
        """How often each phrase stands in the text, as whole words."""
        text = _one_spelling(text)
        return {phrase: len(pattern.findall(text)) for phrase, pattern in self._patterns.items()}


class Contains(_Phrases):
    """Every phrase stands in the text."""

    name = "contains"

    def tell_text(self) -> str:
        """See `Check`."""
        return f"Mention {_listed(self.phrases, 'and')}."

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.contains(self.phrases)

    def judge(self, value: Any) -> tuple[float, str]:
        """The share of phrases that are there."""
        hits = self.hits(str(value))
        missing = [p for p, n in hits.items() if not n]
        return 1.0 - len(missing) / len(hits), f"{_listed(missing, 'and')} missing"


class Forbids(_Phrases):
    """None of the phrases stands in the text."""

    name = "forbids"

    def tell_text(self) -> str:
        """See `Check`."""
        return f"Do not write {_listed(self.phrases, 'or')}."

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.forbids(self.phrases, ignore_case=self.ignore_case)

    def judge(self, value: Any) -> tuple[float, str]:
        """Half the credit for one forbidden phrase, a third for two, and so on."""
        hits = {p: n for p, n in self.hits(str(value)).items() if n}
        total = sum(hits.values())
        found = ", ".join(f'"{p}"' + (f" {n} times" if n > 1 else "") for p, n in hits.items())
        return (1.0 if not total else 1.0 / (1 + total)), f"{found} is forbidden"


def contains(*phrases: str, ignore_case: bool = True, **options: Any) -> Contains:
    """Every phrase occurs, as whole words, in any case by default. Options: `field`, `hard`, `tell`."""
    return Contains(*phrases, ignore_case=ignore_case, **options)


def forbids(*phrases: str, ignore_case: bool = True, **options: Any) -> Forbids:
    """No phrase occurs as whole words, in any case by default. Options: `field`, `hard`, `tell`."""
    return Forbids(*phrases, ignore_case=ignore_case, **options)


_SPACED = r"[^\W\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
"""A word character of a script that puts spaces between words."""


def _one_spelling(text: str) -> str:
    """Models write curly apostrophes and composed letters, people straight and decomposed ones, and the reverse."""
    return unicodedata.normalize("NFC", text).translate(_STRAIGHT)


_STRAIGHT = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"'})


def _pattern(phrase: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Whole words, any white space between them; scripts without spaces have no whole words."""
    phrase = _one_spelling(phrase)
    body = r"\s+".join(re.escape(word) for word in phrase.split())
    left = r"(?<!\w)" if re.match(_SPACED, phrase.strip()) else ""
    right = r"(?!\w)" if re.search(f"{_SPACED}$", phrase.strip()) else ""
    return re.compile(left + body + right, re.IGNORECASE if ignore_case else 0)


def _listed(phrases: Any, joint: str) -> str:
    quoted = [f'"{p}"' for p in phrases]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {joint} {quoted[-1]}" if quoted else ""
