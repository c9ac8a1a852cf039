"""One compilation: the teacher on one example after the other, each a run of its own, until enough of them passed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from redraft.budget import Meter
from redraft.config import say_once, store_in_force
from redraft.errors import BudgetExceeded, InputError, ParseError, RedraftError, RunFailed, ScoreError, UsageError
from redraft.evaluate import Example
from redraft.evaluate.arms import Arm
from redraft.evaluate.identity import fingerprint
from redraft.evaluate.item import run_id_of
from redraft.evaluate.metric import Metric
from redraft.evaluate.waiting import begun, preload
from redraft.frame import Advice, current_frame
from redraft.learn.kept import demos_from, kept, labeled, source_of, without
from redraft.learn.programs import check_alike, predictors, with_demos
from redraft.learn.report import BootstrapReport, Tried
from redraft.modules.answered import Answered, listening
from redraft.modules.demos import Demo
from redraft.record import derived_seed
from redraft.result import Result, count
from redraft.run import Run
from redraft.scoring import name_of
from redraft.strategies.base import Refining
from redraft.types import Attempt, Prediction

if TYPE_CHECKING:
    from redraft.learn.bootstrap import BootstrapFewShot

VARIED = 0.9
"""The temperature of the rounds after the first, as of a strategy's retries."""

CUT_OFF = "cut off by the budget"

Shown = Mapping[str, Sequence[Demo]]
"""Demos by predictor."""


