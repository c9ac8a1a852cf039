"""Refine and BestOfN, called as in DSPy: try a module up to N times, score each attempt, keep the best.

Refine climbs the ladder: tell, check, fix by code, constrain the decoding, resample (with a short hint in a fresh prompt,
where that was not measured to harm), edit, escalate. A retry shows the bad draft only if told to (`revise="edit"`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from redraft.budget import Budget
from redraft.frame import warn
from redraft.protocols import LM
from redraft.run import Run
from redraft.strategies.advisor import own_lm
from redraft.strategies.base import Refining
from redraft.strategies.climb import Climb
from redraft.strategies.ladder import Rung
from redraft.strategies.lint import findings
from redraft.strategies.options import (
    Ladder,
    checked_attempts,
    checked_efforts,
    checked_models,
    checked_revise,
    checked_temperatures,
    checked_width,
)
from redraft.strategies.roles import as_advisor, as_picker, as_reviser
from redraft.strategies.together import together
from redraft.types import Inputs, StopReason


class Refine(Refining):
    """Try a module up to N times: `Refine(module, N=3, reward_fn=None, threshold=None, fail_count=None, checks=())`.

    Stops at the first attempt that passes all checks and reaches the threshold; returns the best otherwise. Without
    checks and reward the first attempt that works is all one can ask for: N then is how often a failing one is tried.
    `reward_fn(args, pred)` returns a number, `(number, "feedback")` or a Score, and may be async. `fail_count` is how
    many attempts of one call may fail with an error (default: all but one); what failed is in `result.attempts`.

    Further options, all by name:
    `revise`: "auto" (constrain the decoding where the checks and the model offer it, else write anew with a hint),
    "constrain", "fresh", or "edit" (show the best draft and its issues).
    `models`: one for each attempt, the last one for the rest: `["small", "small", "big"]`.
    `advisor`: who turns a bare number from the reward function into a hint: None for the module's own model (except a
    small one, which hints were measured to harm), False for nobody, or a model, a persona, a Role, a module.
    `judge`: picks among the attempts that code ranks alike, when all are there: a model, a persona, a module, a
    function (task, drafts) -> index, or "majority" (see `Majority`), which buys nothing.
    `width`: how many of the N attempts are made at the same time; the first that is good enough cancels the others.
    `temperature`: the retries', one or one for each (0.9; but the first draft under a constraint has the module's own, as
    the first attempt does).
    `effort`: how much a reasoning model thinks, one or one for each attempt: `("low", "high")` thinks hard only where
    little thought did not do.
    `fix`: False leaves drafts as they came.
    `clean`: False takes a text that passes the checks as it reads; by default one that repeats itself, or holds empty
    items, is kept only if nothing better comes.
    `budget`: as in Run.
    """

    def __init__(
        self,
        module: Any,
        N: int = 3,
        reward_fn: Callable[..., Any] | None = None,
        threshold: float | None = None,
        fail_count: int | None = None,
        *,
        checks: Sequence[Any] = (),
        models: Sequence[LM | str] = (),
        revise: str = "auto",
        advisor: Any = None,
        judge: Any = None,
        width: int = 1,
        temperature: float | Sequence[float] | None = None,
        effort: str | Sequence[str] | None = None,
        fix: bool = True,
        clean: bool = True,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(module, checks=checks, reward_fn=reward_fn, threshold=threshold, budget=budget)
        self.N, self.fail_count = checked_attempts(N, fail_count)
        lm = own_lm(self.module)
        self.ladder = Ladder(
            models=checked_models(models),
            revise=checked_revise(revise),
            advised=advisor is not None,
            width=checked_width(width, "width"),
            temperatures=checked_temperatures(temperature),
            efforts=checked_efforts(effort),
            fix=fix,
            clean=clean,
        )
        self.reviser = as_reviser(None, self.module)
        self.advisor = as_advisor(advisor, lm)
        self.judge = None if judge is None else as_picker(judge, lm)

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """Up to N attempts: each is proposed by the ladder, judged, mended by code if that helps, kept or not."""
        for text in dict.fromkeys(findings(self)):
            warn(text)
        climb = Climb(self, run, inputs)
        for batch in self.batches():
            rungs = [await self.propose(climb, i) for i in batch]
            drafts = [partial(climb.draft, rung) for rung in rungs]
            if (stop := await together(run, drafts, climb, width=self.ladder.width)) is not None:
                return stop
        return await climb.end()

    def batches(self) -> Iterator[range]:
        """Which attempts are proposed at once; they learn from those before."""
        for first in range(0, self.N, self.ladder.width):
            yield range(first, min(first + self.ladder.width, self.N))

    async def propose(self, climb: Climb, i: int) -> Rung:
        """How attempt `i` is made."""
        return await climb.next_rung(i)


class BestOfN(Refine):
    """`BestOfN(module, N=3, reward_fn=None, threshold=None)`: independent samples, nothing learned in between.

    `concurrency`: how many are made at the same time (1: none is paid for in vain); the first that passes cancels the
    rest, which are charged truly. `options` as in Refine.
    """

    def __init__(
        self,
        module: Any,
        N: int = 3,
        reward_fn: Callable[..., Any] | None = None,
        threshold: float | None = None,
        fail_count: int | None = None,
        *,
        concurrency: int = 1,
        **options: Any,
    ) -> None:
        blind = {"width": checked_width(concurrency, "concurrency"), "fix": False, "clean": False, "advisor": False}
        super().__init__(module, N, reward_fn, threshold, fail_count, **{**blind, **options})

    def batches(self) -> Iterator[range]:
        """All at once: none learns from another."""
        yield range(self.N)

    async def propose(self, climb: Climb, i: int) -> Rung:
        """An independent sample; the first at the module's own temperature."""
        return climb.sample(i)
