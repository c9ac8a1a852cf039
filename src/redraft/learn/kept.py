"""Demos out of what the predictors answered in an attempt: of drafts that were kept, never of those that were rejected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from redraft.errors import InputError
from redraft.evaluate import Example
from redraft.frame import within
from redraft.jsonable import as_text
from redraft.learn.programs import predictors
from redraft.modules import Predict
from redraft.modules.answered import Answered
from redraft.modules.demos import Demo, as_demos
from redraft.record import derived_seed, inputs_digest
from redraft.types import Event

_ATTEMPT = re.compile(r"/attempt\[(\d+)\]")


def kept(answers: Iterable[Answered], events: Sequence[Event], scope: str) -> list[Answered]:
    """The answers inside `scope` that count, in order: each attempt around one, from there on, was its refinement's best, and
    where a strategy kept or mended a draft, that stands for all that its attempts answered.
    """
    best = {e.scope[: e.scope.rindex("/attempt[")]: e.data["index"] for e in events if e.kind == "accept"}

    def counts(answer: Answered) -> bool:
        marks = [m for m in _ATTEMPT.finditer(answer.scope) if m.start() >= len(scope)]
        return within(answer.scope, scope) and all(
            best.get(answer.scope[: mark.start()], int(mark[1])) == int(mark[1]) for mark in marks
        )

    found = [answer for answer in answers if counts(answer)]
    finals = [answer for answer in found if answer.final]
    return [
        answer
        for answer in found
        if not any(f is not answer and f.module is answer.module and within(answer.scope, f.scope) for f in finals)
    ]


def demos_from(
    answers: Sequence[Answered], teacher: Any, example: Example, seed: int
) -> tuple[dict[str, Demo], list[str]]:
    """One demo a predictor, by path, and what is wrong with those that cannot be shown. Of a predictor that was asked
    several times one answer is drawn: in a loop they are much alike.
    """
    came_from = source_of(example)
    demos: dict[str, Demo] = {}
    faults: list[str] = []
    for path, predict in predictors(teacher).items():
        own = sorted((a for a in answers if a.module is predict), key=lambda a: a.scope)
        if not own:
            faults.append(f"{path or 'the predictor'} answered nothing in the draft that was kept")
            continue
        answer = Random(derived_seed(seed, f"{came_from}|{path}")).choice(own)
        try:
            (demo,) = as_demos(predict.signature, [{**answer.outputs.to_dict(), **answer.inputs}])
        except InputError as error:
            faults.append(f"{path or 'the predictor'}: {error}")
            continue
        demos[path] = Demo(demo.to_dict(), came_from=came_from)
    return demos, faults


def labeled(predict: Predict, examples: Sequence[Example]) -> list[Demo]:
    """The examples that hold all fields of a predictor, labels included, as demos."""
    found = []
    for example in examples:
        try:
            (demo,) = as_demos(predict.signature, [example])
        except InputError:  # it lacks a field, or a label is not of its type
            continue
        found.append(Demo(demo.to_dict(), came_from=source_of(example)))
    return found


def without(demos: Mapping[str, Sequence[Demo]], example: Example, teacher: Any) -> dict[str, list[Demo]]:
    """The demos that may be shown while this example is tried: not those that came from it, nor any that asks the same."""
    asked, source = example.inputs(), source_of(example)

    def is_it(demo: Demo, predict: Predict) -> bool:
        names = [name for name in predict.signature.inputs if name in asked]
        same = bool(names) and all(as_text(demo[name]) == as_text(asked[name]) for name in names)
        return demo.came_from == source or same

    inside = predictors(teacher)
    return {path: [demo for demo in shown if not is_it(demo, inside[path])] for path, shown in demos.items()}


def source_of(example: Example) -> str:
    """What a demo says of the example that it came from."""
    return inputs_digest(example.inputs())
