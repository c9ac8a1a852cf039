"""`redraft run`: its options. What they mean is in `redraft.cli.plan`, what happens in `redraft.cli.perform`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from redraft.cli.codes import EXPLAINED
from redraft.cli.options import RunOptions

_COUNT = click.IntRange(min=1)
_AMOUNT = click.FloatRange(min=0, min_open=True)


COMMON = (
    click.option(
        "--strategy",
        default="auto",
        metavar="NAME",
        help="predict, refine, best-of-n, reflect, self-refine, critique or proactive. auto: what `redraft calibrate` found, else "
        "reflect with --writer, --editor or --criteria, self-refine with --critic, refine with checks, one round of self-refine.",
    ),
    click.option(
        "-n", "--attempts", type=_COUNT, metavar="N", help="Most attempts of refine and best-of-n.  [default: 3]"
    ),
    click.option(
        "--rounds",
        type=_COUNT,
        metavar="N",
        help="Most revisions of reflect, critique (default 1) and self-refine (default 3).",
    ),
    click.option("--writer", metavar="WHO", help="Persona or model that writes (reflect)."),
    click.option("--editor", metavar="WHO", help="Persona or model that says what falls short (reflect)."),
    click.option("--critic", metavar="WHO", help="Persona or model that criticises (self-refine, critique)."),
    click.option("--criteria", multiple=True, metavar="A,B", help="What to judge by; may be repeated."),
    click.option(
        "--check",
        multiple=True,
        metavar="NAME:ARGS",
        help="A requirement, e.g. sentences:3, words:20-40, 'contains:La Maison', 'forbids:very|quite'; may be repeated.",
    ),
    click.option(
        "--checks",
        "--check-file",
        "check_file",
        multiple=True,
        metavar="FILE",
        help="A file of checks: Python, TOML, or promptfoo's YAML or JSON; may be repeated.",
    ),
    click.option("-m", "--model", metavar="NAME", help="provider/model, or any name with --base-url."),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible server."),
    click.option("-s", "--system", metavar="TEXT", help="System prompt."),
    click.option(
        "-t",
        "--temperature",
        type=click.FloatRange(min=0),
        metavar="T",
        help="Sampling temperature of the first draft.",
    ),
    click.option("--max-tokens", type=_COUNT, metavar="N", help="Most tokens a draft may have."),
    click.option(
        "--effort", metavar="LEVEL[,LEVEL]", help="How much a reasoning model thinks; low,high: first low, then high."
    ),
    click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of the run."),
    click.option("--call-limit", type=_COUNT, metavar="N", help="Hard limit on calls."),
    click.option("--token-limit", type=_COUNT, metavar="N", help="Hard limit on tokens, prompts included."),
    click.option("--cost-limit", type=_AMOUNT, metavar="DOLLARS", help="Hard limit on money."),
    click.option("--time-limit", type=_AMOUNT, metavar="SECONDS", help="Hard limit on time."),
    click.option("--cache", metavar="FILE", help="Keep first replies in FILE, and use those that are in it."),
    click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
    click.option("--allow-fail", is_flag=True, help="Exit with 0 even if checks did not pass."),
)
"""What a run is made of, for one task or many."""

_OPTIONS = (
    click.option("--file", metavar="FILE", help="Read the task from a file."),
    *COMMON,
    click.option("--store", metavar="FILE", help="Keep the run in FILE: `redraft resume` goes on with it."),
    click.option("--json", is_flag=True, help="Print the whole run as one JSON object."),
    click.option(
        "--show",
        type=click.Choice(["trajectory", "rewinds"]),
        help="Print every draft, what changed and why; of proactive, what was taken back while it was written.",
    ),
)


def with_options(options: Sequence[Callable[..., Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that gives a command all of these."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command(epilog=EXPLAINED)
@click.argument("task", required=False)
@with_options(_OPTIONS)
def run(**given: Any) -> int:
    """Write what TASK asks for, and improve it until it meets its bar.

    TASK is a text, @FILE, or - for what is piped in. The final text alone goes to stdout, progress to stderr. Keys
    come from the environment (OPENAI_API_KEY).
    """
    from redraft.cli.perform import perform

    return perform(RunOptions(**given))
