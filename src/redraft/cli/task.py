"""Where the task comes from: the argument, a file, or what is piped in."""

from __future__ import annotations

import sys
from pathlib import Path

import click


def read_task(given: str | None, file: str | None) -> str:
    """The task as text. Raises `click.UsageError` if there is none, or more than one."""
    if given is not None and file is not None:
        raise click.UsageError("the task is given twice: as an argument and with --file; leave one out")
    if given is not None and given.startswith("@"):
        file = given[1:]
    if file is not None:
        text, where = _from_file(file), f"the file {file} is empty"
    elif given is None or given == "-":
        text, where = _from_stdin(given), "nothing was piped in"
    else:
        text, where = given, "the task is empty"
    if not text.strip():
        raise click.UsageError(f'{where}; say what to write, e.g. redraft run "Review La Maison in three sentences"')
    return text.rstrip("\r\n")


def _from_file(file: str) -> str:
    try:
        return _decoded(Path(file).expanduser().read_bytes(), f"the task file {file}")
    except OSError as error:
        raise click.UsageError(
            f"the task file {file} cannot be read: {error.strerror}; name a text file "
            "(a task that itself begins with @ can be piped in)"
        ) from error


def _from_stdin(given: str | None) -> str:
    if given is None and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("there is no task; give it as an argument, with --file FILE, or pipe it in")
    return _decoded(sys.stdin.buffer.read(), "what was piped in")


def _decoded(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} is not UTF-8 text (byte {error.start}); convert it first") from error
