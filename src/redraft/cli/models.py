"""`redraft models`: what there is, fetching an embedded model, and trying a model out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from redraft.cli.codes import Exit
from redraft.cli.output import emit


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> int:
    """List, fetch and try out models."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return Exit.DONE


@models.command("list")
def list_() -> int:
    """The embedded models and whether they are here, and the known providers."""
    from redraft import registry
    from redraft.lm.catalogue import MODELS

    for model in MODELS.values():
        here = "here" if model.pulled else f"not here yet: redraft models pull {model.name}"
        emit(f"local/{model.name:<16} {model.size / 1e6:>5.0f} MB  {model.licence:<11} {here}")
    emit(f"providers: {', '.join(f'{name}/...' for name in registry.names('models'))}")
    return Exit.DONE


@models.command()
@click.argument("name", required=False)
def pull(name: str | None) -> int:
    """Fetch an embedded model, once; prints where it lies."""
    from redraft.lm import catalogue

    with _bar() as progress:
        path = catalogue.pull(_bare(name), progress)
    emit(str(path))
    return Exit.DONE


@models.command()
@click.argument("name", required=False)
def path(name: str | None) -> int:
    """Print where an embedded model lies, or will lie once pulled."""
    from redraft.lm.catalogue import model_path

    emit(str(model_path(_bare(name))))
    return Exit.DONE


@models.command()
@click.argument("name", required=False)
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server.")
def check(name: str | None, base_url: str | None) -> int:
    """Try a model with a few small calls: what it says it can do, and what it does.

    Exits with 4 if it does not do something that it says it can.
    """
    from redraft.cli.probe import probe
    from redraft.config import resolve_lm
    from redraft.sync import run_sync

    lm = resolve_lm(name, base_url)
    emit(lm.name)
    findings, spent = run_sync(lambda: probe(lm))
    emit(f"{'capability':<12} {'declared':<9} tried")
    for found in findings:
        emit(f"{found.name:<12} {'yes' if found.declared else 'no':<9} {found.seen}")
    emit(spent)
    return Exit.DONE if all(found.held for found in findings) else Exit.NOT_PASSED


def _bare(name: str | None) -> str:
    """The catalogue's name: `local/` may stand before it or not; the default without one."""
    from redraft.lm.catalogue import DEFAULT

    return (name or DEFAULT).removeprefix("local/").removeprefix("local:")


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    with Progress(BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
