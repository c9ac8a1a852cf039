"""Examples: what an evaluation asks and what it compares the answers with, as in DSPy; read from JSON lines or CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from redraft.batch.files import table_rows
from redraft.errors import InputError
from redraft.types import Prediction


class Example(Prediction):
    """`Example(question="6 x 7?", answer="42").with_inputs("question")`: the rest are labels.

    Fields are attributes and items, as in a Prediction; it does not change.
    """

    __slots__ = ("_inputs",)
    _inputs: tuple[str, ...]

    def __init__(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        super().__init__(fields, **more)
        object.__setattr__(self, "_inputs", ())

    def with_inputs(self, *names: str) -> Example:
        """A copy in which these fields are what a strategy is given."""
        if unknown := [name for name in names if name not in self]:
            raise InputError(f"no field {unknown[0]!r} to be an input; the fields are: {', '.join(self) or 'none'}")
        copy = Example(self.to_dict())
        object.__setattr__(copy, "_inputs", names)
        return copy

    def inputs(self) -> dict[str, Any]:
        """What a strategy is given: `strategy(**example.inputs())`."""
        if not self._inputs:
            raise InputError('this example does not say what its inputs are: use example.with_inputs("question")')
        return {name: self[name] for name in self._inputs}

    def labels(self) -> dict[str, Any]:
        """What it is not given."""
        return {name: value for name, value in self.to_dict().items() if name not in self._inputs}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self.to_dict(), self._inputs))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        return f"Example({fields}){f'.with_inputs{self._inputs!r}' if self._inputs else ''}"


def _rebuilt(fields: dict[str, Any], inputs: tuple[str, ...]) -> Example:
    return Example(fields).with_inputs(*inputs)


def as_examples(given: Iterable[Any]) -> tuple[Example, ...]:
    """Examples that say what their inputs are, ours or DSPy's."""
    made = []
    for i, thing in enumerate(given):
        if not isinstance(thing, Example) and hasattr(thing, "toDict") and hasattr(thing, "inputs"):
            thing = Example(thing.toDict()).with_inputs(*thing.inputs().keys())  # noqa: PLW2901
        if not isinstance(thing, Example):
            raise InputError(f'example {i} is {thing!r:.80}; write Example(question=...).with_inputs("question")')
        with_number(thing.inputs, i)
        made.append(thing)
    if not made:
        raise InputError("there are no examples to evaluate on")
    return tuple(made)


def with_number(fn: Any, index: int, *args: Any) -> Any:
    """Call it; an `InputError` names the example."""
    try:
        return fn(*args)
    except InputError as error:
        raise type(error)(f"example {index}: {error}") from error


def read_examples(path: str | PathLike[str], inputs: Sequence[str]) -> list[Example]:
    """Examples from a `.jsonl` file (an object a line) or a `.csv` file (a header, then rows; all values are texts)."""
    file = Path(path)
    rows = {".jsonl": _json_lines, ".ndjson": _json_lines, ".csv": _csv_rows}.get(file.suffix.lower())
    if rows is None:
        raise InputError(f"{file.name}: examples are read from .jsonl or .csv files")
    if isinstance(inputs, str):
        inputs = (inputs,)
    examples = []
    try:
        for line, fields in rows(file):
            try:
                examples.append(Example(fields).with_inputs(*inputs))
            except InputError as error:
                raise InputError(f"{file.name} line {line}: {error}") from error
    except (OSError, ValueError) as error:  # ValueErrors: it is not UTF-8, or no table
        raise InputError(f"{file.name} cannot be read: {error}") from error
    return examples


def _json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{file.name} line {number} is no JSON: {error}") from error
            if not isinstance(fields, dict):
                raise InputError(f"{file.name} line {number}: an example is an object, got {line.strip():.60}")
            yield number, fields


def _csv_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        for number, row in table_rows(lines):
            if None in row or None in row.values():
                wanted = len(row.keys() - {None})
                raise InputError(f"{file.name} line {number} has not {wanted} values, as the header has")
            yield number, row
