"""Inputs of any size: what the sandbox is given, and what a model is told of them (never the content, unless it is short)."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from redraft.errors import InputError
from redraft.modules.wire import parts_of, to_text
from redraft.record import inputs_digest
from redraft.sync import in_thread

SHORT = 600
"""Characters of a value that is shown as it is."""
HEAD, TAIL = 400, 200
"""Characters of a longer one that are shown."""

_SLICE = 1_000_000  # characters that are worked on at once
_SAMPLE = 65_536  # bytes or characters that are looked at to say what a text is
_BIG = 1_000_000


@dataclass(frozen=True, slots=True, repr=False)
class Variable:
    """One input: `value` is what the sandbox is given, `about` what the model is told."""

    value: Any
    about: str
    text: str | None = None
    """The whole of it as text, where it is short enough for a direct call."""


async def prepared(inputs: Mapping[str, Any], bypass: int) -> dict[str, Variable]:
    """The inputs as variables. `bypass`: up to how many characters a value is kept as text, too.

    Raises `InputError` for what a sandbox cannot hold: images, open files, objects without a JSON form.
    """
    return {name: await in_thread(_prepared, name, value, bypass) for name, value in inputs.items()}


def _prepared(name: str, value: Any, bypass: int) -> Variable:
    if isinstance(value, os.PathLike):
        return _file(name, Path(os.fspath(value)), bypass)
    if isinstance(value, str) and not isinstance(value, Enum):
        return Variable(str(value), _about_text(value), value if len(value) <= bypass else None)
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value)
        head = f", begins {value[:60]!r}" if value else ""
        return Variable(value, f"bytes, {len(value):,} bytes{head}")
    columns = _columns(value)
    value = _rows(name, value) if columns else _json(name, value)
    about = _about_value(value) + (f"; rows of a table with the columns {', '.join(columns)}" if columns else "")
    return Variable(value, about, _if_short(name, value, bypass))


# what it is


def _json(name: str, value: Any) -> Any:
    """The value as JSON holds it."""
    parts = parts_of(value) if isinstance(value, list | tuple | Mapping) else None
    if parts is not None and any(part["type"] != "text" for part in parts):
        raise InputError(
            f"the input {name!r} holds an image, a sound or a file, which code in a sandbox cannot look at; pass its text"
            " or data, or ask Predict"
        )
    if _is_json(value):
        return value
    if hasattr(value, "read"):
        raise InputError(f"the input {name!r} is an open file; pass its Path, or what it holds")
    try:
        return _finite(name, json.loads(json.dumps(value, default=_form_of)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the input {name!r} of type {type(value).__name__} is nothing that code in a sandbox can be given: {error}; "
            "pass text, bytes, numbers, lists, dicts, tables or the Path of a file"
        ) from error


def _form_of(value: Any) -> Any:
    """What JSON has no form for by itself: numpy's arrays and numbers, times, and what a prompt has a form for."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    try:
        return json.loads(to_text([value]))[0]
    except InputError as error:
        raise TypeError(f"{type(value).__name__} has no JSON form") from error


def _is_json(value: Any) -> bool:
    """True if JSON holds it as it is."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is list:
            waiting += item
        elif kind is dict:
            if not all(type(key) is str for key in item):
                return False
            waiting += item.values()
        elif kind is float:
            if not math.isfinite(item):
                return False
        elif kind not in (str, int, bool, type(None)):
            return False
        if len(waiting) > 50_000_000:
            return False
    return True


def _finite(name: str, value: Any) -> Any:
    """NaN is how data says that nothing is there; infinity says something that JSON cannot."""
    if isinstance(value, dict):
        return {key: _finite(name, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(name, item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        raise InputError(f"the input {name!r} holds {value}, which JSON has no form for; replace it")
    return value


def _columns(value: Any) -> list[str]:
    """The names of a table's columns (pandas, polars, Arrow, told by their shape); empty for anything else."""
    names = getattr(value, "columns", None) if not isinstance(value, Mapping | str | list | tuple) else None
    if names is None or not any(hasattr(value, way) for way in ("to_dicts", "to_pylist", "to_dict")):
        return []
    names = getattr(value, "column_names", names)
    return [str(name) for name in names]


