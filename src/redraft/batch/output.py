"""The file a batch writes: a row for each item that has ended, once, and readable after a kill at any moment.

Rows are lines of JSON. Where another kind of file is wanted, the lines are kept beside it until the batch is done, and
it is made of them anew each time the batch ends or is stopped. A finished file of another kind is read as rows again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from redraft.batch.files import _line_rows, as_line, check_writable, convert, kind_of, read_rows
from redraft.batch.item import DEEPEST, BatchItem, too_deep
from redraft.batch.log import number
from redraft.errors import InputError, StoreError
from redraft.result import Result


class Output:
    """Rows in the file `path`. `known` holds a number for each row that is there."""

    def __init__(self, path: str) -> None:
        check_writable(path)
        self.path = Path(path)
        self._plain = kind_of(path) == "lines"
        self.lines = self.path if self._plain else self.path.with_name(f"{self.path.name}.rows.jsonl")
        """Where the rows are while the batch is not done."""
        self.known: set[int] = set()
        self.rows = self.passed = self.failed = 0
        self.batch: str | None = None
        """How the run ids of the rows that are there begin."""

    def load(self) -> None:
        """Find out what is there, and change nothing. Raises `InputError` if it is something else than a batch's rows."""
        self.known, self.rows, self.passed, self.failed = set(), 0, 0, 0
        for row in self._whole_rows():
            self._check(row)
            self._count(row)

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> int:
        """Leave out the other rows; returns how many those were."""
        part = self.lines.with_name(f"{self.lines.name}.part")
        with part.open("w", encoding="utf-8") as new:
            new.writelines(as_line(row) for row in self._whole_rows() if wanted(row))
        part.replace(self.lines)
        had = self.rows
        self.load()
        return had - self.rows

    def mend(self) -> None:
        """Make it ready for further rows: cut off a last one that a kill has torn, and bring those of a finished file back."""
        if self.lines.exists():
            _cut_torn_line(self.lines)
        elif self.path.exists():
            self.keep(lambda _: True)

    def _whole_rows(self) -> Iterator[Any]:
        if self.lines.exists():
            with self.lines.open(encoding="utf-8", newline="\n") as file:
                yield from _line_rows(line for line in file if line.endswith("\n"))
        elif self.path.exists():
            yield from map(_typed, read_rows(str(self.path)))

    def has(self, run_id: str) -> bool:
        """There is a row of this run."""
        return number(run_id) in self.known

    def write(self, item: BatchItem) -> None:
        """Add the row of an item that has ended. It outlives the process from here on."""
        row = row_of(item)
        try:
            with self.lines.open("a", encoding="utf-8") as file:
                file.write(as_line(row))
        except OSError as error:
            raise StoreError(
                f"{self.lines} cannot be written: {error.strerror}. Nothing is lost but rows that the store still has: "
                "make room, and run the same command again."
            ) from error
        self._count(row)

    def finish(self, *, done: bool) -> None:
        """Make the wanted kind of file, if it is another one. `done`: there will be no further rows."""
        if self._plain:
            self.lines.touch()
            return
        if self.lines.exists():
            convert(self.lines, str(self.path))
            if done:
                self.lines.unlink()

    def clear(self) -> None:
        """Forget all rows."""
        self.lines.write_text("")  # nor are those of a finished file of another kind read again
        self.known, self.rows, self.passed, self.failed = set(), 0, 0, 0

    def _check(self, row: Any) -> None:
        run_id = row.get("run_id") if isinstance(row, dict) else None
        if not isinstance(run_id, str) or ":" not in run_id or not {"passed", "error", "stop_reason"} <= row.keys():
            raise InputError(
                f"{self.lines if self.lines.exists() else self.path} holds something else than a batch's rows ({row!r:.60}), "
                "so nothing was written: give another file for the output, or --no-resume to overwrite it"
            )
        self.batch = self.batch or run_id.partition(":")[0]

    def _count(self, row: dict[str, Any]) -> None:
        self.known.add(number(row["run_id"]))
        self.rows += 1
        self.passed += bool(row["passed"])
        self.failed += row["error"] is not None and row["stop_reason"] is None


def row_of(item: BatchItem) -> dict[str, Any]:
    """The item's own fields, the outputs, and what it cost. Where two bear one name, the item's own is found as `input.NAME`,
    an output as `output.NAME`.
    """
    result, usage = item.result, item.usage
    outputs = {} if result is None else result.to_dict()
    judged = result if isinstance(result, Result) else None
    receipt = {
        "score": judged and judged.score,
        "passed": item.passed,
        "stop_reason": None if judged is None else str(judged.stop_reason),
        "calls": usage.calls,
        "tokens": usage.tokens,
        "cost": None if usage.unpriced else usage.cost + usage.uncertain_cost,
        "run_id": item.run_id,
        "error": None if item.error is None else f"{type(item.error).__name__}: {item.error}",
    }
    made = {(f"output.{name}" if name in receipt else name): value for name, value in outputs.items()} | receipt
    own = {str(k): v for k, v in item.item.items()} if isinstance(item.item, dict) else {"input": item.item}
    whole = {_beside(name, own, made): value for name, value in own.items()} | made
    return {name: _DEEP if too_deep(value) else value for name, value in whole.items()}


_DEEP = f"(left out: it nests deeper than {DEEPEST} levels)"


def _beside(name: str, own: Collection[str], made: Collection[str]) -> str:
    """An own column's name beside the made ones. Where a batch reads what another one wrote, `input.NAME` may be taken, too:
    then that one moves to `input.input.NAME`.
    """
    return f"input.{name}" if _is_taken(name, own, made) else name


def _is_taken(name: str, own: Collection[str], made: Collection[str]) -> bool:
    shorter = name.removeprefix("input.")
    return name in made or (shorter != name and shorter in own and _is_taken(shorter, own, made))


def _typed(row: Any) -> Any:
    """A row of a table, its receipt as it was before it was text."""
    if not isinstance(row, dict):
        return row
    texts = {name: value for name in _RECEIPT if isinstance(value := row.get(name), str)}
    return {**row, **{name: _value(name, text) for name, text in texts.items()}}


def _value(name: str, text: str) -> Any:
    if not text or name in _TEXTS:
        return text or None
    try:
        return json.loads(text)
    except ValueError:  # somebody has written into it
        return text


_TEXTS = ("stop_reason", "run_id", "error")
_RECEIPT = ("score", "passed", "calls", "tokens", "cost", *_TEXTS)


def _cut_torn_line(path: Path) -> None:
    """What a kill has left of the last row: it has no line end."""
    with path.open("rb+") as file:
        end = at = file.seek(0, os.SEEK_END)
        while at > 0:
            start = max(0, at - 65536)
            file.seek(start)
            found = file.read(at - start).rfind(b"\n")
            if found >= 0:
                at = start + found + 1
                break
            at = start
        if at != end:
            file.truncate(at)
