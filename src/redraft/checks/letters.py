"""The letters and words of a constrained text, as llguidance expressions.

Latin letters in words of ordinary length, one mark at most between two words: open classes blow the engine's states
up, texts without spaces are no prose, and a loop of spaces, line ends or marks cannot be written at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_CAPITAL, _SMALL = "A-ZÀ-ÖØ-Þ", "a-zß-öø-ÿ"
_WORD = {
    "": rf"[{_CAPITAL}{_SMALL}][{_SMALL}]{{1,15}}|[A-Z]{{2,5}}|[AaI]|[0-9]{{1,4}}",
    "lower": rf"[{_SMALL}]{{2,16}}|[ai]|[0-9]{{1,4}}",
    "upper": rf"[{_CAPITAL}]{{2,16}}|[AI]|[0-9]{{1,4}}",
}
_HEAD = {
    "": rf"[{_CAPITAL}][{_SMALL}]{{1,15}}|[AI]",
    "lower": rf"[{_SMALL}]{{2,16}}|[ai]",
    "upper": rf"[{_CAPITAL}]{{2,16}}|[AI]",
}
_LAST = {
    "": rf"[{_CAPITAL}{_SMALL}][{_SMALL}]{{1,15}}|[0-9]{{2,4}}",
    "lower": rf"[{_SMALL}]{{2,16}}|[0-9]{{2,4}}",
    "upper": rf"[{_CAPITAL}]{{2,16}}|[0-9]{{2,4}}",
}
_CONTRACTED = {"": "s|t|re|ve|ll|d|m", "lower": "s|t|re|ve|ll|d|m", "upper": "S|T|RE|VE|LL|D|M"}
_NEVER_LAST = (
    # Words that want another after them: a text cut off at its limit would end in one.
    "the an of and or but nor with without its their his her our my your for from to into onto in on at by as than that which "
    "who whose whom if when while where because is are was were be been being am has have had will would can could should may "
    "might must shall do does did not no very more most such so also this these those every each both between among during "
    "through about over under against upon only just even we they he she it you "
    # and words whose dot ends no sentence
    "mr mrs ms dr prof sr jr st vs etc eg ie cf al fig vol inc ltd co corp dept approx jan feb mar apr jun jul aug sep sept "
    "oct nov dec"
).split()


@dataclass(frozen=True)
class Letters:
    """What free words are made of: their case, marks and words that are kept out."""

    case: str = ""
    marks: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    @cached_property
    def word(self) -> str:
        """A word inside a sentence."""
        part = self._without(_WORD[self.case], self.words)
        more = f"(/['’]({_CONTRACTED[self.case]})/)?" if not self.marks & {"'", "’"} else ""
        hyphen = f"(/-/ {part})?" if "-" not in self.marks else ""
        return f"{part} {more} {hyphen}".strip()

    @cached_property
    def head(self) -> str:
        """A word that begins a sentence."""
        return self._without(_HEAD[self.case], self.words)

    @cached_property
    def last(self) -> str:
        """A word that may end a sentence."""
        return self._without(_LAST[self.case], {*self.words, *_NEVER_LAST})

    @cached_property
    def joint(self) -> str:
        """What stands between two words of a sentence."""
        return f"/{self._mark(',;')}? /" if self._mark(",;") else "/ /"

    @cached_property
    def end(self) -> str:
        """What ends a sentence."""
        return f"/{self._mark('.!?')}/"

    @staticmethod
    def may_end(phrase: str) -> bool:
        """Whether a sentence may end in this phrase: its dot would not be an abbreviation's."""
        words = parts(phrase)
        return bool(words) and len(words[-1]) > 1 and words[-1] not in _NEVER_LAST and phrase[-1].isalnum()

    def _mark(self, some: str) -> str:
        kept = "".join(m for m in some if m not in self.marks)
        return f"[{kept}]" if kept else ""

    @staticmethod
    def _without(pattern: str, words: set[str] | frozenset[str]) -> str:
        return f"(/{pattern}/ & ~/(?i:{'|'.join(sorted(words))})/)" if words else f"/({pattern})/"


def parts(text: str) -> list[str]:
    """The runs of letters and digits in a text, in lowercase."""
    return re.findall(r"\w+", text.lower())


def says(text: str, phrase: str) -> int:
    """How often a text says a phrase, as whole words, in any case."""
    body = r"\s+".join(map(re.escape, phrase.lower().split()))
    return len(re.findall(rf"(?<!\w){body}(?!\w)" if parts(phrase) else body, text.lower()))


def capital(text: str) -> str:
    """With a capital first."""
    return text[:1].upper() + text[1:]


def literal(text: str) -> str:
    """The text itself, as an expression."""
    return "/" + re.sub(r"([^\w ])", r"\\\1", " ".join(text.split())) + "/"
