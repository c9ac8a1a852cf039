"""Where a text's words, sentences, paragraphs and list items are: what counting checks count and cut at."""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc eg ie e.g i.e cf al fig vol inc ltd co corp dept approx "  # noqa: SIM905 - reads better
    "jan feb mar apr jun jul aug sep sept oct nov dec a.m p.m u.s u.k".split()
)
_MARKS = ".!?\u2026\u3002\uff01\uff1f"
# Possessive, and never from inside a run: degenerate drafts hold thousands of marks in a row.
_END = re.compile(rf"(?<![{_MARKS}])[{_MARKS}]++[\"'\u201d\u2019)\]*_]*+(?=\s|$)|[\u3002\uff01\uff1f]")
_SIGN = r"(?:[-*+\u2022]|\d+[.)])"
_HEADING = r"#{1,6}"
_BLOCK = re.compile(rf"\n\s*\n|\n(?=\s*(?:{_SIGN}|{_HEADING})\s)")
_MARKER = re.compile(rf"\s*(?:{_SIGN}|{_HEADING})\s+(?=\S)")
_ITEM = re.compile(rf"^[ \t]*{_SIGN}[ \t]+(?=[^\n]*[^\s*_-])", re.MULTILINE)  # "- - -" is a rule, no item
_UNSURE = re.compile(r"\s*\d+[.)]?\s*")
_WORD = re.compile(r"\w")
_INK = re.compile(r"\S")


def split_words(text: str) -> list[str]:
    """Runs of characters between spaces that hold a letter or digit."""
    return [run for run in text.split() if _WORD.search(run)]


def split_paragraphs(text: str) -> list[str]:
    """Blocks between blank lines that hold a letter or digit."""
    return [block.strip() for block in re.split(r"\n\s*\n", text) if _WORD.search(block)]


def item_starts(text: str) -> list[Span]:
    """Where list items begin: the line's start, and that of what follows its mark (-, *, +, a bullet, 1. or 1))."""
    return [mark.span() for mark in _ITEM.finditer(text)]


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in order. A line without an end mark (a heading, a list item) counts as one."""
    return [" ".join(text[start:end].split()) for start, end in sentence_spans(text)]


def sentence_spans(text: str, *, cased: bool | None = None) -> Iterator[Span]:
    """Where the sentences of `split_sentences` stand in the text. In a `cased` text, one that has capitals, none begins
    with a small letter.
    """
    cased = has_capitals(text) if cased is None else cased
    start = 0
    for gap in _BLOCK.finditer(text):
        yield from _spans_of_block(text, start, gap.start(), cased=cased)
        start = gap.end()
    yield from _spans_of_block(text, start, len(text), cased=cased)


def has_capitals(text: str) -> bool:
    """Whether any letter is one."""
    return text != text.lower()


def least_sentences(prefix: str) -> int:
    """How many sentences a text that begins like this has at least: capitals may follow, and a number on the last line
    may become a marker.
    """
    last = prefix.rstrip().rpartition("\n")[2]
    return sum(1 for _ in sentence_spans(prefix, cased=True)) - bool(_UNSURE.fullmatch(last))


def _spans_of_block(text: str, start: int, end: int, *, cased: bool) -> Iterator[Span]:
    marker = _MARKER.match(text, start, end)
    start = before = marker.end() if marker else start
    for mark in _END.finditer(text, start, end):
        if _ends_sentence(text[before : mark.start()], mark.group(), _next_char(text, mark.end(), end), cased=cased):
            if _WORD.search(text, start, mark.end()):
                yield _tight(text, start, mark.end())
            start = mark.end()
        before = mark.end()
    if _WORD.search(text, start, end):
        yield _tight(text, start, end)


def _tight(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    return end - len(part.lstrip()), start + len(part.rstrip())


def _next_char(text: str, start: int, end: int) -> str:
    found = _INK.search(text, start, end)
    return found.group() if found else ""


def _ends_sentence(before: str, mark: str, following: str, *, cased: bool) -> bool:
    """Whether `mark` is an end, by the words since the mark before it and the first character of what follows."""
    if mark[0] not in ".\u2026":
        return not (mark[-1] not in _MARKS and following.islower())  # '"Stop!" she said.' goes on
    words = before.split()
    last = words[-1].lstrip("(\"'\u201c").lower() if words else ""
    if mark.startswith("...") or mark[0] == "\u2026":
        return not following.islower()
    if last == "no" and following.isdigit():
        return False
    if following and (last in _ABBREVIATIONS or (len(last) == 1 and last.isalpha() and last != "i")):
        # "Mr. Smith", "J. Doe", "e.g. this"; but "etc. The next one" and "in the U.S. The" do end.
        return last in ("etc", "a.m", "p.m", "u.s", "u.k") and following.isupper()
    return not (cased and following.islower())
