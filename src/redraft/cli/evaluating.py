"""One `redraft eval`, from the examples to the exit code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from redraft.checks import Check, from_file, parse
from redraft.cli.codes import Exit
from redraft.cli.eval import EvalOptions
from redraft.cli.interrupt import listening, waited_for
from redraft.cli.named import strategies_of
from redraft.cli.options import RunOptions
from redraft.cli.output import complain, emit, emit_json, say
from redraft.cli.perform import no_notices, user_prints
from redraft.cli.plan import budget
from redraft.cli.tally import Tally, tally
from redraft.config import resolve_lm, store_in_force
from redraft.errors import InputError, UsageError
from redraft.evaluate import Comparison, Evaluate, Example, Report
from redraft.evaluate.kept import caution, data_of, keep, write
from redraft.evaluate.metrics import check_column, metric_from
from redraft.evaluate.peers import MOST_THOUGHT, comparisons, larger_model, more_thinking
from redraft.evaluate.sources import DATASETS, examples_from
from redraft.modules import Predict
from redraft.protocols import LM, Store
from redraft.signature import as_signature
from redraft.sync import private_loop, submit

Where = tuple[Path, Store | None]
"""What the files' names begin with, and what keeps the items."""


def perform(options: EvalOptions, run: RunOptions) -> int:
    """Evaluate, show how it goes, print the table and write the files; returns the exit code."""
    with no_notices(run.quiet), user_prints():
        checks = checks_of(run)
        metric, judging = _judged_by(options, checks)
        lm = resolve_lm(run.model, run.base_url)
        strategies = strategies_of(options.strategies, run)
        peers = {} if options.no_baselines else _peers(options, run, checks, lm)
        examples = examples_for(options.source, run, options.limit)
        check_column(metric, examples)
    prefix = prefix_of(options.source, options.out, "eval")
    store = store_in_force(run.store or store_in_force() or f"{prefix}.runs.db")
    evaluation = Evaluate(
        examples,
        metric,
        checks=judging,
        concurrency=options.concurrency,
        budget=budget(run),
        store=store,
        seed=run.seed or 0,
        baselines=not options.no_baselines,
    )
    told = tally(quiet=run.quiet)
    drain = Interruptible(told)
    with user_prints(), told:
        report: Report | None = drain.run(lambda: evaluation.acall({**strategies, **peers}, progress=told))
    if report is None:
        told.note("interrupted; the same command goes on where this ended")
        return 128 + (drain.signal or 0)
    missing = [] if options.no_baselines else _missing(options, run, lm)
    about = {"model": lm.name, "data": options.source, "options": run.spec(), "missing": missing}
    more = comparisons(report, list(peers))
    return _ended(report, more, data_of(report, more, about), (prefix, store), run)


def _ended(report: Report, more: list[Comparison], data: dict[str, Any], where: Where, run: RunOptions) -> int:
    prefix, store = where
    files = write(prefix, report, more, data)
    kept = "" if store is None else waited_for(submit(lambda: keep(store, data), private_loop())).result()
    if run.json:
        emit_json(data)
    else:
        emit("\n".join([str(report), *map(str, more), *caution(report, more), *data["missing"]]))
    if not run.quiet:
        record = f"; run {kept}" if kept else ""
        say(f"redraft: wrote {', '.join(map(str, files))}{record}")
    if report.stopped is not None:
        raise report.stopped
    if report.failure is not None:
        again = "mend it and run it again (what a model has refused for good is asked anew with another --seed)"
        complain(f"not one item has come to a score; the first: {report.failure}; {again}")
        return Exit.FAILED
    return Exit.DONE


def checks_of(run: RunOptions) -> list[Check]:
    """Those of --check and --checks."""
    return [*map(parse, run.check), *(c for file in run.check_file for c in from_file(file))]


def examples_for(source: str, run: RunOptions, limit: int | None) -> list[Example]:
    """The data as examples whose inputs are the signature's."""
    fields = as_signature(run.signature).inputs
    needed = [name for name, f in fields.items() if f.default is ...]
    others = [name for name in fields if name not in needed]
    return examples_from(source, needed, optional=others, limit=limit)


def prefix_of(source: str, out: str | None, kind: str) -> Path:
    """Where the files go: `--out`, or the data's name in this folder."""
    if out is None:
        out = f"{Path(source.removeprefix(DATASETS).replace(':', '-')).stem}.{kind}"
    prefix = Path(out).expanduser()
    if not prefix.absolute().parent.is_dir() or not os.access(prefix.absolute().parent, os.W_OK):
        raise InputError(f"{prefix.parent} cannot be written to: name a folder that is there and may be written to")
    return prefix


def _judged_by(options: EvalOptions, checks: list[Check]) -> tuple[Callable[..., Any] | None, list[Check]]:
    if options.metric is not None:
        return metric_from(options.metric)
    if not checks:
        raise UsageError(
            "there is nothing to judge by: add --metric exact:COLUMN (or FILE.py:NAME), or --check NAME:ARGS"
        )
    return None, checks


def _peers(options: EvalOptions, run: RunOptions, checks: list[Check], lm: LM) -> dict[str, Any]:
    """More thinking and a larger model, by the names that they have in the table."""
    author = Predict(
        run.signature, lm=lm, system=run.system or "", temperature=run.temperature, max_tokens=run.max_tokens
    )
    peers = []
    effort = options.thinking or (MOST_THOUGHT if lm.capabilities.reasoning and run.effort is None else "none")
    if effort != "none":
        peers.append(more_thinking(author, checks, effort))
    if options.larger is not None:
        peers.append(larger_model(author, checks, resolve_lm(options.larger)))
    return {peer.name: peer for peer in peers}


def _missing(options: EvalOptions, run: RunOptions, lm: LM) -> list[str]:
    """What does not stand beside the strategies, and why."""
    lines = []
    if options.thinking is None and run.effort is not None:
        lines.append("no more thinking beside them: --effort was given; --thinking LEVEL names what to compare with")
    elif options.thinking is None and not lm.capabilities.reasoning:
        lines.append(f"no more thinking beside them: {lm.name} has no effort setting")
    if options.larger is None:
        lines.append("no larger model beside them: --larger MODEL names one (none is asked that nobody named)")
    return lines


class Interruptible:
    """Does work on the private loop and awaits it here, where signals arrive: the first cancels it, the second ends the
    process. `signal` is the one that came, if any.
    """

    def __init__(self, told: Tally) -> None:
        self._told = told
        self._task: asyncio.Task[Any] | None = None
        self.signal: int | None = None

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What the work returns; None if a signal ended it. Raises what it raises."""

        async def whole() -> Any:
            self._task = asyncio.current_task()
            return await work()

        with listening(self._on_signal):
            done = waited_for(submit(whole, private_loop()))
        if self.signal is not None and (done.cancelled() or isinstance(done.exception(), asyncio.CancelledError)):
            return None
        return done.result()

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.signal is not None or self._task is None:
            os._exit(128 + number)
        self.signal = number
        private_loop().call_soon_threadsafe(self._task.cancel)
