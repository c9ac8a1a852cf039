"""Checks: verifiable requirements, told to the author and judged by code."""

from redraft.checks.answers import matches, one_of
from redraft.checks.base import Check, check
from redraft.checks.code import python_tests
from redraft.checks.compose import all_of, any_of, not_, weighted
from redraft.checks.constraint import Constraint
from redraft.checks.counts import bullets, chars, paragraphs, sentences, words
from redraft.checks.files import from_file
from redraft.checks.parse import parse
from redraft.checks.rubric import rubric
from redraft.checks.scorer import Judgement
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
