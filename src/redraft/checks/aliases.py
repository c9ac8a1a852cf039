"""promptfoo's assert types as checks, with promptfoo's meaning: `contains` is any piece of text, in its exact case, where
our own `contains` looks for whole words in any case.

A type that is not about the text alone (latency, cost), that needs another runtime (javascript) or an embedding model
(similar) is refused by name, with what to do instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from redraft.checks.base import Check, FunctionCheck, Guard
from redraft.checks.constraint import Constraint
from redraft.checks.mend import load, values_in
from redraft.checks.patterns import escaped
from redraft.checks.structure import JsonSchema, JsonValid
from redraft.errors import UnknownNameError, UsageError

Place = Literal["anywhere", "start", "end"]


class Holds(Check):
    """The text holds pieces of text, as they are spelled: all of them, or any one."""

    name = "contains"

    def __init__(
        self, *pieces: str, every: bool = True, ignore_case: bool = False, at: Place = "anywhere", **options: Any
    ) -> None:
        super().__init__(**options)
        if not pieces or not all(pieces):
            raise UsageError(f"{pieces!r}: give at least one text that is not empty")
        self.pieces, self.every, self.ignore_case, self.at = pieces, every, ignore_case, at

    def tell_text(self) -> str:
        """See `Check`."""
        begin = {"anywhere": "Write", "start": "Begin with", "end": "End with"}[self.at]
        return f"{begin} {(' and ' if self.every else ' or ').join(json.dumps(p, ensure_ascii=False) for p in self.pieces)}."

    def _found(self, text: str, piece: str) -> bool:
        if self.ignore_case:
            text, piece = text.casefold(), piece.casefold()
        return {"anywhere": text.__contains__, "start": text.startswith, "end": text.endswith}[self.at](piece)

    def judge(self, value: Any) -> tuple[float, str]:
        """The share of pieces that are there, or all or nothing where any one will do."""
        missing = [piece for piece in self.pieces if not self._found(str(value), piece)]
        share = 1.0 - len(missing) / len(self.pieces)
        where = {"anywhere": "", "start": " at the beginning", "end": " at the end"}[self.at]
        said = (" and " if self.every else " or ").join(json.dumps(p, ensure_ascii=False) for p in missing)
        return (share if self.every else float(share > 0)), f"{said} missing{where}"

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        before = "" if self.at == "start" else _ANYTHING
        after = "" if self.at == "end" else _ANYTHING
        joint = " & " if self.every else " | "
        return Constraint(joint.join(f"/{before}{escaped(piece)}{after}/" for piece in self.pieces))

    def guard(self, prefix: str) -> Guard:
        """See `Check`. Case folding takes each character by itself, so that what follows changes nothing before it."""
        if self.at == "end":
            return "unknown"
        if self.judge(prefix)[0] >= 1.0:
            return "pass"
        if self.at == "anywhere":
            return "unknown"
        fold = str.casefold if self.ignore_case else str
        return "unknown" if any(fold(piece).startswith(fold(prefix)) for piece in self.pieces) else "fail"


class Equals(Check):
    """The text is this text, or JSON for this value."""

    name = "equals"

    def __init__(self, wanted: Any, **options: Any) -> None:
        super().__init__(**options)
        self.json = isinstance(wanted, Mapping | list)
        self.wanted = wanted if self.json else str(wanted)

    def tell_text(self) -> str:
        """See `Check`."""
        wanted = json.dumps(self.wanted, ensure_ascii=False) if self.json else self.wanted
        return f"Answer with exactly this and nothing else: {wanted}"

    def judge(self, value: Any) -> tuple[float, str]:
        """Half the credit where only the white space around it differs."""
        if not self.json:
            text = str(value)
            why = "the white space around it differs" if text.strip() == self.wanted.strip() else "it is another text"
            return (1.0 if text == self.wanted else 0.5 if "white" in why else 0.0), why
        try:
            value = load(value) if isinstance(value, str) else value
        except (ValueError, RecursionError) as error:
            return 0.0, f"not JSON: {error}"
        return float(value == self.wanted), "it is another value"

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        return Constraint(f"/{escaped(self.wanted)}/", bounded=True) if self.wanted and not self.json else None

    def fix(self, value: Any) -> Any:
        """See `Check`."""
        return self.wanted if isinstance(value, str) and not self.json and self.judge(value)[0] == 0.5 else None

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return "unknown" if self.json or self.wanted.startswith(prefix) else "fail"


class HoldsJson(Check):
    """JSON stands somewhere in the text, and follows the schema if there is one."""

    name = "contains_json"

    def __init__(self, schema: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self._whole = JsonValid() if schema is None else JsonSchema(schema)

    def tell_text(self) -> str:
        """See `Check`."""
        return self._whole.tell_text().replace("Answer with JSON alone", "Put JSON into the answer")

    def judge(self, value: Any) -> tuple[float, str]:
        """That of the best piece of JSON in it."""
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return max((self._whole.judge(piece) for piece in [text, *values_in(text, 64)]), key=lambda said: said[0])


_ANYTHING = r"(?s:.*)"


def is_known(kind: str) -> bool:
    """True for promptfoo's assert types, those that are refused included."""
    return kind in _MAKERS or kind in REFUSED


