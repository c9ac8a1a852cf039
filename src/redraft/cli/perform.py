"""One `redraft run`, from the task to the exit code."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from redraft import __version__
from redraft.cli.codes import Exit
from redraft.cli.interrupt import Stopper
from redraft.cli.options import RunOptions
from redraft.cli.output import coloured, complain, emit, emit_json, say
from redraft.cli.plan import budget, chosen
from redraft.cli.progress import Progress, Silent
from redraft.cli.task import read_task
from redraft.config import context, store_in_force
from redraft.errors import RedraftError
from redraft.evaluate.identity import fingerprint
from redraft.protocols import Strategy
from redraft.report.data import failure_data, result_data
from redraft.report.text import trajectory
from redraft.result import Result, printable
from redraft.run import Run
from redraft.types import StopReason

if TYPE_CHECKING:
    from redraft.cli.asking import AskOptions


def perform(options: RunOptions) -> int:
    """Run, show progress, print the outcome; returns the exit code. Raises `RedraftError` if there is no draft."""
    if options.json and options.show:
        raise click.UsageError(f"--json holds the {options.show} already; leave out --show")
    return carry_out(options, read_task(options.task, options.file))


def carry_out(options: RunOptions, task: str, run_id: str | None = None) -> int:
    """The same for a task that was read; `run_id`: of a run to go on with."""
    with context(**({"cache": options.cache} if options.cache else {})):
        with no_notices(options.quiet), user_prints():
            strategy, auto = chosen(options)
        told = _progress(quiet=options.quiet)
        told.watch(getattr(strategy, "module", None))
        run = Run(
            budget=budget(options),
            store=store_in_force(options.store),
            run_id=run_id,
            seed=options.seed,
            listeners=told.listeners,
        )
        run.journal.spec = {**spec_of(options, task, strategy), **({"auto": auto} if auto else {})}
        return carried_out(options, {"task": task}, strategy, run, told)


def carried_out(
    options: RunOptions | AskOptions, inputs: Mapping[str, Any], strategy: Strategy, run: Run, told: Progress
) -> int:
    """Execute, print the outcome, and say how to go on where it did not end; returns the exit code."""
    stopper = Stopper(run, told)
    try:
        result = _execute(stopper, told, strategy, inputs)
    except RedraftError as error:
        if options.json:
            emit_json(failure_data(error, run.journal.events))
        elif options.show and error.attempts:
            emit(trajectory(error.attempts, colour=coloured()))
        _say_how_to_go_on(options, run)
        if stopper.signal is None:
            raise
        complain("interrupted before there was any draft")
        return stopper.exit_code
    _print(options, result)
    if not options.quiet and _ends_at_its_limit(result):
        say(
            "redraft: the kept draft ends where a limit of tokens cut it: --max-tokens, the budget's rest or the model's own"
        )
    if result.stop_reason is StopReason.ERROR:
        complain(f"the run failed after draft {len(result.attempts)}, the best draft was kept: {result.error}")
    if result.error is not None or stopper.signal is not None:
        _say_how_to_go_on(options, run)
    return _exit_code(options, result, stopper)


def _ends_at_its_limit(result: Result) -> bool:
    """True if the kept text is a reply that had to stop: no check may have minded."""
    choices = (choice for e in result.events if e.kind == "call" for choice in e.data["completion"]["choices"])
    cut = (choice.get("text", "") for choice in choices if choice.get("finish_reason") == "length")
    return any(text.strip() == result.text.strip() for text in cut)


def spec_of(options: RunOptions, task: str, strategy: Strategy) -> dict[str, Any]:
    """What `redraft resume` makes the run of again, and what tells it that something has changed."""
    return {
        "strategy": options.strategy,
        "task": task,
        "options": options.spec(),
        "code": fingerprint(strategy),
        "redraft": __version__,
    }


def _say_how_to_go_on(options: RunOptions | AskOptions, run: Run) -> None:
    if run.journal.store is not None and not options.quiet:
        where = f" --store {options.store}" if options.store else ""
        say(f"redraft: `redraft resume {run.run_id}{where}` goes on where this ended; limits are given anew")


def _execute(stopper: Stopper, told: Progress, strategy: Strategy, inputs: Mapping[str, Any]) -> Result:
    with told, user_prints():
        result = stopper.execute(strategy, inputs)
    told.ended(result)
    return result


def _print(options: RunOptions | AskOptions, result: Result) -> None:
    if options.json:
        emit_json(result_data(result))
    elif options.show == "rewinds":
        from redraft.proactive.view import rewinds_view

        emit(rewinds_view(result.events, result.text, colour=coloured()))
    elif options.show:
        emit(trajectory(result.attempts, result.best, colour=coloured()))
    else:
        emit(printable(result.text) if sys.stdout and sys.stdout.isatty() else result.text)


def _exit_code(options: RunOptions | AskOptions, result: Result, stopper: Stopper) -> int:
    if stopper.signal is not None:
        return stopper.exit_code
    if result.stop_reason is StopReason.ERROR:
        return Exit.FAILED
    return Exit.DONE if result.passed or options.allow_fail else Exit.NOT_PASSED


def user_prints() -> contextlib.AbstractContextManager[object]:
    """What a user's checks print belongs beside the progress: stdout is for the text alone."""
    return contextlib.redirect_stdout(sys.stderr)


@contextlib.contextmanager
def no_notices(quiet: bool) -> Iterator[None]:
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
