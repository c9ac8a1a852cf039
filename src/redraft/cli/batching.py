"""One `redraft batch`, from the rows that are there already to the exit code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, aclosing
from itertools import chain
from typing import Any

from redraft import __version__
from redraft.batch import Batch, BatchItem, Cluster
from redraft.batch.files import STDIN, alone, count_rows, read_rows
from redraft.batch.item import Rows
from redraft.batch.log import number
from redraft.batch.output import Output
from redraft.cli.batch import BatchOptions
from redraft.cli.codes import Exit
from redraft.cli.counted import Counted, counted, summary
from redraft.cli.interrupt import listening, waited_for
from redraft.cli.options import RunOptions
from redraft.cli.output import say
from redraft.cli.perform import no_notices, user_prints
from redraft.cli.plan import budget, chosen, limited
from redraft.cli.provider import provider_batches
from redraft.config import context, store_in_force
from redraft.errors import InputError, UsageError
from redraft.evaluate.identity import fingerprint
from redraft.record import digest
from redraft.sync import private_loop, submit


def perform(options: BatchOptions, run: RunOptions) -> int:
    """Do the batch, show how it goes; returns the exit code. Raises `RedraftError` if it cannot go on."""
    cluster = _cluster(options)
    with ExitStack() as stack:
        stack.enter_context(alone(options.source, options.out))
        stack.enter_context(context(**({"cache": run.cache} if run.cache else {})))
        with no_notices(run.quiet), user_prints():
            jobs = stack.enter_context(provider_batches(options, run))
            planned, auto = chosen(jobs.run)
            strategy: Any = planned
        fields = strategy.module.signature.inputs
        items = _checked(
            read_rows(options.source), [f.name for f in fields.values() if f.default is ...], options.source
        )
        output = Output(options.out)
        work = _made(options, run, strategy, fields=fields, output=output, cluster=cluster)
        total = _brought_to_date(options, output, work, Rows(strategy, work.log.name, fields), quiet=run.quiet)
        told = counted(output, total, quiet=run.quiet)
        told.batch = work
        stack.enter_context(context(listeners=(told, jobs)))
        spec = {"options": run.spec(), "strategy": fingerprint(strategy), "redraft": __version__}
        spec |= {"auto": auto} if auto else {}
        drain = _Drain(work, told)
        with user_prints(), told:
            drain.run(items, options, output, spec)
        output.finish(done=drain.signal is None and work.over is None)
        if not run.quiet:
            say(summary(output, work, total))
        return _exit_code(run, output, work, drain)


def _made(
    options: BatchOptions,
    run: RunOptions,
    strategy: Any,
    *,
    fields: Collection[str],
    output: Output,
    cluster: Cluster | None,
) -> Batch:
    """The batch, and its file as it was left."""
    if options.resume:
        output.load()
    where = str(output.path.absolute())
    name = options.batch_id or (output.batch or "").partition("~")[0] or f"batch-{digest(where)[:10]}"
    if output.batch is not None and options.batch_id not in (None, output.batch.partition("~")[0]):
        raise UsageError(
            f"{output.path} holds rows of the batch {output.batch}, not of {options.batch_id}; give that id"
        )
    given = options.store or store_in_force() or f"{options.out}.runs.db"
    work = Batch(
        strategy,
        concurrency=options.concurrency,
        budget=budget(run),
        item_budget=limited(
            options.item_call_limit, options.item_token_limit, options.item_cost_limit, options.item_time_limit
        ),
        store=store_in_force(given),
        batch_id=name,
        fields=fields,
        cluster=cluster,
    )
    work.retry = options.retry_failed
    if options.resume and output.batch is not None:
        work.log.known_as(output.batch)
    _check_begun(options, run, output, work)
    work.connect()  # before anything is written
    return work


def _cluster(options: BatchOptions) -> Cluster | None:
    if options.cluster is None:
        if options.workers is not None:
            raise UsageError("--workers has no use without --cluster")
        return None
    if options.provider_batch:
        raise UsageError("--provider-batch gathers all rows in one process: leave it out, or --cluster")
    return Cluster(options.cluster, options.workers)


def _check_begun(options: BatchOptions, run: RunOptions, output: Output, work: Batch) -> None:
    """Raises `UsageError` if what there is is not this batch's beginning. Nothing was spent or written yet."""
    if not options.resume:
        return
    if output.path.exists() and output.path.stat().st_size and not output.rows and not work.log.resumed:
        raise UsageError(
            f"{output.path} exists, and no batch wrote it; give another file, or --no-resume to overwrite it"
        )
    before = (work.log.spec or {}).get("options")
    now = run.spec()
    if before is not None and before != now:
        differ = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        told = "; ".join(
            f"--{name.replace('_', '-')} was {before.get(name)!r}, is {now.get(name)!r}" for name in differ
        )
        raise UsageError(
            f"{output.path} was begun with other options ({told}): its rows would not be comparable. Give the same ones "
            "to go on, another file, or --no-resume to start over"
        )


