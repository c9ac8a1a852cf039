"""BootstrapFewShot (Khattab et al. 2023, arXiv 2310.03714), over what refinement kept.

The teacher, the program itself or a strategy around it, works on training examples. Where the metric passes, what each
predictor answered in the draft that was kept becomes its demo in a copy of the program. What differs from DSPy's: demos
come through strategies; a draft that fails its own checks teaches nothing; labels are shown only if asked for, whole ones
alone; a number passes at 1, or at the threshold, not at everything but 0; and compiling has a budget and resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from redraft.budget import Budget
from redraft.config import check_fits
from redraft.errors import InputError
from redraft.evaluate.examples import as_examples
from redraft.evaluate.metric import Metric
from redraft.frame import current_frame
from redraft.learn.compiling import Compiling
from redraft.learn.programs import with_demos
from redraft.learn.report import BootstrapReport
from redraft.protocols import Store
from redraft.scoring import is_number
from redraft.strategies.base import as_module
from redraft.sync import run_sync

_LEAST = {"max_bootstrapped_demos": 0, "max_labeled_demos": 0, "max_rounds": 1, "max_errors": 1, "concurrency": 1}


class BootstrapFewShot:
    """`BootstrapFewShot(metric).compile(program, trainset, teacher=Refine(program, checks=[...]))` gives a copy with demos.

    `metric(example, prediction)`, or with DSPy's third argument `trace`: the (predictor, inputs, outputs) that were kept. A bool
    is its word; a number passes from `metric_threshold` on, 1 by default. None: the teacher's own checks decide.
    Examples are tried in order, `concurrency` at once, up to `max_rounds` times each, until `max_bootstrapped_demos` became
    demos; `max_labeled_demos` (0; DSPy has 16) fills up to that many with examples whose labels are whole answers, which
    the teacher is shown, too. `max_errors` examples whose program or metric raised end it with what there is. `budget`,
    `store` and `seed` as in Evaluate: each example is a run of its own, and compiling again goes on where it was.
    """

    def __init__(
        self,
        metric: Callable[..., Any] | None = None,
        *,
        metric_threshold: float | None = None,
        max_bootstrapped_demos: int = 4,
        max_labeled_demos: int = 0,
        max_rounds: int = 1,
        max_errors: int = 10,
        teacher: Any = None,
        concurrency: int = 1,
        budget: Budget | None = None,
        store: Store | None = None,
        seed: int = 0,
    ) -> None:
        check_fits({"budget": budget or Budget(), "store": store})
        given = locals()
        for name, least in _LEAST.items():
            if type(given[name]) is not int or given[name] < least:
                raise InputError(f"{name}={given[name]!r}: give a whole number, {least} or more")
        if metric_threshold is not None and not is_number(metric_threshold):
            raise InputError(f"metric_threshold={metric_threshold!r}: give a finite number, or None")
        if type(seed) is not int:
            raise InputError(f"seed={seed!r}: give a whole number")
        self.metric = metric
        if metric is not None:
            Metric(metric, ())  # refuses one that does not take (example, prediction)
        self.metric_threshold = metric_threshold
        self.max_bootstrapped_demos, self.max_labeled_demos = max_bootstrapped_demos, max_labeled_demos
        self.max_rounds, self.max_errors = max_rounds, max_errors
        self.teacher = teacher
        self.concurrency = concurrency
        self.budget, self.store, self.seed = budget, store, seed
        self.report: BootstrapReport | None = None
        """Of the last `compile`."""

    def compile(self, student: Any, trainset: Iterable[Any], teacher: Any = None) -> Any:
        """A copy of the student with demos; the student is as it was. `teacher` (None: the constructor's, else the student)
        has the same predictors, e.g. a strategy around the student. What came of it is in `report`.

        Raises `InputError`, before anything is spent, for what cannot be compiled, and `RunFailed` if nothing was learned
        because of errors. On an event loop, `await optimizer.acompile(...)` instead.
        """
        frame = current_frame()
        home = frame.run.loop if frame is not None else None
        return run_sync(lambda: self.acompile(student, trainset, teacher), home=home)

    async def acompile(self, student: Any, trainset: Iterable[Any], teacher: Any = None) -> Any:
        """See `compile`."""
        student = as_module(student)
        work = Compiling(self, student, as_module(teacher or self.teacher or student), as_examples(trainset))
        await work.run()
        demos, labels = work.demos(), work.labels()
        self.report = work.report(demos, labels)
        work.complain(self.report)
        shown = {path: [*demos[path], *labels[path]] for path in demos}
        return with_demos(student, {path: some for path, some in shown.items() if some})
