"""Rows in files: JSON Lines, CSV, and Parquet (with `redraft[parquet]`), told by the file's name."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from redraft.errors import ConfigError, InputError, UsageError
from redraft.jsonable import as_text, plain
from redraft.locks import lock

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
            yield from _cells_by_name(file, path) if kind == "table" else _line_rows(file)
    except (OSError, ValueError) as error:  # ValueErrors: it is not UTF-8, or not Parquet
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
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8-sig")  # whatever the terminal speaks
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


def table_rows(file: IO[str], delimiter: str = ",") -> Iterator[tuple[int, dict[Any, Any]]]:
    """The rows of a table, each with the number of its last line; a cell beyond the header is in a list at None, a missing
    one is None. Raises `ValueError` for a header or a quote that leaves open which cell belongs to which column.
    """
    csv.field_size_limit(sys.maxsize)
    rows = csv.DictReader(file, delimiter=delimiter, strict=True)
    try:
        names = list(rows.fieldnames or ())
    except csv.Error as error:
        raise ValueError(f"{error}, in its header") from error
    if not names and rows.fieldnames is not None:
        raise ValueError("its first line is empty, and should name the columns")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise ValueError(f"its header has more than one column {twice[0]!r}")
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:  # a quote that nothing closes would take the rest of the file for one cell
        raise ValueError(f"{error}, in the row that begins after line {rows.line_num}") from error


def _cells_by_name(file: IO[str], path: str) -> Iterator[Any]:
    for _, row in table_rows(file, _TABLES[Path(path).suffix.lower()]):
        if None in row:
            yield f"a row with more cells than the header: {', '.join(row[None])}"
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
            lock(held.fileno())
        except OSError as error:
            raise UsageError(f"another process works on {out}; wait for it, or end it") from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


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
    with (
        lines.open(encoding="utf-8") as file,
        path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out,  # half an emoji
    ):
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
    """A type for each column: one that holds all of its values to the last digit, or text."""
    kinds: dict[str, str] = {}
    with lines.open(encoding="utf-8") as file:
        for row in _line_rows(file):
            for name, value in row.items():
                kind = _kind(value)
                kinds[name] = _common(kinds.get(name, kind), kind)
    types = {"bool": pa.bool_(), "int": pa.int64(), "long": pa.int64(), "float": pa.float64()}
    return {name: types.get(kind, pa.string()) for name, kind in kinds.items()}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        # a float holds the small ones, a column of whole numbers the long ones, and nothing those above
        return "int" if abs(value) <= 1 << 53 else "long" if -(1 << 63) <= value < 1 << 63 else "text"
    return "float" if isinstance(value, float) else "text"  # lists and mappings as JSON: their form may change


def _common(a: str, b: str) -> str:
    if a == b or "null" in (a, b):
        return b if a == "null" else a
    return {frozenset({"int", "float"}): "float", frozenset({"int", "long"}): "long"}.get(frozenset({a, b}), "text")


def _fit(value: Any, kind: Any, pa: Any) -> Any:
    if value is None:
        return None
    if kind == pa.string():
        return as_text(value).encode("utf-8", "backslashreplace").decode()  # half an emoji
    return float(value) if kind == pa.float64() else value


def as_line(row: dict[str, Any]) -> str:
    """A row as one line of JSON, whatever its values are: bytes are base64, and NaN and the infinities null."""
    try:
        line = json.dumps(row, ensure_ascii=False, default=_cell, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(row, default=_cell), parse_constant=lambda _: None)
        line = json.dumps(finite, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:  # half an emoji, cut by some model: it stays an escape
        line = json.dumps(json.loads(line))
    return line + "\n"


def _cell(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else plain(value)
