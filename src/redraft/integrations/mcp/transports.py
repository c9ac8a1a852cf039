"""Where the server listens: stdin and stdout, or HTTP on this machine; beyond it only with a key."""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from redraft.errors import ConfigError
from redraft.integrations.mcp.server import make_server
from redraft.integrations.mcp.terms import Terms
from redraft.lm.openai import is_loopback
from redraft.sockets import listen_at

log = logging.getLogger("redraft.mcp")

KEY = "REDRAFT_MCP_KEY"
PATH = "/mcp"

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen, and who may ask for it by which name."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0: whichever is free."""
    key: str = ""
    """Bearer token that each request must carry; empty: none."""
    names: Sequence[str] = ()
    """Further names of this host that requests may use (`Host`, `Origin`)."""

    @classmethod
    def parse(cls, text: str, **more: Any) -> Address:
        """`HOST:PORT`, `[::1]:8000`, or a port alone. Raises `ConfigError`."""
        host, _, port = text.rpartition(":")
        if not port.isascii() or not port.isdecimal() or int(port) > 65_535:
            raise ConfigError(f"{text!r} is no HOST:PORT; write e.g. 127.0.0.1:8000")
        return cls(host=host.strip("[]") or "127.0.0.1", port=int(port), **more)

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.host)


async def serve_stdio(terms: Terms) -> None:
    """Serve one client over stdin and stdout until it closes its end. Whatever else is printed goes to stderr."""
    server = make_server(terms)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(terms: Terms, address: Address) -> None:
    """Serve over streamable HTTP until cancelled. Raises `ConfigError` beyond loopback without a key."""
    if not address.loopback and not address.key:
        raise ConfigError(
            f"{address.host} can be reached from other machines: set a key in {KEY} that clients send as "
            "'Authorization: Bearer KEY', or listen on 127.0.0.1"
        )
    with listen_at(address.host, address.port) as listening:
        port = listening.getsockname()[1]
        app: App = make_server(terms).streamable_http_app(
            streamable_http_path=PATH, host=address.host, transport_security=_security(address, port)
        )
        if address.key:
            app = _keyed(app, address.key)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, log_level="warning", timeout_graceful_shutdown=1
        )
        host = f"[{address.host}]" if ":" in address.host else address.host
        log.info("serving MCP at http://%s:%d%s%s", host, port, PATH, " (with a key)" if address.key else "")
        await uvicorn.Server(config).serve(sockets=[listening])


def _security(address: Address, port: int) -> TransportSecuritySettings:
    """A page in a browser on this machine must not reach the server by a name that it made up (DNS rebinding)."""
    names = ["127.0.0.1", "localhost", "[::1]", *address.names]
    if not address.loopback:
        names += [f"[{address.host}]" if ":" in address.host else address.host, socket.gethostname(), socket.getfqdn()]
    hosts = [form for name in dict.fromkeys(names) for form in (name, f"{name}:{port}")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")],
    )


def _keyed(app: App, key: str) -> App:
    """The app for those who send the key; 401 for all others."""
    wanted = key.encode()

    async def keyed(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            given = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, token = given.partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), wanted):
                head = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": 401, "headers": head})
                await send({"type": "http.response.body", "body": f"send the key of {KEY} as a bearer token".encode()})
                return
        await app(scope, receive, send)

    return keyed