def made(
    kind: str, value: Any, *, folder: Path = Path(), threshold: float | None = None, lm: str | None = None
) -> Check:
    """The check of a promptfoo assert type (without `not-`) and its `value`. Files are looked for in `folder`."""
    if kind in REFUSED:
        raise UsageError(f"the assert type {kind!r} cannot be used here: {REFUSED[kind]}")
    if kind not in _MAKERS:
        raise UnknownNameError(f"no assert type {kind!r}; known are: {', '.join(sorted(_MAKERS))}")
    more = {"threshold": threshold, "lm": lm}
    if extra := [name for name, given in more.items() if given is not None and kind not in _TAKES[name]]:
        raise UsageError(f"{kind} takes no {'provider' if extra == ['lm'] else extra[0]}; drop it")
    return _MAKERS[kind](kind, value, folder, {name: given for name, given in more.items() if given is not None})


def _pieces(kind: str, value: Any, folder: Path, more: Mapping[str, Any]) -> Check:
    del folder, more
    several = kind.endswith(("-all", "-any"))
    if several and isinstance(value, str):
        value = [piece.strip() for piece in value.split(",")]
    pieces = value if several and isinstance(value, list) else [value]
    if not all(isinstance(piece, str | int | float) and str(piece) for piece in pieces):
        raise UsageError(f"{kind}: give a text{' or a list of texts' if several else ''}, not {value!r}")
    at: Place = "start" if kind == "starts-with" else "end" if kind == "ends-with" else "anywhere"
    return Holds(*map(str, pieces), every=not kind.endswith("-any"), ignore_case=kind.startswith("icon"), at=at)


def _equals(kind: str, value: Any, folder: Path, more: Mapping[str, Any]) -> Check:
    del folder, more
    if value is None:
        raise UsageError(f"{kind}: give the text that the answer shall equal")
    return Equals(value)


