"""How phrases are spelt, found and listed, and which part of an unfinished text is settled."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

DECOR = " \t\r\n\"'`*_.!\u201c\u201d\u2018\u2019\u3002"
"""What answers are decorated with: white space, quotes, emphasis, a full stop."""
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "`": "`"}
_STRAIGHT = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"'})
_SPACED = r"[^\W\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
"""A word character of a script that puts spaces between words."""


def one_spelling(text: str) -> str:
    """Models write curly apostrophes and composed letters, people straight and decomposed ones, and the reverse."""
    return unicodedata.normalize("NFC", text).translate(_STRAIGHT)


def pattern_of(phrase: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Whole words, any white space between them; scripts without spaces have no whole words."""
    phrase = one_spelling(phrase)
    body = body_of(phrase)
    left = r"(?<!\w)" if re.match(_SPACED, phrase.strip()) else ""
    right = r"(?!\w)" if re.search(f"{_SPACED}$", phrase.strip()) else ""
    return re.compile(left + body + right, re.IGNORECASE if ignore_case else 0)


def listed(phrases: Iterable[str], joint: str) -> str:
    """Phrases in quotes, with commas and a last `joint`."""
    quoted = [f'"{p}"' for p in phrases]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {joint} {quoted[-1]}" if quoted else ""


def body_of(phrase: str) -> str:
    """A pattern of the words with any white space between them."""
    return r"\s+".join(re.escape(word) for word in phrase.split())


def settled(prefix: str) -> str:
    """The part of an unfinished text that nothing can change: without its last word, which may go on."""
    return prefix[: len(prefix) - len(prefix.rsplit(maxsplit=1)[-1])] if prefix[-1:].strip() else prefix


def unquoted(text: str) -> str:
    """Without white space and one pair of quotes around it all."""
    text = text.strip()
    close = _QUOTES.get(text[:1])
    inner = text[1:-1]
    return inner.strip() if close and len(text) > 1 and text.endswith(close) and text[0] not in inner else text
