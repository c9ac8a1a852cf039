"""JSON out of a text that holds more than JSON, or nearly JSON. Form is mended; nothing is invented and nothing lost."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

_STARTS = 64  # places where a value may begin that are tried
_LONGEST = 20_000  # characters; json-repair takes quadratic time on degenerate texts
_DEEPEST = 24  # brackets left open
_BRACKET = re.compile(r"[{\[]")
_ENDED = ("}", "]", '"', "'", "\u201d")
_DECODER = json.JSONDecoder()


def load(text: str) -> Any:
    """The value of a text that is JSON by the letter. Raises `ValueError`, for NaN and infinity too."""
    return json.loads(text, parse_constant=_no_number)


def fences(text: str, *marks: str) -> list[str]:
    """What stands in the text's code fences; one that never closes goes to the end. If any bears one of the marks (such
    as "python"), only those that do.
    """
    found: list[tuple[str, list[str]]] = []
    opened = ""
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if opened and bare.startswith(opened) and set(bare) == {opened[0]}:
            opened = ""
        elif opened:
            found[-1][1].append(line)
        elif bare.startswith(("```", "~~~")) and "`" not in bare[3:]:
            opened = bare[:3]
            found.append((bare.strip("`~ ").lower(), []))
    marked = [lines for mark, lines in found if mark in marks]
    return ["".join(lines) for lines in marked or [lines for _, lines in found]]


def values_in(text: str, most: int) -> list[str]:
    """The objects and arrays that stand in a text, as written; at most `most`. Not what stands inside another, even one
    that is broken; and empty ones in prose are no answer, nor are arrays in the middle of a sentence, such as [1].
    """
    found: list[str] = []
    at = 0
    between = ""
    for _ in range(_STARTS):
        start = _BRACKET.search(text, at)
        if start is None or len(found) == most:
            break
        between += text[at : start.start()]
        at = start.start() + 1
        try:
            value, end = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            between += start.group()
            continue
        at = end
        if value and not _is_open(between) and (isinstance(value, dict) or _stands_alone(text, start.start(), end)):
            found.append(text[start.start() : end])
    return found


def _is_open(text: str) -> bool:
    return text.count("{") > text.count("}") or text.count("[") > text.count("]")


def _stands_alone(text: str, start: int, end: int) -> bool:
    before = text[text.rfind("\n", 0, start) + 1 : start].rstrip()
    line_end = text.find("\n", end)
    return before[-1:] in ("", ":") and not text[end : line_end if line_end >= 0 else len(text)].strip()


def as_json(text: str, *, several: bool = False) -> list[str]:
    """The JSON that a text holds: as written, or else repaired. Empty if there is none, or (unless `several`) if there is
    more than one value, of which the choice would lose the others.
    """
    inside = [block.strip() for block in fences(text)]
    for place in (*inside, text) if len(inside) == 1 else (text,):
        if found := [value for value in values_in(place, _STARTS) if _loads(value)]:
            whole = [place.strip()] if _loads(place.strip()) else found
            return whole if several or len(whole) == 1 else []
    mended = repaired(inside[0] if len(inside) == 1 else text)
    return [] if mended is None else [mended]


def repaired(text: str) -> str | None:
    """Nearly JSON (quotes, commas, comments, brackets) as JSON; None if that would invent or lose a word."""
    starts = {start for start in (text.find("{"), text.find("[")) if start >= 0}
    text = text.rstrip().rstrip(",").rstrip()
    closed = max(text.rfind("}"), text.rfind("]")) + 1
    for part in dict.fromkeys(text[start:end] for start in sorted(starts) for end in (closed, len(text))):
        if _is_open(part) and not text.endswith(part):
            continue  # what follows is no prose around it, but the rest of it
        if not part.endswith(_ENDED) or len(part) > _LONGEST or _open(part) > _DEEPEST:
            continue  # a value that was cut cannot be completed
        if not re.search("[\"':\u201c]", part):
            continue  # brackets in prose
        from json_repair import loads

        try:
            value = loads(part, skip_json_loads=True)
            mended = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list) and value and _same_words(part, value):
            return mended
    return None


def _open(text: str) -> int:
    """How many brackets are open at most, whatever stands in strings."""
    depth = deepest = 0
    for mark in re.findall(r"[{}\[\]]", text):
        depth = depth + 1 if mark in "{[" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _same_words(text: str, value: Any) -> bool:
    bare = re.sub(r"(?m)(?<![:\w])//[^\n]*$|/\*.*?\*/", " ", text)
    bare = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), bare)
    bare = re.sub(r"\\[nrtbf]", " ", bare)
    leaves = list(_leaves(value))
    empty = len(re.findall(r"\"\"|''|\u201c\u201d", bare))
    return leaves.count("") <= empty and _words(bare) == _words(" ".join(leaves))


def _words(text: str) -> Counter[str]:
    constants = {"True": "true", "False": "false", "None": "null"}
    return Counter(constants.get(word, word) for word in re.findall(r"\w+", text))


def _leaves(value: Any) -> Iterator[str]:
    """Keys and values as texts."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def _loads(text: str) -> bool:
    try:
        load(text)
    except (ValueError, RecursionError):
        return False
    return True


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
