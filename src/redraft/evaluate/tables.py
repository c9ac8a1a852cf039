"""The table `[calibrated]` of the project's file: written beside what is there already, read by `"auto"`."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redraft.config import project_file, project_path
from redraft.errors import ConfigError

NAME = "calibrated"
_HEAD = f"# Written by `redraft calibrate`: what was measured, and what {json.dumps('auto')} makes of it."


def found(key: str) -> dict[str, Any] | None:
    """The entry of this model and task; None if it was never calibrated."""
    tables = project_file().get(NAME)
    entry = tables.get(key) if isinstance(tables, Mapping) else None
    if entry is not None and not isinstance(entry, Mapping):
        raise ConfigError(f"[{NAME}.{json.dumps(key)}] must be a table, got {entry!r}; calibrate again, or remove it")
    return None if entry is None else dict(entry)


def put(key: str, entry: Mapping[str, Any], path: Path | None = None) -> Path:
    """Write an entry into `path`, or the project's file, or a new `redraft.toml`; an older one of this key goes, all else
    stays as it is. Raises `ConfigError` if the file cannot be read or written.
    """
    path = path or project_path() or Path("redraft.toml")
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        before = tomllib.loads(text)
        prefix = ["tool", "redraft", NAME] if path.name == "pyproject.toml" else [NAME]
        header = ".".join([*prefix, json.dumps(key)])
        kept = _without(text, header).rstrip("\n")
        block = "\n".join(_lines(header, entry))
        whole = f"{kept}\n\n{block}\n" if kept else f"{_HEAD}\n\n{block}\n"
        _check(before, tomllib.loads(whole), prefix, key)
        part = Path(f"{path}.part")
        part.write_text(whole, encoding="utf-8")
        part.replace(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot take the calibration: {error}") from error
    return path


def _without(text: str, header: str) -> str:
    """The file without the table of this name and those inside it."""
    lines, inside = [], False
    for line in text.splitlines(keepends=True):
        name = line.strip()
        if name.startswith("["):
            inside = name.startswith((f"[{header}]", f"[{header}."))
        if not inside:
            lines.append(line)
    return "".join(lines)


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