class Compiling:
    """The work of one `BootstrapFewShot.compile`."""

    def __init__(self, asked: BootstrapFewShot, student: Any, teacher: Any, examples: Sequence[Example]) -> None:
        check_alike(student, teacher)
        if asked.metric is None and not _has_a_bar(teacher):
            raise InputError(
                "there is nothing to judge by: give a metric(example, prediction), or a teacher with checks or a threshold"
            )
        frame = current_frame()
        self.asked, self.student, self.examples = asked, student, examples
        self.shown = self._shown_to(teacher)
        self.arm = _arm(with_demos(teacher, self.shown))
        self.arm.bind(examples)
        self._arms: dict[int, Arm] = {}
        self.store = store_in_force(asked.store)
        self.whole = Meter(asked.budget, frame.meter if frame is not None else None)
        self.tried: list[Tried] = []
        self.learned: dict[int, dict[str, Demo]] = {}
        self.stopped: Exception | None = None

    def _shown_to(self, teacher: Any) -> Shown:
        """What the teacher is shown: demos of its own, else labelled examples."""
        inside = predictors(teacher)
        own = {path: predict.demos for path, predict in inside.items()}
        most = self.asked.max_labeled_demos
        return own if any(own.values()) else {path: self._some(path, self.examples, most) for path in inside}

    def _some(self, path: str, examples: Sequence[Example], most: int) -> list[Demo]:
        """At most so many labelled examples, drawn, as demos of the predictor at this path."""
        if most <= 0:
            return []
        whole = labeled(predictors(self.student)[path], examples)
        return Random(derived_seed(self.asked.seed, f"labels {path}")).sample(whole, min(most, len(whole)))

    def _arm_for(self, index: int) -> Arm:
        """The teacher for an example, which is shown nothing of it."""
        if index not in self._arms:
            shown = without(self.shown, self.examples[index], self.arm.strategy)
            hidden = any(len(shown[path]) < len(demos) for path, demos in self.shown.items())
            self._arms[index] = _arm(with_demos(self.arm.strategy, shown)) if hidden else self.arm
        return self._arms[index]

    # Trying

    async def run(self) -> None:
        """Try examples until there are enough demos, or no more examples, or something ends it."""
        preload(self.whole, self.store, map(self._id, range(len(self.examples))))
        for first in range(0, len(self.examples), self.asked.concurrency):
            if self.stopped is not None or len(self.learned) >= self.asked.max_bootstrapped_demos:
                return
            now = range(first, min(first + self.asked.concurrency, len(self.examples)))
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._example(index)) for index in now]
            except ExceptionGroup as several:
                raise several.exceptions[0] from None
            for task in tasks:  # in the examples' order: what is learned does not depend on who was first
                self._take(*task.result())

    def _take(self, one: Tried, demos: dict[str, Demo]) -> None:
        if demos and len(self.learned) < self.asked.max_bootstrapped_demos:
            self.learned[one.index] = demos
        self.tried.append(one)
        failed = [t for t in self.tried if t.error is not None and not isinstance(t.error, ParseError)]
        if self.stopped is None and len(failed) >= self.asked.max_errors:
            self.stopped = RunFailed(
                f"{count(len(failed), 'example')} failed with an error, as many as max_errors allows; {_first(failed)}"
            )

    async def _example(self, index: int) -> tuple[Tried, dict[str, Demo]]:
        """Up to `max_rounds` attempts at one example, each judged."""
        seed = derived_seed(self.asked.seed, str(index))  # of its own: examples may be equal
        known: dict[str, Any] = {}
        demos: dict[str, Demo] = {}

        def make() -> Run:
            return Run(around=self.whole, store=self.store, run_id=self._id(index), seed=seed)

        try:
            opened = await begun(make, self.whole)  # another compilation may be at it: its replies are ours, too
        except BudgetExceeded as late:
            self.stopped = late
            return Tried(index=index, run_id=self._id(index), passed=False, rounds=0, why=CUT_OFF), demos
        async with opened as run:
            for done in range(1, self.asked.max_rounds + 1):
                known = {"rounds": done, **await self._round(run, index, demos)}
                if known["passed"] or isinstance(known["error"], BudgetExceeded | UsageError):
                    break
            spent = run.usage
        if isinstance(known["error"], BudgetExceeded) and self.whole.sets(known["error"]):
            self.stopped = known["error"]
            known |= {"error": None, "why": CUT_OFF}
        return Tried(index=index, run_id=run.run_id, usage=spent, **known), demos

    async def _round(self, run: Run, index: int, demos: dict[str, Demo]) -> dict[str, Any]:
        """One attempt; its demos are put into `demos` if it passed."""
        example, strategy = self.examples[index], self._arm_for(index).strategy
        again = bool(run.attempts)
        try:
            with listening() as answers:
                attempt = await run.attempt(
                    strategy,
                    example.inputs(),
                    advice=Advice(temperature=VARIED) if again else None,
                    rung="resample" if again else "tell",
                    why="another round" if again else "the teacher's answer",
                )
            if attempt.error is not None or attempt.prediction is None:
                run.reject(attempt, f"failed: {attempt.error}")
                return _failed(attempt.error)
            steps = kept(answers, run.journal.events, f"{run.scope}/attempt[{attempt.index}]")
            found, faults = demos_from(steps, strategy, example, self.asked.seed)  # before a metric can change them
            score, why = await self._judged(strategy, index, attempt, steps)
        except (UsageError, BudgetExceeded, ScoreError) as error:
            return _failed(error)
        if why:
            run.reject(attempt, why)
            return {"passed": False, "score": score, "why": why, "error": None}
        run.accept(attempt, "it passed")
        demos |= found
        return {"passed": True, "score": score, "why": "" if found else "; ".join(faults), "error": None}

    async def _judged(
        self, strategy: Any, index: int, attempt: Attempt, steps: Sequence[Answered]
    ) -> tuple[float | None, str]:
        """The metric's number, and why it is not enough. What fails its own checks is not worth judging."""
        result = attempt.prediction
        if isinstance(result, Result):
            if not result.passed:
                return result.score, "the draft that was kept fails the teacher's own checks"
            if self.asked.metric is None:
                return result.score, "" if strategy.good_enough(
                    result.best
                ) else "the teacher's threshold was not reached"
        assert result is not None
        answer = result.prediction if isinstance(result, Result) else result
        metric, least = Metric(_with_steps(self.asked.metric, steps), ()), self.asked.metric_threshold
        async with Run() as judging:
            try:
                score, passed = await judging.judging(metric, metric.judge(self.examples[index], answer))
            except (BudgetExceeded, UsageError, ScoreError):
                raise
            except RedraftError as error:
                raise ScoreError(f"example {index}: {error}") from error
        if least is not None:
            return score.value, "" if score.passed and score.value >= least else f"the metric gives less than {least:g}"
        return score.value, "" if passed else "the metric says no"

    def _id(self, index: int) -> str:
        return run_id_of(self._arm_for(index), index, self.examples[index], self.asked.seed)

    # What came of it

    def demos(self) -> dict[str, list[Demo]]:
        """What was learned, by predictor, each demo once."""
        found: dict[str, list[Demo]] = {path: [] for path in predictors(self.student)}
        for _, by_path in sorted(self.learned.items()):
            for path, demo in by_path.items():
                if demo not in found[path]:
                    found[path].append(demo)
        return found

    def labels(self) -> dict[str, list[Demo]]:
        """Labelled examples that fill up what was learned, of those that taught nothing."""
        sources = {source_of(self.examples[index]) for index in self.learned}
        rest = [example for example in self.examples if source_of(example) not in sources]
        most = self.asked.max_labeled_demos
        return {path: self._some(path, rest, most - len(own)) for path, own in self.demos().items()}

    def report(self, demos: Shown, labels: Shown) -> BootstrapReport:
        """The receipt."""
        return BootstrapReport(
            examples=len(self.examples),
            tried=tuple(self.tried),
            learned=len(self.learned),
            demos={path: len(some) for path, some in demos.items()},
            labeled={path: len(some) for path, some in labels.items()},
            seed=self.asked.seed,
            stopped=self.stopped,
        )

    def complain(self, report: BootstrapReport) -> None:
        """Say that nothing was learned; raise, if that is because of errors."""
        if self.learned or not self.asked.max_bootstrapped_demos:
            return
        errors = [one for one in self.tried if one.error is not None]
        if errors and len(errors) == len(self.tried):
            if all(isinstance(one.error, UsageError) for one in errors):
                raise errors[0].error or AssertionError
            failed = RunFailed(f"nothing was learned: {_first(errors)}\n{report}")
            failed.usage = report.usage
            raise failed from errors[0].error
        say_once(f"redraft: {report}")


