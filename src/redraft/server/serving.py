"""Where the server listens, and how it ends: what is under way is answered, nothing new begins."""

from __future__ import annotations

import importlib
import logging
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from redraft.config import DEFAULT_STORE, project_file, store_in_force, store_said
from redraft.errors import ConfigError
from redraft.lm.openai import is_loopback
from redraft.server.app import create_app
from redraft.server.heads import Heads
from redraft.server.house import House, Plans, Terms
from redraft.server.keys import VARIABLE, Keys
from redraft.server.presets import read_presets
from redraft.server.shadow import ShadowTerms
from redraft.server.upstreams import Upstream, configured
from redraft.sockets import listen_at

log = logging.getLogger("redraft.server")

_BACKLOG = 4096
_ENDLESS = 1e12
_SETTINGS = (*Terms.__dataclass_fields__, "keys_file")


def plans_of(project: Mapping[str, Any], *, base_url: str | None = None, keys_file: str | None = None) -> Plans:
    """What redraft.toml and the environment say: `[presets.*]`, `[upstreams.*]`, `[shadow]` and `[server]`.

    Raises `ConfigError` for whatever is wrong with it, before anybody is served.
    """
    table = project.get("server", {})
    if not isinstance(table, Mapping) or (unknown := sorted(set(table) - set(_SETTINGS))):
        shown = f"no setting named {unknown[0]!r}" if isinstance(table, Mapping) else "it must be a table"
        raise ConfigError(f"[server]: {shown}; there are {', '.join(_SETTINGS)}")
    if not isinstance(table.get("keys_file", ""), str):
        raise ConfigError(f"[server] keys_file must be the name of a file, got {table['keys_file']!r:.40}")
    presets = read_presets(project.get("presets", {}), project.get("calibrated"))
    upstreams = tuple(configured(project.get("upstreams", {}), base_url))
    shadow = ShadowTerms.read(project.get("shadow"), presets)
    if shadow is not None:
        _check_shadowed(shadow, upstreams)
    return Plans(
        presets=presets,
        upstreams=upstreams,
        keys=Keys.read(keys_file or table.get("keys_file")),
        shadow=shadow,
        terms=_terms({name: value for name, value in table.items() if name != "keys_file"}),
    )


def _check_shadowed(shadow: ShadowTerms, upstreams: Sequence[Upstream]) -> None:
    """Raises `ConfigError` where no answer could come by that is to be refined aside."""
    chats = [upstream for upstream in upstreams if upstream.kind == "openai"]
    if not chats:
        raise ConfigError(
            "[shadow] refines chat completions that pass through, and there is no upstream they could come from: write "
            "[upstreams.NAME] of kind openai into redraft.toml, or name one by --base-url"
        )
    for model in shadow.models:
        if not any(upstream.may_take(model) for upstream in chats):
            there = "; ".join(f"{upstream.name} takes {', '.join(upstream.models) or 'none'}" for upstream in chats)
            raise ConfigError(
                f"[shadow] models names {model!r:.80}, which no upstream of kind openai takes ({there}): mend the name, or "
                "leave models out for all that pass through"
            )


def _terms(given: Mapping[str, Any]) -> Terms:
    for name, value in given.items():
        if name == "otel":
            if not isinstance(value, bool):
                raise ConfigError(f"[server] otel must be true or false, got {value!r:.40}")
            continue
        whole = name in ("active", "waiting", "body_bytes", "choices")
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not 0 < value < _ENDLESS:
            raise ConfigError(f"[server] {name} must be a {'whole ' if whole else ''}number above 0, got {value!r:.40}")
    return Terms(**given)


def plans_here(*, base_url: str | None = None, keys_file: str | None = None, store: str | None = None) -> Plans:
    """The same for the project that this is run in, with its runs on disk."""
    plans = plans_of(project_file(), base_url=base_url, keys_file=keys_file)
    if not plans.presets and not plans.upstreams:
        raise ConfigError(
            "there is nothing to serve: write [presets.NAME] into redraft.toml (a strategy, a model, checks), or name an "
            "upstream (--base-url URL, OPENAI_API_KEY) whose models pass through"
        )
    path = store or store_said() or DEFAULT_STORE
    Path(path).expanduser().parent.mkdir(parents=True, exist_ok=True)
    return replace(plans, store=store_in_force(path))


class Server(uvicorn.Server):
    """uvicorn, which tells the house that it drains."""

    def __init__(self, config: uvicorn.Config, house: House) -> None:
        super().__init__(config)
        self._house = house

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn: no new connection, and those there are get the time of `timeout_graceful_shutdown`."""
        self._house.gate.closing = True
        log.info("closing: %d requests are under way", self._house.gate.active)
        await super().shutdown(sockets)


def serve(plans: Plans, *, host: str = "127.0.0.1", port: int = 8000, drain_seconds: int = 30) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises `ConfigError` beyond loopback without keys, or where the port is taken."""
    if not is_loopback(host) and not plans.keys:
        raise ConfigError(
            f"{host} can be reached from other machines: set keys in {VARIABLE} or a file (--keys FILE) that clients send as "
            "'Authorization: Bearer KEY', or listen on 127.0.0.1"
        )
    with listen_at(host, port, _BACKLOG) as listening:
        app = create_app(plans)
        _load_what_is_needed()
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            log_level="warning",
            timeout_graceful_shutdown=drain_seconds,
            backlog=_BACKLOG,
            server_header=False,
            proxy_headers=False,
            http=Heads,
            ws="none",
        )
        shown = f"[{host}]" if ":" in host else host
        at = listening.getsockname()[1]
        keyed = "with keys" if plans.keys else "no key needed"
        log.info("serving http://%s:%d/v1 (%s): %s", shown, at, keyed, ", ".join(plans.presets) or "no presets")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _ended)  # uvicorn raises a signal again when it has drained
        Server(config, app.state.house).run(sockets=[listening])


def _ended(number: int, _frame: object) -> None:
    log.info("closed after %s", signal.Signals(number).name)


def _load_what_is_needed() -> None:
    """What is imported when it is first used would keep the first client waiting, and all others with it."""
    for name in ("openai", "genai_prices", "jsonschema", "json_repair", "redraft.lm.prices", "redraft.checks.clean"):
        importlib.import_module(name)
