"""`redraft eval`: its options. What happens is in `redraft.cli.evaluating`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from redraft.cli.options import RunOptions
from redraft.cli.run import COMMON, with_options

_COUNT = click.IntRange(min=1)

_PER_STRATEGY = ("attempts", "rounds", "writer", "editor", "critic", "criteria")
"""Options of `redraft run` that are given with a strategy here: `--strategy refine:attempts=5`."""
_NOT_HERE = ("strategy", "allow_fail", "cache", *_PER_STRATEGY)

EXPLAINED = """\b
Exit codes:
  0    every item was evaluated (an item that failed scores 0)
  1    the evaluation could not go on, or not one item came to a score
  2    wrong usage: nothing was spent
  3    a limit ended it: the report says what is missing; run it again with a higher one to go on
  130  interrupted (143: terminated); run it again to go on"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """What only an evaluation can be told."""

    source: str
    strategies: tuple[str, ...]
    metric: str | None = None
    out: str | None = None
    limit: int | None = None
    concurrency: int = 8
    larger: str | None = None
    thinking: str | None = None
    no_baselines: bool = False


def kept_of(names: tuple[str, ...]) -> tuple[Any, ...]:
    """The options of `redraft run` but for these."""

    def name_of(option: Any) -> str:
        def probe() -> None:
            """Holds the option for a moment."""

        option(probe)
        return str(probe.__click_params__[0].name)  # type: ignore[attr-defined]

    return tuple(option for option in COMMON if name_of(option) not in names)


_OPTIONS = (
    click.option(
        "--strategy",
        "strategies",
        multiple=True,
        required=True,
        metavar="NAME[:OPTION=VALUE,...]",
        help="What to evaluate, may be repeated: refine, best-of-n:attempts=5, 'self-refine:rounds=2,critic=strict editor', "
        "predict, or NAME of FILE.py as FILE.py:NAME.",
    ),
    click.option(
        "--metric",
        metavar="WHAT",
        help="What an answer is judged by: exact:COLUMN, a check such as words:20-40, or FILE.py:NAME, a function "
        "(example, prediction). Without it, the checks judge.",
    ),
    click.option(
        "--signature",
        default="task -> answer",
        show_default=True,
        metavar="TEXT",
        help="Which columns are read, and what is made of them.",
    ),
    click.option(
        "-o", "--out", metavar="PREFIX", help="Write PREFIX.json, .md and .svg.  [default: DATA's name + .eval]"
    ),
    click.option("-n", "--limit", type=_COUNT, metavar="N", help="The first N examples alone."),
    click.option(
        "--concurrency", type=_COUNT, default=8, show_default=True, metavar="N", help="Items worked on at once."
    ),
    click.option("--larger", metavar="MODEL", help="A larger model, once an example, to compare with."),
    click.option(
        "--thinking",
        metavar="LEVEL",
        help="More thinking, once an example, to compare with.  [default: high, where the model has an effort; none: not]",
    ),
    click.option("--no-baselines", is_flag=True, help="Neither single shot nor equal-cost best of N."),
    click.option(
        "--store", metavar="FILE", help="Keep every item in FILE.  [default: REDRAFT_STORE, or PREFIX.runs.db]"
    ),
    click.option("--json", is_flag=True, help="Print the report as one JSON object."),
    *kept_of(_NOT_HERE),
)


@click.command("eval", epilog=EXPLAINED)
@click.argument("source", metavar="DATA")
@with_options(_OPTIONS)
def evaluation(**given: Any) -> int:
    """Say whether refinement pays: strategies on the examples of DATA, beside what they have to beat.

    DATA is a .jsonl, .csv, .tsv or .parquet file, or hf:NAME[:SPLIT], a data set of Hugging Face. Beside each strategy stand a
    single shot and the best of as many blind samples as its calls would pay for; more thinking, where the model has an
    effort; and with --larger a larger model. Pairs of the same example are compared, with 95% intervals.

    Killed or interrupted, the same command goes on where it was, and buys no reply again.
    """
    from redraft.cli.evaluating import perform

    own = {name: given.pop(name) for name in EvalOptions.__dataclass_fields__}
    return perform(EvalOptions(**own), RunOptions(**given))
