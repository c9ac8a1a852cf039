"""What the predictors of a program were given and what they answered, for whoever learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from redraft.types import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer of a predictor, or of a strategy around one."""

    module: Any
    """The predictor."""
    scope: str
    """Where in the run: who learns has to see which attempts were kept."""
    inputs: Mapping[str, Any]
    """As its signature binds them."""
    outputs: Prediction
    final: bool = False
    """A strategy kept it, perhaps edited or mended by code: it stands for all that its attempts answered."""


class listening:  # noqa: N801 - used like contextlib's functions
    """In this block, answers are put on the list that it gives: `with listening() as answers:`."""

    def __enter__(self) -> list[Answered]:
        answers: list[Answered] = []
        self._token = _answers.set(answers)
        return answers

    def __exit__(self, *_: object) -> None:
        _answers.reset(self._token)


def tell_answer(module: Any, scope: str, inputs: Mapping[str, Any], outputs: Prediction, *, final: bool) -> None:
    """Tell whoever listens, if anybody does."""
    if (answers := _answers.get()) is not None:
        answers.append(Answered(module=module, scope=scope, inputs=dict(inputs), outputs=outputs, final=final))


_answers: ContextVar[list[Answered] | None] = ContextVar("redraft_answers", default=None)
