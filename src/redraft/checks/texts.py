"""Checks on what a text must and must not hold, and how it begins and ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from redraft.checks import languages
from redraft.checks.base import Check, Guard
from redraft.checks.constraint import Constraint
from redraft.checks.phrases import listed, one_spelling, pattern_of, settled, unquoted
from redraft.errors import UsageError


class _Phrases(Check):
    def __init__(self, *phrases: str, ignore_case: bool = True, **options: Any) -> None:
        super().__init__(**options)
        if not phrases or not all(isinstance(p, str) and p.strip() for p in phrases):
            raise UsageError(f"{self.name}{phrases!r}: give at least one text that is not empty")
        self.phrases = phrases
        self.ignore_case = ignore_case
        self._patterns = {p: pattern_of(p, ignore_case=ignore_case) for p in phrases}

    def hits(self, text: str) -> dict[str, int]:
        """How often each phrase stands in the text, as whole words."""
        text = one_spelling(text)
        return {phrase: len(pattern.findall(text)) for phrase, pattern in self._patterns.items()}


class Contains(_Phrases):
    """Every phrase stands in the text."""

    name = "contains"

    def tell_text(self) -> str:
        """See `Check`."""
        return f"Mention {listed(self.phrases, 'and')}."

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.contains(self.phrases)

    def judge(self, value: Any) -> tuple[float, str]:
        """The share of phrases that are there."""
        hits = self.hits(str(value))
        missing = [p for p, n in hits.items() if not n]
        return 1.0 - len(missing) / len(hits), f"{listed(missing, 'and')} missing"

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return "pass" if all(self.hits(settled(prefix)).values()) else "unknown"


class Forbids(_Phrases):
    """None of the phrases stands in the text."""

    name = "forbids"

    def tell_text(self) -> str:
        """See `Check`."""
        return f"Do not write {listed(self.phrases, 'or')}."

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.forbids(self.phrases)

    def judge(self, value: Any) -> tuple[float, str]:
        """Half the credit for one forbidden phrase, a third for two, and so on."""
        hits = {p: n for p, n in self.hits(str(value)).items() if n}
        total = sum(hits.values())
        found = ", ".join(f'"{p}"' + (f" {n} times" if n > 1 else "") for p, n in hits.items())
        return (1.0 if not total else 1.0 / (1 + total)), f"{found} is forbidden"

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return "fail" if any(self.hits(settled(prefix)).values()) else "unknown"


class KeywordCounts(_Phrases):
    """Each phrase stands in the text as often as it should."""

    name = "keyword_counts"

    def __init__(self, counts: Mapping[str, int | tuple[int, int | None]], **options: Any) -> None:
        if not isinstance(counts, Mapping):
            raise UsageError(
                f"keyword_counts({counts!r:.60}): give phrases and counts, e.g. {{'salt': 2, 'oil': (1, 3)}}"
            )
        super().__init__(*counts, **options)
        self.ranges = {phrase: self._range(phrase, wanted) for phrase, wanted in counts.items()}

    @staticmethod
    def _range(phrase: str, wanted: Any) -> tuple[int, int | None]:
        low, high = wanted if isinstance(wanted, tuple | list) and len(wanted) == 2 else (wanted, wanted)
        whole = isinstance(low, int) and (high is None or isinstance(high, int))
        if not whole or low < 0 or (high is not None and high < low):
            raise UsageError(
                f"keyword_counts: {phrase!r} wants {wanted!r}; give a whole number, or (low, high) with None for no limit"
            )
        return low, high

    def tell_text(self) -> str:
        """See `Check`."""
        wanted = [f'"{phrase}" {_times(*counts)}' for phrase, counts in self.ranges.items()]
        return f"Use {', '.join(wanted)}."

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.keyword_counts(self.ranges)

    def judge(self, value: Any) -> tuple[float, str]:
        """The mean over the phrases, each worth less the farther it is outside its range."""
        worth, wrong = 0.0, []
        for phrase, n in self.hits(str(value)).items():
            low, high = self.ranges[phrase]
            off = max(low - n, 0 if high is None else n - high, 0)
            worth += max(0.0, 1.0 - off / max(low if n < low else high or 0, 1))
            if off:
                wrong.append(f'"{phrase}" {n} time{"" if n == 1 else "s"}, want {_range_text(low, high)}')
        return (worth / len(self.ranges) if wrong else 1.0), "; ".join(wrong)

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        hits = self.hits(settled(prefix))
        if any(high is not None and hits[p] > high for p, (_, high) in self.ranges.items()):
            return "fail"
        enough = all(high is None and hits[p] >= low for p, (low, high) in self.ranges.items())
        return "pass" if enough else "unknown"


class _Edge(_Phrases):
    """One phrase, as whole words, where the text begins or ends."""

    verb = ""

    def __init__(self, phrase: str, *, ignore_case: bool = True, **options: Any) -> None:
        super().__init__(phrase, ignore_case=ignore_case, **options)
        self.phrase = phrase.strip()

    def there(self, text: str) -> bool:
        """Whether the phrase stands where it should."""
        raise TypeError(f"{type(self).__name__} defines no there(text), e.g. for {text[:20]!r}")

    def judge(self, value: Any) -> tuple[float, str]:
        """Half the credit for a phrase that stands elsewhere."""
        text = str(value)
        if self.there(text):
            return 1.0, ""
        elsewhere = self.hits(text)[self.phrases[0]] > 0
        missing = f'does not {self.verb} with "{self.phrase}"'
        return (0.5, f"{missing}, which stands elsewhere") if elsewhere else (0.0, missing)

    def tell_text(self) -> str:
        """See `Check`."""
        return f'{self.verb.capitalize()} with "{self.phrase}".'


class StartsWith(_Edge):
    """The text begins with a phrase."""

    name, verb = "starts_with", "begin"

    def there(self, text: str) -> bool:
        """See `_Edge`."""
        return bool(self._patterns[self.phrases[0]].match(one_spelling(text).lstrip()))

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.starts_with(self.phrase)

    def guard(self, prefix: str) -> Guard:
        """Told by the first words, once they are complete."""
        head, wanted = settled(prefix), self.phrase.split()
        if self.there(head):
            return "pass"
        n = len(head.split())
        if n >= len(wanted):
            return "fail"
        begun = pattern_of(" ".join(wanted[:n]), ignore_case=self.ignore_case) if n else re.compile("")
        return "unknown" if begun.match(one_spelling(head).lstrip()) else "fail"

    def fix(self, value: Any) -> str | None:
        """Without the quotes around it or a remark before it; else the phrase is put in front, if it stands alone."""
        if not isinstance(value, str) or self.there(value):
            return None
        text = unquoted(value)
        if self.there(text):
            return text
        remark, _, rest = text.partition("\n")
        if remark.rstrip().endswith(":") and self.there(rest):
            return rest.lstrip()
        if not self.hits(text)[self.phrases[0]] and self.phrase[-1] in _CLOSING and text:
            return f"{self.phrase}{_gap(text)}{text}"
        return None


class EndsWith(_Edge):
    """The text ends with a phrase."""

    name, verb = "ends_with", "end"

    def __init__(self, phrase: str, *, ignore_case: bool = True, **options: Any) -> None:
        super().__init__(phrase, ignore_case=ignore_case, **options)
        anywhere = self._patterns[phrase]
        self._last = re.compile(rf"{anywhere.pattern}\Z", anywhere.flags)

    def there(self, text: str) -> bool:
        """See `_Edge`."""
        return bool(self._last.search(one_spelling(text).rstrip()))

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return languages.ends_with(self.phrase)

    def fix(self, value: Any) -> str | None:
        """Without the quotes around it or a stop after it; else the phrase is added, if it stands alone."""
        if not isinstance(value, str) or self.there(value):
            return None
        text = unquoted(value)
        for bare in (text, text.rstrip(_STOPS)):
            if self.there(bare):
                return bare
        if not self.hits(text)[self.phrases[0]] and not self.phrase[0].islower() and text[-1:] in _ENDING:
            return f"{text}{_gap(text)}{self.phrase}" if text else None
        return None


def contains(*phrases: str, ignore_case: bool = True, **options: Any) -> Contains:
    """Every phrase occurs, as whole words, in any case by default. Options: `field`, `hard`, `tell`."""
    return Contains(*phrases, ignore_case=ignore_case, **options)


def forbids(*phrases: str, ignore_case: bool = True, **options: Any) -> Forbids:
    """No phrase occurs as whole words, in any case by default. Options: `field`, `hard`, `tell`."""
    return Forbids(*phrases, ignore_case=ignore_case, **options)


def keyword_counts(counts: Mapping[str, int | tuple[int, int | None]], **options: Any) -> KeywordCounts:
    """`keyword_counts({"salt": 2, "oil": (1, 3), "thyme": (2, None)})`: how often each phrase occurs, as whole words.
    Options: `ignore_case`, `field`, `hard`, `tell`.
    """
    return KeywordCounts(counts, **options)


def starts_with(phrase: str, *, ignore_case: bool = True, **options: Any) -> StartsWith:
    """The text begins with the phrase, as whole words, in any case by default. Options: `field`, `hard`, `tell`."""
    return StartsWith(phrase, ignore_case=ignore_case, **options)


def ends_with(phrase: str, *, ignore_case: bool = True, **options: Any) -> EndsWith:
    """The text ends with the phrase, as whole words, in any case by default. Options: `field`, `hard`, `tell`."""
    return EndsWith(phrase, ignore_case=ignore_case, **options)


def _times(low: int, high: int | None) -> str:
    if high is None:
        return f"at least {low} time{'' if low == 1 else 's'}"
    exactly = "exactly " if low == high else ""
    return f"{exactly}{_range_text(low, high)} time{'' if high == 1 else 's'}"


def _range_text(low: int, high: int | None) -> str:
    if high is None:
        return f"at least {low}"
    return str(low) if low == high else f"{low} to {high}" if low else f"at most {high}"


_CLOSING = ".!?:,;\u2026\u3002\uff01\uff1f\uff1a\uff0c"
_STOPS = " \n.!"
_ENDING = ".!?\u2026\u3002\uff01\uff1f\"')\u201d\u2019"


def _gap(text: str) -> str:
    """What stands between a text and a phrase put beside it: a blank line if the text has several lines."""
    return "\n\n" if "\n" in text.strip() else " "
