"""Checks made of checks: `all_of`, `any_of`, `weighted`, `not_`. They nest, and each has the uses that its parts have."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from redraft.checks.base import Check, FunctionCheck, Guard
from redraft.checks.constraint import Constraint
from redraft.checks.languages import together
from redraft.errors import ScoreError, UsageError
from redraft.scoring import is_number, takes_two
from redraft.types import Inputs, Prediction, Verdict

_ALMOST = 0.999
"""The most that what has not passed may score."""


class Composed(Check):
    """Base of checks that judge by other checks, its `members`."""

    def __init__(self, *members: Any, field: str | None = None, **options: Any) -> None:
        super().__init__(field=field, **options)
        if not members:
            raise UsageError(f"{self.name}() has no checks to judge by; give at least one")
        self.members = tuple(_member(self.name, thing, field) for thing in members)
        self.asks = any(member.asks for member in self.members)
        fields = {member.field for member in self.members}
        self._one_field = len(fields) == 1
        self.field = fields.pop() if self._one_field else None

    def of(self, verdicts: Sequence[Verdict]) -> tuple[float, str]:
        """Score and explanation from those of the members, in their order."""
        raise TypeError(f"{type(self).__name__} defines no of(verdicts), and has {len(verdicts)}")

    def settled(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether what code saw decides already, so that no model need be asked."""
        return bool(verdicts) and not self.asks

    def told_members(self) -> list[str]:
        """What the members tell, hidden ones left out, as parts of a sentence."""
        return [text for member in self.members if (text := member.tell())]

    def judge(self, value: Any) -> tuple[float, str]:
        """Score and explanation, where every member judges by code alone."""
        if not self._one_field or not by_code(self):
            raise ScoreError(
                f"{self.name} needs `await verdict(inputs, prediction)`: not all its checks judge one value"
            )
        return self.of([member._as_verdict(*member.judge(value)) for member in self.members])

    async def verdict(self, inputs: Inputs, prediction: Prediction) -> Verdict:
        """Judge by all members; those that ask a model only where the others leave it open."""
        verdicts: dict[Check, Verdict] = {}
        for member in sorted(self.members, key=lambda member: member.asks):
            if member.asks and verdicts and self.settled(list(verdicts.values())):
                verdicts[member] = Verdict(check=member.name, passed=False, score=0.0)
            else:
                verdicts[member] = await member.verdict(inputs, prediction)
        return self._as_verdict(*self.of([verdicts[member] for member in self.members]))

    def fix(self, value: Any) -> Any:
        """See `Check`."""
        if not self._one_field:
            return None
        name = self.field or "text"
        fixed = self.applied(Prediction({name: value}))
        return None if fixed is None else fixed[name]


class AllOf(Composed):
    """Every member passes."""

    name = "all_of"

    def tell_text(self) -> str:
        """See `Check`."""
        return " ".join(self.told_members())

    def of(self, verdicts: Sequence[Verdict]) -> tuple[float, str]:
        """The mean, and every fault."""
        mean = sum(v.score for v in verdicts) / len(verdicts)
        return (1.0 if all(v.passed for v in verdicts) else min(mean, _ALMOST)), _faults(verdicts)

    def settled(self, verdicts: Sequence[Verdict]) -> bool:
        """See `Composed`."""
        return not all(v.passed for v in verdicts)

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        if not self._one_field:
            return None
        return together([offer for member in self.members if (offer := member.constraint()) is not None])[0]

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return _worst(member.guard(prefix) for member in self.members) if self._one_field else "unknown"

    def applied(self, prediction: Prediction) -> Prediction | None:
        """The members' fixes in turn; one that makes another member worse is left out, and one that might: whose effect
        on a member code alone cannot tell.
        """
        best = prediction
        for member in self.members:
            fixed = member.applied(best)
            if fixed is None or _worse(self.members, best, fixed):
                continue
            changed = {name for name in fixed if fixed[name] != best[name]}
            if not any(_unseen(other, changed) for other in self.members if other is not member):
                best = fixed
        return None if best is prediction else best


class Weighted(AllOf):
    """The weighted mean of the members' scores reaches a threshold."""

    name = "weighted"

    def __init__(self, *pairs: tuple[Any, float], threshold: float = 1.0, **options: Any) -> None:
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise UsageError(
                "weighted() takes pairs: weighted((sentences(3), 2), (contains('salt'), 1), threshold=0.8)"
            )
        super().__init__(*(member for member, _ in pairs), **options)
        weights = tuple(weight for _, weight in pairs)
        if not all(map(is_number, (*weights, threshold))):
            raise UsageError(f"weighted: weights {weights!r}, threshold {threshold!r}; want finite numbers")
        self.weights, self.threshold = tuple(map(float, weights)), threshold
        if min(self.weights) < 0 or not 0 < sum(self.weights) < float("inf") or not 0 <= threshold <= 1:
            raise UsageError(f"weighted: weights {self.weights}, threshold {threshold}; want weights >= 0 and 0..1")

    def of(self, verdicts: Sequence[Verdict]) -> tuple[float, str]:
        """How much of the threshold is reached."""
        total = sum(w * v.score for w, v in zip(self.weights, verdicts, strict=True)) / sum(self.weights)
        if total >= self.threshold - 1e-9:
            return 1.0, ""
        return min(total / self.threshold, _ALMOST), f"{total:.2f} of {self.threshold:g} reached: {_faults(verdicts)}"

    def settled(self, verdicts: Sequence[Verdict]) -> bool:
        """Never: a member that code cannot judge may make up for the others."""
        del verdicts
        return False

    def guard(self, prefix: str) -> Guard:
        """Passed by all is passed; failed by one is failed only where all must pass."""
        said = super().guard(prefix)
        return "unknown" if said == "fail" and (self.threshold < 1 or 0 in self.weights) else said


