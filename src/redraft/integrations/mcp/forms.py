"""What goes into the tools and what comes out: their JSON schemas, with a description of every field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from redraft.errors import InputError

Form = TypeVar("Form", bound="Given")
_LONGEST = 400_000


def _unpacked(value: Any) -> Any:
    """Some clients send a list or an object as JSON in a text, or one check without a list around it."""
    if not isinstance(value, str):
        return value
    if value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return [value]


CHECKS = (
    "What the text must meet, judged by code. Each is a text as in `redraft run --check` ('sentences:3', 'words:20-40', "
    "'contains:La Maison', 'one_of:yes|no', 'not-contains:x'; the resource redraft://checks lists them all), or an object "
    'as in a check file: {"check": "words", "args": [20, 40], "hard": false}, {"any_of": ["json_valid", "one_of:yes|no"]}, '
    'or {"type": "icontains", "value": "fox"} as in promptfoo.'
)
Text = Annotated[str, Field(max_length=_LONGEST)]
Task = Annotated[str, Field(min_length=1, max_length=_LONGEST)]
Checks = Annotated[list[str | dict[str, Any]], BeforeValidator(_unpacked), Field(max_length=50, description=CHECKS)]
Texts = Annotated[list[str], BeforeValidator(_unpacked), Field(max_length=20)]
Table = Annotated[dict[str, Text], BeforeValidator(_unpacked), Field(max_length=20)]
Model = Annotated[
    str | None,
    Field(
        max_length=200,
        description="provider/model, e.g. openai/gpt-4.1-mini. Without it the server's own model answers.",
    ),
]


class Given(BaseModel):
    """Arguments of a tool; one that does not exist is an error, not ignored."""

    model_config = ConfigDict(extra="forbid")


class Limits(Given):
    """Hard limits of this request. The server's own limits hold in any case."""

    calls: int | None = Field(default=None, ge=1, description="Most calls of models.")
    tokens: int | None = Field(default=None, ge=1, description="Most tokens, prompts included.")
    cost: float | None = Field(default=None, gt=0, description="Most dollars; the model's price must be known.")
    seconds: float | None = Field(default=None, gt=0, description="Most seconds.")


Bounds = Annotated[Limits, BeforeValidator(_unpacked), Field(description="Hard limits of this request.")]


class RefineForm(Given):
    """Arguments of `refine`."""

    task: Task = Field(description="What to write, in full: the requirements that code cannot check belong here.")
    draft: Text | None = Field(
        None,
        description="A text that is there already. It is checked first and comes back untouched, at no cost, if it passes; "
        "otherwise code repairs what it can, and only then is a model asked.",
    )
    inputs: Table = Field(
        default_factory=dict, description='Material that the task speaks of, by name: {"article": "..."}.'
    )
    checks: Checks = Field(default_factory=list)
    strategy: Literal["auto", "refine", "best-of-n", "self-refine", "reflect"] = Field(
        "auto",
        description="refine: up to `attempts` drafts, each learning from the checks. best-of-n: independent samples. "
        "self-refine: author, critic, reviser. reflect: an editor judges by `criteria`. auto: what was measured for the model "
        "and the checks, else reflect with criteria, refine with checks, one round of self-refine.",
    )
    attempts: int | None = Field(None, ge=1, le=20, description="Most drafts of refine and best-of-n (3).")
    rounds: int | None = Field(None, ge=1, le=10, description="Most revisions of reflect (1) and self-refine (3).")
    criteria: Texts = Field(
        default_factory=list, description="What a model shall judge by, e.g. 'sensory detail'. Each round costs calls."
    )
    model: Model = None
    limits: Bounds = Limits()


class CheckForm(Given):
    """Arguments of `check`."""

    text: Text = Field(description="The text to judge.")
    checks: Checks = Field(min_length=1)


