"""Checks on an answer as a whole: the pattern it matches, the label it is."""

from __future__ import annotations

import re
from typing import Any

from redraft.checks import languages
from redraft.checks.base import Check, Guard
from redraft.checks.constraint import Constraint
from redraft.checks.phrases import DECOR, body_of, listed, one_spelling, settled, unquoted
from redraft.errors import UsageError
from redraft.linear import matcher

_LETTER = r"(?=\s*(?:[.):,;!]|\Z))"
_DENIAL = re.compile(r"\b(?:not|never|neither|nor|cannot|without|isn't|n't|nicht|kein|pas|no)\b|n't\b", re.IGNORECASE)


class Matches(Check):
    """The text matches a regular expression."""

    name = "matches"

    def __init__(self, pattern: str | re.Pattern[str], *, search: bool = False, **options: Any) -> None:
        super().__init__(**options)
        try:
            self.pattern = re.compile(pattern)
            self.pattern.fullmatch("")
        except (re.error, TypeError) as error:  # TypeError: a pattern of bytes, or none
            raise UsageError(f"matches({pattern!r}): this is no regular expression: {error}") from error
        self.search = search
        self._matcher = matcher(self.pattern)

    def tell_text(self) -> str:
        """See `Check`."""
        what = "Include a part that matches" if self.search else "Answer with text that as a whole matches"
        return f"{what} the regular expression {self.pattern.pattern}"

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        # Flags given beside the pattern change its language.
        return None if self.search or self.pattern.flags & ~re.UNICODE else languages.matches(self.pattern.pattern)

    def judge(self, value: Any) -> tuple[float, str]:
        """All or nothing."""
        text = str(value).strip()
        found = self._matcher.search(text) if self.search else self._matcher.fullmatch(text)
        what = "no part matches" if self.search else "the text as a whole does not match"
        return (1.0, "") if found else (0.0, f"{what} {self.pattern.pattern}")

    def fix(self, value: Any) -> str | None:
        """Without the quotes around it."""
        bare = unquoted(value) if isinstance(value, str) else ""
        return bare if bare and bare != value and self.judge(bare)[0] > self.judge(value)[0] else None


class OneOf(Check):
    """The whole answer is one of some labels."""

    name = "one_of"

    def __init__(self, *labels: str, ignore_case: bool = True, **options: Any) -> None:
        super().__init__(**options)
        if not labels or not all(isinstance(label, str) and label.strip(DECOR) for label in labels):
            raise UsageError(f"one_of{labels!r}: give at least one label, as text")
        self.labels = labels
        self.ignore_case = ignore_case
        self._bare = {self._key(label): label for label in labels}

    def _key(self, text: str) -> str:
        bare = " ".join(one_spelling(text).split()).strip(DECOR)
        return bare.casefold() if self.ignore_case else bare

    def tell_text(self) -> str:
        """See `Check`."""
        return f"Answer with {listed(self.labels, 'or')} and nothing else."

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.one_of(self.labels)

    def judge(self, value: Any) -> tuple[float, str]:
        """Half the credit for an answer in which one label can be found."""
        text = str(value)
        if self._key(text) in self._bare:
            return 1.0, ""
        n = len(text.split())
        return (0.5 if self._meant(text) else 0.0), (
            f"{n} word{'' if n == 1 else 's'}, want {listed(self.labels, 'or')} alone"
        )

    def guard(self, prefix: str) -> Guard:
        """Fails once no label begins like this."""
        begun = " ".join(one_spelling(settled(prefix)).split()).lstrip(DECOR)
        begun = begun.casefold() if self.ignore_case else begun
        open_ = not begun or any(key == begun.rstrip(DECOR) or key.startswith(begun) for key in self._bare)
        return "unknown" if open_ else "fail"

    def fix(self, value: Any) -> str | None:
        """The label that is meant, as it was given."""
        if not isinstance(value, str) or self._key(value) in self._bare:
            return None
        return self._meant(value)

    def _meant(self, text: str) -> str | None:
        """The only label in the text, unless it is denied; a letter counts only before a mark or at the end."""
        text = one_spelling(text)
        longest = sorted(self.labels, key=len, reverse=True)
        options = "|".join(f"({body_of(x)}{_LETTER if len(x.strip()) == 1 else ''})" for x in longest)
        pattern = re.compile(rf"(?<!\w)(?:{options})(?!\w)", re.IGNORECASE if self.ignore_case else 0)
        found = list(pattern.finditer(text))
        labels = {longest[mark.lastindex - 1] for mark in found if mark.lastindex}
        if len(labels) != 1:
            return None
        denied = _DENIAL.search(text[: found[0].start()]) or _DENIAL.search(text, found[0].end())
        return None if denied and text[: found[0].start()].strip(DECOR) else labels.pop()


def matches(pattern: str | re.Pattern[str], *, search: bool = False, **options: Any) -> Matches:
    """The stripped text as a whole matches a regular expression, or with `search=True` a part of it does. Options:
    `field`, `hard`, `tell`.
    """
    return Matches(pattern, search=search, **options)


def one_of(*labels: str, ignore_case: bool = True, **options: Any) -> OneOf:
    """The answer is one of the labels and nothing else, but for quotes and a full stop. Options: `field`, `hard`,
    `tell`.
    """
    return OneOf(*labels, ignore_case=ignore_case, **options)
