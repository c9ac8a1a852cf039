"""The table `[calibrated]` of the project's file: written beside what is there already, read by `"auto"`."""

from __future__ import annotations

import json
import math
import os
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from redraft.config import project_file, project_path
from redraft.errors import ConfigError

NAME = "calibrated"
_WRITE = 0o222
_HEAD = f"# Written by `redraft calibrate`: what was measured, and what {json.dumps('auto')} makes of it."


def found(key: str, tables: Any = None) -> dict[str, Any] | None:
    """The entry of this model and task in `[calibrated]` (None: of the project's file); None if it was never calibrated."""
    tables = project_file().get(NAME, {}) if tables is None else tables
    if not isinstance(tables, Mapping):
        raise ConfigError(f"[{NAME}] must be a table of tables, got {tables!r:.80}; remove it, and calibrate again")
    entry = tables.get(key)
    if entry is not None and not isinstance(entry, Mapping):
        where = f"[{NAME}.{json.dumps(key)}]"
        raise ConfigError(f"{where} must be a table, got {entry!r:.80}; calibrate again, or remove it")
    return None if entry is None else dict(entry)


def put(key: str, entry: Mapping[str, Any], path: Path | None = None) -> Path:
    """Write an entry into `path`, or the project's file, or a new `redraft.toml`; an older one of this key goes with what
    is inside its tables, all else stays as it is. Raises `ConfigError` if the file cannot be read or written.
    """
    path = writable(key, path)
    try:
        part = Path(f"{path}.part")
        part.write_bytes(_with(key, entry, path).encode("utf-8"))
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot take the calibration: {error}") from error
    return path


def _with(key: str, entry: Mapping[str, Any], path: Path) -> str:
    """The file with the entry in it. Raises `ConfigError` if it cannot be read, or holds the table in another form."""
    try:
        text = path.read_bytes().decode("utf-8") if path.exists() else ""
        end = "\r\n" if "\r\n" in text else "\n"
        before = tomllib.loads(text)
        prefix = ["tool", "redraft", NAME] if path.name == "pyproject.toml" else [NAME]
        header = ".".join([*prefix, json.dumps(key)])
        above, own, behind = (part.strip("\r\n") for part in _around(text, [*prefix, key]))
        block = end.join([*([own] if own else []), *_lines(header, entry)])
        head = above or ("" if own or behind else _HEAD)
        whole = f"{end}{end}".join(filter(None, (head, block, behind))) + end
        _check(before, tomllib.loads(whole), prefix, key)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot take the calibration ({error}): write [{NAME}] in tables of its own, or take it out; or name "
            "another file with --config"
        ) from error
    return whole


def writable(key: str, path: Path | None = None) -> Path:
    """The file that `put` would write. Raises `ConfigError` where that cannot be done: asked before anything is spent."""
    path = (path or project_path() or Path("redraft.toml")).expanduser()
    path = path.resolve() if path.is_symlink() else path
    why = ""
    if path.is_dir() or not path.absolute().parent.is_dir():
        why = "it is a folder" if path.is_dir() else "its folder is not there"
    elif path.exists() and not (os.access(path, os.W_OK) and path.stat().st_mode & _WRITE):
        why = "it is read-only"
    else:
        try:
            part = Path(f"{path}.part")
            part.touch()
            part.unlink()
        except OSError as error:
            why = f"{part} cannot be made ({error.strerror})"
    if why:
        raise ConfigError(
            f"{path} cannot take the calibration: {why}; name another file with --config, or take --no-write"
        )
    _with(key, {"strategy": "auto"}, path)
    return path


def _around(text: str, name: Sequence[str]) -> tuple[str, str, str]:
    """What stands before the table of this name and those inside it, the comments above it, and what stands behind; all of
    it before, where there is no such table.
    """
    blocks = list[list[str]]([[]])
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            blocks.append(_taken(blocks[-1]))
        blocks[-1].append(line)
    blocks.append(_taken(blocks[-1]))
    ours = [i for i, block in enumerate(blocks) if _names(block, name)]
    first = ours[0] if ours else len(blocks)
    own = [line for block in blocks[first : first + 1] for line in _above(block)]
    before = [line for block in blocks[:first] for line in block]
    behind = [line for i, block in enumerate(blocks) if i > first and i not in ours for line in block]
    return "".join(before), "".join(own), "".join(behind)


def _names(block: list[str], name: Sequence[str]) -> bool:
    """True for the table of this name, and one inside it, however they are spelt."""
    header = "".join(block[len(_above(block)) :][:1]).strip()
    try:
        content: Any = tomllib.loads(header)
    except ValueError:
        return False  # a line of an array
    for part in name:
        if not isinstance(content, dict) or part not in content:
            return False
        content = content[part]
    return True


def _above(block: list[str]) -> list[str]:
    """The lines above the header."""
    return list(takewhile(lambda line: not line.lstrip().startswith("["), block))


def _taken(block: list[str]) -> list[str]:
    """Take out of a block the comments at its end that an empty line parts from it: they speak of what comes next."""
    at = len(block)
    while at and (not block[at - 1].strip() or block[at - 1].lstrip().startswith("#")):
        at -= 1
    at = next((i for i in range(at, len(block)) if not block[i].strip()), len(block))
    taken = block[at:]
    del block[at:]
    return taken


def _check(before: dict[str, Any], after: dict[str, Any], prefix: list[str], key: str) -> None:
    """Raises `ValueError` if anything but the one table has changed: then the file was not understood."""
    for content in (before, after):
        inner: Any = content
        for name in prefix:
            inner = inner.get(name, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict):
            inner.pop(key, None)
        if prefix[-1] in (holder := _holder(content, prefix)) and not holder[prefix[-1]]:
            del holder[prefix[-1]]
    if before != after:
        raise ValueError(f"its table [{'.'.join(prefix)}] is written in a way that cannot be changed line by line")


def _holder(content: dict[str, Any], prefix: list[str]) -> dict[str, Any]:
    for name in prefix[:-1]:
        content = content.get(name, {})
    return content


def _lines(header: str, entry: Mapping[str, Any]) -> list[str]:
    """Values first, then the tables inside."""
    lines = [f"[{header}]"]
    lines += [f"{_key(k)} = {_value(v)}" for k, v in entry.items() if not isinstance(v, Mapping)]
    for name, inner in entry.items():
        if isinstance(inner, Mapping):
            lines += ["", *_lines(f"{header}.{_key(name)}", inner)]
    return lines


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
