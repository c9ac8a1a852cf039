"""`redraft completion`: the script that makes a shell complete the command line, and what is proposed beyond click's own.

click proposes commands, options and choices. What else a parameter takes is told by how the help shows it: FILE is a
file, RUN a run of the store, and so on; the rest is free text.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from redraft.cli.codes import Exit

VARIABLE = "_REDRAFT_COMPLETE"
"""Set while a shell asks what to propose; click derives the name from the program's."""

_RUNS = 100
_WORD = re.compile(r"(?!-)[\w.:@%+=,/-]+")
_Propose = Callable[[click.Context, str], Iterable["CompletionItem[str]"]]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script that makes SHELL complete redraft's commands, options, strategies, checks and runs.

    \b
    bash  echo 'eval "$(redraft completion bash)"' >> ~/.bashrc
    zsh   echo 'eval "$(redraft completion zsh)"' >> ~/.zshrc, below compinit
    fish  redraft completion fish > ~/.config/fish/completions/redraft.fish

    bash must be 4.4 or newer. The script stays the same from version to version: in a file, it costs a new shell nothing.
    """  # noqa: D301 - click reads the backspace
    made = get_completion_class(shell)
    assert made is not None, "click knows these three"
    click.echo(made(click.get_current_context().find_root().command, {}, "redraft", VARIABLE).source())
    return Exit.DONE


def propose(command: click.Command) -> None:
    """Give each parameter of free text, in the command and those below it, what the help says it takes."""
    for parameter in command.params:
        if isinstance(parameter.type, type(click.STRING)) and (found := _for(parameter)) is not None:
            parameter.type = _Proposed(found)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        propose(below)


class _Proposed(click.types.StringParamType):
    """Free text with proposals."""

    def __init__(self, found: _Propose) -> None:
        self._propose = found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """What the shell shows for what was typed so far."""
        del param
        return list(self._propose(ctx, incomplete))


def _for(parameter: click.Parameter) -> _Propose | None:
    if "--strategy" in parameter.opts:
        return _strategies
    return _BY_METAVAR.get((parameter.metavar or parameter.name or "").upper().strip("[]."))


def _strategies(context: click.Context, typed: str) -> Iterator[CompletionItem[str]]:
    from redraft import registry

    auto = [] if context.info_name == "eval" else ["auto"]
    return _beginning(typed, [*auto, *registry.names("strategies")])


def _checks(context: click.Context, typed: str) -> Iterator[CompletionItem[str]]:
    from redraft import registry

    del context
    return _beginning(typed, registry.names("checks"))


def _beginning(typed: str, names: Iterable[str]) -> Iterator[CompletionItem[str]]:
    return (CompletionItem(name) for name in names if name.startswith(typed))


def _files(context: click.Context, typed: str) -> Iterator[CompletionItem[str]]:
    del context
    yield CompletionItem(typed, type="file")


def _folders(context: click.Context, typed: str) -> Iterator[CompletionItem[str]]:
    del context
    yield CompletionItem(typed, type="dir")


def _run_ids(context: click.Context, typed: str) -> Iterator[CompletionItem[str]]:
    """The newest runs that begin so, but for ids that bash, which puts them in without quotes, would take for code.

    The file is only read: a key press neither makes a store nor brings one up.
    """
    import sqlite3

    from redraft.cli.runs import store_path
    from redraft.errors import RedraftError

    with contextlib.suppress(sqlite3.Error, OSError, RedraftError):  # no store, or none that can be read
        address = f"{store_path(context.params.get('store')).absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=1)) as store:
            asked = "SELECT run_id, task FROM runs WHERE substr(run_id, 1, ?) = ? ORDER BY run DESC LIMIT ?"
            rows: list[tuple[str, Any]] = store.execute(asked, (len(typed), typed, _RUNS)).fetchall()
            for run_id, task in (row for row in rows if _WORD.fullmatch(row[0])):
                shown = "".join(c if c.isprintable() else " " for c in str(task or "")[:60])
                yield CompletionItem(run_id, help=shown)


_BY_METAVAR: dict[str, _Propose] = {
    "FILE": _files,
    "DATA": _files,
    "IN": _files,
    "OUT": _files,
    "FOLDER": _folders,
    "NAME:ARGS": _checks,
    "RUN": _run_ids,
}
