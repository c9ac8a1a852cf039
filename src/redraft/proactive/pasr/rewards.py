"""The three rewards of PASR (arXiv 2508.12903, section 3), as functions that TRL's GRPOTrainer takes.

Format: +1 or -1. Accuracy: 0..1. Refinement: how an answer that was looked at again compares with the mean of plain ones. Their
sum is the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redraft.errors import InputError, ScoreError
from redraft.proactive.pasr.baseline import BaselineProvider
from redraft.proactive.pasr.grading import Grader, Row
from redraft.proactive.pasr.tags import Tagged, parse

_SAME = 1e-9  # means of equal numbers differ by less


def format_reward(text: str, *, opened: bool = False) -> float:
    """+1.0 if the form holds, else -1.0. `opened` as in `TagStream`."""
    return 1.0 if parse(text, opened=opened).well_formed else -1.0


def refinement_reward(accuracy: float, baseline: float, *, refined: bool, zeta: float = 0.0) -> float:
    """+1.0 for a refined answer whose accuracy is above the baseline by more than `zeta`, -1.0 for one below it by more than that,
    -0.5 between: a second look that changed nothing costs. 0.0 without a second look (the paper is silent, its code says so).

    The paper never states zeta, its code uses 0; for a verdict of right or wrong and n plain answers, 1/n asks for more than
    one answer's luck.
    """
    if not refined:
        return 0.0
    ahead = accuracy - baseline
    if abs(ahead) <= zeta + _SAME:
        return -0.5
    return 1.0 if ahead > 0 else -1.0


class PasrRewards:
    """The rewards of a batch of completions; each answer is judged once for all of them.

    Completions without a verdict get the mean of their prompt's other ones, so that they push neither way, and are counted in
    `pasr/unjudged`. Logged beside it: `pasr/baseline`, its age in steps, refine spans a completion, well-formed ones.
    """

    def __init__(
        self,
        grader: Grader,
        baseline: BaselineProvider,
        *,
        zeta: float = 0.0,
        opened: bool = False,
        columns: Any = None,
    ) -> None:
        if not 0.0 <= zeta < 1.0:
            raise InputError(f"zeta={zeta!r}: give a tolerance from 0 to below 1, in units of accuracy")
        self.grader, self.baseline, self.zeta, self.opened = grader, baseline, zeta, opened
        self.columns = None if columns is None else frozenset(columns)
        """The columns that make up a row; None: all that arrive as lists."""

    @property
    def functions(self) -> list[Callable[..., list[float]]]:
        """For `reward_funcs=`, in the paper's order."""
        return [self.format, self.accuracy, self.refinement]

    def format(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        """+1 or -1 each."""
        del prompts
        replies = [self._tagged(completion) for completion in completions]
        _log(columns, "pasr/well_formed", [reply.well_formed for reply in replies])
        _log(columns, "pasr/refines", [len(reply.refines) for reply in replies])
        return [1.0 if reply.well_formed else -1.0 for reply in replies]

    def accuracy(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        """0..1 each; a completion without an answer is 0."""
        rows = self._rows(len(completions), columns)
        judged = self._judged(rows, completions)
        _log(columns, "pasr/unjudged", [value is None for value in judged])
        return _neutral(judged, prompts)

    def refinement(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        """See `refinement_reward`."""
        rows = self._rows(len(completions), columns)
        judged = self._judged(rows, completions)
        step = int(getattr(columns.get("trainer_state"), "global_step", 0))
        means = self.baseline.means(rows, self.grader, step)
        _log(columns, "pasr/baseline", means)
        _log(columns, "pasr/baseline_age", [self.baseline.age(step)])
        rewards = [
            None
            if value is None
            else refinement_reward(value, mean, refined=bool(self._tagged(completion).refines), zeta=self.zeta)
            for value, mean, completion in zip(judged, means, completions, strict=True)
        ]
        return _neutral(rewards, prompts)

    def _judged(self, rows: Sequence[Row], completions: Sequence[Any]) -> list[float | None]:
        answers = [self._tagged(completion).answer for completion in completions]
        return self.grader.grade(list(zip(rows, answers, strict=True)))

    def _tagged(self, completion: Any) -> Tagged:
        return parse(text_of(completion), opened=self.opened)

    def _rows(self, n: int, columns: Mapping[str, Any]) -> list[Row]:
        whole = {
            name: values
            for name, values in columns.items()
            if (name in self.columns if self.columns is not None else isinstance(values, list) and len(values) == n)
            and name != "completion_ids"
        }
        return [{name: values[i] for name, values in whole.items()} for i in range(n)]


def text_of(completion: Any) -> str:
    """A completion's text: TRL gives a text, or the messages of one turn."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"] or "")


def _neutral(values: Sequence[float | None], prompts: Sequence[Any]) -> list[float]:
    groups: dict[str, list[float]] = {}
    for prompt, value in zip(prompts, values, strict=True):
        groups.setdefault(repr(prompt), []).extend([] if value is None else [value])
    if dumb := next((prompt for prompt, known in groups.items() if not known), None):
        raise ScoreError(f"the judge gave no verdict on any completion of the prompt {dumb:.120}: see that it answers")
    return [
        sum(groups[repr(prompt)]) / len(groups[repr(prompt)]) if value is None else value
        for prompt, value in zip(prompts, values, strict=True)
    ]


def _log(columns: Mapping[str, Any], name: str, values: Sequence[float]) -> None:
    if (log := columns.get("log_metric")) is not None:
        log(name, sum(values) / len(values))
