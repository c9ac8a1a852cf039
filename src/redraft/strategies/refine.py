"""Refine and BestOfN, called as in DSPy: try a module up to N times, score each attempt, keep the best.

The ladder: tell, check, constrain the decoding, resample (with a short hint in a fresh prompt, where that was not
measured to harm). A retry never shows the bad draft.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from redraft.errors import InputError
from redraft.run import Run
from redraft.scoring import rank
from redraft.strategies.base import Refining, writes_locally
from redraft.types import Attempt, Inputs, StopReason


class Refine(Refining):
    """`Refine(module, N=3, reward_fn=None, threshold=None, fail_count=None, checks=())`.

    Stops at the first attempt that passes all checks and reaches the threshold; returns the best otherwise. Without
    checks and reward the first attempt that works is all one can ask for: N then is how often a failing one is tried.
    `reward_fn(args, pred)` returns a number, `(number, "feedback")` or a Score, and may be async. `fail_count` is how
    many attempts of one call may fail with an error (default: all but one); what failed is in `result.attempts`.
    `temperature` is the retries'; the first attempt has the module's own.
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
        temperature: float = 0.9,
        **options: Any,
    ) -> None:
        super().__init__(module, checks=checks, reward_fn=reward_fn, threshold=threshold, **options)
        if not isinstance(N, int) or N < 1:
            raise InputError(f"N={N!r}: give the number of attempts, 1 or more")
        if fail_count is not None and (not isinstance(fail_count, int) or fail_count < 0):
            raise InputError(f"fail_count={fail_count!r}: give how many attempts may fail, 0 or more, or None")
        if not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
            raise InputError(f"temperature={temperature!r}: give a finite number, 0 or more")
        self.N = N
        self.fail_count = N - 1 if fail_count is None else fail_count
        self.temperature = temperature

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """Up to N attempts."""
        failures = 0
        tried = await run.attempt(self.module, inputs, scorer=self.scorer, advice=self.told())
        for i in range(1, self.N + 1):
            if tried.error is not None:
                failures += 1
                run.reject(tried, f"failed: {tried.error}")
                if failures > self.fail_count:
                    raise tried.error
            elif run.best is None or rank(tried) > rank(run.best):
                run.accept(tried, "the first draft" if run.best is None else "scores above the best so far")
            else:
                run.reject(tried, f"does not score above draft {run.best.index + 1}")
            if run.best is not None and run.best.index == tried.index:
                stop = StopReason.ROUNDS if self.judgement.empty else self.good_enough(tried)
                if stop is not None:
                    return stop
            if i < self.N:
                tried = await self.retry(run, inputs, tried)
        if run.best is None and tried.error is not None:
            raise tried.error
        return StopReason.ROUNDS

    async def retry(self, run: Run, inputs: Inputs, failed: Attempt) -> Attempt:
        """The next attempt, with what the last one taught."""
        return await self.again(run, inputs, hint=self.hint(failed), temperature=self.temperature)

    def hint(self, tried: Attempt) -> str:
        """One short hint for a fresh prompt; none for the embedded model, where it was measured to be worse than none."""
        feedback = tried.score.feedback if tried.score is not None else ""
        if not feedback or writes_locally(self.module):
            return ""
        return HINT.format(feedback=feedback)


class BestOfN(Refine):
    """`BestOfN(module, N=3, reward_fn=None, threshold=None)`: independent samples, nothing learned in between."""

    async def retry(self, run: Run, inputs: Inputs, failed: Attempt) -> Attempt:
        """An independent sample."""
        del failed
        return await self.again(run, inputs, temperature=self.temperature, constrain=False)


HINT = "An earlier answer fell short: {feedback} Write one that does not."
