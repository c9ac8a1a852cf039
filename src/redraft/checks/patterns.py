"""Python regular expressions as llguidance's, where it reads them alike. What it reads otherwise, or more widely, is
narrowed: classes to Latin characters, endless repetitions to some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

_CHARS, _GROUPS, _SPACES = 200, 20, 1  # repetitions beyond the least: of a character, a group, white space
_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~/")
_ALPHABET = [*map(chr, range(32, 127)), "\n", "\t", *(c for c in map(chr, range(0xC0, 0x100)) if c.isalpha())]


class _Unreadable(Exception):
    pass


def translated(pattern: str) -> str | None:
    """A regex for texts that match as a whole; None for what has no such form (look-around, references, flags)."""
    try:
        parsed = _parser.parse(pattern)
        if parsed.state.flags & ~re.UNICODE:
            return None
        items = list(parsed)
        while items and _is_at(items[0], "AT_BEGINNING", "AT_BEGINNING_STRING"):
            del items[0]
        while items and _is_at(items[-1], "AT_END", "AT_END_STRING"):
            del items[-1]
        return _sequence(items)
    except (re.error, RecursionError, _Unreadable):
        return None


def escaped(text: str) -> str:
    """A text as a regex."""
    named = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
    return "".join(named.get(c) or (f"\\{c}" if c in _SPECIAL else c) for c in text)


def _is_at(item: tuple[Any, Any], *names: str) -> bool:
    return str(item[0]) == "AT" and str(item[1]) in names


def _sequence(items: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_one(str(op), argument) for op, argument in items)


def _one(op: str, argument: Any) -> str:
    write = _WRITERS.get(op)
    if write is None:
        raise _Unreadable(op)
    return write(argument)


def _class(items: Any) -> str:
    """A set of characters: as it is where it names them, else those of the alphabet that are in it."""
    names = [str(op) for op, _ in items]
    if set(names) <= {"LITERAL", "RANGE"}:
        parts = (argument if op == _constants.RANGE else (argument, argument) for op, argument in items)
        return f"[{''.join(f'{escaped(chr(low))}-{escaped(chr(high))}' for low, high in parts)}]"
    kept = [
        c for c in _ALPHABET if any(_holds(op, a, c) for op, a in items if str(op) != "NEGATE") != ("NEGATE" in names)
    ]
    if not kept:
        raise _Unreadable("a class without Latin characters")
    return f"[{''.join(_spans(kept))}]"


def _spans(chars: list[str]) -> Iterator[str]:
    """Runs of neighbours, as ranges."""
    for _, run in groupby(enumerate(sorted(chars)), lambda pair: ord(pair[1]) - pair[0]):
        first, *rest = [char for _, char in run]
        yield f"{escaped(first)}-{escaped(rest[-1])}" if rest else escaped(first)


def _holds(op: Any, argument: Any, char: str) -> bool:
    if op == _constants.LITERAL:
        return bool(ord(char) == argument)
    if op == _constants.RANGE:
        return bool(argument[0] <= ord(char) <= argument[1])
    kind = str(argument).removeprefix("CATEGORY_")
    named = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w", "NOT_DIGIT": r"\D", "NOT_SPACE": r"\S", "NOT_WORD": r"\W"}
    if kind not in named:
        raise _Unreadable(kind)
    return re.fullmatch(named[kind], char) is not None


def _repeated(argument: Any) -> str:
    low, high, body = argument
    what = _sequence(body)
    single = len(body) == 1 and str(body[0][0]) in ("LITERAL", "NOT_LITERAL", "ANY", "IN")
    blank = not re.sub(r"\\[nt]|[- \[\]]", "", what)
    more = _SPACES if blank else _CHARS if single else _GROUPS
    return f"({what}){{{low},{min(int(high), max(int(low), 0) + more)}}}"


def _group(argument: Any) -> str:
    _, added, removed, body = argument
    if added or removed:
        raise _Unreadable("flags")
    return f"({_sequence(body)})"


_WRITERS: dict[str, Callable[[Any], str]] = {
    "LITERAL": lambda code: escaped(chr(code)),
    "NOT_LITERAL": lambda code: _class([("NEGATE", None), (_constants.LITERAL, code)]),
    "ANY": lambda _: _class([("NEGATE", None), (_constants.LITERAL, ord("\n"))]),
    "IN": _class,
    "BRANCH": lambda argument: f"({'|'.join(_sequence(way) for way in argument[1])})",
    "SUBPATTERN": _group,
    "MAX_REPEAT": _repeated,
    "MIN_REPEAT": _repeated,
}