def _rows(name: str, table: Any) -> list[dict[str, Any]]:
    if hasattr(table, "to_dicts"):
        rows = table.to_dicts()
    elif hasattr(table, "to_pylist"):
        rows = table.to_pylist()
    else:
        rows = table.to_dict("records")
    return [{str(key): _cell(name, item) for key, item in row.items()} for row in rows]


def _cell(name: str, item: Any) -> Any:
    """A table's value: its own kinds of number and time as plain ones, what is missing as None."""
    if type(item) in (str, int, bool, type(None)):
        return item
    if isinstance(item, float):
        return None if math.isnan(item) else _finite(name, float(item))
    if item != item:  # noqa: PLR0124 - NaT and its like are told by that alone
        return None
    if hasattr(item, "isoformat"):
        return item.isoformat()
    if type(item).__name__ == "NAType":
        return None
    return _json(name, item)


def _file(name: str, path: Path, bypass: int) -> Variable:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_SAMPLE)
            file.seek(max(0, size - _SAMPLE))
            tail = file.read(_SAMPLE) if size > _SAMPLE else head
    except OSError as error:
        raise InputError(f"the input {name!r}: {path} cannot be read: {error.strerror or error}") from error
    whole = head if size <= len(head) else b""
    try:
        text = _decoded(whole or head, whole=bool(whole))
    except UnicodeDecodeError:
        return Variable(path, f"bytes, {size:,} bytes, of the file {path.name}, begins {head[:60]!r}")
    if size <= len(head):
        about = f"{_about_text(text)}; of the file {path.name}"
        return Variable(path, about, text if len(text) <= bypass else None)
    rate = head.count(b"\n") + tail.count(b"\n")
    lines = f", about {round(rate * size / (len(head) + len(tail)), -3):,.0f} lines" if rate > 1 else ""
    return Variable(
        path,
        f"str, {size:,} bytes in UTF-8{lines}; of the file {path.name}{_form(text)}"
        f"{_ends(text[:HEAD], tail.decode('utf-8', 'replace')[-TAIL:])}",
    )


def _decoded(data: bytes, *, whole: bool) -> str:
    """Text of UTF-8 bytes; those of a part may end inside a character."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - 3:
            raise
        return data[: error.start].decode("utf-8")


# what is said of it


def _about_text(text: str) -> str:
    if len(text) <= SHORT:
        return f"str, {len(text):,} characters: {text!r}"
    lines = sum(text.count("\n", at, at + _SLICE) for at in range(0, len(text), _SLICE)) + 1
    said = f", {lines:,} lines" if lines > 1 else ""
    return f"str, {len(text):,} characters{said}{_form(text[:_SAMPLE])}{_ends(text[:HEAD], text[-TAIL:])}"


def _ends(head: str, tail: str) -> str:
    return f"\n    begins {head!r}\n    ends {tail!r}"


def _form(sample: str) -> str:
    """What a text's beginning looks like, where that is plain."""
    lines = [line for line in sample.split("\n", 6)[:6] if line.strip()]
    if not lines:
        return ""
    first = lines[0].strip()
    if first.startswith("{") and (keys := _keys_of(first)):
        return f"; JSON lines with the keys {keys}" if len(lines) > 1 else f"; JSON with the keys {keys}"
    if first.startswith(("[", "{")):
        return "; looks like JSON"
    for mark, called in (("\t", "tabs"), (",", "commas"), (";", "semicolons")):
        counts = {line.count(mark) for line in lines[:4]}
        if len(lines) > 2 and len(counts) == 1 and counts.pop() > 0 and len(first) < SHORT:
            return f"; looks like a table, split by {called}, first line {first!r}"
    return ""


