"""`redraft train`: its options. What happens is in `redraft.proactive.pasr.recipe`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from redraft.cli.codes import EXPLAINED, Exit
from redraft.cli.output import emit, say
from redraft.errors import UsageError


@click.group(invoke_without_command=True)
@click.pass_context
def train(context: click.Context) -> int:
    """Train a model to refine while it writes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return Exit.DONE


@train.command(epilog=EXPLAINED)
@click.option("-m", "--model", required=True, metavar="NAME", help="A folder, or a hub's name, that transformers load.")
@click.option(
    "--data", required=True, metavar="FILE", help="Rows with `question` and `answer`: .jsonl, .csv or .parquet."
)
@click.option("-o", "--out", default="pasr", show_default=True, metavar="FOLDER", help="Where the model goes.")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Training steps.  [default: 3000, the paper's]")
@click.option("--check", multiple=True, metavar="NAME:ARGS", help="Judge answers by this check; may be repeated.")
@click.option("--judge", metavar="MODEL", help="Judge answers against the reference by this model.")
@click.option(
    "--call-limit", type=click.IntRange(min=1), metavar="N", help="Hard limit on calls of the judge, a process."
)
@click.option(
    "--cost-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="DOLLARS",
    help="Hard limit on money for the judge, a process.",
)
@click.option(
    "--baseline",
    type=click.Choice(["live", "column"]),
    default="live",
    show_default=True,
    help="Plain answers of the current policy, or the data's column `baseline` (their mean accuracy).",
)
@click.option(
    "--plain", type=click.IntRange(min=1), default=8, show_default=True, metavar="N", help="Plain answers each."
)
@click.option(
    "--zeta", type=click.FloatRange(0, 1, max_open=True), default=0.0, show_default=True, help="Tolerance of accuracy."
)
@click.option(
    "--set", "sets", multiple=True, metavar="NAME=VALUE", help="A setting of TRL's GRPOConfig, e.g. use_vllm=true."
)
def pasr(**given: Any) -> int:
    """Train MODEL by GRPO to write <refine> spans in its thoughts (PASR, arXiv 2508.12903).

    Answers are judged by the row's `answer`, unless --check or --judge say otherwise. Metrics go to stderr, a line a step, and
    into FOLDER/log.jsonl. Several GPUs: accelerate launch -m redraft train pasr ...; sampling by vLLM: trl vllm-serve, and
    --set use_vllm=true --set vllm_mode=server.
    """
    from redraft.batch.files import read_rows
    from redraft.proactive.pasr.recipe import train_pasr

    settings = dict(map(_setting, given["sets"])) | ({"max_steps": given["steps"]} if given["steps"] else {})
    rows = [_row(number, row) for number, row in enumerate(read_rows(given["data"]), 1)]
    train_pasr(
        given["model"],
        rows,
        given["out"],
        grader=_grader(given, rows),
        baseline=_baseline(given["baseline"], given["plain"]),
        zeta=given["zeta"],
        settings=settings,
        on_log=lambda logs: say(_line(logs)),
    )
    emit(given["out"])
    return Exit.DONE


def _row(number: int, row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise UsageError(f"--data row {number} is no object: {row!r:.60}")
    return row


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--set {text!r}: write NAME=VALUE, e.g. learning_rate=1e-5")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _grader(given: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Any:
    from redraft.budget import Budget
    from redraft.proactive.pasr.grading import Grader, judge_reward, reference_reward

    checks, judge = given["check"], given["judge"]
    if checks and judge:
        raise UsageError("give --check or --judge, not both: accuracy is one number")
    budget = Budget(calls=given["call_limit"], cost=given["cost_limit"])
    if checks:
        return Grader([*checks], budget=budget)
    if bare := next((i for i, row in enumerate(rows, 1) if row.get("answer") in (None, "")), None):
        raise UsageError(f"--data row {bare} has no `answer` to judge by: add it, or judge by --check")
    return Grader(reward=judge_reward(judge) if judge else reference_reward, budget=budget)


def _baseline(kind: str, n: int) -> Callable[[Any], Any]:
    from redraft.proactive.pasr import ColumnBaseline, SampledBaseline

    return (lambda write: SampledBaseline(write, n=n)) if kind == "live" else (lambda _: ColumnBaseline())


_SHOWN = {
    "reward": "reward",
    "format": "rewards/format/mean",
    "accuracy": "rewards/accuracy/mean",
    "refinement": "rewards/refinement/mean",
    "plain": "pasr/baseline",
    "age": "pasr/baseline_age",
    "spans": "pasr/refines",
    "tokens": "completions/mean_length",
    "kl": "kl",
}


def _line(logs: Mapping[str, Any]) -> str:
    known = [f"{name} {float(logs[key]):.3g}" for name, key in _SHOWN.items() if key in logs]
    if not known:  # the summary at the end
        return f"ended after {float(logs.get('train_runtime', 0)):.0f} s"
    return f"step {logs['step']}  " + "  ".join(known)
