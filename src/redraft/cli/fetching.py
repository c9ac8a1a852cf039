"""`redraft models pull`: what a fetch will take is said, and asked about, before it begins; then a bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from redraft.cli.output import emit, say
from redraft.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from redraft.lm.hub import HubName
    from redraft.lm.hub_client import Offer
    from redraft.lm.machine import Memory


def gigabytes(size: int) -> str:
    """A size for people: "98 MB", "1.1 GB"."""
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def list_files(name: HubName) -> None:
    """Print the GGUF models of a repository, as names to pull."""
    from redraft.lm.hub_client import models_in

    there = models_in(name)
    if not there:
        raise UsageError(f"{name.repo_id} holds no GGUF file; look for a repository that does (often named ...-GGUF)")
    for model, size in there:
        emit(f"{gigabytes(size):>9}  hf:{model}")
    say("Nothing was fetched: name one of these files.")


def pull_from_hub(name: HubName, *, yes: bool) -> Path | None:
    """Fetch a model of a hub and return its file; None if the person at the terminal says no."""
    from redraft.lm import hub, hub_client
    from redraft.lm.machine import memory

    offer = hub_client.offer(name)
    have = memory()
    for line in terms(offer, have, hub_client.free_on_disk()):
        say(line)
    if not yes and not any(model.name == name for model in hub.pulled()) and not agreed(offer, have):
        return None
    with bar() as progress:
        path = hub_client.fetch(offer, progress)
    say(f"Use it with -m {name.model}")
    return path


def terms(offer: Offer, have: Memory | None, disk: int) -> Iterator[str]:
    """What is said before a fetch: name, size, licence, memory."""
    files = f" in {len(offer.files)} files" if len(offer.files) > 1 else ""
    yield f"hf:{offer.name}"
    yield f"  size     {gigabytes(offer.size)}{files}; {gigabytes(disk)} free on the disk"
    yield f"  licence  {offer.licence or 'not stated: look at the model card'}"
    need = (
        f"{gigabytes(offer.size)} and its context, whose size is not known"
        if offer.memory is None
        else f"about {gigabytes(offer.memory)} (the file, and a context of 4 x 4,096 tokens)"
    )
    free = "how much is free here is not known" if have is None else f"{gigabytes(have.free)} free here"
    yield f"  memory   {need}; {free}"
    if offer.context is not None:
        yield f"  context  trained for {offer.context:,} tokens"


def agreed(offer: Offer, have: Memory | None) -> bool:
    """Ask, on a terminal. Elsewhere what fits is fetched, and what does not is an error."""
    need = offer.memory or offer.size
    fits = have is None or need <= have.free
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        warning = "" if fits else "It does not fit into the memory that is free. "
        return click.confirm(f"{warning}Fetch it?", default=fits, err=True)
    if not fits and have is not None:
        raise UsageError(
            f"hf:{offer.name} needs about {gigabytes(need)} of memory, {gigabytes(have.free)} are free here; choose a "
            "smaller one (redraft models list), or fetch it all the same with --yes"
        )
    return True


@contextmanager
def bar() -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    with Progress(BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as shown:
        task = shown.add_task("", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
