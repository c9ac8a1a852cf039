"""The letters and words that a constrained text is made of, as llguidance terminals.

Latin letters, one mark at most between two words: open classes blow the engine's states up, and a loop of spaces, line
ends or marks cannot be written at all. No word has a longest length: with one, the engine's parser visits most tokens
of the vocabulary for each mask (measured: over 25,000 of its 50,000 items with 150,000 tokens; without, under 6,000).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

_BIG, _SMALL = "A-ZÀ-ÖØ-Þ", "a-zß-öø-ÿ"
_MIXED = rf"[{_BIG}{_SMALL}][{_SMALL}]+"
_WORDS = {
    "": (rf"{_MIXED}|[A-Z]{{2,5}}|[AaI]", rf"[{_BIG}][{_SMALL}]+|[AI]", _MIXED),
    # In one case a small model is on foreign ground: given accents, it invents words.
    "lower": ("[a-z]{2,}|[ai]", "[a-z]{2,}|[ai]", "[a-z]{2,}"),
    "upper": ("[A-Z]{2,}|[AI]", "[A-Z]{2,}|[AI]", "[A-Z]{2,}"),
}
"""Of each case: words in a sentence, words that begin one, words that may end one."""
# They want another word after them: a text that stops at its limit would stop in one of them.
_HANGING = (  # noqa: SIM905 - reads better
    "the an of and or but nor with without its their his her our my your for from to into onto in on at by as than that "
    "which who whose whom if when while where because is are was were be been being am has have had will would can could "
    "should may might must shall do does did not no very more most such so these those every each both between among "
    "during through about over under against upon only just even we they he she it you i a how what why whether including"
).split()
# The dot after them ends no sentence.
_DOTTED = (  # noqa: SIM905 - reads better
    "mr mrs ms dr prof sr jr st vs etc eg ie cf al fig vol inc ltd co corp dept approx jan feb mar apr jun jul aug sep sept "
    "oct nov dec"
).split()


@dataclass(frozen=True)
class Letters:
    """What free words are made of: their case; marks and words that are kept out."""

    case: str = ""
    marks: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    numbers: bool = True
    """Not in lists, where a small model counts on from any number."""

    def terminals(self, *, small: bool = False) -> Mapping[str, str]:
        """WORD in a sentence, HEAD and LAST of one, FINAL: the last where no other may follow; JOINT before a word, END of
        a sentence, BREAK between two. `small` lets sentences end in any word, for the sake of fewer states.
        """
        word, head, last = (f"/{pattern}/" for pattern in _WORDS[self.case])
        out, hanging = self._out(), () if small else _HANGING
        number = "| /[0-9]{1,4}/" if "." in self.marks else "| /[0-9]{1,4}([.][0-9]{1,2})?/"
        number, own = number if self.numbers else "", self._apostrophe("s")
        joint, end, more = self._marks(",;"), self._marks(".!?"), self._more(out)
        return {
            "WORD": f"{_without(word, out)} {more} {number}",
            "HEAD": f"{_without(head, out)} {more}",
            "LAST": f"{_without(last, [*out, *hanging, *_DOTTED])} {own} {number}",
            "FINAL": _without(last, [*out, *(f"{w}.*" for w in hanging), *_DOTTED]) + f" {own}",
            "JOINT": f"/{joint}? /" if joint else "/ /",
            "END": f"/{end}/",
            "BREAK": rf"/{end}( |\n\n)/",
        }

    def measured(self, low: int, high: int) -> str:
        """Prose of so many characters, as one terminal."""
        # ASCII alone: characters of several bytes, which it has to count, would make it too large.
        small, big = "A-Z" if self.case == "upper" else "a-z", "a-z" if self.case == "lower" else "A-Z"
        joint, end = self._marks(",;"), self._marks(".!?")
        word = rf"[{big}{small}0-9]+(['\-][{small}]+)?"
        between = rf"({joint}{joint and '?'} {word}|{end} [{big}]{word})"
        return rf"/[{big}][{small}]*{between}*{end}/ & /(?s:.{{{low},{high}}})/"

    def _out(self) -> list[str]:
        """Patterns of the words kept out. A token of such a word would be taken for the beginning of a longer one."""
        return [w if len(w) < 4 else f"{w}.*" for w in sorted(self.words)]

    def _more(self, out: list[str]) -> str:
        """What may follow the letters of a word: a hyphen and a second part, an apostrophe's letters."""
        small = "A-Z" if self.case == "upper" else "a-z"
        hyphen = "" if "-" in self.marks else f"(/-/ {_without(f'/[{small}]{{2,}}/', out)})?"
        return f"{hyphen} {self._apostrophe('s|t|re|ve|ll|d|m')}".strip()

    def _apostrophe(self, endings: str) -> str:
        """An apostrophe and what may follow it."""
        if self.marks & {"'", "\u2019"}:
            return ""
        return f"/(['\u2019]({endings.upper() if self.case == 'upper' else endings}))?/"

    def _marks(self, some: str) -> str:
        kept = "".join(m for m in some if m not in self.marks)
        return f"[{kept}]" if kept else ""


def _without(terminal: str, patterns: list[str]) -> str:
    return f"({terminal} & ~/(?i:{'|'.join(patterns)})/)" if patterns else terminal


def may_end(phrase: str) -> bool:
    """Whether a sentence may end in this phrase, and its dot would not be an abbreviation's."""
    words = parts(phrase)
    return bool(words) and phrase[-1].isalnum() and len(words[-1]) > 1 and words[-1] not in {*_HANGING, *_DOTTED}


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


def quoted(text: str) -> str:
    """The text itself, as an expression. Word by word, so that another may go on as this one begins."""
    return ' " " '.join(json.dumps(word, ensure_ascii=False) for word in text.split())
