"""Rows in files: JSON Lines, CSV, and Parquet (with `redraft[parquet]`), told by the file's name."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from redraft.errors import ConfigError, InputError, UsageError
from redraft.jsonable import as_text, plain

STDIN = "-"
_LINES = (".jsonl", ".ndjson", ".json")
_TABLES = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_AT_ONCE = 1000


def kind_of(path: str) -> str:
    """Which kind of file it is: "lines", "table" or "parquet". Raises `InputError` for another ending."""
    ending = Path(path).suffix.lower()
    if path == STDIN or ending in _LINES:
        return "lines"
    if ending in _TABLES:
        return "table"
    if ending in _PARQUET:
        return "parquet"
    raise InputError(f"{path}: the ending says neither JSON Lines (.jsonl) nor CSV (.csv, .tsv) nor Parquet (.parquet)")


def read_rows(path: str) -> Iterator[Any]:
    """The file's rows, one by one: a mapping each, or, where a line is none, its text. Raises `InputError` if the file cannot
    be read.
    """
    kind = kind_of(path)
    try:
        if kind == "parquet":
            yield from _parquet_rows(path)
            return
        with _opened(path) as file:
            yield from _table_rows(file, path) if kind == "table" else _line_rows(file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def count_rows(path: str) -> int | None:
    """How many rows there are, as far as that can be told without reading them all as values; None for a pipe."""
    if path == STDIN or not Path(path).is_file():
        return None
    if kind_of(path) == "parquet":
        return int(_parquet().ParquetFile(path).metadata.num_rows)
    if kind_of(path) == "table":
        return sum(1 for _ in read_rows(path))
    with Path(path).open("rb") as file:
        return sum(1 for line in file if line.strip())


@contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    if path == STDIN:
        yield sys.stdin
        return
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        yield file


def _line_rows(file: Iterable[str]) -> Iterator[Any]:
    for line in file:
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            yield line.rstrip("\r\n")


def _table_rows(file: IO[str], path: str) -> Iterator[Any]:
    csv.field_size_limit(sys.maxsize)
    for row in csv.DictReader(file, delimiter=_TABLES[Path(path).suffix.lower()]):
        if None in row:
            yield f"a row with more cells than the header: {as_text(dict.fromkeys(row[None]))}"
        else:
            yield {name: value for name, value in row.items() if value is not None}


def _parquet_rows(path: str) -> Iterator[Any]:
    for part in _parquet().ParquetFile(path).iter_batches(batch_size=_AT_ONCE):
        yield from part.to_pylist()


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError("Parquet files need the package pyarrow: pip install 'redraft[parquet]'") from error
    return parquet


def check_writable(path: str) -> None:
    """Raises before anything is spent if a file of this kind cannot be written here."""
    if kind_of(path) == "parquet":
        _parquet()
    folder = Path(path).absolute().parent
    if path == STDIN or Path(path).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{path} cannot be written: name a file in a folder that is there and may be written to")


@contextmanager
def alone(source: str, out: str) -> Iterator[None]:
    """While a batch writes `out`: no other process does. Raises `UsageError` if one does, or if it is the input."""
    check_writable(out)
    if source != STDIN and Path(out).exists() and Path(source).exists() and Path(source).samefile(out):
        raise UsageError(f"{out} is the input and the output: name another file for the rows that come out")
    path = Path(f"{out}.lock")
    with path.open("a+b") as held:
        try:
            _lock(held.fileno())
        except OSError as error:
            raise UsageError(f"another process works on {out}; wait for it, or end it") from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _lock(descriptor: int) -> None:
    """Raises `OSError` if another process has it; a process that dies lets go."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def convert(lines: Path, path: str) -> None:
    """Make of a file of JSON Lines one of another kind; the old one at `path` stays until the new one is whole."""
    part = Path(f"{path}.part")
    if kind_of(path) == "parquet":
        _to_parquet(lines, part)
    else:
        _to_table(lines, part, _TABLES[Path(path).suffix.lower()])
    part.replace(path)


def _columns(lines: Path) -> list[str]:
    names: dict[str, None] = {}
    with lines.open(encoding="utf-8") as file:
        for row in _line_rows(file):
            names.update(dict.fromkeys(row))
    return list(names)


def _to_table(lines: Path, path: Path, delimiter: str) -> None:
    with lines.open(encoding="utf-8") as file, path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, _columns(lines), delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        for row in _line_rows(file):
            writer.writerow({name: "" if value is None else as_text(value) for name, value in row.items()})


def _to_parquet(lines: Path, path: Path) -> None:
    import pyarrow as pa

    parquet = _parquet()
    kinds = _kinds(lines, pa)
    schema = pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
    with lines.open(encoding="utf-8") as file, parquet.ParquetWriter(path, schema) as writer:
        rows = _line_rows(file)
        while part := list(islice(rows, _AT_ONCE)):
            fitting = [{name: _fit(row.get(name), kinds[name], pa) for name in kinds} for row in part]
            writer.write_table(pa.Table.from_pylist(fitting, schema=schema))


def _kinds(lines: Path, pa: Any) -> dict[str, Any]:
    """A type for each column: one that holds all of its values, or text."""
    kinds: dict[str, Any] = {}
    with lines.open(encoding="utf-8") as file:
        for row in _line_rows(file):
            for name, value in row.items():
                kind = pa.null() if value is None else _kind(value, pa)
                kinds[name] = _common(kinds.get(name, kind), kind, pa)
    return {name: pa.string() if kind == pa.null() else kind for name, kind in kinds.items()}


def _kind(value: Any, pa: Any) -> Any:
    for type_, kind in ((bool, pa.bool_()), (int, pa.int64()), (float, pa.float64())):
        if isinstance(value, type_):
            return kind
    return pa.string()  # lists and mappings as JSON: their form may change from row to row


def _common(a: Any, b: Any, pa: Any) -> Any:
    if a == b or b == pa.null():
        return a
    if a == pa.null():
        return b
    return pa.float64() if {a, b} == {pa.int64(), pa.float64()} else pa.string()


def _fit(value: Any, kind: Any, pa: Any) -> Any:
    if value is None:
        return None
    return as_text(value) if kind == pa.string() else float(value) if kind == pa.float64() else value


def as_line(row: dict[str, Any]) -> str:
    """A row as one line of JSON, whatever its values are."""
    line = json.dumps(row, ensure_ascii=False, default=plain)
    try:
        line.encode()
    except UnicodeEncodeError:  # half an emoji, cut by some model: it stays an escape
        line = json.dumps(row, default=plain)
    return line + "\n"
