"""One `redraft run`, from the task to the exit code."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator

import click

from redraft.cli.codes import Exit
from redraft.cli.interrupt import Stopper
from redraft.cli.options import RunOptions
from redraft.cli.output import coloured, complain, emit, emit_json
from redraft.cli.plan import budget, plan
from redraft.cli.progress import Progress, Silent
from redraft.cli.task import read_task
from redraft.config import context
from redraft.errors import RedraftError
from redraft.protocols import Strategy
from redraft.report.data import failure_data, result_data
from redraft.report.text import printable, trajectory
from redraft.result import Result
from redraft.run import Run
from redraft.types import StopReason


def perform(options: RunOptions) -> int:
    """Run, show progress, print the outcome; returns the exit code. Raises `RedraftError` if there is no draft."""
    if options.json and options.show:
        raise click.UsageError(f"--json holds the {options.show} already; leave out --show")
    with context(**({"cache": options.cache} if options.cache else {})):
        return _perform(options)


def _perform(options: RunOptions) -> int:
    task = read_task(options.task, options.file)
    with _no_notices(options.quiet), _user_prints():
        strategy = plan(options)
    told = _progress(quiet=options.quiet)
    told.watch(getattr(strategy, "module", None))
    run = Run(budget=budget(options), seed=options.seed, listeners=told.listeners)
    stopper = Stopper(run, told)
    try:
        result = _execute(stopper, told, strategy, task)
    except RedraftError as error:
        if options.json:
            emit_json(failure_data(error, run.journal.events))
        elif options.show and error.attempts:
            emit(trajectory(error.attempts, colour=coloured()))
        if stopper.signal is None:
            raise
        complain("interrupted before there was any draft")
        return stopper.exit_code
    _print(options, result)
    if result.stop_reason is StopReason.ERROR:
        complain(f"the run failed after draft {len(result.attempts)}, the best draft was kept: {result.error}")
    return _exit_code(options, result, stopper)


def _execute(stopper: Stopper, told: Progress, strategy: Strategy, task: str) -> Result:
    with told, _user_prints():
        result = stopper.execute(strategy, {"task": task})
    told.ended(result)
    return result


def _print(options: RunOptions, result: Result) -> None:
    if options.json:
        emit_json(result_data(result))
    elif options.show:
        emit(trajectory(result.attempts, result.best, colour=coloured()))
    else:
        emit(printable(result.text) if sys.stdout and sys.stdout.isatty() else result.text)


def _exit_code(options: RunOptions, result: Result, stopper: Stopper) -> int:
    if stopper.signal is not None:
        return stopper.exit_code
    if result.stop_reason is StopReason.ERROR:
        return Exit.FAILED
    return Exit.DONE if result.passed or options.allow_fail else Exit.NOT_PASSED


def _user_prints() -> contextlib.AbstractContextManager[object]:
    """What a user's checks print belongs beside the progress: stdout is for the text alone."""
    return contextlib.redirect_stdout(sys.stderr)


@contextlib.contextmanager
def _no_notices(quiet: bool) -> Iterator[None]:
    """-q also silences what the library itself says on stderr, once a process."""
    with contextlib.redirect_stderr(io.StringIO()) if quiet else contextlib.nullcontext():
        yield


def _progress(*, quiet: bool) -> Progress:
    """What fits this stderr: nothing, plain lines, or a live display."""
    if quiet:
        return Silent()
    if sys.stderr is None or not sys.stderr.isatty():
        return Progress()
    from redraft.cli.live import LiveProgress

    return LiveProgress()
