"""The ladder: how the next draft is made, cheapest rung first, and why that way (docs/design.md section 1).

constrain (decode under what the checks compile to) - resample (a fresh prompt, with a short hint) - edit (the best draft
with its issues in view) - escalate (the next model). Telling comes before, checking and fixing after each draft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from redraft.checks import Check, Judgement
from redraft.checks.constraint import Constraint
from redraft.config import resolve_lm
from redraft.errors import BadRequestError, UnsupportedError
from redraft.frame import Advice
from redraft.modules import Predict
from redraft.protocols import LM
from redraft.refusals import refuses, remember_refusal
from redraft.run import Run
from redraft.types import Attempt, Event, Inputs

if TYPE_CHECKING:
    from redraft.strategies.base import Refining

Revise = Literal["auto", "fresh", "edit", "constrain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to make the next draft."""

    name: str
    why: str
    constraint: Constraint | None = None
    under: tuple[Check, ...] = ()
    """The checks that the constraint stands for."""
    parent: Attempt | None = None
    """The draft that is edited, or that taught the hint."""
    lm: LM | None = None
    """Another model than the module's own."""
    temperature: float | None = None
    """None: the module's own."""
    effort: str | None = None
    """How much a reasoning model thinks; None: as the module says."""
    hint: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    """Hints for modules inside a program, by path."""

    def but(self, **changes: Any) -> Rung:
        """A copy with some fields changed."""
        return replace(self, **changes)


def constraint_for(module: Any, judgement: Judgement, lm: LM | None, *, mended: bool = False) -> Rung | str:
    """The rung "constrain", or why it cannot be climbed. Only a lone text output can be decoded under a constraint."""
    if not judgement.checks:
        return "there are no checks to decode under"
    if not isinstance(module, Predict):
        return "only a Predict's own text can be decoded under a constraint"
    if not module.signature.plain:
        return "the output is not one text"
    constraint, under = judgement.constraint(next(iter(module.signature.outputs)), mended=mended)
    if constraint is None:
        return "no check offers a constraint that compiles"
    lm = lm or resolve_lm(module.lm)
    takes_schema = constraint.schema is not None and lm.capabilities.json_schema and not refuses(lm, "schema")
    takes_grammar = lm.capabilities.grammar and not refuses(lm, "grammar")
    if not takes_grammar and not takes_schema:
        return f"{lm.name} takes no grammar"
    why = f"{', '.join(c.name for c in under)} can be held while decoding"
    return Rung(name="constrain", why=why, constraint=constraint, under=under)


async def written(strategy: Refining, run: Run, inputs: Inputs, rung: Rung, *, index: int | None = None) -> Attempt:
    """A draft on this rung, judged. Whether a constraint was held goes on record, since engines fail open. One that the
    model refuses is not insisted on: the draft is then written freely.
    """
    if rung.name == "edit" and rung.parent is not None:
        return await strategy.edited(run, inputs, rung, index=index)
    advice = _advice(strategy, rung)
    tried = await run.attempt(
        strategy.module,
        inputs,
        scorer=strategy.scorer,
        parent=rung.parent,
        advice=advice,
        rung=rung.name,
        why=rung.why,
        index=index,
    )
    if rung.constraint is None:
        return tried
    if isinstance(tried.error, BadRequestError):
        if isinstance(tried.error, UnsupportedError) and not tried.error.parts:  # with parts it is this schema alone
            remember_refusal(rung.lm or resolve_lm(strategy.module.lm), tried.error.parameter)
        run.reject(tried, f"the constraint cannot be used: {tried.error}")
        free = rung.but(name="resample", why="the constraint was refused", constraint=None, under=())
        return await written(strategy, run, inputs, free)
    if tried.score is not None:
        failed = _failed_under(strategy.judgement, tried, rung.under)
        reply = last_reply(run, tried)
        cut = reply is not None and was_cut(reply)
        run.journal.remark(
            "constraint_held", scope=run.scope, index=tried.index, held=not failed, failed=failed, endless=cut
        )
    return tried


def last_reply(run: Run, tried: Attempt) -> Event | None:
    """The last reply that an attempt's author got; None if it asked no model. Those that judge it are others."""
    scope = f"{run.scope}/attempt[{tried.index}]/"
    own = (f"{scope}module:", f"{scope}reviser:", f"{scope}Reviser")
    other: Event | None = None  # a function's calls and a reward's look alike: what is the module's own goes first
    for event in run.journal.calls(scope[:-1]):
        if event.data["role"] in ("author", "reviser"):
            if event.scope.startswith(own):
                return event
            other = other or event
    return other


def was_cut(reply: Event) -> bool:
    """True if a reply ended at its limit of tokens: under a constraint, a text that did not find its end."""
    return bool(reply.data["completion"]["choices"][0].get("finish_reason") == "length")


def _advice(strategy: Refining, rung: Rung) -> Advice:
    more: dict[str, Any] = {"hints": rung.hints, "lm": rung.lm, "effort": rung.effort}
    if rung.constraint is not None:
        lm = rung.lm or resolve_lm(strategy.module.lm)
        takes_grammar = lm.capabilities.grammar and not refuses(lm, "grammar")
        as_schema = rung.constraint.schema is not None and not takes_grammar
        more |= {"schema": rung.constraint.schema} if as_schema else {"grammar": rung.constraint.grammar()}
    return strategy.told(rung.hint, rung.temperature, **more)


def _failed_under(judgement: Judgement, tried: Attempt, under: Sequence[Check]) -> list[str]:
    """What the checks of a constraint say against a draft that was decoded under it."""
    assert tried.score is not None
    pairs = zip(judgement.checks, tried.score.verdicts, strict=False)
    return [verdict.explanation for check, verdict in pairs if check in under and not verdict.passed]
