"""`redraft calibrate`: its options. What happens is in `redraft.cli.calibrating`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from redraft.cli.eval import kept_of
from redraft.cli.options import RunOptions
from redraft.cli.run import with_options

_COUNT = click.IntRange(min=1)
_NOT_HERE = ("strategy", "attempts", "rounds", "writer", "editor", "criteria", "effort", "cache", "allow_fail")

EXPLAINED = """\b
Exit codes:
  0    it was measured: something is recommended, or there is no difference, or too little data
  1    it could not go on
  2    wrong usage: nothing was spent
  3    a limit ended it: nothing is written; run it again with a higher one to go on
  130  interrupted (143: terminated); run it again to go on"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions:
    """What only a calibration can be told."""

    source: str
    reward: str | None = None
    threshold: float | None = None
    no_critic: bool = False
    limit: int | None = None
    concurrency: int = 8
    write: bool = True
    config: str | None = None


_OPTIONS = (
    click.option("--reward", metavar="FILE.py:NAME", help="A reward function (args, pred) -> number, as in Refine."),
    click.option("--threshold", type=float, metavar="X", help="The reward that is good enough."),
    click.option("--no-critic", is_flag=True, help="Ask no critic: two calls an example less."),
    click.option(
        "--signature",
        default="task -> answer",
        show_default=True,
        metavar="TEXT",
        help="Which columns are read, and what is made of them.",
    ),
    click.option("-n", "--limit", type=_COUNT, metavar="N", help="The first N examples alone."),
    click.option(
        "--concurrency", type=_COUNT, default=8, show_default=True, metavar="N", help="Items worked on at once."
    ),
    click.option(
        "--write/--no-write", default=True, help="Write the recommendation to redraft.toml (default), or show it."
    ),
    click.option("--config", metavar="FILE", help="The file to write.  [default: the project's, else redraft.toml]"),
    click.option(
        "--store",
        metavar="FILE",
        help="Keep every item in FILE.  [default: REDRAFT_STORE, or DATA's name + .calibrate.runs.db]",
    ),
    click.option("--json", is_flag=True, help="Print what was measured as one JSON object."),
    *kept_of(_NOT_HERE),
)


@click.command(epilog=EXPLAINED)
@click.argument("source", metavar="DATA")
@with_options(_OPTIONS)
def calibrate(**given: Any) -> int:
    """Measure what refinement brings for a model and a task, and have auto use it.

    Of each example of DATA (as for `redraft eval`) a first draft is made, and where it fails --check, each rung of the
    ladder is tried once from that draft: at most 8 calls an example. One third of the failing drafts chooses the best rung,
    the others test it, so that noise is not crowned; 40 of them tell large differences. What is better than blind samples, or
    than showing the draft, is written to redraft.toml with its evidence. It says so when there is no difference, or too little
    data.
    """
    from redraft.cli.calibrating import perform

    own = {name: given.pop(name) for name in CalibrateOptions.__dataclass_fields__}
    return perform(CalibrateOptions(**own), RunOptions(**given))
