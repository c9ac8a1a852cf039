"""Programs as learning sees them: the predictors inside, and copies that hold demos of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any

from redraft.errors import InputError
from redraft.frame import within_path
from redraft.modules import Module, Predict
from redraft.modules.demos import Demo
from redraft.scoring import name_of
from redraft.strategies import Refining

Demos = Mapping[str, Sequence[Demo]]
"""By the path of a predictor."""


def program_of(thing: Any) -> Any:
    """What a strategy refines; of anything else itself."""
    while isinstance(thing, Refining):
        thing = thing.module
    return thing


def predictors(thing: Any) -> dict[str, Predict]:
    """The predictors of a program by attribute path, "" for a Predict itself; of strategies in it those that they refine,
    never their critics, judges and advisors. Raises `InputError` if there are none.
    """
    program = program_of(thing)
    if isinstance(program, Predict):
        return {"": program}
    inside = dict(program.named_modules()) if isinstance(program, Module) else {}
    beside = [path for path, module in inside.items() if isinstance(module, Refining)]
    found = {
        path: module
        for path, module in inside.items()
        if isinstance(module, Predict)
        and not any(within_path(path, outer) and not within_path(path, f"{outer}.module") for outer in beside)
    }
    if not found:
        raise InputError(
            f"there is no Predict in {name_of(program)} that could show demos: they are looked for in the attributes of a "
            "Module, not in functions or other frameworks' programs"
        )
    return found


def check_alike(student: Any, teacher: Any) -> None:
    """Raises `InputError` where the teacher's predictors are not the student's, by path and fields."""
    ours, theirs = predictors(student), predictors(teacher)
    faults = [f"{path or 'a Predict alone'} is in the student only" for path in ours if path not in theirs]
    faults += [f"{path or 'a Predict alone'} is in the teacher only" for path in theirs if path not in ours]
    for path in ours.keys() & theirs.keys():
        if str(ours[path].signature) != str(theirs[path].signature):
            faults.append(f"{path or 'the Predict'}: {ours[path].signature} and {theirs[path].signature}")
    if faults:
        raise InputError(f"the teacher has to be made of the student's predictors: {'; '.join(sorted(faults))}")


def with_demos(thing: Any, demos: Demos) -> Any:
    """A copy of a program with these demos; predictors that are not named keep theirs. Models, checks and functions are shared."""
    twin = _copied(thing, {})
    for path, predict in predictors(twin).items():
        if path in demos:
            predict.demos = demos[path]
    return twin


def _holds_a_predictor(value: Any) -> bool:
    """True for a list or dict of its own class, or another library's object, in which `named_modules` finds one."""
    around: Any = SimpleNamespace(value=value)
    return any(isinstance(module, Predict) for _, module in Module.named_modules(around))


def _copied(value: Any, done: dict[int, Any]) -> Any:
    """Modules anew, and whatever else holds them; one that is met twice is one again."""
    if id(value) in done:
        return done[id(value)]
    if type(value) is tuple:
        return tuple(_copied(item, done) for item in value)
    if not isinstance(value, Module) and type(value) not in (list, dict) and not _holds_a_predictor(value):
        return value
    if isinstance(value, tuple):  # a named one
        return type(value)(*(_copied(item, done) for item in value))
    twin = done[id(value)] = copy(value)
    if isinstance(value, list):
        twin[:] = [_copied(item, done) for item in value]
    elif isinstance(value, dict):
        twin.update((key, _copied(item, done)) for key, item in value.items())
    else:
        vars(twin).update((name, _copied(held, done)) for name, held in vars(value).items())
    return twin
