"""What every strategy shares: it is a Module, so that strategies nest; its calls return a Result."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from redraft.budget import Budget
from redraft.checks import Judgement
from redraft.config import check_fits
from redraft.errors import InputError
from redraft.frame import NO_ADVICE, Advice, current_frame, entered
from redraft.modules import Module, Predict, ReAct
from redraft.modules.answered import tell_answer
from redraft.modules.wire import restate
from redraft.protocols import LM
from redraft.registry import wrapped
from redraft.result import Result
from redraft.run import Run
from redraft.scoring import name_of, takes
from redraft.signature import Field, Signature, SignatureSpec
from redraft.strategies.ladder import Rung
from redraft.strategies.roles import Reviser, listed
from redraft.sync import on_loop
from redraft.types import Attempt, Inputs, Issue, Score, StopReason


class Refining(Module):
    """Base of strategies. A call is a run: `strategy(question="...")` or `await strategy.acall(...)` gives a Result.

    Inside another run it spends from that run's budget, and from its own `budget` where it has one.
    """

    _saved = ("N", "fail_count", "rounds", "threshold")
    reviser: Any
    """Rewrites a draft with its issues in view (rung "edit")."""

    def __init__(
        self,
        module: Any,
        *,
        checks: Sequence[Any] = (),
        reward_fn: Callable[..., Any] | None = None,
        threshold: float | None = None,
        budget: Budget | None = None,
    ) -> None:
        if reward_fn is not None and not takes(reward_fn, 2):
            raise InputError(f"reward_fn={reward_fn!r}: give a function of two arguments, (args, pred) -> number")
        if threshold is not None and not (isinstance(threshold, int | float) and math.isfinite(threshold)):
            raise InputError(f"threshold={threshold!r}: give a finite number, or None")
        check_fits({"budget": budget or Budget()})
        self.module = as_module(module)
        self.judgement = Judgement(checks, reward_fn)
        outputs = self.module.signature.outputs if isinstance(self.module, Predict | ReAct) else {}
        for check in self.judgement.checks:
            if outputs and check.field not in (None, *outputs):
                raise InputError(
                    f"check {check.name!r} looks at field {check.field!r}, but the output fields are: {', '.join(outputs)}"
                )
        self.threshold = threshold
        self.budget = budget

    def __call__(self, *unnamed: Any, **inputs: Any) -> Result:
        """One run of the strategy, waited for. On an event loop, `await strategy.acall(...)` instead."""
        result: Result = super().__call__(*unnamed, **inputs)
        return result

    async def acall(self, **inputs: Any) -> Result:
        """One run of the strategy."""
        frame = current_frame()
        if frame is None:
            return await Run(budget=self.budget).execute(self, self.bind(inputs))
        return await on_loop(lambda: self._nested(inputs), frame.run.loop)

    async def _nested(self, inputs: dict[str, Any]) -> Result:
        frame = current_frame()
        assert frame is not None
        with entered(frame.inner(self, inputs)) as here:
            bound = self.bind(inputs)
            result = await Run(budget=self.budget).execute(self, bound)
            if isinstance(self.module, Predict):
                tell_answer(self.module, here.scope, bound, result.prediction, final=True)
            return result

    def bind(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs with the module's defaults. Raises `InputError` before anything is spent."""
        signature = getattr(self.module, "signature", None)
        if signature is not None:
            return dict(signature.bind(inputs))
        if not takes(entry_of(self.module), 0, inputs):
            raise InputError(f"{name_of(self.module)} does not take the inputs {', '.join(inputs) or '(none)'}")
        return dict(inputs)

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """See `Strategy`."""
        del run, inputs
        raise TypeError(f"{type(self).__name__} defines no steps(run, inputs)")

    # What the subclasses' algorithms are written with

    @property
    def scorer(self) -> Judgement | None:
        """Checks and reward; None if there are neither."""
        return None if self.judgement.empty else self.judgement

    def told(self, hint: str = "", temperature: float | None = None, **more: Any) -> Advice:
        """Advice that states the checks' requirements, on top of what an outer strategy advises."""
        frame = current_frame()
        outer = frame.advice if frame else NO_ADVICE
        mine = {name: value for name, value in more.items() if value}
        return Advice(
            requirements=(*outer.requirements, *self.judgement.requirements()),
            hint=f"{outer.hint}\n{hint}" if outer.hint and hint else outer.hint or hint,
            temperature=outer.temperature if temperature is None else temperature,
            **{"lm": outer.lm, "hints": outer.hints, "effort": outer.effort, **mine},
        )

    async def edited(self, run: Run, inputs: Inputs, rung: Rung, *, index: int | None = None) -> Attempt:
        """The parent draft revised: its issues in view, what is right to be kept, the task restated at the end."""
        best = rung.parent
        assert best is not None
        critique = best.critique or self.judgement.critique(best.score or Score(value=0.0))
        issues = (Issue(problem=rung.hint),) if rung.hint else critique.issues
        reviser = self.reviser.writing(best.prediction) if isinstance(self.reviser, Reviser) else self.reviser
        given = {"draft": best.text, "issues": listed(issues), "keep": "\n".join(critique.keep)}
        restated = isinstance(self.reviser, Reviser) and not given.keys() & inputs.keys()
        given |= inputs if restated else {"task": self.task(inputs)}
        advice = self.told(temperature=rung.temperature, lm=rung.lm, effort=rung.effort)
        return await run.attempt(
            reviser, given, scorer=self.scorer, parent=best, advice=advice, rung="edit", why=rung.why, index=index
        )

    def task(self, inputs: Inputs) -> Any:
        """The task for those who judge: instructions, inputs, requirements. A text, or content parts with images."""
        signature = getattr(self.module, "signature", None)
        told = self.judgement.requirements()
        before = signature.instructions if signature is not None else ""
        return restate(inputs, before, "\n".join(["Requirements:", *(f"- {line}" for line in told)]) if told else "")

    def good_enough(self, attempt: Attempt) -> StopReason | None:
        """PASSED if it meets all checks (and there is no threshold to reach), THRESHOLD if it reaches that."""
        if attempt.score is None or not attempt.score.passed:
            return None
        if self.threshold is not None:
            return StopReason.THRESHOLD if attempt.score.value >= self.threshold else None
        return StopReason.PASSED if self.judgement.checks else None


