"""Checks from a client, made safe for this machine; and the tool `check`, which never calls a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redraft import registry
from redraft.checks import Check, Judgement
from redraft.checks.files import from_item
from redraft.checks.parse import FORMS
from redraft.errors import InputError
from redraft.integrations.mcp.forms import CheckForm, CheckOut, VerdictOut
from redraft.integrations.mcp.terms import Terms
from redraft.linear import linear
from redraft.types import Prediction, Score, Verdict

_RUNS_CODE = ("python_tests", "python")
_TAKES_SCHEMA = ("json_schema", "is-json", "contains-json")
_TAKES_CRITERIA = ("rubric", "llm-rubric")
_ENDINGS = (".md", ".markdown", ".txt")
_NAMES_MODEL = ("lm", "provider")


def checks_from(items: Sequence[Any], terms: Terms) -> list[Check]:
    """The checks that a client asks for. Raises `UsageError` that says which one is wrong, and for what only a trusted
    client may have: files of this machine, running code, judges of its own choice.
    """
    made = []
    for i, item in enumerate(items):
        place = f"checks[{i}]"
        if not terms.trusted:
            for kind, values in _kinds(item):
                _refuse(place, kind, values)
        with contextlib.nullcontext() if terms.trusted else linear():
            made.append(from_item(item, place))
    return made


def _kinds(item: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every check in it, groups unfolded: its name, and what it is given, by name or by place."""
    if isinstance(item, str):
        name, _, args = item.partition(":")
        yield name.strip().removeprefix("not-"), {"": args.strip()}
    elif isinstance(item, list):
        for member in item:
            yield from _kinds(member)
    elif isinstance(item, Mapping):
        for key in ("all_of", "any_of", "not", "weighted", "assert"):
            yield from _kinds(item.get(key))
        named = item.get("check") or item.get("type")
        if isinstance(named, str):
            name, _, args = named.partition(":")
            given = item.get("args")
            places = given if isinstance(given, list) else []
            rest = {k: v for k, v in item.items() if k not in ("check", "type", "args")}
            yield name.strip().removeprefix("not-"), {"": args.strip(), **rest, "args": places}


def _refuse(place: str, kind: str, values: Mapping[str, Any]) -> None:
    texts = [
        v.strip() for value in values.values() for v in (value if isinstance(value, list) else [value]) if _said(v)
    ]
    if kind in _RUNS_CODE:
        raise InputError(f"{place}: {kind} runs code on this machine, which is off; {_OWNER}")
    if kind in _TAKES_SCHEMA and any(not text.startswith("{") for text in texts):
        raise InputError(f"{place}: {kind} names a file; give the schema itself, as JSON, or {_OWNER}")
    if kind in _TAKES_CRITERIA and any(t.startswith("file://") or t.lower().endswith(_ENDINGS) for t in texts):
        raise InputError(f"{place}: {kind} names a file; give its text, or {_OWNER}")
    if kind in _TAKES_CRITERIA and any(values.get(name) for name in _NAMES_MODEL):
        raise InputError(f"{place}: {kind} names a model of its own; leave that out, or {_OWNER}")


def _said(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


_OWNER = "ask the server's owner to start it with --trusted"


async def check(given: CheckForm, terms: Terms) -> CheckOut:
    """The tool `check`: verdicts, and what code can mend."""
    every = checks_from(given.checks, terms)
    asking = [c.name for c in every if c.asks]
    judgement = Judgement([c for c in every if not c.asks])
    draft = Prediction(text=given.text)
    score = await judgement.score({}, draft)
    fixed, how = (None, "") if score.passed else await judgement.repaired({}, draft, score)
    after = score if fixed is None else await judgement.score({}, fixed)
    return CheckOut(
        passed=score.passed,
        score=score.value,
        verdicts=verdicts_out(score),
        fixed=None if fixed is None else str(fixed["text"]),
        fixed_by=how,
        fixed_passed=after.passed,
        not_judged=asking,
    )


async def passes(text: str, checks: Sequence[Check]) -> bool:
    """True if code alone can tell that a text passes."""
    if not checks or any(c.asks for c in checks):
        return False
    return (await Judgement(checks).score({}, Prediction(answer=text))).passed


def verdicts_out(score: Score | None) -> list[VerdictOut]:
    """The verdicts of a score."""
    return [] if score is None else [_verdict(v) for v in score.verdicts]


def _verdict(v: Verdict) -> VerdictOut:
    return VerdictOut(check=v.check, passed=v.passed, score=v.score, explanation=v.explanation, hard=v.hard)


def listing() -> str:
    """Every check with its notation, as Markdown: the resource `redraft://checks`."""
    lines = []
    for name, form in FORMS.items():
        said = " ".join((registry.find("checks", name).__doc__ or "").split()).split(". ")[0]
        lines.append(f"- `{name}`: {said.rstrip('.')}. Write {form.example}.")
    return LISTING.format(checks="\n".join(lines))


LISTING = """# Checks

A check is a text, NAME or NAME:ARGS, with `not-` before it for the opposite (`not-contains:x`).

{checks}

As JSON objects: {{"check": "words", "args": [20, 40], "hard": false, "tell": true}}; groups {{"any_of": [...]}},
{{"all_of": [...]}}, {{"not": ...}}, {{"weighted": [{{"check": "words:20-40", "weight": 2}}, "no_commas"], "threshold": 0.6}};
and promptfoo's asserts, {{"type": "icontains", "value": "fox"}}. `json_schema` takes the schema itself, too:
{{"check": "json_schema", "args": [{{"type": "object"}}]}}. Every check must pass; `rubric` asks a model, last.
Files, and checks that run code (python_tests), need a server started with --trusted.
"""
