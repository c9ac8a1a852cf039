"""The tool `refine`: from a client's wishes to a strategy, its run, and what it came to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from redraft.checks import Check
from redraft.config import context
from redraft.errors import InputError
from redraft.evaluate.calibrated import Calibrated, calibrated
from redraft.frame import current_frame
from redraft.integrations.mcp.checking import checks_from, passes
from redraft.integrations.mcp.forms import AttemptOut, Limits, RefineForm, RefineOut, UsageOut
from redraft.integrations.mcp.terms import Terms
from redraft.modules import Predict
from redraft.protocols import LM, Strategy
from redraft.record import spec_of
from redraft.report.text import decided, judged
from redraft.result import Result, calls, count, tokens
from redraft.run import Run
from redraft.signature import Field, SignatureSpec
from redraft.strategies import BestOfN, Refine, Reflect, Role, SelfRefine
from redraft.strategies.base import is_small
from redraft.sync import seen
from redraft.types import Attempt, Event, Prediction, Usage

T = TypeVar("T")

Tell = Callable[[float, float | None, str], None]
"""Told how far it is, of how much (None: not known), and what happened."""

log = logging.getLogger("redraft.mcp")

_GOES_WITH = {
    "attempts": ("refine", "best-of-n"),
    "rounds": ("self-refine", "reflect"),
    "criteria": ("reflect",),
}


class Drafted(Predict):
    """A Predict whose output in a first attempt is a draft that is there already, at no cost; after that it writes."""

    def __init__(self, draft: str, signature: SignatureSpec, **options: Any) -> None:
        super().__init__(signature, **options)
        self.draft = draft

    async def aforward(self, **inputs: Any) -> Prediction:
        """See `Module`."""
        frame = current_frame()
        if frame is None or not frame.fresh:
            return Prediction(dict.fromkeys(self.signature.outputs, self.draft))
        return await super().aforward(**inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a request comes to."""

    strategy: Strategy
    name: str
    lm: LM
    steps: int
    """Most attempts."""
    auto: Mapping[str, Any] = field(default_factory=dict)
    """What `auto` took and why, for the journal; empty where the client names a strategy."""


async def refine(given: RefineForm, terms: Terms, tell: Tell) -> RefineOut:
    """The tool `refine`. Raises `RedraftError` where there is no text to return."""
    planned = await plan(given, terms)
    budget = terms.budget(given.limits.model_dump())
    progress = _Progress(planned.steps, tell)
    inputs = {**given.inputs, "task": given.task}
    with context(model=planned.lm):  # rubrics, critics and judges without a model of their own ask this one, too
        run = progress.run = Run(budget=budget, listeners=[progress])
        run.journal.spec = {**spec_of(planned.strategy, inputs), **({"auto": planned.auto} if planned.auto else {})}
        result: Result = await cancellable(run, run.execute(planned.strategy, inputs))
    log.info("refine: %s", result.receipt())
    return _out(result, planned, given, Limits(**{name: getattr(budget, name) for name in Limits.model_fields}))


async def cancellable(run: Run, work: Coroutine[Any, Any, T]) -> T:
    """Await a run's work. If the caller is cancelled the run ends first: its calls are cut off and charged, not left behind."""
    import anyio

    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        run.cancel()
        with anyio.CancelScope(shield=True):
            # the protocol's library cancels again and again until everything has ended
            await asyncio.wait({task})
        seen(task)
        log.info("cancelled by the client: %s, %s", calls(run.usage), tokens(run.usage))
        raise


async def plan(given: RefineForm, terms: Terms) -> Plan:
    """The strategy for a request. Raises `UsageError` for whatever does not fit together, before anything is spent."""
    checks = checks_from(given.checks, terms)
    name = given.strategy
    if name == "auto":
        name = "reflect" if given.criteria else "refine" if checks else "self-refine"
    for option, names in _GOES_WITH.items():
        if getattr(given, option) and name not in names:
            chosen = " (which auto chose)" if given.strategy == "auto" else ""
            raise InputError(f"{option} has no use in the strategy {name}{chosen}; it goes with {' and '.join(names)}")
    if name in ("refine", "best-of-n") and not checks:
        raise InputError(f"{name} has nothing to choose its best attempt by; give checks")
    lm = terms.lm(given.model)
    author = _author(given, lm)
    if given.strategy != "auto":
        return await _named(name, author, given, lm, checks)
    found = _measured(author, given, terms, lm, checks)
    auto = found.record(name)
    if not found:
        return replace(await _named(name, author, given, lm, checks), auto=auto)
    strategy = found.strategy(author, checks, terms.role(found.critic, lm))
    return Plan(strategy=strategy, name=found.name, lm=lm, steps=found.drafts, auto=auto)


