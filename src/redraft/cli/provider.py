"""`redraft batch --provider-batch`: the model of all rows through its provider's Batch API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from redraft.cli.batch import BatchOptions
from redraft.cli.options import RunOptions
from redraft.cli.output import say
from redraft.config import resolve_lm
from redraft.errors import UsageError
from redraft.lm.batch_rounds import Rounds
from redraft.sync import run_sync
from redraft.types import Event

ROUNDS = Rounds()


class Working:
    """How many rows are worked on, as a listener of their runs; and the options that their strategy is made of."""

    def __init__(self, run: RunOptions) -> None:
        self.run = run
        self._rows = 0

    def __call__(self, event: Event) -> None:
        """A row begins with its run, and ends with it."""
        if event.scope == "" and event.kind in ("run", "stop"):
            self._rows += 1 if event.kind == "run" else -1

    def rows(self) -> int:
        """How many."""
        return self._rows


@contextmanager
def provider_batches(options: BatchOptions, run: RunOptions) -> Iterator[Working]:
    """The rows' options with the model that --provider-batch asks for.

    Raises `UsageError` or `LMError` where that model has no Batch API, before anything is spent.
    """
    working = Working(run)
    if not options.provider_batch:
        if options.retry_online:
            raise UsageError("--retry-online has no use without --provider-batch")
        yield working
        return
    from redraft.lm.provider_batch import ProviderBatchLM

    lm = ProviderBatchLM(
        resolve_lm(run.model, run.base_url),
        path=f"{options.out}.jobs.db",
        retry_online=options.retry_online,
        keep_jobs=True,  # whoever interrupts the batch goes on with it
        expected=working.rows,
        rounds=ROUNDS,
    )
    try:
        run_sync(lm.check)
        if not run.quiet:
            say(
                f"redraft: {lm.name} is asked in jobs of its Batch API, each of up to a day; the same command goes on if killed"
            )
        model: Any = lm  # `resolve_lm` takes a model as well as a name
        working.run = replace(run, model=model, base_url=None)
        yield working
    finally:
        lm.close()
