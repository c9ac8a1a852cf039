"""Word diffs: which words of a draft were taken out and put in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

# A word (with inner apostrophes and hyphens), a single character of a script without spaces, or a mark; and the space
# before it.
_TOKEN = re.compile(
    r"(\s*)([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u9fff\uac00-\ud7af]+(?:['\u2019-]\w+)*|\S)"
)
_LONG = 4000  # words from which on difflib's shortcut for frequent words is worth its rougher result


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of words: in both texts ("="), only in the old one ("-"), or only in the new one ("+")."""

    op: Literal["=", "-", "+"]
    text: str


def word_diff(old: str, new: str) -> list[Piece]:
    """The pieces in reading order. Those marked "=" and "+", joined, are the new text, to the character; those marked
    "=" and "-" have the old text's words.
    """
    before, after = _TOKEN.findall(old), _TOKEN.findall(new)
    pieces: list[Piece] = []
    for op, i, j, k, l in _matcher(before, after).get_opcodes():  # noqa: E741 - difflib's own letters
        if op == "equal":
            pieces.append(Piece("=", _joined(after[k:l])))
            continue
        if i < j:
            pieces.append(Piece("-", _joined(before[i:j])))
        if k < l:
            pieces.append(Piece("+", _joined(after[k:l])))
    if tail := new[len(new.rstrip()) :]:
        pieces.append(Piece("=", tail))
    return pieces


def kinship(old: str, new: str) -> float:
    """0..1: the share of words that two texts have in common, in order."""
    return _matcher(_TOKEN.findall(old), _TOKEN.findall(new)).ratio()


def marked(pieces: Sequence[Piece], *, colour: bool = False) -> str:
    """As `wdiff` writes it: `[-removed-]{+added+}`, or red and green."""
    return "".join(_marked(pieces, ("\x1b[31;9m", "\x1b[0m"), ("\x1b[32m", "\x1b[0m")) if colour else _marked(pieces))


def _marked(
    pieces: Sequence[Piece], gone: tuple[str, str] = ("[-", "-]"), come: tuple[str, str] = ("{+", "+}")
) -> Iterator[str]:
    for piece in pieces:
        body = piece.text.lstrip()
        space = piece.text[: len(piece.text) - len(body)]
        left, right = {"=": ("", ""), "-": gone, "+": come}[piece.op]
        yield f"{space}{left}{body}{right}"


def _matcher(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> SequenceMatcher[str]:
    a, b = [word for _, word in before], [word for _, word in after]
    return SequenceMatcher(None, a, b, autojunk=max(len(a), len(b)) > _LONG)


def _joined(tokens: list[tuple[str, str]]) -> str:
    return "".join(space + word for space, word in tokens)
