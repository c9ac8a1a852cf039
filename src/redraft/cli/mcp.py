"""`redraft mcp`: its options, and the server's life from the terminal's side."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import click

from redraft.cli.codes import Exit

_COUNT = click.IntRange(min=1)
_AMOUNT = click.FloatRange(min=0, min_open=True)
_OPTIONS = (
    click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP at /mcp instead of stdin and stdout."),
    click.option(
        "--allow-host", multiple=True, metavar="NAME", help="A further name of this host for --http; may be repeated."
    ),
    click.option(
        "-m",
        "--model",
        multiple=True,
        metavar="NAME",
        help="A model that clients may choose; may be repeated, the first is the default.",
    ),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible server."),
    click.option("--call-limit", type=_COUNT, default=20, show_default=True, metavar="N", help="Most calls a request."),
    click.option(
        "--token-limit", type=_COUNT, default=100_000, show_default=True, metavar="N", help="Most tokens a request."
    ),
    click.option("--cost-limit", type=_AMOUNT, metavar="DOLLARS", help="Most money a request."),
    click.option(
        "--time-limit", type=_AMOUNT, default=300.0, show_default=True, metavar="SECONDS", help="Most time a request."
    ),
    click.option("--trusted", is_flag=True, help="Let checks name files of this machine and run an answer's code."),
    click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
)


def _options(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_options
def mcp(**given: Any) -> int:
    """Serve the tools refine, check and compare to an MCP client.

    Over stdin and stdout, or over HTTP on this machine. Each request is held to the limits given here. With a key in
    REDRAFT_MCP_KEY clients must send it as a bearer token; beyond this machine there must be one.
    """
    from redraft.errors import ConfigError

    if find_spec("mcp") is None:
        raise ConfigError("redraft mcp needs the package mcp: pip install 'redraft[mcp]'")
    from redraft.budget import Budget
    from redraft.config import project_file
    from redraft.integrations.mcp.terms import Terms
    from redraft.integrations.mcp.transports import KEY, Address, serve_http, serve_stdio
    from redraft.sync import run_sync

    most = Budget(
        calls=given["call_limit"],
        tokens=given["token_limit"],
        cost=given["cost_limit"],
        seconds=given["time_limit"],
    )
    terms = Terms(
        models=given["model"],
        base_url=given["base_url"],
        most=most,
        trusted=given["trusted"],
        calibrated=project_file().get("calibrated", {}),
    )
    terms.check()
    _log(quiet=given["quiet"])
    where = None
    if given["http"]:
        where = Address.parse(given["http"], key=os.environ.get(KEY, "").strip(), names=given["allow_host"])
    with _interrupted() as came:
        run_sync(lambda: serve_http(terms, where) if where else serve_stdio(terms))
    return 128 + came[0] if came else Exit.DONE


def _log(*, quiet: bool) -> None:
    """A line on stderr for each request: stdout belongs to the protocol."""
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="redraft: %(message)s")
    logging.getLogger("redraft.mcp").setLevel(logging.ERROR if quiet else logging.INFO)


@contextlib.contextmanager
def _interrupted() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end the server: what is under way is cut off. Gives the signal that came."""
    came: list[int] = []

    def note(number: int, _frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():  # Python hears signals in the main thread only
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, note)
    with contextlib.suppress(KeyboardInterrupt):
        yield came
