"""Evaluate: strategies on examples, many at once, resumable, always beside what they have to beat.

Every item is a run of its own with an id made of what it is. So a killed or repeated evaluation finds its finished items
in the store and buys only what is missing; another `seed` starts afresh.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from redraft.budget import Budget, Meter
from redraft.config import check_fits, store_in_force
from redraft.errors import BudgetExceeded, InputError, ScoreError, UsageError
from redraft.evaluate.arms import Arm, equal_cost, given, shared, single_shot
from redraft.evaluate.examples import as_examples
from redraft.evaluate.item import Item, evaluated, run_id_of
from redraft.evaluate.metric import Metric
from redraft.evaluate.report import Report
from redraft.evaluate.standing import Standing
from redraft.evaluate.waiting import begun, preload
from redraft.frame import current_frame
from redraft.journal import Journal
from redraft.protocols import Store
from redraft.record import derived_seed, spec_of
from redraft.run import Run
from redraft.sync import run_sync
from redraft.types import Event

_HOPELESS = 10
"""Items on which a metric fails before it is given up, if it has judged none."""

Progress = Callable[[Item, int, int], None]
"""Told of each item: `progress(item, done, planned)`."""


class Evaluate:
    """`Evaluate(examples, metric)({"refine": refine, "mine": mine})` gives a Report.

    `metric(example, prediction)`, sync or async, returns a bool, a number, `(number, "feedback")` or a Score; `checks`
    judge the answer alone; an item passes if its checks pass and a bool is True, or else with a score of 1 or more.
    `budget` is for the whole evaluation; when it ends, the report says so and holds what was done. `baselines=False`
    leaves out single shot and equal-cost best of N.
    """

    def __init__(
        self,
        examples: Iterable[Any],
        metric: Callable[..., Any] | None = None,
        *,
        checks: Sequence[Any] = (),
        concurrency: int = 8,
        budget: Budget | None = None,
        store: Store | None = None,
        seed: int = 0,
        baselines: bool = True,
    ) -> None:
        check_fits({"budget": budget or Budget(), "store": store})
        if not isinstance(seed, int):
            raise InputError(f"seed={seed!r}: give a whole number")
        if not isinstance(concurrency, int) or concurrency < 1:
            raise InputError(f"concurrency={concurrency!r}: give how many items run at once, 1 or more")
        self.examples = as_examples(examples)
        self.metric = Metric(metric, checks)
        self.concurrency = concurrency
        self.budget = budget
        self.store = store
        self.seed = seed
        self.baselines = baselines

    def __call__(self, strategies: Any, *, progress: Progress | None = None) -> Report:
        """Evaluate and wait. On an event loop, `await evaluation.acall(...)` instead."""
        frame = current_frame()
        home = frame.run.loop if frame is not None else None
        return run_sync(lambda: self.acall(strategies, progress=progress), home=home)

    async def acall(self, strategies: Any, *, progress: Progress | None = None) -> Report:
        """Evaluate a strategy, a list of them, or a mapping by name; modules and functions count as strategies."""
        arms = given(strategies)
        for arm in arms:
            arm.bind(self.examples)
        work = _Work(self, progress)
        once = shared([(arm, single_shot(arm)) for arm in arms], arms) if self.baselines else {}
        await work.run([*arms, *_further(once, arms)])
        best = {}
        if self.baselines and work.stopped is None:
            best = shared([(arm, work.equal_cost(arm, once)) for arm in arms], arms)
            await work.run(_further(best, arms))
        everyone = [*arms, *_further(once, arms), *_further(best, arms)]
        order = {arm.name: i for i, arm in enumerate(everyone)}
        work.items.sort(key=lambda item: (item.index, order[item.strategy]))
        return Report(
            [Standing.of(arm, once.get(arm.name), best.get(arm.name), work.items, self.seed) for arm in everyone],
            items=work.items,
            judged_by=self.metric.__name__,
            examples=len(self.examples),
            seed=self.seed,
            baselines=self.baselines,
            stopped=work.stopped,
        )


class _Work:
    """One call's work: items done by a fixed number of workers, one meter over all."""

    def __init__(self, evaluation: Evaluate, progress: Progress | None) -> None:
        frame = current_frame()
        self.asked = evaluation
        self.store = store_in_force(evaluation.store)
        self.whole = Meter(evaluation.budget, frame.meter if frame is not None else None)
        self.items: list[Item] = []
        self.planned = 0
        self.stopped: BudgetExceeded | None = None
        self.unjudged: float = 0
        """Items that the metric failed on, as long as it has judged none."""
        # As a journal's listener, so that one that fails is dropped and said, and hurts nothing.
        told = [lambda event: progress(*event.data["of"])] if progress is not None else []
        self.listeners = Journal(None, "evaluation", told)

    async def run(self, arms: Sequence[Arm]) -> None:
        """All items of these arms, example by example, so that what an ended budget leaves can be compared."""
        jobs = [(arm, index) for index in range(len(self.asked.examples)) for arm in arms]
        self.planned += len(jobs)
        preload(self.whole, self.store, (self._id(*job) for job in jobs))
        waiting = iter(jobs)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.asked.concurrency, len(jobs))):
                    group.create_task(self._worker(waiting))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        if self.unjudged >= _HOPELESS:
            first = next(item.error for item in self.items if item.status == "judge_error")
            raise ScoreError(
                f"the metric has failed on all of the first {self.unjudged:.0f} items, so nothing more was bought: {first}"
            )
        for arm in arms:
            errors = [item.error for item in self.items if item.strategy == arm.name]
            if errors and all(isinstance(error, UsageError) for error in errors):
                raise errors[0] or AssertionError

    async def _worker(self, waiting: Iterator[tuple[Arm, int]]) -> None:
        for arm, index in waiting:
            if self.stopped is not None or self.unjudged >= _HOPELESS:
                return
            item = await self._item(arm, index)
            self.items.append(item)
            self._see(item)
            data = {"of": (item, len(self.items), self.planned)}
            self.listeners.tell(Event(seq=-1, kind="item", time=0.0, data=data))

    def _see(self, item: Item) -> None:
        """A metric that fails on every item is a mistake in it: nothing more is bought to be judged by it."""
        if item.status == "judge_error":
            self.unjudged += 1
        elif item.status == "done":
            self.unjudged = -math.inf

    async def _item(self, arm: Arm, index: int) -> Item:
        try:
            opened = await self._opened(arm, index)
        except BudgetExceeded as late:  # while it waited for an item that another evaluation has
            self.stopped = late
            example, run_id = self.asked.examples[index], self._id(arm, index)
            return Item(strategy=arm.name, index=index, example=example, run_id=run_id, status="cut_off", error=late)
        async with opened as run:
            item = await evaluated(run, arm, index, self.asked.examples[index], self.asked.metric)
        if isinstance(item.error, BudgetExceeded) and self.whole.sets(item.error):
            self.stopped = item.error
            item = replace(item, status="cut_off", score=None, passed=None)
        return item

    async def _opened(self, arm: Arm, index: int) -> Run:
        """The item's run, begun; another evaluation may have it as well (a baseline that both have)."""
        inputs = self.asked.examples[index].inputs()
        seed = derived_seed(self.asked.seed, str(index))  # of its own: examples may be equal

        def make() -> Run:
            run = Run(around=self.whole, store=self.store, run_id=self._id(arm, index), seed=seed)
            run.journal.spec = {**spec_of(arm.strategy, inputs), "strategy": arm.name}
            return run

        return await begun(make, self.whole)

    def _id(self, arm: Arm, index: int) -> str:
        return run_id_of(arm, index, self.asked.examples[index], self.asked.seed)

    def equal_cost(self, arm: Arm, once: dict[str, Arm]) -> Arm | None:
        """Its peer: best of as many samples as its calls pay for, or as it made attempts, where no call was seen."""
        ours = [item for item in self.items if item.strategy == arm.name and item.counted]
        if not ours or arm.name not in once:
            return None
        calls = fmean(item.usage.calls - item.lost for item in ours)
        if not calls:
            return equal_cost(arm, fmean(item.attempts for item in ours), 1, "attempts")
        single = [
            item.usage.calls - item.lost for item in self.items if item.strategy == once[arm.name].name and item.counted
        ]
        return equal_cost(arm, calls, fmean(single) if single else 1, "calls")


def _further(baselines: dict[str, Arm], given: Sequence[Arm]) -> list[Arm]:
    """Each once, and none that was given as a strategy."""
    ours = {arm.identity for arm in given}
    return list({arm.identity: arm for arm in baselines.values() if arm.identity not in ours}.values())