def _arm(teacher: Any) -> Arm:
    return Arm(name="bootstrap", label="bootstrap", strategy=teacher, identity=fingerprint(teacher))


def _failed(error: Exception | None) -> dict[str, Any]:
    return {"passed": False, "score": None, "why": f"failed with {type(error).__name__}", "error": error}


def _first(failed: Sequence[Tried]) -> str:
    return f"the first: example {failed[0].index}, {type(failed[0].error).__name__}: {failed[0].error}"


def _has_a_bar(teacher: Any) -> bool:
    return isinstance(teacher, Refining) and bool(teacher.judgement.checks or teacher.threshold is not None)


def _with_steps(metric: Callable[..., Any] | None, steps: Sequence[Answered]) -> Callable[..., Any] | None:
    """A metric of DSPy's form is shown what the predictors did, which tells it that it chooses demos."""
    if metric is None or not _wants_steps(metric):
        return metric
    trace = [(step.module, dict(step.inputs), step.outputs) for step in steps]

    def with_trace(example: Example, prediction: Prediction) -> Any:
        return metric(example, prediction, trace)

    with_trace.__name__ = name_of(metric)
    return with_trace


def _wants_steps(metric: Callable[..., Any]) -> bool:
    try:
        names = list(inspect.signature(metric).parameters)
    except (TypeError, ValueError):
        return False
    return len(names) > 2 and names[2] == "trace"
