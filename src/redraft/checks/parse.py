"""Checks from text, as the command line takes them: `NAME` or `NAME:ARGS`, with `not-` before it for the opposite.

Names are those of `redraft.checks`, and promptfoo's assert types where ours have no such name (`icontains`, `is-json`,
`llm-rubric`: see `redraft.checks.aliases`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redraft import registry
from redraft.checks import aliases
from redraft.checks.base import Check, check_options
from redraft.checks.compose import not_
from redraft.errors import UsageError

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments in place, and by name."""


def parse(text: str, *, folder: Path | str = "", **options: Any) -> Check:
    """`sentences:3`, `words:20-40`, `contains:La Maison`, `one_of:yes|no`, `json_schema:schema.json`, `not-contains:x`.

    Counts take one number, a range, or one side of it (`chars:..280`, `words:20..`); text checks take all that follows the
    colon, as it stands, but for `|`, which parts the phrases of `contains`, `forbids` and `one_of`. Files are looked for in
    `folder`; `options` go to the check (`field`, `hard`, `tell`, and its own).
    """
    check_options(options)
    name, _, args = text.partition(":")
    kind, args, folder = name.strip(), args.strip(), Path(folder)
    known = registry.names("checks")
    opposite = kind.startswith("not-") and kind not in known
    kind = kind.removeprefix("not-") if opposite else kind
    if opposite and kind == "contains":
        kind, opposite = "forbids", False
    form = FORMS.get(kind, _OTHER)
    if kind not in known and aliases.is_known(kind):
        made = aliases.made(kind, args or None, folder=folder)
        return _with_options(not_(made) if opposite else made, options)
    factory = registry.find("checks", kind)
    if not args and not form.bare:
        raise UsageError(f"check {text!r} lacks its argument: write NAME:ARGS, e.g. {form.example or kind + ':...'}")
    given, named = form.read(kind, args, folder) if args else ((), {})
    made = factory(*given, **named, **options)
    return not_(made) if opposite else made


def _with_options(check: Check, options: dict[str, Any]) -> Check:
    for name, value in options.items():
        if name not in ("field", "hard", "tell"):
            raise UsageError(f"check {check.name!r} has no option {name!r}; it takes field, hard and tell")
        setattr(check, "told" if name == "tell" else name, value)
    return check


@dataclass(frozen=True, slots=True)
class Form:
    """How a check's arguments are written."""

    read: Callable[[str, str, Path], Given]
    """(name, what follows the colon, folder) -> arguments."""
    example: str
    bare: bool = False
    """It can do without arguments."""


_RANGE = re.compile(r"(\d+)\s*(?:(?:-|,|\.\.)\s*(\d+))?")
_SIDE = re.compile(r"(\d+)\s*\.\.|\.\.\s*(\d+)")
_NUMBERS = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:-|,|\.\.)\s*(-?\d+(?:\.\d+)?)")


def _counts(kind: str, args: str, folder: Path) -> Given:
    del folder
    if side := _SIDE.fullmatch(args):
        return (), {"at_least" if side[1] else "at_most": int(side[1] or side[2])}
    numbers = _RANGE.fullmatch(args)
    if numbers is None:
        raise UsageError(f"check '{kind}:{args}': {args!r} is neither a number nor a range; e.g. {FORMS[kind].example}")
    return tuple(int(n) for n in numbers.groups() if n is not None), {}


def _text(kind: str, args: str, folder: Path) -> Given:
    del kind, folder
    return (args,), {}


def _nothing(kind: str, args: str, folder: Path) -> Given:
    del folder
    raise UsageError(f"check '{kind}:{args}': {kind} takes no argument")


def _choices(kind: str, args: str, folder: Path) -> Given:
    del kind, folder
    return tuple(choice.strip() for choice in args.split("|")), {}


