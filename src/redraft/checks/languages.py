"""The languages that checks offer as constraints: what a passing text may look like, as llguidance regexes.

ASCII classes and words of ordinary length only: open classes blow the engine's states up, and texts without spaces are
no prose. Narrower than the checks on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence

from redraft.checks.constraint import Constraint

_ANY = r"[ -~\n]*"
_MOST = 2  # phrases in one constraint: more overflow the engine
_BEFORE = rf"({_ANY}[ \n(\"])?"
_AFTER = rf"([ ,.;:!?)'\"\n]{_ANY})?"
_A_WORD = r"[A-Za-z0-9'\-]{1,16}[,;:]?"
_A_SENTENCE = rf"[A-Z][A-Za-z0-9'\-]{{0,15}},?( {_A_WORD}){{3,24}}[.!?]"


def words(low: int, high: int) -> Constraint | None:
    """Words between single spaces."""
    return _repeated(r"[A-Za-z0-9'\-]{1,16}[.,;:!?]?", low, high)


def sentences(low: int, high: int) -> Constraint | None:
    """Sentences of four words or more on one line."""
    return _repeated(_A_SENTENCE, low, high)


def contains(phrases: Sequence[str]) -> Constraint | None:
    """All phrases, as they were given, between marks or spaces."""
    if not all(p.isascii() for p in phrases) or len(phrases) > _MOST:
        return None
    found = [f"/{_BEFORE}{''.join(map(_literal, ' '.join(p.split())))}{_AFTER}/" for p in phrases]
    return Constraint(" & ".join(found))


def forbids(phrases: Sequence[str], *, ignore_case: bool) -> Constraint | None:
    """No phrase, not even inside a word."""
    if not all(p.isascii() for p in phrases) or len(phrases) > _MOST:
        return None
    return Constraint(" & ".join([f"/{_ANY}/", *(f"~/{_somewhere(p, ignore_case=ignore_case)}/" for p in phrases)]))


def _somewhere(phrase: str, *, ignore_case: bool) -> str:
    """Any ASCII text with the phrase in it."""
    body = "".join(_either_case(c) if ignore_case else _literal(c) for c in " ".join(phrase.split()))
    return f"{_ANY}{body}{_ANY}"


def _repeated(item: str, low: int, high: int) -> Constraint | None:
    return Constraint(f"/{item}( {item}){{{low - 1},{high - 1}}}/", bounded=True) if low >= 1 else None


def _literal(char: str) -> str:
    return char if char.isalnum() or char == " " else f"\\{char}"


def _either_case(char: str) -> str:
    return f"[{char.lower()}{char.upper()}]" if char.isalpha() else _literal(char)
