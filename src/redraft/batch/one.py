"""One item being done: the same here and in a worker of a cluster."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import Any

from redraft.batch.item import Row
from redraft.budget import Budget, Meter
from redraft.errors import BudgetExceeded, DivergedError, RunFailed, StoreError
from redraft.jsonable import showable
from redraft.protocols import Store
from redraft.record import derived_seed, spec_of
from redraft.result import Result
from redraft.run import Run
from redraft.sync import being_cancelled
from redraft.types import Prediction, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an item."""

    value: Prediction | None = None
    error: Exception | None = None
    usage: Usage = field(default_factory=Usage)
    reached: BudgetExceeded | None = None
    """The whole batch's limit, if that is what ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What is done with each item."""

    module: Any
    batch_id: str
    budget: Budget | None
    seed: int
    retry: bool = False
    """Of what is on record, replay no refusals: see `Journal.forgive`."""

    def run(self, row: Row, store: Store | None, whole: Meter) -> Run:
        """The item's run, below the batch's meter."""
        seed = derived_seed(self.seed, row.key)
        run = Run(budget=self.budget, store=store, run_id=row.run_id, seed=seed, around=whole)
        run.journal.spec = {**spec_of(self.module, row.inputs), "batch": self.batch_id}
        if self.retry:
            run.journal.forgive()
        return run

    async def outcome(self, run: Run, row: Row, whole: Meter) -> Outcome:
        """Do it. Raises `StoreError` (no other item fares better), and no error of the item."""
        value, error = await self._tried(run, row)
        reached = whole.ended_by(error) if error is not None else None
        cut_off = isinstance(reached, BudgetExceeded) and reached.of in whole._chain
        return Outcome(value=value, error=error, usage=run.usage, reached=reached if cut_off else None)  # type: ignore[arg-type]

    async def _tried(self, run: Run, row: Row) -> tuple[Prediction | None, Exception | None]:
        """What comes of it: a value, an error, or the best so far and what ended it early."""
        try:
            if inspect.iscoroutinefunction(getattr(self.module, "steps", None)) and hasattr(self.module, "bind"):
                result: Any = await run.execute(self.module, self.module.bind(row.inputs))
                if isinstance(result.error, StoreError) and not isinstance(result.error, DivergedError):
                    raise result.error
                return _without_events(result), result.error
            async with run:
                return await self.module.acall(**row.inputs), None
        except DivergedError as error:
            return None, error
        except StoreError:
            raise
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            return None, RunFailed("the module was cancelled from inside")
        except Exception as error:  # noqa: BLE001 - user code: an item's error is a row
            return None, showable(error)


def _without_events(result: Result) -> Result:
    parts = {name: getattr(result, name) for name in ("attempts", "stop_reason", "usage", "run_id", "error")}
    return Result(result.best, events=(), **parts)