def _regex(kind: str, value: Any, folder: Path, more: Mapping[str, Any]) -> Check:
    del folder, more
    from redraft.checks.answers import matches

    if not isinstance(value, str) or not value:
        raise UsageError(f"{kind}: give a regular expression, not {value!r}")
    return matches(re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", value), search=True)  # JavaScript's names of groups


def _json(kind: str, value: Any, folder: Path, more: Mapping[str, Any]) -> Check:
    del more
    schema = read_json(value, folder, kind) if isinstance(value, str) and value else value or None
    if kind == "contains-json":
        return HoldsJson(schema)
    return JsonValid() if schema is None else JsonSchema(schema)


def _rubric(kind: str, value: Any, folder: Path, more: Mapping[str, Any]) -> Check:
    from redraft.checks.rubric import rubric

    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{kind}: give the criteria as text, or a file, not {value!r}")
    return rubric(read_text(value, folder, kind) if value.startswith("file://") else value, hard=True, **more)


def _word_count(kind: str, value: Any, folder: Path, more: Mapping[str, Any]) -> Check:
    del folder, more
    from redraft.checks.counts import words

    if isinstance(value, str) and (numbers := re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", value.strip())):
        return words(*(int(n) for n in numbers.groups() if n))
    if isinstance(value, Mapping) and value and set(value) <= {"min", "max"}:
        if len(value) == 2:
            return words(value["min"], value["max"])
        return words(at_least=value.get("min"), at_most=value.get("max"))
    if isinstance(value, int):
        return words(value)
    raise UsageError(f"{kind}: give a number, or min and max, not {value!r}")


def _python(kind: str, value: Any, folder: Path, more: Mapping[str, Any]) -> Check:
    """As promptfoo, which calls `get_assert(output, context)`, or the function that is named after the file."""
    from redraft.checks.userfile import names_of

    path, _, name = str(value or "").removeprefix("file://").partition(".py")
    if not _ or "\n" in path or not (folder / f"{path}.py").is_file():
        raise UsageError(
            f"{kind}: only a file can be used (file://checks.py, or file://checks.py:function), no expression; write "
            "the function into a Python file and give that to --checks"
        )
    wanted = name.removeprefix(":") or "get_assert"
    fn = names_of(folder / f"{path}.py").get(wanted)
    if not callable(fn):
        raise UsageError(f"{kind}: {path}.py defines no function {wanted}(output, context)")
    return FunctionCheck(_adapted(fn, more.get("threshold")), name=wanted)


def _adapted(fn: Callable[..., Any], threshold: float | None) -> Callable[..., Any]:
    """A scoring function of promptfoo's form in ours."""
    from redraft.sync import call_user
    from redraft.types import draft_text

    async def judged(inputs: Any, prediction: Any) -> Any:
        said = await call_user(fn, draft_text(prediction), {"vars": dict(inputs), "prompt": ""})
        why = ""
        if isinstance(said, Mapping):
            why = str(said.get("reason") or "")
            fine = said.get("pass", said.get("pass_"))
            said = min(said.get("score", float(bool(fine))), 1.0 if fine is not False else 0.999)
        if threshold is not None:
            said = float(said >= threshold)
        return (said, why)

    return judged


def read_text(where: str, folder: Path, what: str) -> str:
    """A file's text."""
    path = folder / where.removeprefix("file://")
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{what}:{where}: no such file ({reason})") from error


def read_json(where: str, folder: Path, what: str) -> Any:
    """JSON as it stands, or a file's."""
    text = where if where.lstrip().startswith("{") else read_text(where, folder, what)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what}: this is not JSON: {error}") from error


_HOLDS = ("contains", "contains-all", "contains-any", "icontains", "icontains-all", "icontains-any")
_MAKERS: dict[str, Callable[[str, Any, Path, Mapping[str, Any]], Check]] = {
    **dict.fromkeys((*_HOLDS, "starts-with", "ends-with"), _pieces),
    "contains-json": _json,
    "equals": _equals,
    "is-json": _json,
    "llm-rubric": _rubric,
    "python": _python,
    "regex": _regex,
    "word-count": _word_count,
}
_TAKES = {"threshold": ("llm-rubric", "python"), "lm": ("llm-rubric",)}

_NEEDS_REFERENCE = "it compares with a reference by a metric; write a rubric, or a function in a Python check file"
_NEEDS_MARKUP = "write a function in a Python check file that parses it"
_NOT_TEXT = "it is about the call, not about the answer; set a limit on the run (--cost-limit, --time-limit)"
_GRADED = "write its criterion as llm-rubric (rubric:... on the command line)"

REFUSED: dict[str, str] = {
    "javascript": "redraft runs no JavaScript; write the same as a function in a Python check file, with @check",
    "ruby": "redraft runs no Ruby; write the same as a function in a Python check file, with @check",
    "webhook": "write a function in a Python check file that calls the service",
    "similar": "redraft embeds no texts; write what must be the same as llm-rubric, or a function in a Python check file",
    **dict.fromkeys(("latency", "cost"), _NOT_TEXT),
    **dict.fromkeys(
        ("perplexity", "perplexity-score", "finish-reason"), "a check sees the answer's text alone; drop it"
    ),
    **dict.fromkeys(("bleu", "gleu", "rouge-n", "meteor", "levenshtein", "f-score"), _NEEDS_REFERENCE),
    **dict.fromkeys(("is-html", "contains-html", "is-xml", "contains-xml", "is-sql", "contains-sql"), _NEEDS_MARKUP),
    **dict.fromkeys(
        ("factuality", "g-eval", "answer-relevance", "model-graded-closedqa", "model-graded-factuality", "is-refusal"),
        _GRADED,
    ),
    **dict.fromkeys(("context-faithfulness", "context-recall", "context-relevance", "search-rubric"), _GRADED),
    **dict.fromkeys(("classifier", "moderation", "guardrails", "pi"), "it calls a service of its own; " + _GRADED),
    **dict.fromkeys(
        ("is-valid-function-call", "is-valid-openai-function-call", "is-valid-openai-tools-call", "tool-call-f1"),
        "use tool_call (tool_call:get_weather on the command line, or in a Python or TOML check file)",
    ),
    **dict.fromkeys(("select-best", "max-score", "human"), "it compares several answers; use --strategy best-of-n"),
}
"""promptfoo's types that have no check here -> what to do instead."""