def _measured(author: Predict, given: RefineForm, terms: Terms, lm: LM, checks: Sequence[Check]) -> Calibrated:
    """What `redraft calibrate` has found for what is asked: with drafts of the model's own, not with a client's."""
    named = next((name for name in ("draft", "criteria", "rounds") if getattr(given, name)), "")
    chosen = f"{named} was given" if named else ""
    tables = terms.calibrated
    return calibrated(lm, author.signature, checks, tables=tables, chosen=chosen, attempts=given.attempts)


async def _named(name: str, author: Predict, given: RefineForm, lm: LM, checks: Sequence[Check]) -> Plan:
    if name in ("self-refine", "reflect"):
        return _criticised(name, author, given, lm, checks)
    done = given.draft is not None and await passes(given.draft, checks)
    attempts = (given.attempts or 3) + (given.draft is not None)
    options: dict[str, Any] = {"checks": checks, "models": [lm]}
    if done:  # it comes back as it is, even if it reads badly: nobody asked for more
        attempts, options["clean"] = 1, False
    if name == "best-of-n":
        return Plan(strategy=BestOfN(author, attempts, **options), name=name, lm=lm, steps=attempts)
    # A draft is edited, so that what is right about it stays. Small models write anew (docs/design.md section 1).
    revise = "edit" if given.draft is not None and not is_small(lm) else "auto"
    return Plan(strategy=Refine(author, attempts, revise=revise, **options), name=name, lm=lm, steps=attempts)


def _criticised(name: str, author: Predict, given: RefineForm, lm: LM, checks: Sequence[Check]) -> Plan:
    if name == "reflect":
        rounds, editor = given.rounds or 1, Role(persona="senior editor", lm=lm)
        reflect = Reflect(author, editor=editor, criteria=given.criteria, rounds=rounds, checks=checks)
        return Plan(strategy=reflect, name=name, lm=lm, steps=1 + rounds)
    rounds = given.rounds or (1 if given.strategy == "auto" else 3)
    return Plan(strategy=SelfRefine(author, rounds=rounds, checks=checks), name=name, lm=lm, steps=1 + rounds)


def _author(given: RefineForm, lm: LM) -> Predict:
    # The task comes last in the prompt, after the material.
    spec = SignatureSpec([*map(Field, given.inputs), Field("task")], [Field("answer")])
    return Predict(spec, lm=lm) if given.draft is None else Drafted(given.draft, spec, lm=lm)


class _Progress:
    """A listener that tells of each attempt and each critique."""

    run: Run

    def __init__(self, steps: int, tell: Tell) -> None:
        self.steps, self.tell, self.done = steps, tell, 0

    def __call__(self, event: Event) -> None:
        index = event.data.get("index")
        if index is None or event.scope != f"/attempt[{index}]":  # not the run's own attempts
            return
        if event.kind == "critique" and event.data["by"] not in ("checks", "reward"):
            found = len(event.data["issues"])
            self.tell(self.done + 0.5, self.steps, f"critic: {count(found, 'issue') if found else 'nothing to fix'}")
        elif event.kind in ("accept", "reject"):
            attempt = next(a for a in self.run.attempts if a.index == index)
            self.done += attempt.rung != "fix"
            said = "; ".join(filter(None, (judged(attempt), decided(attempt))))
            self.tell(self.done + 0.5 * (attempt.rung == "fix"), self.steps, f"draft {index + 1}: {said}")


def _out(result: Result, planned: Plan, given: RefineForm, limits: Limits) -> RefineOut:
    return RefineOut(
        text=result.text,
        passed=None if result.verdict is None and result.best.error is None else result.passed,
        score=result.score,
        stop_reason=str(result.stop_reason),
        error=None if result.error is None else str(result.error),
        best=result.best.index,
        attempts=[_attempt_out(a, given=given.draft is not None and a.index == 0) for a in result.attempts],
        strategy=planned.name,
        model=planned.lm.name,
        usage=usage_out(result.usage),
        limits=limits,
        run_id=result.run_id,
    )


def _attempt_out(attempt: Attempt, *, given: bool) -> AttemptOut:
    verdicts = () if attempt.score is None else attempt.score.verdicts
    failed = [v.explanation or v.check for v in verdicts if not v.passed]
    return AttemptOut(
        index=attempt.index,
        rung="given" if given else attempt.rung,
        score=None if attempt.score is None else attempt.score.value,
        passed=None if attempt.score is None else attempt.score.passed,
        failed=failed if attempt.error is None else [str(attempt.error)],
        accepted=attempt.accepted,
        reason=attempt.reason,
        tokens=attempt.usage.tokens,
    )


def usage_out(usage: Usage) -> UsageOut:
    """What was spent, as a client sees it."""
    return UsageOut(
        calls=usage.calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        uncertain_tokens=usage.uncertain_tokens,
        cost=None if usage.unpriced else usage.cost,
    )
