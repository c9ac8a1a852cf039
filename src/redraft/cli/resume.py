"""`redraft resume`: a run that was killed, interrupted or ended by a limit goes on where it was."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from redraft.cli.codes import EXPLAINED
from redraft.cli.options import RunOptions
from redraft.cli.output import say
from redraft.cli.runs import opened, whole_id
from redraft.errors import StoreError, UsageError
from redraft.result import count
from redraft.types import Event

if TYPE_CHECKING:
    from redraft.store.sqlite import SqliteStore

_COUNT = click.IntRange(min=1)
_AMOUNT = click.FloatRange(min=0, min_open=True)


@click.command(epilog=EXPLAINED)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--store", metavar="FILE", help="The file that the run is in.  [default: as of `redraft runs`]")
@click.option("--call-limit", type=_COUNT, metavar="N", help="Hard limit on calls, those from before included.")
@click.option("--token-limit", type=_COUNT, metavar="N", help="The same for tokens.")
@click.option("--cost-limit", type=_AMOUNT, metavar="DOLLARS", help="The same for money.")
@click.option(
    "--time-limit", type=_AMOUNT, metavar="SECONDS", help="The same for time; what lay between does not count."
)
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@click.option("--json", is_flag=True, help="Print the whole run as one JSON object.")
@click.option("--show", type=click.Choice(["trajectory"]), help="Print every draft, what changed and why.")
@click.option("--allow-fail", is_flag=True, help="Exit with 0 even if checks did not pass.")
def resume(run_id: str | None, store: str | None, **given: Any) -> int:
    """Go on where a run of `redraft run` or `redraft rlm` was: what it has bought is not bought again.

    Without RUN it is the newest one of these.

    RUN is a run's id, or as much of its beginning as no other run has. The task and the options are those that it was begun
    with, its limits those that are given here (none: none but the configured ones). A run that had ended is shown again.
    """
    from redraft.cli.perform import carry_out

    if given["json"] and given["show"]:
        raise click.UsageError(f"--json holds the {given['show']} already; leave out --show")
    with opened(store) as kept:
        whole = _newest(kept, quiet=given["quiet"]) if run_id is None else whole_id(kept, run_id)
        spec = _spec(whole, kept.read(whole))
        where = str(kept.path)
    if "rlm" in spec:
        from redraft.cli.asking import AskOptions, ask

        return ask(AskOptions.of_spec(spec["options"], store=where, **given), whole)
    return carry_out(RunOptions.of_spec(spec["options"], store=where, **given), spec["task"], whole)


def _newest(kept: SqliteStore, *, quiet: bool) -> str:
    """The newest run that can be gone on with: not one of a batch, an evaluation, a server or a program."""
    ids = kept.run_ids()
    for run_id in ids:
        with contextlib.suppress(UsageError, StoreError):  # it is one of those; it is damaged
            _spec(run_id, kept.read(run_id))
            if run_id != ids[0] and not quiet:
                say(f"redraft: going on with {run_id}; what is newer was begun otherwise")
            return run_id
    raise UsageError(
        f"none of the {count(len(ids), 'run')} in {kept.path} can be gone on with: `redraft run` or `redraft rlm` began none "
        "of them; `redraft runs list` shows what they are"
    )


def _spec(run_id: str, events: Sequence[Event]) -> dict[str, Any]:
    """What the run is made of. Raises `UsageError` for one that `redraft run` did not begin."""
    found = next((e.data.get("spec") for e in reversed(events) if e.kind == "run"), None)
    spec = found if isinstance(found, dict) else {}
    if "batch" in spec or any(event.kind == "batch" for event in events[:1]):
        raise UsageError(
            f"{run_id} is part of a batch: give the same `redraft batch` command again, which goes on with it"
        )
    if "options" not in spec:
        raise UsageError(
            f"run {run_id} was begun by a program, which alone knows its strategy: there, "
            f"Run.resume({run_id!r}, store=store).execute(strategy, inputs) goes on with it"
        )
    options = spec["options"]
    if (
        not isinstance(options, dict)
        or not isinstance(spec.get("task"), str)
        or ("rlm" in spec and "question" not in options)
    ):
        raise UsageError(
            f"run {run_id} cannot be gone on with: its task and options are not as `redraft run` and `redraft rlm` record them, so "
            "another program wrote them; begin it again"
        )
    return spec
