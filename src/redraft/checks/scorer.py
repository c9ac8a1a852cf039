"""Checks and a reward function together as one Scorer: checks gate, the reward ranks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from redraft.checks.base import Check, FunctionCheck
from redraft.checks.constraint import Constraint
from redraft.checks.languages import together
from redraft.errors import UsageError
from redraft.frame import current_frame, warn
from redraft.registry import load
from redraft.scoring import as_score, name_of
from redraft.sync import call_user
from redraft.types import Critique, Inputs, Issue, Prediction, Score, Verdict


class Judgement:
    """The Scorer of a strategy. With checks alone the value lies in 0..1: one more passed check always weighs more
    than any partial credit, and 1 means that all passed. With a reward function the value is the reward.
    """

    def __init__(
        self, checks: Sequence[Check | Callable[..., Any] | str] = (), reward: Callable[..., Any] | None = None
    ) -> None:
        if isinstance(checks, Check | str) or callable(checks):
            checks = (checks,)
        self.checks = tuple(c if isinstance(c, Check) else _as_check(c) for c in checks or ())
        self._code = tuple(c for c in self.checks if not c.asks)
        self._asking = tuple(c for c in self.checks if c.asks)
        self.reward = reward
        self._reward_name = f"reward function {name_of(reward)!r}"

    @property
    def empty(self) -> bool:
        """True if there is nothing to judge by."""
        return not self.checks and self.reward is None

    def requirements(self) -> tuple[str, ...]:
        """What the author is told, one line a check."""
        return tuple(text for c in self.checks if (text := c.tell()))

    def constraint(self, field: str, *, mended: bool = False) -> tuple[Constraint | None, tuple[Check, ...]]:
        """The tightest constraint that compiles, with the checks in it, for a module whose one output is `field`; None if
        there is none. `mended`: drafts are mended by code afterwards.
        """
        return _composed(self.checks, field, mended=mended)

    def feedback(self, score: Score, held: Collection[Check] = ()) -> str:
        """What a draft fell short of, without what the next one is held to while it is decoded: saying that, too, only
        draws a small model's answer towards it.
        """
        pairs = list(zip(self.checks, score.verdicts, strict=False))
        said = _complaints(v for _, v in pairs)
        rest = score.feedback.removeprefix(said).strip()
        return " ".join(filter(None, (_complaints(v for c, v in pairs if c not in held), rest)))

    def critique(self, score: Score) -> Critique:
        """What code saw, as a critique: failed checks are issues, passed ones are to keep, feedback is an issue."""
        pairs = list(zip(self.checks, score.verdicts, strict=False))
        issues = [
            Issue(
                problem=v.explanation, suggestion=c.tell(), aspect=v.check, severity="critical" if v.hard else "major"
            )
            for c, v in pairs
            if not v.passed and v.explanation
        ]
        by = "checks"
        if not issues:
            by = "reward"
            issues = [Issue(problem=score.feedback or f"the score is {score.value:g}; aim higher")]
        keep = tuple(text for c, v in pairs if v.passed and (text := c.tell()))
        return Critique(verdict="revise", issues=tuple(issues), keep=keep, by=by)

    async def score(self, inputs: Inputs, prediction: Prediction) -> Score:
        """See `Scorer`. In order of cost: code, the reward function, then those checks that ask a model, and these only if
        what code sees has passed.
        """
        if not self.checks and self.reward is not None:
            return await self._rewarded(inputs, prediction)
        found = await self._verdicts(self._code, inputs, prediction)
        fine = all(v.passed for v in found.values())
        reward = None if self.reward is None else await self._rewarded(inputs, prediction)
        if fine and self._asking:
            found |= await self._verdicts(self._asking, inputs, prediction)
        verdicts = [found.get(c) or _unasked(c) for c in self.checks]
        complaints = _complaints(verdicts)
        if reward is None:
            return Score(value=_value(verdicts), feedback=complaints, verdicts=tuple(verdicts))
        return Score(
            value=reward.value,
            feedback=" ".join(part for part in (complaints, reward.feedback) if part),
            verdicts=(*verdicts, *reward.verdicts),
        )

    async def _verdicts(self, checks: Iterable[Check], inputs: Inputs, prediction: Prediction) -> dict[Check, Verdict]:
        found = {}
        for check in checks:
            with _Naming(f"check {check.name!r}"):
                found[check] = await check.verdict(inputs, prediction)
        return found

    async def _rewarded(self, inputs: Inputs, prediction: Prediction) -> Score:
        assert self.reward is not None
        name = self._reward_name
        frame = current_frame()
        calls = frame.meter.calls if frame is not None else 0
        with _Naming(name):
            score = as_score(await call_user(self.reward, dict(inputs), prediction), name)
        if frame is not None and frame.meter.calls > calls:
            warn(
                f"{name} calls a model for each attempt; use a rubric check, asked only of drafts that pass the others"
            )
        return score

    async def repaired(self, inputs: Inputs, prediction: Prediction, score: Score) -> tuple[Prediction | None, str]:
        """The draft repaired by code, check by check, and by which; None, and why not, if code cannot. A repair is kept
        only if its check does better and no check that passed fails: trimming must not cut off what another check wants.
        """
        code = self._code
        best, now = prediction, dict(zip(self.checks, score.verdicts, strict=False))
        repairs: list[str] = []
        lost: list[str] = []
        for check in code:
            if now[check].passed:
                continue
            with _Naming(f"check {check.name!r}"):
                mended_draft = check.applied(best)
            if mended_draft is None:
                continue
            then = await self._verdicts(code, inputs, mended_draft)
            broken = [v.explanation for c, v in then.items() if now[c].passed and not v.passed]
            better = then[check].score > now[check].score and _value([*then.values()]) > _value([now[c] for c in code])
            if better and not broken:
                best, now = mended_draft, then
                repairs.append(check.name)
            else:
                lost.append(broken[0] if broken else f"{check.name} is no better for it")
        return (best, ", ".join(repairs)) if repairs else (None, "; ".join(lost))


@lru_cache(maxsize=256)
def _composed(checks: tuple[Check, ...], field: str, *, mended: bool) -> tuple[Constraint | None, tuple[Check, ...]]:
    # What code mends afterwards reads better than what a small model is forced to write.
    left = [c for c in checks if c.field in (None, field) and not (mended and c.always_mends)]
    offers: list[tuple[Check, Constraint]] = []
    for check in left:
        with _Naming(f"check {check.name!r}"):
            offer = check.constraint()
        if offer is not None:
            offers.append((check, offer))
    whole, held = together([offer for _, offer in offers])
    return whole, tuple(offers[i][0] for i in held)


class _Naming:
    """Adds to whatever is raised inside whose code raised it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(f"in {self.name}")


def _complaints(verdicts: Iterable[Verdict]) -> str:
    return " ".join(f"{v.explanation}." for v in verdicts if not v.passed and v.explanation)


def _unasked(check: Check) -> Verdict:
    """Not passed, and nothing to complain of: it was not its turn."""
    return Verdict(check=check.name, passed=False, score=0.0, hard=check.hard)


def _value(verdicts: Sequence[Verdict]) -> float:
    if not verdicts:
        return 1.0
    failing = [v.score for v in verdicts if not v.passed]
    partial = sum(failing) / len(failing) if failing else 0.0
    return (len(verdicts) - len(failing) + min(partial, 0.999)) / len(verdicts)


def _as_check(thing: Any) -> Check:
    if getattr(thing, "__module__", "").startswith("redraft.checks"):
        raise UsageError(f"{name_of(thing)} is not called yet: write {name_of(thing)}(...) with its arguments")
    if isinstance(thing, str):
        return load("redraft.checks.parse:parse")(thing)  # type: ignore[no-any-return]
    if callable(thing):
        return FunctionCheck(thing)
    raise UsageError(f"{thing!r} is no check; use one of redraft.checks, or check(fn) with your own function")
