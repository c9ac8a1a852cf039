"""`redraft serve`: its options. What they mean is in `redraft.server`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from redraft.cli.codes import Exit

if TYPE_CHECKING:
    from redraft.server.house import Plans

_OPTIONS = (
    click.option("--host", default="127.0.0.1", show_default=True, metavar="NAME", help="Where to listen."),
    click.option(
        "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, metavar="N", help="0: any free one."
    ),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible server whose models pass through."),
    click.option("--keys", metavar="FILE", help="Keys that clients must send, with rates and budgets (TOML)."),
    click.option("--store", metavar="FILE", help="Where each answer's run is kept.  [default: .redraft/runs.db]"),
    click.option(
        "--drain",
        type=click.IntRange(min=1),
        default=30,
        show_default=True,
        metavar="SECONDS",
        help="How long requests under way may take to end after SIGTERM.",
    ),
    click.option("--check", is_flag=True, help="Read the configuration, say what would be served, and end."),
    click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
)


def _options(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_options
def serve(**given: Any) -> int:
    """Serve OpenAI's and Anthropic's APIs: presets as models refine/NAME, real models passed through.

    Presets stand in redraft.toml as [presets.NAME]. Clients send a key of REDRAFT_SERVER_KEYS or --keys where there are
    any; beyond this machine there must be. Upstream keys come from the environment and are sent to nobody else.
    """
    from redraft.errors import ConfigError

    if missing := [name for name in ("starlette", "uvicorn", "prometheus_client") if find_spec(name) is None]:
        raise ConfigError(f"redraft serve needs {', '.join(missing)}: pip install 'redraft[server]'")
    from redraft.server.serving import plans_here
    from redraft.server.serving import serve as serve_plans

    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="redraft: %(message)s")
    logging.getLogger("redraft.server").setLevel(logging.ERROR if given["quiet"] else logging.INFO)
    plans = plans_here(base_url=given["base_url"], keys_file=given["keys"], store=given["store"])
    if given["check"]:
        for line in _told(plans):
            click.echo(line)
        return Exit.DONE
    serve_plans(plans, host=given["host"], port=given["port"], drain_seconds=given["drain"])
    return Exit.DONE


def _told(plans: Plans) -> Iterator[str]:
    """What would be served, from where, and to whom."""
    from redraft.server.presets import Plan

    for preset in plans.presets.values():
        plan = Plan.plain(preset)
        why = f" (auto: {plan.auto['why']})" if plan.auto else ""
        yield f"{preset.id}  {plan.auto.get('took', plan.name)} on {plan.lm.name}{why}"
    for upstream in plans.upstreams:
        key = f", with the key in {upstream.api_key_env}" if upstream.keyed() else ", without a key"
        yield f"{upstream.name}  {upstream.base_url}: {', '.join(upstream.models)}{key}"
    if (shadow := plans.shadow) is not None:
        yield f"shadow  {shadow.share * 100:.3g}% of the answers of {', '.join(shadow.models)}, refined aside by {shadow.preset}"
    yield f"keys  {', '.join(plans.keys.names) or 'none: everybody on this machine may ask'}"
