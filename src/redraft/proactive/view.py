"""One decode as text for a terminal: what was written, what was taken back and why, what stands there now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from redraft.types import Event

_RED, _GREEN, _DIM, _PLAIN = "\x1b[31;9m", "\x1b[32m", "\x1b[2m", "\x1b[0m"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BEFORE = 48  # characters of what stands before


def rewinds_view(events: Iterable[Event], text: str, *, colour: bool = False) -> str:
    """A line for each rewind of a run, the tokens by what they were written for, and the text. Without colour, what was taken
    back stands in [-...-] and what took its place in {+...+}.
    """
    lines: list[str] = []
    spent: Mapping[str, int] = {}
    for event in events:
        if event.kind == "rewind":
            lines.extend(_lines(event.data, colour=colour))
        elif event.kind == "decoded":
            spent = event.data["tokens"]
    if not lines:
        lines.append("nothing was taken back")
    if spent:
        lines.append(f"tokens written: {written_for(spent)}")
    return "\n".join([*lines, "", _clean(text)])


def _lines(data: Mapping[str, Any], *, colour: bool) -> Iterator[str]:
    taken, put, before = (_clean(data[name]) for name in ("taken", "put", "before"))
    yield _dyed(f"token {data['at']} -> {data['to']}  {why_of(data)}", _DIM, colour=colour)
    if not data["accepted"]:
        yield f"    kept after {data['tried']} tokens of alternatives: {before}{put}"
        return
    struck = _dyed(taken, _RED, colour=colour) if colour else f"[-{taken}-]"
    new = _dyed(put, _GREEN, colour=colour) if colour else f"{{+{put}+}}"
    yield f"    {before}{struck if taken else ''}{new if put else ' (the end)'}"


def why_of(data: Mapping[str, Any]) -> str:
    """What a rewind was for, in words: `cannot pass forbids`."""
    why, by = _WHY.get(data["cause"], data["cause"]), data["by"]
    return f"{why} {by}" if data["cause"] == "guard" else f"{why}: {by}"


def written_for(tokens: Mapping[str, int]) -> str:
    """Tokens by what they were written for, in words."""
    return ", ".join(f"{_FOR.get(why, why)} {n}" for why, n in tokens.items() if n)


def _dyed(text: str, code: str, *, colour: bool) -> str:
    return f"{code}{text}{_PLAIN}" if colour else text


def _clean(text: str) -> str:
    """Nothing that moves a cursor."""
    return _CONTROL.sub(" ", text).replace("\n", "\u21b5")


def before_of(text: str) -> str:
    """The end of a text, as much as is shown of it."""
    return text if len(text) <= _BEFORE else f"...{text[-_BEFORE:]}"


_WHY = {"guard": "cannot pass", "end": "ended without passing", "signal": "in doubt"}
_FOR = {"text": "the text", "guard": "after guards", "end": "after ends that did not pass", "signal": "for doubts"}
