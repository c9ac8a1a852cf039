"""A strategy as `redraft eval` names it: `NAME[:OPTION=VALUE,...]`, or a thing in a Python file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redraft.cli.options import RunOptions
from redraft.cli.plan import plan
from redraft.errors import UsageError
from redraft.evaluate.metrics import named_in_file

_OPTIONS = ("attempts", "rounds", "writer", "editor", "critic", "criteria", "effort", "temperature", "system", "model")
_NUMBERS = {"attempts": int, "rounds": int, "temperature": float}


def strategies_of(specs: tuple[str, ...], options: RunOptions) -> dict[str, Any]:
    """What each of them names, ready to be evaluated. Raises `UsageError`."""
    if twice := [spec for spec in specs if specs.count(spec) > 1]:
        raise UsageError(f"--strategy {twice[0]} is given twice")
    return {spec: _one(spec, options) for spec in specs}


def _one(spec: str, options: RunOptions) -> Any:
    if spec.partition(":")[0].endswith(".py"):
        return named_in_file(spec, "strategy")
    name, _, rest = spec.partition(":")
    return plan(replace(options, strategy=name, **_given(spec, rest)))


def _given(spec: str, text: str) -> dict[str, Any]:
    """`attempts=5,critic=strict editor` as options. A comma without a name after it is part of the value before."""
    pairs: list[list[str]] = []
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if equals and name.strip() in _OPTIONS:
            pairs.append([name.strip(), value])
        elif equals or not pairs:
            raise UsageError(
                f"--strategy {spec}: {part.strip()!r} is no option; write NAME=VALUE of {', '.join(_OPTIONS)}"
            )
        else:
            pairs[-1][1] += f",{part}"
    return {name: _value(spec, name, value.strip()) for name, value in pairs}


def _value(spec: str, name: str, value: str) -> Any:
    if name == "criteria":
        return (value,)
    try:
        number = _NUMBERS.get(name, str)(value)
    except ValueError as error:
        raise UsageError(f"--strategy {spec}: {name}={value!r} is no number") from error
    if isinstance(number, int) and number < 1:
        raise UsageError(f"--strategy {spec}: {name}={value} must be 1 or more")
    return number
