"""`redraft rlm`: its options. What happens is in `redraft.cli.asking`."""

from __future__ import annotations

from typing import Any

import click

from redraft.cli.codes import EXPLAINED
from redraft.cli.run import with_options

_COUNT = click.IntRange(min=1)
_AMOUNT = click.FloatRange(min=0, min_open=True)

_OPTIONS = (
    click.option(
        "--signature",
        metavar="TEXT",
        help="What is asked for, e.g. 'logs, question -> answer: int'.  [default: FILES, question -> answer]",
    ),
    click.option(
        "--check",
        multiple=True,
        metavar="NAME:ARGS",
        help="A requirement that the answer has to pass, e.g. words:20-40; may be repeated.",
    ),
    click.option("-m", "--model", metavar="NAME", help="provider/model, or any name with --base-url."),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible server."),
    click.option("--sub-model", metavar="NAME", help="The model of the sub-calls.  [default: the same]"),
    click.option(
        "--interpreter", metavar="NAME", help="The sandbox: auto, jail, monty or unsafe_local.  [default: auto]"
    ),
    click.option("--max-iterations", type=_COUNT, default=20, show_default=True, metavar="N", help="Most turns."),
    click.option(
        "--max-llm-calls",
        type=click.IntRange(min=0),
        default=50,
        show_default=True,
        metavar="N",
        help="Most sub-calls.",
    ),
    click.option("--depth", type=_COUNT, default=1, show_default=True, metavar="N", help="2: the code may ask an RLM."),
    click.option(
        "--bypass",
        type=click.IntRange(min=0),
        metavar="N",
        help="Inputs of up to N characters go to the model in one direct call; 0: never.",
    ),
    click.option("-s", "--system", metavar="TEXT", help="System prompt."),
    click.option("--max-tokens", type=_COUNT, metavar="N", help="Most tokens of one reply."),
    click.option("--effort", metavar="LEVEL", help="How much a reasoning model thinks."),
    click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of the run."),
    click.option("--call-limit", type=_COUNT, metavar="N", help="Hard limit on calls, sub-calls included."),
    click.option("--token-limit", type=_COUNT, metavar="N", help="Hard limit on tokens, prompts included."),
    click.option("--cost-limit", type=_AMOUNT, metavar="DOLLARS", help="Hard limit on money."),
    click.option("--time-limit", type=_AMOUNT, metavar="SECONDS", help="Hard limit on time."),
    click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
    click.option("--allow-fail", is_flag=True, help="Exit with 0 even if checks did not pass."),
    click.option("--store", metavar="FILE", help="Keep the run in FILE: `redraft resume` goes on with it."),
    click.option("--json", is_flag=True, help="Print the whole run as one JSON object."),
)


@click.command("rlm", epilog=EXPLAINED)
@click.argument("question")
@click.argument("files", nargs=-1, metavar="FILE...")
@with_options(_OPTIONS)
def rlm(**given: Any) -> int:
    """Answer QUESTION about FILEs of any size: the model writes code that reads them, in a sandbox.

    Each FILE is a variable named after it (app.log: app_log), or as in NAME=FILE; - is what is piped in. With --signature
    they are its inputs, by name or in their order; several files for one input are a list. QUESTION is a text or @FILE. The
    answer goes to stdout; code, its output and the sub-calls to stderr, as they happen.
    """
    from redraft.cli.asking import AskOptions, ask

    return ask(AskOptions(**given))
