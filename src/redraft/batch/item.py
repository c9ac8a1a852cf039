"""An item of a batch: what is read, and what comes of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from redraft.errors import InputError
from redraft.jsonable import as_text, plain
from redraft.record import digest, inputs_digest
from redraft.result import Result
from redraft.scoring import takes
from redraft.strategies.base import entry_of
from redraft.types import Inputs, Prediction, StopReason, Usage

Status = Literal["done", "failed", "cut_off", "not_begun"]
DEEPEST = 200
"""How many lists and mappings may lie in one another in an item: what is written deeper may not be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """What came of one item."""

    index: int
    """Its place in the input, from 0 on."""
    key: str
    """Its field `id`, or else a hash of its inputs; `#2` marks the second one of the same."""
    item: Any
    """As it was given."""
    inputs: Inputs
    run_id: str
    """Of its run in the store, made of the batch's id, the key and the inputs."""
    status: Status
    """"failed": there is no result. "cut_off": the whole batch's budget, or a stop, ended it before its end; "not_begun": before
    its beginning. A resumed batch goes on with both.
    """
    result: Prediction | None = None
    """A strategy's Result, without its events (they are in the store); a module's Prediction."""
    error: Exception | None = None
    """Why there is no result, or what ended it early."""
    usage: Usage = field(default_factory=Usage)
    """What it spent, in earlier processes too."""

    @property
    def passed(self) -> bool:
        """True if it has a result that passed all checks (or that nothing judged), and no error ended it."""
        if not isinstance(self.result, Result):
            return self.result is not None
        return self.result.passed and self.result.stop_reason is not StopReason.ERROR

    @property
    def ended(self) -> bool:
        """True if a resumed batch has nothing left to do for it."""
        return self.status in ("done", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One item as it was read."""

    index: int
    place: int = 0
    """Among those that are worked on."""
    key: str
    item: Any
    inputs: dict[str, Any]
    run_id: str
    wrong: InputError | None = None
    """Why it cannot be begun."""


class Rows:
    """Makes rows of items. Remembers a number for each key it has seen, and nothing else."""

    def __init__(self, module: Any, batch_id: str, fields: Collection[str] | None = None) -> None:
        self._module = module
        self._batch_id = batch_id
        self._fields = fields
        """Those of an item that are inputs; None: all."""
        self._seen: Counter[int] = Counter()
        self._next = 0

    def row(self, item: Any) -> Row:
        """The next row."""
        index, self._next = self._next, self._next + 1
        try:
            given = _mapping(item)
            _check_depth(given)
            inputs = self._inputs(given)
            content = inputs_digest(inputs)
            _check_finite(inputs)
        except InputError as error:
            key = self._key(f"row {index}")
            return Row(index=index, key=key, item=item, inputs={}, run_id=f"{self._batch_id}:{key}", wrong=error)
        named = given.get("id")
        key = self._key(content[:16] if named is None else as_text(named))
        # What has other inputs than before is another run: it shall not find the old one's replies.
        run_id = f"{self._batch_id}:{key}" + ("" if named is None else f":{content[:8]}")
        return Row(index=index, key=key, item=item, inputs=inputs, run_id=run_id)

    def _key(self, base: str) -> str:
        base = key = base.encode("utf-8", "backslashreplace").decode()  # half an emoji is no name for a store
        while self._seen[_number(key)]:  # also where an id looks like another one's second
            self._seen[_number(base)] += 1
            key = f"{base}#{self._seen[_number(base)]}"
        self._seen[_number(key)] += 1
        return key

    def _inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if self._fields is not None:
            return {name: value for name, value in given.items() if name in self._fields}
        inputs = dict(given)
        if "id" in inputs and not _takes_id(self._module, inputs):
            del inputs["id"]
        return inputs


def _check_depth(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if too_deep(value):
            raise InputError(f"{name!r} nests deeper than {DEEPEST} levels: give flatter data, or a text")


def too_deep(value: Any) -> bool:
    """True if lists and mappings lie deeper in one another than `DEEPEST`, or in themselves."""
    waiting = [(value, 1)]
    while waiting:
        here, depth = waiting.pop()
        if isinstance(here, Mapping | list | tuple):
            if depth > DEEPEST:
                return True
            waiting.extend((part, depth + 1) for part in (here.values() if isinstance(here, Mapping) else here))
    return False


def _check_finite(inputs: Mapping[str, Any]) -> None:
    """Raises `InputError` for NaN and the infinities, wherever in an input they are: no journal can hold them."""
    for name, value in inputs.items():
        if (odd := _not_finite(value)) is not None:
            what = "is" if odd is value else "holds"
            raise InputError(f"the input {name!r} {what} {odd}, which is no number: give another value or a text")


def _not_finite(value: Any) -> float | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    if value is None or isinstance(value, str | int | bytes):
        return None
    if isinstance(value, Mapping):
        parts: Iterable[Any] = value.values()
    else:
        parts = value if isinstance(value, list | tuple) else (plain(value),)
    return next((odd for part in parts if (odd := _not_finite(part)) is not None), None)


def _number(key: str) -> int:
    """A key as a number: what stays of an item in memory."""
    return int(digest(key)[:16], 16)


def _mapping(item: Any) -> Mapping[str, Any]:
    """The item's fields; of an example (ours, DSPy's) its inputs."""
    inputs: Callable[[], Any] | None = getattr(item, "inputs", None)
    given = dict(inputs()) if callable(inputs) else item
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InputError(f"an item is a mapping of a module's inputs, e.g. {{'task': ...}}; got {item!r:.80}")
    return given


def _takes_id(module: Any, inputs: Mapping[str, Any]) -> bool:
    inner = getattr(module, "module", module)
    signature = getattr(inner, "signature", None)
    if signature is not None:
        return "id" in signature.inputs
    return takes(entry_of(inner), 0, inputs)