class AnyOf(Composed):
    """At least one member passes."""

    name = "any_of"

    def tell_text(self) -> str:
        """See `Check`."""
        told = self.told_members()
        if len(told) < 2:
            return "".join(told)
        return "At least one of these must hold: " + " ".join(f"({i}) {text}" for i, text in enumerate(told, 1))

    def of(self, verdicts: Sequence[Verdict]) -> tuple[float, str]:
        """The best."""
        return max(v.score for v in verdicts), f"none of the alternatives holds: {_faults(verdicts)}"

    def settled(self, verdicts: Sequence[Verdict]) -> bool:
        """See `Composed`."""
        return any(v.passed for v in verdicts)

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        offers = [offer for member in self.members if (offer := member.constraint()) is not None]
        if not offers or not self._one_field:
            return None
        terminals = [offer for offer in offers if offer.schema is None]
        whole = (terminals or offers)[0]
        for offer in terminals[1:]:
            whole |= offer
        return whole

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return _swapped(_worst(_swapped(m.guard(prefix)) for m in self.members)) if self._one_field else "unknown"

    def applied(self, prediction: Prediction) -> Prediction | None:
        """The first fix that makes its member pass."""
        for member in self.members:
            fixed = member.applied(prediction)
            if fixed is not None and (not by_code(member) or _score(member, fixed) >= 1.0):
                return fixed
        return None


class Not(Composed):
    """The member does not pass."""

    name = "not_"

    def tell_text(self) -> str:
        """See `Check`."""
        return "".join(f"This must not hold: {text}" for text in self.told_members())

    def of(self, verdicts: Sequence[Verdict]) -> tuple[float, str]:
        """All or nothing."""
        what = self.members[0].tell() or self.members[0].name
        return float(not verdicts[0].passed), f"this holds, but must not: {what.rstrip('.')}"

    def constraint(self) -> Constraint | None:
        """See `Check`."""
        offer = self.members[0].constraint()
        return None if offer is None or offer.schema is not None else ~offer

    def guard(self, prefix: str) -> Guard:
        """See `Check`."""
        return _swapped(self.members[0].guard(prefix))

    def applied(self, prediction: Prediction) -> Prediction | None:
        """Nothing: to undo a form is not to mend a text."""
        del prediction
        return None


def by_code(check: Check) -> bool:
    """True if `check.judge(value)` says all: no model, no user's function, no process."""
    if isinstance(check, Composed):
        return check._one_field and all(map(by_code, check.members))
    return type(check).judge is not Check.judge and type(check).verdict is Check.verdict and not check.asks


def _member(name: str, thing: Any, field: str | None) -> Check:
    if not isinstance(thing, Check):
        if not callable(thing) or getattr(thing, "__module__", "").startswith("redraft.checks"):
            raise UsageError(f"{name}({thing!r}): this is no check; use those of redraft.checks, or check(fn)")
        thing = FunctionCheck(thing)
    made: Check = thing
    if field is not None and made.field is None:
        made = copy.copy(made)
        made.field = field
    return made


def _faults(verdicts: Sequence[Verdict]) -> str:
    return "; ".join(v.explanation for v in verdicts if not v.passed and v.explanation)


def _score(check: Check, prediction: Prediction) -> float:
    return check.judge(check.value_of(prediction))[0]


def _worse(members: Iterable[Check], before: Prediction, after: Prediction) -> bool:
    """True if a member that code can judge scores less after, or none scores more."""
    scores = [(_score(member, before), _score(member, after)) for member in members if by_code(member)]
    return any(new < old for old, new in scores) or (bool(scores) and all(new == old for old, new in scores))


def _unseen(check: Check, changed: Collection[str]) -> bool:
    """True if the check looks at a changed field, and `_worse` cannot say what it makes of it."""
    return not by_code(check) and _looks_at(check, changed)


def _looks_at(check: Check, fields: Collection[str]) -> bool:
    if isinstance(check, Composed):
        return any(_looks_at(member, fields) for member in check.members)
    return check.field is None or check.field in fields or (isinstance(check, FunctionCheck) and takes_two(check.fn))


def _worst(guards: Iterable[Guard]) -> Guard:
    said = set(guards)
    return "fail" if "fail" in said else "unknown" if "unknown" in said else "pass"


def _swapped(said: Guard) -> Guard:
    opposite: dict[Guard, Guard] = {"pass": "fail", "fail": "pass", "unknown": "unknown"}
    return opposite[said]


def all_of(*checks: Any, **options: Any) -> AllOf:
    """Every check passes; the score is their mean. Options: `field` (for those that name none), `hard`, `tell`."""
    return AllOf(*checks, **options)


def any_of(*checks: Any, **options: Any) -> AnyOf:
    """At least one check passes; the score is the best. Options: `field` (for those that name none), `hard`, `tell`."""
    return AnyOf(*checks, **options)


def weighted(*checks: tuple[Any, float], threshold: float = 1.0, **options: Any) -> Weighted:
    """`weighted((check, weight), ..., threshold=0.8)`: the weighted mean of the scores reaches the threshold.
    Options: `field` (for those that name none), `hard`, `tell`.
    """
    return Weighted(*checks, threshold=threshold, **options)


def not_(check: Any, **options: Any) -> Not:
    """The check does not pass. Options: `field`, `hard`, `tell`."""
    return Not(check, **options)
