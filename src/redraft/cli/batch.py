"""`redraft batch`: its options. What happens is in `redraft.cli.batching`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from redraft.cli.options import RunOptions
from redraft.cli.run import COMMON, with_options

CONCURRENCY = 32
CONCURRENCY_IN_JOBS = 2000
"""With --provider-batch: as many rows make one job."""

_COUNT = click.IntRange(min=1)
_AMOUNT = click.FloatRange(min=0, min_open=True)

EXPLAINED = """\b
Exit codes:
  0    all rows are done and passed
  1    some rows failed, or the batch could not go on
  2    wrong usage: nothing was spent
  3    a limit ended the batch; run it again with a higher one to go on
  4    all rows are done, but not all checks passed (--allow-fail makes this 0)
  130  interrupted (143: terminated); run it again to go on"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What only a batch can be told."""

    source: str
    out: str
    concurrency: int = CONCURRENCY
    provider_batch: bool = False
    retry_online: bool = False
    resume: bool = True
    retry_failed: bool = False
    ordered: bool = False
    store: str | None = None
    batch_id: str | None = None
    cluster: str | None = None
    workers: int | None = None
    item_call_limit: int | None = None
    item_token_limit: int | None = None
    item_cost_limit: float | None = None
    item_time_limit: float | None = None


_OPTIONS = (
    click.option(
        "--signature",
        default="task -> answer",
        show_default=True,
        metavar="TEXT",
        help="Which columns are read, and what is made of them.",
    ),
    click.option(
        "--concurrency",
        type=_COUNT,
        metavar="N",
        help=f"Rows worked on at once.  [default: {CONCURRENCY}; with --provider-batch {CONCURRENCY_IN_JOBS}]",
    ),
    click.option(
        "--provider-batch",
        is_flag=True,
        help="Ask the model through its provider's Batch API, at half price: each round of all rows is one job of up to a day.",
    ),
    click.option(
        "--retry-online",
        is_flag=True,
        help="With --provider-batch: what failed in a job is asked online, at full price.",
    ),
    click.option(
        "--resume/--no-resume",
        default=True,
        help="Go on with what OUT and the store hold (default), or start over, and overwrite OUT.",
    ),
    click.option(
        "--retry-failed", is_flag=True, help="Do the rows of OUT again that failed, and ask anew for what was refused."
    ),
    click.option("--ordered", is_flag=True, help="Write rows in the order of IN, not as they end."),
    click.option("--store", metavar="FILE", help="Keep runs in FILE.  [default: REDRAFT_STORE, or OUT.runs.db]"),
    click.option("--batch-id", metavar="NAME", help="Name of the batch in the store."),
    click.option(
        "--cluster",
        metavar="WHERE",
        help="Work on rows in the processes of a Ray cluster: local, auto, HOST:PORT or ray://HOST:PORT.",
    ),
    click.option(
        "--workers", type=_COUNT, metavar="N", help="With --cluster: so many processes.  [default: one a CPU]"
    ),
    click.option("--item-call-limit", type=_COUNT, metavar="N", help="Hard limit on the calls of each row."),
    click.option("--item-token-limit", type=_COUNT, metavar="N", help="Hard limit on the tokens of each row."),
    click.option("--item-cost-limit", type=_AMOUNT, metavar="DOLLARS", help="Hard limit on the money of each row."),
    click.option("--item-time-limit", type=_AMOUNT, metavar="SECONDS", help="Hard limit on the time of each row."),
    *COMMON,
)


@click.command(epilog=EXPLAINED)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT")
@with_options(_OPTIONS)
def batch(**given: Any) -> int:
    """Do for every row of IN what `redraft run` does for one task, and write a row for each to OUT.

    IN and OUT are .jsonl, .csv or .parquet files; - reads JSON Lines that are piped in. Of each row the column `task` is read
    (or what --signature names); all its columns are in OUT, then the answer, its score, what it cost. The limits are those of
    the whole batch, --item-... those of each row.

    Killed or interrupted, the same command goes on where it was, and buys no reply again. Ctrl-C ends it when the rows that
    are under way are done; a second one leaves them for the next time.
    """
    from redraft.cli.batching import perform

    given["concurrency"] = given["concurrency"] or (CONCURRENCY_IN_JOBS if given["provider_batch"] else CONCURRENCY)
    own = {name: given.pop(name) for name in BatchOptions.__dataclass_fields__}
    return perform(BatchOptions(**own), RunOptions(**given))