def _keys_of(line: str) -> str:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return ", ".join(map(repr, list(found)[:30])) if isinstance(found, dict) else ""


def _about_value(value: Any) -> str:
    """A list or dict by its size, kinds and first items; anything small as it is."""
    if not isinstance(value, list | dict):
        return f"{type(value).__name__}: {value!r}"
    shown = _cut_json(value, SHORT)
    if shown is not None:
        return f"{type(value).__name__}, {len(value):,} items: {shown}"
    if isinstance(value, list):
        return (
            f"list, {len(value):,} items{_kinds(value)}\n    first {_head_of(value[0])}\n    last {_head_of(value[-1])}"
        )
    listed = ", ".join(f"{key!r} ({_kind(item)})" for key, item in list(value.items())[:20])
    more = f", and {len(value) - 20:,} more" if len(value) > 20 else ""
    return f"dict, {len(value):,} keys: {listed}{more}"


def _kinds(items: list[Any]) -> str:
    some = items[:1000]
    kinds = sorted({type(item).__name__ for item in some})
    said = f" of {', '.join(kinds)}"
    if kinds == ["dict"]:
        said += f" with the keys {', '.join(map(repr, list(dict.fromkeys(k for item in some for k in item))[:30]))}"
    elif kinds == ["str"]:
        lengths = [len(item) for item in some]
        said += f" of {min(lengths):,} to {max(lengths):,} characters"
    return said


def _kind(item: Any) -> str:
    return f"{type(item).__name__} of {len(item):,}" if isinstance(item, str | list | dict) else repr(item)[:40]


def _head_of(item: Any) -> str:
    return _cut_json(item, HEAD // 2) or f"{_joined(item, HEAD // 2)} ..."


def _joined(value: Any, most: int) -> str:
    """The beginning of a value's JSON, without writing all of it."""
    found = ""
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value if not isinstance(value, str) else value[:most]):
        found += piece
        if len(found) > most:
            return found[:most]
    return found


def _cut_json(value: Any, most: int) -> str | None:
    """A value's JSON if it is that short."""
    if isinstance(value, str) and len(value) > most:
        return None
    text = _joined(value, most + 1)
    return text if len(text) <= most else None


def _if_short(name: str, value: Any, bypass: int) -> str | None:
    if isinstance(value, list | dict) and _cut_json(value, bypass) is None:
        return None
    return to_text(value, name)


# which one it is


async def fingerprint(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for the inputs in a run's record, so that a resumed run knows them again.

    A file is its path, size and time of change: what `make` goes by. Its content would say more, but costs reading
    all of it on each call and attempt. Long texts and bytes are hashed in slices, beside the loop.
    """
    return {name: await _fingerprint(name, value) for name, value in inputs.items()}


async def _fingerprint(name: str, value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return stamp(name, Path(os.fspath(value)))
    if isinstance(value, str | bytes | bytearray) and len(value) > _BIG:
        return {"hash": await in_thread(_hashed, value), "length": len(value)}
    if _columns(value):
        value = await in_thread(_rows, name, value)
    if isinstance(value, list | tuple | dict):
        return {"hash": await in_thread(inputs_digest, {name: value})}
    return value


def stamp(name: str, path: Path) -> dict[str, Any]:
    """What says whether a file is what it was. Raises `InputError`."""
    try:
        at = path.stat()
    except (OSError, ValueError) as error:  # a name with a null in it is a ValueError
        raise InputError(f"the input {name!r}: {path} cannot be read: {getattr(error, 'strerror', error)}") from error
    if not stat.S_ISREG(at.st_mode):
        raise InputError(f"the input {name!r}: {path} is no file that can be read again; pass what it holds")
    return {"path": str(path), "size": at.st_size, "changed": at.st_mtime_ns}


def _hashed(value: str | bytes | bytearray) -> str:
    hashed = blake2b(digest_size=12)
    for at in range(0, len(value), _SLICE):
        piece = value[at : at + _SLICE]
        hashed.update(piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece)
    return hashed.hexdigest()
