"""One `redraft rlm`: files become inputs, an RLM answers, its turns are shown."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from redraft import __version__
from redraft.checks import Check, parse
from redraft.cli.options import of_spec
from redraft.cli.output import say
from redraft.cli.perform import carried_out, no_notices, user_prints
from redraft.cli.plan import limited, made
from redraft.cli.progress import Progress, Silent
from redraft.cli.steps import Steps
from redraft.cli.task import read_task
from redraft.config import EMBEDDED, resolve_lm, store_in_force
from redraft.errors import UsageError
from redraft.evaluate.identity import fingerprint
from redraft.modules.react import TRAJECTORY
from redraft.protocols import Strategy
from redraft.rlm import RLM
from redraft.run import Run
from redraft.signature import as_signature
from redraft.strategies import Refine
from redraft.types import Inputs, Prediction, Verdict

QUESTION = "question"
PIPED = "piped"
"""The variable of what is piped in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """The options of `redraft rlm`; None or empty where one was not given."""

    question: str
    files: tuple[str, ...] = ()
    signature: str | None = None
    check: tuple[str, ...] = ()
    model: str | None = None
    base_url: str | None = None
    sub_model: str | None = None
    interpreter: str | None = None
    max_iterations: int = 20
    max_llm_calls: int = 50
    depth: int = 1
    bypass: int | None = None
    system: str | None = None
    max_tokens: int | None = None
    effort: str | None = None
    seed: int | None = None
    call_limit: int | None = None
    token_limit: int | None = None
    cost_limit: float | None = None
    time_limit: float | None = None
    store: str | None = None
    quiet: bool = False
    json: bool = False
    show: str | None = None
    allow_fail: bool = False

    def spec(self) -> dict[str, Any]:
        """What makes a run what it is, as JSON; files by their whole paths."""
        given = {name: value for name, value in asdict(self).items() if value is not None and name not in _BESIDE}
        given["files"] = [
            where if where == "-" else f"{name}={Path(where).absolute()}" for name, where in named(self.files)
        ]
        return {name: [*value] if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def of_spec(cls, spec: Mapping[str, Any], **more: Any) -> AskOptions:
        """The options that `spec` wrote, and some that are given anew."""
        return of_spec(cls, spec, more)


_BESIDE = frozenset(
    {"call_limit", "token_limit", "cost_limit", "time_limit", "store", "quiet", "json", "show", "allow_fail", "files"}
)


def ask(options: AskOptions, run_id: str | None = None) -> int:
    """Answer, show the turns, print the answer; returns the exit code. `run_id`: of a run to go on with."""
    question = read_task(options.question, None)
    if not options.files:
        raise click.UsageError("no FILE to answer from; name one, or - for what is piped in")
    files = named(options.files)
    signature = options.signature or f"{', '.join([*dict(files), QUESTION])} -> answer"
    inputs = inputs_for([*as_signature(signature).inputs], files, question)
    with no_notices(options.quiet), user_prints():
        strategy = plan(options, signature)
    if not options.quiet and resolve_lm(options.model, options.base_url).name == EMBEDDED:
        say(f"redraft: {EMBEDDED} is too small to write code that finds an answer; name a model that can: -m NAME")
    told = _progress(quiet=options.quiet)
    run = Run(
        budget=limited(options.call_limit, options.token_limit, options.cost_limit, options.time_limit),
        store=store_in_force(options.store),
        run_id=run_id,
        seed=options.seed,
        listeners=told.listeners,
    )
    run.journal.spec = {
        "rlm": True,
        "strategy": "RLM",
        "task": question,
        "options": {**options.spec(), "question": question},
        "code": fingerprint(strategy),
        "redraft": __version__,
    }
    return carried_out(options, inputs, strategy, run, told)


def plan(options: AskOptions, signature: str) -> Strategy:
    """One attempt of an RLM, whose answer the checks have the last word on."""
    checks = [parse(text) for text in options.check]
    beside: dict[str, Any] = {"bypass": options.bypass} if options.bypass is not None else {}
    beside |= {"effort": options.effort} if options.effort else {}
    rlm = RLM(
        signature,
        options.max_iterations,
        options.max_llm_calls,
        sub_lm=resolve_lm(options.sub_model, options.base_url) if options.sub_model else None,
        interpreter=options.interpreter,
        lm=resolve_lm(options.model, options.base_url),
        checks=checks,
        depth=options.depth,
        system=options.system or "",
        max_tokens=options.max_tokens,
        **beside,
    )
    return made(Refine, rlm, 1, checks=[_Submitted(tell=False), *(_silent(check) for check in checks)])


class _Submitted(Check):
    """An answer that no code gave is a guess, and no success for whoever goes by the exit code."""

    name = "submitted"

    async def verdict(self, inputs: Inputs, prediction: Prediction) -> Verdict:
        del inputs
        guessed = any(step.get("fallback") for step in prediction[TRAJECTORY][-1:])
        return self._as_verdict(0.0 if guessed else 1.0, "no code submitted this answer")


def _silent(check: Check) -> Check:
    """The same, not told again: the RLM tells it."""
    twin = copy(check)
    twin.told = False
    return twin


def named(files: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each file with the name of its variable. Raises `click.UsageError` for two of one name."""
    found: list[tuple[str, str]] = []
    for given in files:
        name, mark, where = given.partition("=")
        if not (mark and name.isidentifier() and not Path(given).exists()):
            name, where = _name_of(given), given
        if keyword.iskeyword(name) or name == QUESTION:
            name = f"{name}_file"
        if any(name == known for known, _ in found):
            raise click.UsageError(f"two files would be the variable {name}; name one, as in other_{name}={where}")
        found.append((name, where))
    return found


def _name_of(where: str) -> str:
    if where == "-":
        return PIPED
    name = re.sub(r"\W+", "_", Path(where).name).strip("_").lower() or "file"
    return name if name.isidentifier() else f"file_{name}"


def inputs_for(wanted: list[str], files: list[tuple[str, str]], question: str) -> dict[str, Any]:
    """The files as the signature's inputs: by name, then in their order; several for the last one are a list."""
    values = {name: _value(where) for name, where in files}
    inputs: dict[str, Any] = {QUESTION: question} if QUESTION in wanted else {}
    inputs |= {name: values.pop(name) for name in wanted if name in values}
    left = [name for name in wanted if name not in inputs]
    rest = [*values.values()]
    if QUESTION not in wanted:
        if not left:
            raise click.UsageError(f"the signature has no input for the question; it has {', '.join(wanted)}")
        inputs[left.pop()] = question
    if len(left) == 1 and len(rest) > 1:
        return {**inputs, left[0]: [_text(value) for value in rest]}
    if len(left) != len(rest):
        raise click.UsageError(
            f"the signature's inputs {', '.join(left) or '(none)'} and {len(rest)} more files do not go together; "
            "name them, as in logs=app.log"
        )
    return {**inputs, **dict(zip(left, rest, strict=True))}


def _value(where: str) -> Any:
    if where == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("nothing was piped in for -")
        data = sys.stdin.buffer.read()
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data
    path = Path(where).expanduser()
    if not path.is_file():
        raise click.UsageError(f"{where} is no file that can be read")
    return path.absolute()


def _text(value: Any) -> str:
    try:
        return value.read_text(encoding="utf-8") if isinstance(value, Path) else str(value)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{value}: {error}; a list holds texts in UTF-8") from error


def _progress(*, quiet: bool) -> Progress:
    if quiet:
        return Silent()
    if sys.stderr is None or not sys.stderr.isatty():
        return Steps()
    from redraft.cli.steps import live

    return live()
