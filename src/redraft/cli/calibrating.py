"""One `redraft calibrate`, from the examples to the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redraft.cli.calibrate import CalibrateOptions
from redraft.cli.codes import Exit
from redraft.cli.evaluating import Interruptible, checks_of, examples_for, prefix_of
from redraft.cli.options import RunOptions
from redraft.cli.output import emit, emit_json, say
from redraft.cli.perform import no_notices, user_prints
from redraft.cli.plan import budget
from redraft.cli.tally import tally
from redraft.config import resolve_lm, store_in_force
from redraft.errors import UsageError
from redraft.evaluate.calibrate import Calibrate, Calibration
from redraft.evaluate.metrics import named_in_file
from redraft.evaluate.tables import found, put, writable
from redraft.modules import Predict


def perform(options: CalibrateOptions, run: RunOptions) -> int:
    """Measure, show how it goes, print what was found and write it; returns the exit code."""
    with no_notices(run.quiet), user_prints():
        work = _made(options, run)
        path = writable(work.key, Path(options.config) if options.config else None) if options.write else None
    told = tally(quiet=run.quiet, judged=False)
    drain = Interruptible(told)
    with user_prints(), told:
        made: Calibration | None = drain.run(lambda: work.acall(progress=told))
    if made is None:
        told.note("interrupted; the same command goes on where this ended")
        return 128 + (drain.signal or 0)
    if run.json:
        emit_json(made.to_dict())
    else:
        emit(str(made))
    if made.stopped is not None:
        raise made.stopped
    if path is not None and (kept := _better(made)):
        told.note(f"not written: [calibrated] has {kept} for this model and task already")
    elif path is not None:
        put(made.key, made.entry(), path)
        if not run.quiet:
            say(f"redraft: wrote [calibrated] of {made.key!r} to {path}")
    return Exit.DONE


def _better(calibration: Calibration) -> str:
    """What an earlier calibration found, if this one found nothing for want of data."""
    before = found(calibration.key) if calibration.verdict.outcome == "too little data" else None
    verdict = str(before.get("verdict", "")) if before else ""
    return "" if verdict in ("", "too little data") else repr(verdict)


def _made(options: CalibrateOptions, run: RunOptions) -> Calibrate:
    checks = checks_of(run)
    if not checks and options.reward is None:
        raise UsageError(
            "there is no bar to calibrate for: add --check NAME:ARGS, --checks FILE, or --reward FILE.py:NAME"
        )
    if options.no_critic and run.critic:
        raise UsageError("--critic has no use with --no-critic: leave one out")
    module = Predict(
        run.signature,
        lm=resolve_lm(run.model, run.base_url),
        system=run.system or "",
        temperature=run.temperature,
        max_tokens=run.max_tokens,
    )
    critic: Any = False if options.no_critic else run.critic or ""
    prefix = prefix_of(options.source, None, "calibrate")
    return Calibrate(
        module,
        examples_for(options.source, run, options.limit),
        checks=checks,
        reward_fn=named_in_file(options.reward, "reward") if options.reward else None,
        threshold=options.threshold,
        critic=critic,
        budget=budget(run),
        store=store_in_force(run.store or store_in_force() or f"{prefix}.runs.db"),
        seed=run.seed,
        concurrency=options.concurrency,
    )
