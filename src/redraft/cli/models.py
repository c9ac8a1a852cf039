"""`redraft models`: what there is, fetching a model that runs here, and trying a model out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from redraft.cli.codes import Exit
from redraft.cli.fetching import bar, gigabytes, list_files, pull_from_hub
from redraft.cli.output import emit, say
from redraft.errors import UsageError

if TYPE_CHECKING:
    from redraft.lm.hub import HubName


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> int:
    """List, fetch and try out models."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return Exit.DONE


@models.command("list")
def list_() -> int:
    """Models that run here, servers found, models to fetch that fit this machine, and providers."""
    for line in _listing():
        emit(line)
    return Exit.DONE


@models.command()
@click.argument("name", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask, and fetch what does not fit into memory all the same.")
def pull(name: str | None, yes: bool) -> int:
    """Fetch a model, once; prints where it lies.

    NAME is an embedded model, or hf:OWNER/REPO/FILE.gguf on the Hugging Face Hub (OWNER/REPO@REVISION for another
    revision; hf:OWNER/REPO lists the files). Size, licence and memory are said before a hub's model is fetched.
    """
    from redraft.lm import catalogue

    wanted = _on_a_hub(name)
    if wanted is not None and not wanted.file:
        list_files(wanted)
        return Exit.DONE
    if wanted is not None:
        file = pull_from_hub(wanted, yes=yes)
    else:
        with bar() as progress:
            file = catalogue.pull(_bare(name), progress)
    if file is None:
        say("redraft: not fetched")
        return Exit.FAILED
    emit(str(file))
    return Exit.DONE


@models.command()
@click.argument("name", required=False)
def path(name: str | None) -> int:
    """Print where a model lies, or will lie once pulled."""
    from redraft.lm.catalogue import model_path

    wanted = _on_a_hub(name)
    emit(str(wanted.path if wanted is not None else model_path(_bare(name))))
    return Exit.DONE


@models.command()
@click.argument("name")
def rm(name: str) -> int:
    """Take a model that was pulled from a hub off this machine."""
    from redraft.lm import catalogue, hub

    wanted = _on_a_hub(name)
    if wanted is None:
        file = catalogue.lookup(_bare(name)).path
        raise UsageError(f"{name} was not pulled from a hub but comes with redraft; to free its space delete {file}")
    hub.remove(wanted)
    say(f"Removed {wanted.model}")
    return Exit.DONE


@models.command()
@click.argument("name", required=False)
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server.")
def check(name: str | None, base_url: str | None) -> int:
    """Try a model with a few small calls: what it says it can do, and what it does.

    Exits with 4 if it does not do something that it says it can.
    """
    from redraft.cli.probe import limits, probe
    from redraft.config import resolve_lm
    from redraft.sync import run_sync

    lm = resolve_lm(name, base_url)
    emit(lm.name)
    emit(limits(lm))
    findings, spent = run_sync(lambda: probe(lm))
    emit(f"{'capability':<12} {'declared':<9} tried")
    for found in findings:
        emit(f"{found.name:<12} {'yes' if found.declared else 'no':<9} {found.seen}")
    emit(spent)
    return Exit.DONE if all(found.held for found in findings) else Exit.NOT_PASSED


def _listing() -> Iterator[str]:
    from redraft import registry
    from redraft.lm import hub, machine, servers, suggested
    from redraft.lm.catalogue import MODELS

    for model in MODELS.values():
        here = "here" if model.pulled else f"not here yet: redraft models pull {model.name}"
        yield f"local/{model.name:<16} {gigabytes(model.size):>8}  {model.licence:<11} {here}"
    pulled = hub.pulled()
    yield from (f"{model.name.model}  {gigabytes(model.size)}  {model.licence}  here" for model in pulled)
    yield from (f"found {server}" for server in servers.found())
    memory, cores = machine.memory(), machine.cores()
    free = "memory not known" if memory is None else f"{gigabytes(memory.free)} of memory free"
    yield f"To fetch (redraft models pull NAME), about, for this machine ({cores} cores, {free}):"
    yield f"  {'':<12} {'file':>8} {'memory':>8}  {'licence':<11} name"
    here_already = {str(model.name) for model in pulled}
    for known, verdict in suggested.verdicts(memory, cores):
        if known.name not in here_already:
            sizes = f"{gigabytes(known.size):>8} {gigabytes(known.memory):>8}"
            yield f"  {verdict:<12} {sizes}  {known.licence:<11} hf:{known.name}"
    yield f"providers: {', '.join(f'{name}/...' for name in registry.names('models'))}"


def _on_a_hub(name: str | None) -> HubName | None:
    """The model of a hub that is meant; None for one of the catalogue."""
    from redraft.lm.hub import parse

    return parse(name) if name is not None and (name.startswith("hf:") or "/" in _bare(name)) else None


def _bare(name: str | None) -> str:
    """The catalogue's name: `local/` may stand before it or not; the default without one."""
    from redraft.lm.catalogue import DEFAULT

    return (name or DEFAULT).removeprefix("local/").removeprefix("local:")
