"""The languages that checks offer as constraints: what a passing text may look like. Narrower than the checks on purpose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from redraft.checks.constraint import Constraint
from redraft.checks.patterns import translated
from redraft.checks.shapes import Range, Shape
from redraft.grammar import UNCHECKED, problem

_TERMINALS = 2
"""Raw languages in one constraint: more overflow the engine."""
_OPEN = 150
"""Words of a text whose check sets no upper limit."""


def words(low: int, high: int | None) -> Constraint | None:
    """Prose of so many words."""
    return _shaped(words=_range(low, max(_OPEN, 2 * low) if high is None else high))


def sentences(low: int, high: int | None) -> Constraint | None:
    """So many sentences of four words or more."""
    return _shaped(sentences=_range(low, low + 3 if high is None else high)) if high != 0 else None


def paragraphs(low: int, high: int | None) -> Constraint | None:
    """So many paragraphs, an empty line between them."""
    return _shaped(paragraphs=_range(low, low + 2 if high is None else high)) if high != 0 else None


def bullets(low: int, high: int | None) -> Constraint | None:
    """So many lines that begin with "- "."""
    return _shaped(bullets=_range(low, low + 3 if high is None else high)) if high != 0 else None


def chars(low: int, high: int | None) -> Constraint | None:
    """Prose of so many characters."""
    return _shaped(chars=_range(low, max(_OPEN * 6, 2 * low) if high is None else high))


def contains(phrases: Sequence[str]) -> Constraint | None:
    """All phrases, as they were given, in that order."""
    return _shaped(counts=tuple((p, 1, None) for p in phrases))


def forbids(phrases: Sequence[str]) -> Constraint | None:
    """No phrase, in any case."""
    return _shaped(counts=tuple((p, 0, 0) for p in phrases))


def keyword_counts(counts: Mapping[str, tuple[int, int | None]]) -> Constraint | None:
    """Each phrase so often."""
    return _shaped(counts=tuple((p, low, high) for p, (low, high) in counts.items()))


def starts_with(phrase: str) -> Constraint | None:
    """Prose after the phrase."""
    return _shaped(start=phrase)


def ends_with(phrase: str) -> Constraint | None:
    """Prose before the phrase."""
    return _shaped(end=phrase)


def matches(pattern: str) -> Constraint | None:
    """What a Python pattern matches, where the engine reads it alike."""
    regex = translated(pattern)
    return Constraint(f"/{regex}/", bounded=True) if regex else None


def one_of(labels: Sequence[str]) -> Constraint | None:
    """One of the labels, and nothing else."""
    return Constraint(
        " | ".join(json.dumps(" ".join(label.split()), ensure_ascii=False) for label in labels), bounded=True
    )


def lowercase() -> Constraint | None:
    """Prose without capital letters."""
    return _shaped(case="lower")


def uppercase() -> Constraint | None:
    """Prose without small letters."""
    return _shaped(case="upper")


def no_commas() -> Constraint | None:
    """Prose without commas."""
    return forbids([","])


def prose(most_words: int = _OPEN) -> Constraint:
    """A bound for languages that have none."""
    return _shaped(words=(1, most_words))


def together(offers: Sequence[Constraint]) -> tuple[Constraint | None, list[int]]:
    """As many of the offers as compile into one constraint that has an end, and which they are. A schema says most, and
    stands alone; shapes merge, however many they are; terminals multiply the engine's states.
    """
    whole: Constraint | None = None
    held: list[int] = []
    order = sorted(
        range(len(offers)), key=lambda i: (offers[i].schema is None, bool(offers[i].terminal), not offers[i].bounded)
    )
    terminals = 0
    for i in order:
        if (offers[i].terminal and terminals == _TERMINALS) or (whole is not None and whole.schema is not None):
            break
        joined = offers[i] if whole is None else whole & offers[i]
        if not joined.bounded and joined.schema is None:
            joined &= prose()
        said = problem(joined.grammar())
        if not said or (said == UNCHECKED and joined.schema is not None):  # an API that takes a schema needs no grammar
            whole = joined
            held.append(i)
            terminals += bool(offers[i].terminal)
    return whole, sorted(held)


def _shaped(**fields: object) -> Constraint:
    return Constraint(bounded=True, shapes=(Shape(**fields),))  # type: ignore[arg-type]


def _range(low: int, high: int) -> Range:
    return low, high
