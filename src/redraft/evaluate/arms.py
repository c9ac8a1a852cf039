"""The arms of an evaluation: the strategies that were given, and beside each what it has to beat.

That is its module once, told the same requirements (single shot), and as many blind samples, chosen by the same checks
and reward, as the strategy's calls would have paid for (equal-cost best of N).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

from redraft.errors import InputError
from redraft.evaluate.examples import Example, with_number
from redraft.evaluate.identity import fingerprint
from redraft.modules import Predict
from redraft.protocols import LM
from redraft.scoring import name_of
from redraft.strategies import BestOfN, Refine
from redraft.strategies.base import Refining, as_module


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One strategy under its name."""

    name: str
    strategy: Any
    identity: str
    label: str
    """Part of its runs' ids: the given name, or what kind of baseline it is."""
    baseline: bool = False
    note: str = ""
    """For a baseline: how it was made equal."""
    stands_for: str = ""
    """For a strategy that was given and is a baseline of another one, too: which, and how that was made equal."""

    @property
    def is_single(self) -> bool:
        """True for what makes one draft: a plain module, and a Refine or BestOfN of one attempt."""
        if type(self.strategy) in (Refine, BestOfN):
            return bool(self.strategy.N == 1)
        return not isinstance(self.strategy, Refining)

    @property
    def no_best(self) -> str:
        """Why no blind samples can stand beside it; empty if they can."""
        if self.is_single:
            return "it is a single shot itself"
        if type(self.strategy) is BestOfN:
            return "it samples blindly itself"
        return "it has neither checks nor reward to choose by" if self.strategy.judgement.empty else ""

    def bind(self, examples: Sequence[Example]) -> None:
        """Raises `InputError`, before anything is spent, for an example whose inputs do not fit."""
        takes: Any = self.strategy if isinstance(self.strategy, Refining) else None
        if isinstance(self.strategy, Predict):
            takes = self.strategy.signature
        for i, example in enumerate(examples if takes is not None else ()):
            with_number(takes.bind, i, example.inputs())


def given(strategies: Any) -> list[Arm]:
    """A mapping by name, a list, or one strategy; each a strategy, a module, a function or a signature."""
    if isinstance(strategies, Mapping):
        named = list(strategies.items())
    else:
        listed = strategies if isinstance(strategies, list | tuple) else [strategies]
        names = _unique([name_of(thing) if not isinstance(thing, str) else thing for thing in listed])
        named = list(zip(names, listed, strict=True))
    if not named:
        raise InputError("there is no strategy to evaluate")
    arms = []
    for name, thing in named:
        if isinstance(thing, Arm):  # a further baseline
            arms.append(replace(thing, name=str(name)))
            continue
        strategy = as_module(thing)
        arms.append(Arm(name=str(name), label=str(name), strategy=strategy, identity=fingerprint(strategy)))
    return arms


def single_shot(arm: Arm) -> Arm | None:
    """Its module once; None for what is that already, and for what is a baseline itself."""
    if arm.baseline or arm.is_single:
        return None
    once = Refine(arm.strategy.module, N=1, fix=False, models=_models(arm.strategy)[:1], **_judged_alike(arm.strategy))
    return _baseline("single shot", once, "one attempt, told the same requirements")


def equal_cost(arm: Arm, calls: float, attempt: float, unit: str) -> Arm | None:
    """Best of as many samples as the mean `calls` an item pay for, `attempt` calls each, rounded up. None where
    `arm.no_best` says why, and for one sample, which is the single shot.
    """
    if arm.no_best:
        return None
    each = max(1, math.floor(attempt))
    N = max(1, math.ceil(calls / each))
    if N == 1:
        return None
    samples = BestOfN(
        arm.strategy.module,
        N=N,
        threshold=arm.strategy.threshold,
        models=_models(arm.strategy)[:1],
        temperature=_temperatures(arm.strategy),
        **_judged_alike(arm.strategy),
    )
    per = f" at {each} a sample" if each > 1 else ""
    note = f"matched by {unit}: {arm.name} took {calls:.2f} an item{per}, rounded up"
    return _baseline(f"best of {N}", samples, f"{note}{_unequal(arm)}")


def _models(strategy: Refining) -> tuple[LM | str, ...]:
    """Those named by attempt; none: the module's own."""
    return strategy.ladder.models[: strategy.N] if isinstance(strategy, Refine) else ()


def _temperatures(strategy: Refining) -> tuple[float, ...] | None:
    return (strategy.ladder.temperatures or None) if isinstance(strategy, Refine) else None


def _unequal(arm: Arm) -> str:
    names = list(dict.fromkeys(str(getattr(lm, "name", lm)) for lm in _models(arm.strategy)))
    if len(names) < 2:
        return ""
    return f"; calls are not equal cost: {arm.name} asks {', '.join(names)}, the samples {names[0]} alone"


def _judged_alike(strategy: Refining) -> dict[str, Any]:
    return {"checks": strategy.judgement.checks, "reward_fn": strategy.judgement.reward}


def _baseline(name: str, strategy: Refine, note: str) -> Arm:
    return Arm(name=name, label=name, strategy=strategy, identity=fingerprint(strategy), baseline=True, note=note)


def shared(pairs: Iterable[tuple[Arm, Arm | None]], arms: Sequence[Arm]) -> dict[str, Arm]:
    """Baselines by the name of the strategy they belong to. Equal ones are one, and one that equals a strategy that was given
    is that strategy: nothing is bought twice. Different ones of one name are told apart.
    """
    made: dict[str, Arm] = {}
    names = {arm.name for arm in arms}
    ours = {arm.identity: arm for arm in arms}
    found: dict[str, Arm] = {}
    for arm, baseline in pairs:
        if baseline is None:
            continue
        if (same := ours.get(baseline.identity)) is not None:
            stands_for = f"its {baseline.name} is {same.name}, configured alike and bought once ({baseline.note})"
            made[arm.name] = replace(same, stands_for=stands_for)
            continue
        if baseline.identity not in found:
            name = _free(baseline.name, f"{baseline.name} ({arm.name})", names)
            names.add(name)
            found[baseline.identity] = replace(baseline, name=name)
        made[arm.name] = found[baseline.identity]
    return made


def _free(name: str, longer: str, taken: Container[str]) -> str:
    """The first of the two that is not taken; the longer one with a number where both are."""
    numbered = (f"{longer} {n}" for n in count(2))
    return next(each for each in chain((name, longer), numbered) if each not in taken)


def _unique(names: Sequence[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}" for i, name in enumerate(names)]
