"""Checks from text: `NAME:ARGS` on the command line, and files of the user's own checks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from redraft import registry
from redraft.checks.base import Check, FunctionCheck
from redraft.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def parse(text: str) -> Check:
    """`sentences:3`, `words:20-40`, `contains:La Maison`, `json_schema:schema.json`.

    Counts take one number or a range; text checks take all that follows the colon, as it stands.
    """
    name, _, args = text.partition(":")
    factory = registry.find("checks", name.strip())
    kind = name.strip()
    if not args.strip():
        raise UsageError(
            f"check {text!r} lacks its argument: write NAME:ARGS, e.g. {_EXAMPLES.get(kind, kind + ':...')}"
        )
    if kind in ("contains", "forbids"):
        made: Check = factory(args.strip())
    elif kind == "json_schema":
        made = factory(_schema(args.strip()))
    elif numbers := re.fullmatch(r"\s*(\d+)\s*(?:(?:-|,|\.\.)\s*(\d+)\s*)?", args):
        made = factory(*(int(n) for n in numbers.groups() if n is not None))
    elif kind in ("words", "sentences"):
        raise UsageError(f"check {text!r}: {args!r} is neither a number nor a range; e.g. {_EXAMPLES[kind]}")
    else:
        made = factory(args.strip())
    return made


def from_file(path: str | Path) -> list[Check]:
    """The checks of a Python file: its list `checks`, or else every check made with `@check` in it. The file is run."""
    from pathlib import Path

    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no check file {path}; give a Python file that defines `checks = [...]` or uses @check")
    names = _run(path)
    found = names.get("checks")
    if not isinstance(found, list | tuple):
        found = [value for value in names.values() if isinstance(value, Check)]
    if not found or not all(callable(c) or isinstance(c, Check) for c in found):
        raise ConfigError(
            f"{path} defines no checks; write `checks = [sentences(3), ...]` or decorate functions with @check"
        )
    return [c if isinstance(c, Check) else FunctionCheck(c) for c in found]


def _run(path: Path) -> dict[str, Any]:
    import runpy

    try:
        return runpy.run_path(str(path), run_name="redraft_checks")
    except (Exception, SystemExit) as error:
        line = error.__traceback__
        while line is not None and line.tb_next is not None:
            line = line.tb_next
        where = f", line {line.tb_lineno}" if line is not None and not isinstance(error, SyntaxError) else ""
        raise ConfigError(
            f"the check file {path} fails with {type(error).__name__}: {error}{where}; mend it"
        ) from error


def _schema(args: str) -> Any:
    from pathlib import Path

    try:
        text = args if args.startswith("{") else Path(args).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise UsageError(
            f"json_schema:{args}: no such file; give a path or the schema itself ({error.strerror})"
        ) from error
    except ValueError as error:
        raise UsageError(f"json_schema: this is not JSON: {error}") from error


_EXAMPLES = {
    "sentences": "sentences:3 or sentences:2-4",
    "words": "words:50 or words:20-40",
    "contains": "'contains:La Maison'",
    "forbids": "'forbids:very unique'",
    "json_schema": "json_schema:schema.json",
}