def _brought_to_date(options: BatchOptions, output: Output, work: Batch, rows: Rows, *, quiet: bool) -> int | None:
    """Leave out what OUT holds of inputs that have changed since; returns how many rows the input has, if that is known."""
    if not options.resume:
        output.clear()
    output.mend()
    if options.retry_failed:
        output.keep(_not_failed)
    if options.source == STDIN or not output.rows:
        return count_rows(options.source)
    wanted = {number(rows.row(item).run_id) for item in read_rows(options.source)}
    had = output.rows
    left_out = output.keep(lambda row: number(row["run_id"]) in wanted) if output.known - wanted else 0
    if not quiet:
        say(f"redraft: {had - left_out} rows are done already ({output.path}); going on with batch {work.batch_id}")
        if left_out:
            say(
                f"redraft: {left_out} rows of {output.path} had other inputs, or are not in {options.source} any more: left out"
            )
    return len(wanted)


class _Drain:
    """Does the batch on the private loop and awaits it here, where signals arrive: the first lets what is under way end, the
    second cancels it, the third ends the process.
    """

    def __init__(self, work: Batch, told: Counted) -> None:
        self._work = work
        self._told = told
        self._task: asyncio.Task[Any] | None = None
        self._signals = 0
        self.signal: int | None = None

    def run(self, items: Iterator[Any], options: BatchOptions, output: Output, spec: dict[str, Any]) -> None:
        """Until the end. Raises what ends the batch."""

        async def whole() -> None:
            self._task = asyncio.current_task()
            before = self._work.log.spec
            await self._work.begin(spec, afresh=not options.resume)
            self._say_changed(before, spec)
            async with aclosing(self._work.as_completed(items, ordered=options.ordered, skip=output.has)) as ended:
                async for item in ended:
                    if item.ended:
                        _check_row(item)
                        output.write(item)
                        self._told.row()

        with listening(self._on_signal):
            done = waited_for(submit(whole, private_loop()))
            if not (self.signal and (done.cancelled() or isinstance(done.exception(), asyncio.CancelledError))):
                done.result()

    def _say_changed(self, before: Any, now: dict[str, Any]) -> None:
        if before and before.get("strategy") not in (None, now["strategy"]):
            self._told.note(
                "the model, the checks or their code have changed since the batch was begun; what is done stays"
            )
        if before and before.get("redraft") not in (None, now["redraft"]):
            self._told.note(f"the batch was begun with redraft {before['redraft']}, this is {now['redraft']}")

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        self.signal = self.signal or number
        if self._signals == 1:
            self._work.stop()
            self._told.note("no further rows are begun; again to leave those under way for the next time, too")
        elif self._signals == 2 and self._task is not None:
            private_loop().call_soon_threadsafe(self._task.cancel)
        else:
            self._told.abandon()
            os._exit(128 + number)


def _check_row(item: BatchItem) -> None:
    """What is wrong with the set-up is wrong for every row: it ends the batch."""
    if isinstance(item.error, UsageError) and not isinstance(item.error, InputError):
        raise item.error


def _checked(items: Iterator[Any], needed: Collection[str], source: str) -> Iterator[Any]:
    """The rows. Raises `UsageError` if the first one has none of what is needed: then none will."""
    for first in items:
        if isinstance(first, dict) and (missing := [name for name in needed if name not in first]):
            raise UsageError(
                f"{source}: the first row has no column {missing[0]!r}, only {', '.join(map(repr, first))}; rename it, or say "
                "which columns to read: --signature 'question -> answer'"
            )
        return chain([first], items)
    return iter(())


def _not_failed(row: dict[str, Any]) -> bool:
    return row["error"] is None or row["stop_reason"] not in (None, "error")


def _exit_code(run: RunOptions, output: Output, work: Batch, drain: _Drain) -> int:
    if drain.signal is not None:
        return 128 + drain.signal
    if work.over is not None:
        raise work.over
    if output.failed:
        return Exit.FAILED
    return Exit.DONE if output.passed == output.rows or run.allow_fail else Exit.NOT_PASSED