def _keywords(kind: str, args: str, folder: Path) -> Given:
    counts: dict[str, Any] = {}
    for part in args.split(","):
        word, mark, count = part.rpartition("=")
        numbers = _RANGE.fullmatch(count.strip())
        if not mark or numbers is None:
            raise UsageError(f"check '{kind}:{args}': {part!r} is no WORD=COUNT; e.g. {FORMS[kind].example}")
        low, high = numbers.groups()
        counts[word.strip()] = int(low) if high is None else (int(low), int(high))
    del folder
    return (counts,), {}


def _number(kind: str, args: str, folder: Path) -> Given:
    del folder
    whole = re.match(r"(int|integer|whole)\b\s*", args)
    rest = args[whole.end() :] if whole else args
    bounds = _NUMBERS.fullmatch(rest)
    if rest and bounds is None:
        raise UsageError(f"check '{kind}:{args}': {rest!r} is no range of numbers; e.g. {FORMS[kind].example}")
    numbers = tuple(map(_as_number, bounds.groups())) if bounds else ()
    return numbers, {"integer": True} if whole else {}


def _as_number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _schema(kind: str, args: str, folder: Path) -> Given:
    return (aliases.read_json(args, folder, kind),), {}


def _tests(kind: str, args: str, folder: Path) -> Given:
    return (aliases.read_text(args, folder, kind),), {}


def _tool(kind: str, args: str, folder: Path) -> Given:
    del folder
    if args == "none":
        return (), {"none": True}
    if args.startswith("{"):
        named = aliases.read_json(args, Path(), kind)
        return (), named
    names = [name.strip() for name in args.split(",")]
    return (names[0],), {"required": names[1:]}


def _criteria(kind: str, args: str, folder: Path) -> Given:
    del kind
    file = folder / args.removeprefix("file://")
    return (file if args.endswith((".md", ".txt")) else args,), {}


def _any(kind: str, args: str, folder: Path) -> Given:
    """A plug-in's: numbers if it looks like them, else the text."""
    return _counts(kind, args, folder) if _RANGE.fullmatch(args) else ((args,), {})


_OTHER = Form(_any, "")

FORMS = {
    "bullets": Form(_counts, "bullets:3 or bullets:2-4"),
    "chars": Form(_counts, "chars:280 or chars:10-200"),
    "contains": Form(_choices, "'contains:La Maison' or 'contains:music|river', which wants both"),
    "ends_with": Form(_text, "'ends_with:Kind regards'"),
    "forbids": Form(_choices, "'forbids:very unique' or 'forbids:very|quite'"),
    "json_schema": Form(_schema, "json_schema:schema.json"),
    "json_valid": Form(_nothing, "json_valid", bare=True),
    "keyword_counts": Form(_keywords, "keyword_counts:fox=2,dog=1-3"),
    "language": Form(_text, "language:en"),
    "lowercase": Form(_nothing, "lowercase", bare=True),
    "matches": Form(_text, "'matches:[A-Z]{3}-[0-9]+'"),
    "no_commas": Form(_nothing, "no_commas", bare=True),
    "no_repetition": Form(_nothing, "no_repetition", bare=True),
    "number": Form(_number, "number or number:0-10 or number:int 1-5", bare=True),
    "one_of": Form(_choices, "'one_of:yes|no'"),
    "paragraphs": Form(_counts, "paragraphs:2 or paragraphs:2-4"),
    "python_tests": Form(_tests, "python_tests:tests.py"),
    "rubric": Form(_criteria, "rubric:style.md or 'rubric:names the dish and its price'"),
    "sentences": Form(_counts, "sentences:3 or sentences:2-4"),
    "starts_with": Form(_text, "starts_with:Dear"),
    "tool_call": Form(_tool, "tool_call:get_weather or tool_call:none", bare=True),
    "uppercase": Form(_nothing, "uppercase", bare=True),
    "words": Form(_counts, "words:50 or words:20-40"),
}
"""Each check that the command line knows, with what to write for it."""
