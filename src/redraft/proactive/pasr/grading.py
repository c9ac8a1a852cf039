"""How right an answer is, 0..1: by checks, by the row's reference, or by an LM judge; each answer is judged once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redraft.budget import Budget, Meter
from redraft.checks import Judgement, one_of
from redraft.errors import InputError, RedraftError, ScoreError
from redraft.frame import current_frame
from redraft.judges import Rubric
from redraft.judges.asking import side_by_side
from redraft.protocols import LM
from redraft.run import Run
from redraft.sync import run_sync
from redraft.types import Prediction

Row = Mapping[str, Any]
"""One row of the data: `question`, the reference `answer`, and whatever else a judge wants."""

CRITERION = "The draft's final answer agrees with the reference answer in the task. How it is put makes no difference."

_NUMBER = re.compile(r"(?<!\d)-?\d+(?:\.\d+)?")


def reference_reward(args: dict[str, Any], pred: Any) -> float:
    """1.0 if the answer is the row's `answer`, else 0.0: the same number where the reference is one (the last one that the
    answer names), otherwise the same text but for case and the marks around it.
    """
    gold, said = str(args["answer"]).strip(), str(pred.answer).strip()
    plain = gold.replace(",", "")
    if _NUMBER.fullmatch(plain):
        found = _NUMBER.findall(said.replace(",", ""))
        return float(bool(found) and abs(float(found[-1]) - float(plain)) < 1e-9)
    return float(one_of(gold).judge(said)[0] == 1.0)


def judge_reward(lm: LM | str) -> Callable[..., Any]:
    """A reward by an LM judge that sees the question, the reference and the answer, as in the paper."""
    rubric = Rubric([CRITERION], lm=lm)

    async def reward(args: dict[str, Any], pred: Any) -> float:
        task = f"{args['question']}\n\nReference answer: {args['answer']}"
        return float((await rubric.acall(task=task, draft=pred.answer)).score)

    return reward


class Grader:
    """Judges answers by checks, a reward `(args, pred) -> 0..1` or both, where `args` is the row and `pred.answer` the answer.

    What an LM judge buys is held to `budget`; `meter` says what it was. The same answer to the same row is judged once within `keep` judgements. An empty or absent answer is 0.0, unasked; an answer
    that the judge gives no verdict on is None: never a pass, never a zero.
    """

    def __init__(
        self,
        checks: Sequence[Any] = (),
        reward: Callable[..., Any] | None = None,
        *,
        budget: Budget | None = None,
        keep: int = 100_000,
    ) -> None:
        self.judgement = Judgement(checks, reward)
        if self.judgement.empty:
            raise InputError("there is nothing to judge answers by: give checks=[...] or reward=...")
        frame = current_frame()
        self.meter = Meter(budget, frame.meter if frame is not None else None)
        self.keep = keep
        self.judged = 0
        """How many answers were judged so far: those that were known do not count."""
        self._known: dict[str, float] = {}

    def grade(self, answers: Sequence[tuple[Row, str | None]]) -> list[float | None]:
        """Accuracy of each answer to its row, 0..1, in the same order. Raises `RedraftError` for one outside of that,
        `BudgetExceeded` where the judge's budget is spent.
        """
        keys = [_key(row, answer) for row, answer in answers]
        fresh = {
            key: (row, answer)
            for key, (row, answer) in zip(keys, answers, strict=True)
            if answer and key not in self._known
        }
        found = run_sync(lambda: self._all(list(fresh.values()))) if fresh else []
        said = {key: value for key, value in zip(fresh, found, strict=True) if value is not None}
        self.judged += len(fresh)
        self._known |= said
        out = [self._known.get(key) if answer else 0.0 for key, (_, answer) in zip(keys, answers, strict=True)]
        for oldest in list(self._known)[: max(len(self._known) - self.keep, 0)]:
            del self._known[oldest]
        return out

    async def _all(self, answers: list[tuple[Row, str]]) -> list[float | None]:
        async with Run(around=self.meter):  # a run a batch: its record is let go of with it
            return await side_by_side(self._one(row, answer) for row, answer in answers)

    async def _one(self, row: Row, answer: str) -> float | None:
        try:
            value = (await self.judgement.score(row, Prediction(answer=answer))).value
        except ScoreError:
            return None
        if not 0.0 <= value <= 1.0:
            raise RedraftError(f"the reward for {answer!r:.60} is {value:g}; accuracy has to lie within 0 and 1")
        return value


def _key(row: Row, answer: str | None) -> str:
    return json.dumps([dict(row), answer], sort_keys=True, default=repr)
