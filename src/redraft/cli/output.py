"""What goes to stdout and stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

import click


def emit(text: str) -> None:
    """Write a text and a line end to stdout. A reader that has left is no error; a full disk is one."""
    if sys.stdout is None:
        raise click.ClickException("stdout is closed: the text could not be written")
    try:
        click.echo(text, color=True)  # True: as it stands, nothing stripped
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered must not fail again at exit
        if not isinstance(error, BrokenPipeError):
            raise click.ClickException(f"the text could not be written to stdout: {error.strerror}") from error


def emit_json(data: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    from redraft.jsonable import plain

    wide = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    emit(json.dumps(data, ensure_ascii=not wide, indent=2, default=plain))


def complain(error: object) -> None:
    """One paragraph on stderr."""
    from redraft.result import one_line

    say(f"redraft: {one_line(error)}")


def say(line: str) -> None:
    """One line on stderr. Where it cannot be written it is dropped: the text on stdout matters more."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        click.echo(line, err=True)
        sys.stderr.flush()


def coloured() -> bool:
    """True if stdout is a terminal that wants colours."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )
