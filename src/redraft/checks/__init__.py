"""Checks: verifiable requirements, told to the author and judged by code."""

from redraft.checks.base import Check, check
from redraft.checks.counts import sentences, words
from redraft.checks.parse import from_file, parse
from redraft.checks.scorer import Judgement
from redraft.checks.structure import json_schema
from redraft.checks.texts import contains, forbids

__all__ = [
    "Check",
    "Judgement",
    "check",
    "contains",
    "forbids",
    "from_file",
    "json_schema",
    "parse",
    "sentences",
    "words",
]
