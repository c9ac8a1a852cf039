"""One item: a strategy on an example, as a run of its own in the store, then judged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from redraft.errors import BudgetExceeded, RedraftError, ScoreError, UsageError
from redraft.evaluate.arms import Arm
from redraft.evaluate.examples import Example
from redraft.evaluate.metric import Metric
from redraft.journal import CALL, CALL_ERROR, CALL_FAILED, INTENT
from redraft.jsonable import plain
from redraft.record import digest, inputs_digest
from redraft.result import Result
from redraft.run import Run
from redraft.types import Attempt, Event, Prediction, Usage

Status = Literal["done", "failed", "judge_error", "cut_off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """How one strategy did on one example."""

    strategy: str
    index: int
    """Of the example."""
    example: Example
    run_id: str
    status: Status
    """"failed": the strategy raised, which scores 0. "judge_error": the metric raised, "cut_off": the evaluation's budget
    ended before it did; these two have no score and are left out of every mean.
    """
    score: float | None = None
    passed: bool | None = None
    feedback: str = ""
    prediction: Prediction | None = None
    error: Exception | None = None
    attempts: int = 0
    stop_reason: str = ""
    usage: Usage = field(default_factory=Usage)
    """What the strategy spent, in earlier processes too."""
    judging: Usage = field(default_factory=Usage)
    """What the metric spent."""
    seconds: float = 0.0
    """How long the strategy took, waiting for the model's places included."""
    resumed: bool = False
    """There was a record of it in the store."""
    lost: int = 0
    """Calls in `usage` that were cut off with an earlier process and bought again: no cost of the strategy's."""

    no_effort: bool = False
    """The model refused the effort that it was asked for, which was left out; later items ask for none, and do not say so."""

    @property
    def counted(self) -> bool:
        """True if it has a score."""
        return self.score is not None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        error = self.error and {"type": type(self.error).__name__, "message": str(self.error)}
        asked = {"example": self.example.to_dict(), "inputs": [*self.example.inputs()]}
        made = {"error": error, **asked, "usage": plain(self.usage)}
        answer = None if self.prediction is None else self.prediction.to_dict()
        return {**fields, **made, "prediction": answer, "judging": plain(self.judging)}


def run_id_of(arm: Arm, index: int, example: Example, seed: int) -> str:
    """The same for the same evaluation's same item in every process: so it resumes."""
    label = re.sub(r"[^a-z0-9]+", "-", arm.label.lower()).strip("-")
    content = digest([seed, arm.label, arm.identity, index, inputs_digest(example.inputs())])
    return f"{label}-{index:04}-{content}"


async def tried(run: Run, arm: Arm, example: Example) -> Attempt:
    """The strategy's answer, or its error. Neither a wrong call nor an ended budget on one example ends the others."""
    inputs = example.inputs()
    try:
        return await run.attempt(arm.strategy, inputs)
    except (UsageError, BudgetExceeded) as error:
        return Attempt(index=0, inputs=inputs, error=error, usage=run.usage)


async def evaluated(run: Run, arm: Arm, index: int, example: Example, metric: Metric) -> Item:
    """Try the strategy and judge what came out."""
    resumed = run.journal.resumed
    attempt = await tried(run, arm, example)
    result = attempt.prediction if isinstance(attempt.prediction, Result) else None
    answer = result.prediction if result is not None else attempt.prediction
    known: dict[str, Any] = {
        "strategy": arm.name,
        "index": index,
        "example": example,
        "run_id": run.run_id,
        "attempts": len(result.attempts if result is not None else getattr(attempt.error, "attempts", ())) or 1,
        "stop_reason": str(result.stop_reason) if result is not None else "",
        "usage": attempt.usage,
        "seconds": seconds_of(run.journal.events),
        "prediction": answer,
        "resumed": resumed,
        "lost": lost_calls(run.journal.events) if resumed else 0,
        "no_effort": bool(_efforts(arm)) and refused_effort(run.journal.events),
    }
    if attempt.error is not None or answer is None:
        return Item(status="failed", score=0.0, passed=False, error=attempt.error, **known)
    async with Run() as judging:
        try:
            score, passed = await judging.judging(metric, metric.judge(example, answer))
        except RedraftError as error:
            named = error if isinstance(error, BudgetExceeded) else ScoreError(f"example {index}: {error}")
            return Item(status="judge_error", error=named, judging=judging.usage, **known)
    if passed:
        run.accept(attempt, f"the metric gives {score.value:g}, which passes")
    else:
        run.reject(attempt, f"the metric gives {score.value:g}, which does not pass")
    said: dict[str, Any] = {"score": score.value, "passed": passed, "feedback": score.feedback}
    cut = result.error if result is not None else None
    return Item(status="done", error=cut, judging=judging.usage, **said, **known)


def lost_calls(events: Sequence[Event]) -> int:
    """Calls that were cut off, by a kill or an interruption, and whose reply was bought later."""
    bought = {event.key for event in events if event.kind == CALL}
    ends = {event.data["intent"]: event for event in events if event.kind in (CALL, CALL_ERROR, CALL_FAILED)}
    sent = [event for event in events if event.kind == INTENT and event.key in bought]
    return sum(_cut_off(ends.get(event.seq)) for event in sent)


def _cut_off(end: Event | None) -> bool:
    return end is None or (end.kind == CALL_FAILED and str(end.data.get("error")).startswith("cancelled"))


def _efforts(arm: Arm) -> Any:
    """What it asks its models for."""
    return getattr(getattr(arm.strategy, "ladder", None), "efforts", ())


def refused_effort(events: Sequence[Event]) -> bool:
    """True if a model was asked for an effort and takes none."""
    return any(
        "effort" in ([event.data["parameter"]] if event.kind == "dropped" else event.data["parameters"])
        for event in events
        if event.kind in ("dropped", "refused")
    )


def seconds_of(events: Sequence[Event]) -> float:
    """How long processes worked on the attempt that the first of these events begins; the time between them not counted."""
    total, before = 0.0, None
    for event in events:
        if before is not None and event.kind != "resumed":
            total += max(0.0, event.time - before)
        before = event.time
        if event.kind == "attempt" and event.key == "/attempt[0]":
            break
    return total