def as_module(thing: Any) -> Any:
    """A module or function as it is; "question -> answer" or a signature class as a Predict; other text as the task."""
    if isinstance(thing, str) and "->" not in thing:
        if not thing.strip():
            raise InputError("the task is empty; say what to write, or give a signature such as 'question -> answer'")
        thing = SignatureSpec([Field("task", str, "", thing)], [Field("answer")])
    if isinstance(thing, str | SignatureSpec) or (isinstance(thing, type) and issubclass(thing, Signature)):
        return Predict(thing)
    thing = wrapped(thing)
    if callable(thing) or hasattr(thing, "acall"):
        return thing
    raise InputError(f"{thing!r} is no module; give a Module, a function, a signature, or the task as text")


_SIZE = re.compile(r"(?<![\w.])(?:(\d+(?:\.\d+)?)b|\d{2,3}m)(?![a-z0-9])")  # 0.5b, 135m; but 1m is a context
_SMALL = 2.0  # billion parameters


def is_small(lm: LM | None) -> bool:
    """True for a model whose name says that it is small: those of 135M, 0.5B and 1.5B were measured to do worse, or no
    better, with feedback than without (ADR 5).
    """
    return lm is not None and _says_small(lm.name)


@lru_cache(maxsize=256)
def _says_small(name: str) -> bool:
    size = _SIZE.search(name.lower())
    return size is not None and (size[1] is None or float(size[1]) <= _SMALL)


def entry_of(module: Any) -> Any:
    """The function that a module's inputs go to."""
    kind = type(module)
    if isinstance(module, Module) and kind.aforward is not Module.aforward:
        return module.aforward
    return module.forward if isinstance(module, Module) and kind.forward is not Module.forward else module
