"""What a rubric asks: criteria out of a Markdown file, a list of texts, or a dict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from redraft.errors import UsageError


class Criterion(NamedTuple):
    """One thing that a draft is judged by."""

    name: str
    text: str
    """What is asked, name included."""
    weight: float = 1.0


Criteria = str | Path | Mapping[str, str] | Iterable[str]


def as_criteria(given: Criteria) -> tuple[Criterion, ...]:
    """A path or `"file.md"`, Markdown, a list of texts ("Clarity: one idea a sentence (x2)"), or name to text.

    In Markdown each list item is a criterion, or each heading with what stands below it: where there are no items, or
    where a heading has a weight. A weight is a suffix of the text or of its name, `(x2)`.
    """
    if isinstance(given, Mapping):
        found = [_criterion(*pair) for pair in given.items()]
    elif isinstance(given, str | Path):
        found = [_criterion(*piece) for piece in _pieces(_read(given))]
    else:
        found = [_criterion(text) for text in given]
    if not found:
        raise UsageError(f"criteria={given!r:.60} hold no criterion; give list items, headings, or texts")
    names = [c.name for c in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two criteria are called {twice[0]!r}; name them apart, as in 'Name: what is asked'")
    return tuple(found)


def _read(given: str | Path) -> str:
    if isinstance(given, str) and ("\n" in given or not given.strip().lower().endswith(_ENDINGS)):
        return given
    path = Path(given)
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(f"the rubric {str(path)!r} cannot be read: {error}") from error


def _pieces(markdown: str) -> list[tuple[str, str]]:
    """(heading, text below it) of each criterion, or (text, nothing)."""
    lines = markdown.splitlines()
    headings = [match[1] for line in lines if (match := _HEADING.match(line))]
    items = _items(lines)
    if headings and (not items or any(map(_WEIGHT.search, headings))):
        return _sections(lines)
    return [(text, "") for text in items or [markdown]]


def _sections(lines: list[str]) -> list[tuple[str, str]]:
    sections: list[tuple[str, list[str]]] = []
    for line in lines:
        if heading := _HEADING.match(line):
            sections.append((heading[1], []))
        elif sections:
            sections[-1][1].append(line.strip())
    joined = [(head, "\n".join(body).strip()) for head, body in sections]
    if len(joined) > 1 and not joined[0][1] and not _WEIGHT.search(joined[0][0]):
        return joined[1:]  # a title above the sections is none of them
    return joined


def _items(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        if item := _ITEM.match(line):
            items.append(item[1])
        elif items and line[:1].isspace() and line.strip():
            items[-1] += f"\n{line.strip()}"
    return items


def _criterion(head: str, body: str = "") -> Criterion:
    if not isinstance(head, str) or not isinstance(body, str) or not head.strip():
        raise UsageError(f"a criterion is a text that is not empty, got {head if body == '' else body!r}")
    (name, before), (text, after) = _weighed(head), _weighed(body)
    weight = before if before is not None else after if after is not None else 1.0
    if not weight:
        raise UsageError(f"the criterion {name!r:.60} weighs nothing; give a weight above 0 or leave it out")
    return Criterion(name, f"{name}: {text}", weight) if text else Criterion(_name(name), name, weight)


def _weighed(text: str) -> tuple[str, float | None]:
    """The text without bold marks and without its weight, and that weight."""
    plain = _BOLD.sub(r"\1", text.strip())
    weight = _WEIGHT.search(plain)
    return _WEIGHT.sub("", plain, count=1), float(weight[1]) if weight else None


def _name(text: str) -> str:
    """What stands before a colon near the beginning, or else the first words."""
    head, colon, _ = text.partition(":")
    if colon and len(head) <= _NAME and "\n" not in head:
        return head.strip()
    line = text.strip().splitlines()[0].rstrip(".")
    return line if len(line) <= _NAME else f"{line[: _NAME - 3].rpartition(' ')[0] or line[: _NAME - 3]}..."


_ENDINGS = (".md", ".markdown", ".txt")
_NAME = 40
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"(?:[-*+\u2022]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(\S.*)")
_WEIGHT = re.compile(r"[ \t]?\([x\u00d7][ \t]?(\d{1,3}(?:\.\d{1,3})?)\)(?=:|\s*\Z)")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