class CompareForm(Given):
    """Arguments of `compare`."""

    task: Task = Field(description="What both texts were written for.")
    a: Text = Field(description="One text.")
    b: Text = Field(description="The other text.")
    checks: Checks = Field(default_factory=list)
    judge: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Whether a model is asked, in both orders (two calls). auto: only where the checks do not decide.",
    )
    model: Model = None
    limits: Bounds = Limits()


class VerdictOut(BaseModel):
    """What one check said of the text."""

    check: str
    passed: bool
    score: float = Field(description="0 to 1, with partial credit.")
    explanation: str = Field(description="What is wrong and where; empty if it passed.")
    hard: bool


class CheckOut(BaseModel):
    """What `check` returns."""

    passed: bool = Field(description="Every check that code can judge passed.")
    score: float = Field(description="0 to 1; 1 is a pass.")
    verdicts: list[VerdictOut]
    fixed: str | None = Field(description="The text repaired by code, without any model; null if code cannot mend it.")
    fixed_by: str = Field(description="Which checks mended it, or why a repair was refused.")
    fixed_passed: bool = Field(description="The repaired text passes every check that code can judge.")
    not_judged: list[str] = Field(description="Checks that ask a model: only refine and compare do.")


class UsageOut(BaseModel):
    """What was spent."""

    calls: int
    input_tokens: int
    output_tokens: int
    uncertain_tokens: int = Field(description="How many more it may have been, where usage was not reported.")
    cost: float | None = Field(description="Dollars; null if a price is not known.")


class AttemptOut(BaseModel):
    """One draft."""

    index: int
    rung: str = Field(description="How it was made: given, tell, fix, constrain, resample, edit, escalate.")
    score: float | None
    passed: bool | None = Field(description="null if nothing judged it.")
    failed: list[str] = Field(description="What it fell short of.")
    accepted: bool = Field(description="It became the best so far.")
    reason: str = Field(description="Why it was accepted or not.")
    tokens: int


class RefineOut(BaseModel):
    """What `refine` returns."""

    text: str = Field(description="The best text.")
    passed: bool | None = Field(description="It meets every check; null if nothing judged it.")
    score: float | None
    stop_reason: str = Field(
        description="passed, threshold, critic_ok, plateau, no_change, cycle, rejected, rounds, budget, cancelled, error"
    )
    error: str | None = Field(description="What ended it early, if something did; the text is the best until then.")
    best: int = Field(description="Index of the attempt that `text` is.")
    attempts: list[AttemptOut]
    strategy: str
    model: str
    usage: UsageOut
    limits: Limits = Field(description="The limits that held.")
    run_id: str


class CompareOut(BaseModel):
    """What `compare` returns."""

    winner: Literal["a", "b", "tie"]
    decided_by: Literal["checks", "judge", "nobody"]
    why: str
    checks_a: list[VerdictOut]
    checks_b: list[VerdictOut]
    judge: Literal["a", "b", "tie", "inconsistent"] | None = Field(
        description="The model's verdict over both orders; inconsistent: it prefers a place. null if it was not asked."
    )
    usage: UsageOut


def filled(form: type[Form], arguments: Mapping[str, Any]) -> Form:
    """The arguments as a value. Raises `InputError` that names each wrong one."""
    try:
        return form.model_validate(dict(arguments))
    except ValidationError as error:
        said = [_complaint(form, e["loc"], e["type"], e["msg"]) for e in error.errors(include_url=False)]
        raise InputError("; ".join(dict.fromkeys(said))) from error


def _complaint(form: type[Given], place: tuple[Any, ...], kind: str, message: str) -> str:
    # Members of a union are named by their types in `place`: what the caller wrote stands before.
    names = [str(part) for part in place if isinstance(part, int) or str(part).isidentifier()]
    where = ".".join(name for name in names if name not in ("str", "dict"))
    if kind != "extra_forbidden":
        return f"{where}: {message}"
    known = [*(Limits if len(place) > 1 else form).model_fields]
    close = get_close_matches(where.rpartition(".")[2], known, 1)
    return f"{where}: no such argument{f'; did you mean {close[0]}?' if close else ''} Known: {', '.join(known)}"
