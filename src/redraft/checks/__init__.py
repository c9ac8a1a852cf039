"""Checks: verifiable requirements, told to the author and judged by code. Each kind is loaded when it is first used (but
`parse` and `rubric`, whose modules bear their names).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from redraft.checks.base import Check, check
from redraft.checks.constraint import Constraint
from redraft.checks.parse import parse
from redraft.checks.rubric import rubric
from redraft.checks.scorer import Judgement

if TYPE_CHECKING:
    from redraft.checks.answers import matches, one_of
    from redraft.checks.code import python_tests
    from redraft.checks.compose import all_of, any_of, not_, weighted
    from redraft.checks.counts import bullets, chars, paragraphs, sentences, words
    from redraft.checks.files import from_file
    from redraft.checks.structure import json_schema, json_valid, number
    from redraft.checks.style import language, lowercase, no_commas, no_repetition, uppercase
    from redraft.checks.texts import contains, ends_with, forbids, keyword_counts, starts_with
    from redraft.checks.tools import tool_call

__all__ = [
    "Check",
    "Constraint",
    "Judgement",
    "all_of",
    "any_of",
    "bullets",
    "chars",
    "check",
    "contains",
    "ends_with",
    "forbids",
    "from_file",
    "json_schema",
    "json_valid",
    "keyword_counts",
    "language",
    "lowercase",
    "matches",
    "no_commas",
    "no_repetition",
    "not_",
    "number",
    "one_of",
    "paragraphs",
    "parse",
    "python_tests",
    "rubric",
    "sentences",
    "starts_with",
    "tool_call",
    "uppercase",
    "weighted",
    "words",
]

_KINDS = {
    "answers": ("matches", "one_of"),
    "code": ("python_tests",),
    "compose": ("all_of", "any_of", "not_", "weighted"),
    "counts": ("bullets", "chars", "paragraphs", "sentences", "words"),
    "files": ("from_file",),
    "structure": ("json_schema", "json_valid", "number"),
    "style": ("language", "lowercase", "no_commas", "no_repetition", "uppercase"),
    "texts": ("contains", "ends_with", "forbids", "keyword_counts", "starts_with"),
    "tools": ("tool_call",),
}
_ROOMS = {name: f"redraft.checks.{room}" for room, names in _KINDS.items() for name in names}


if not TYPE_CHECKING:  # to a type checker any name would do

    def __getattr__(name: str) -> object:
        if name not in _ROOMS:
            raise AttributeError(f"module 'redraft.checks' has no attribute {name!r}")
        value = getattr(import_module(_ROOMS[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
