"""From options to a strategy: which one, with which roles, checks and model. Everything is resolved before a run starts."""

from __future__ import annotations

from typing import Any

from redraft import registry
from redraft.budget import Budget
from redraft.checks import Check, from_file, parse
from redraft.cli.options import RunOptions
from redraft.config import resolve_lm, say_once
from redraft.errors import UsageError
from redraft.evaluate.calibrated import Calibrated, calibrated
from redraft.modules import Predict
from redraft.protocols import LM, Strategy
from redraft.strategies import Role
from redraft.strategies.roles import as_critic, resolved

_GOES_WITH = {
    # An option that only some strategies have a use for -> those.
    "attempts": ("refine", "best-of-n"),
    "rounds": ("reflect", "self-refine", "critique"),
    "writer": ("reflect",),
    "editor": ("reflect",),
    "critic": ("self-refine", "critique"),
    "criteria": ("reflect", "self-refine", "critique"),
}
_NEED_CHECKS = ("refine", "best-of-n", "critique")
_CHOSEN = ("writer", "editor", "critic", "criteria", "rounds", "effort")
"""Who gives one of these has chosen: no calibration measured it."""


def plan(options: RunOptions) -> Strategy:
    """The strategy, ready to run on the input `task`. Raises `UsageError` for whatever does not fit together."""
    return chosen(options)[0]


def chosen(options: RunOptions) -> tuple[Strategy, dict[str, Any]]:
    """The same, and for the record what `auto` took, why, and whether that was calibrated; empty where one was named."""
    checks = [*map(parse, options.check), *(c for file in options.check_file for c in from_file(file))]
    name = options.strategy if options.strategy != "auto" else _fitting(options, checks)
    make = registry.find("strategies", name)
    _check_fit(options, name, checks)
    lm = resolve_lm(options.model, options.base_url)
    if options.strategy != "auto":
        return _named(make, name, options, lm, checks), {}
    measured = _measured(options, checks, lm)
    auto = measured.record(name)
    if not measured:
        return _named(make, name, options, lm, checks), auto
    strategy = measured.strategy(_author(options, lm), checks, resolved(measured.critic, lm))
    say_once(f"redraft: auto takes {auto['took']}: {measured.why}")
    return strategy, auto


def _measured(options: RunOptions, checks: list[Check], lm: LM) -> Calibrated:
    """What `redraft calibrate` has found for what is asked."""
    given = next((name for name in _CHOSEN if getattr(options, name)), "")
    chosen = f"--{given} was given" if given else ""
    signature = _author(options, lm).signature
    return calibrated(lm, signature, checks, chosen=chosen, attempts=options.attempts)


def _named(make: Any, name: str, options: RunOptions, lm: LM, checks: list[Check]) -> Strategy:
    if name == "predict":
        return made(make, _author(options, lm), 1, checks=checks)
    if name in ("refine", "best-of-n"):
        return made(make, _author(options, lm), options.attempts or 3, checks=checks, effort=_efforts(options))
    if name == "reflect":
        return _reflect(make, options, lm, checks)
    if name in ("self-refine", "critique"):
        critic = resolved(options.critic, lm)
        judge = as_critic(critic, lm, _criteria(options)) if critic or options.criteria else None
        if name == "critique":
            return made(make, _author(options, lm), judge or "", rounds=options.rounds or 1, checks=checks)
        alone = options.strategy == "auto" and not judge
        return made(make, _author(options, lm), judge, rounds=options.rounds or (1 if alone else 3), checks=checks)
    return made(make, _author(options, lm), checks=checks)  # a plug-in's


def budget(options: RunOptions) -> Budget | None:
    """The hard limits; None if no option gives one, so that the configured ones hold."""
    return limited(options.call_limit, options.token_limit, options.cost_limit, options.time_limit)


def limited(calls: int | None, tokens: int | None, cost: float | None, seconds: float | None) -> Budget | None:
    """A budget of those limits that are given; None for none."""
    if all(limit is None for limit in (calls, tokens, cost, seconds)):
        return None
    return Budget(calls=calls, tokens=tokens, cost=cost, seconds=seconds)


def made(make: Any, *args: Any, **options: Any) -> Strategy:
    """What a strategy's constructor makes, seen as a Strategy."""
    strategy: Strategy = make(*args, **options)
    return strategy


def _fitting(options: RunOptions, checks: list[Check]) -> str:
    if options.writer or options.editor or (options.criteria and not options.critic):
        return "reflect"
    return "refine" if checks and not options.critic else "self-refine"


def _check_fit(options: RunOptions, name: str, checks: list[Check]) -> None:
    for option, names in _GOES_WITH.items():
        if getattr(options, option) and name not in names:
            chosen = " (which auto chose)" if options.strategy == "auto" else ""
            raise UsageError(
                f"--{option} has no use in the strategy {name}{chosen}; it goes with --strategy {' or '.join(names)}"
            )
    if name in _NEED_CHECKS and not checks:
        raise UsageError(f"{name} has nothing to choose its best attempt by; add --check NAME:ARGS or --checks FILE")


def _author(options: RunOptions, lm: LM) -> Predict:
    thinking: dict[str, Any] = {"effort": efforts[0]} if (efforts := _efforts(options)) else {}
    return Predict(
        options.signature,
        lm=lm,
        system=options.system or "",
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        **thinking,
    )


def _reflect(make: Any, options: RunOptions, lm: LM, checks: list[Check]) -> Strategy:
    return made(
        make,
        _author(options, lm),
        writer=resolved(options.writer, lm),
        editor=resolved(options.editor, lm) or Role(persona="senior editor", lm=lm),
        criteria=_criteria(options),
        rounds=options.rounds or 1,
        checks=checks,
    )


def _efforts(options: RunOptions) -> tuple[str, ...]:
    return tuple(part.strip() for part in (options.effort or "").split(",") if part.strip())


def _criteria(options: RunOptions) -> list[str]:
    return [part.strip() for text in options.criteria for part in text.split(",") if part.strip()]
