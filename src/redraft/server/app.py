"""The server's routes, each an ASGI endpoint of its own: no middleware stands between a client's leaving and its run."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from redraft.errors import RedraftError
from redraft.lm.openai import is_loopback
from redraft.server.answering import answer, unknown_preset
from redraft.server.exchange import ClientLeft, Exchange, Receive, Scope, Send
from redraft.server.house import House, Plans
from redraft.server.keys import VARIABLE, Key
from redraft.server.listing import health, listed_models, metrics, openapi, ready, shadow_report
from redraft.server.passing import pass_through
from redraft.server.posted import Posted
from redraft.server.presets import PREFIX
from redraft.server.refusal import CLIENT_LEFT, Refusal, refusal_of
from redraft.server.wires.base import Wire, as_object, model_of
from redraft.server.wires.chat import CHAT
from redraft.server.wires.messages import MESSAGES
from redraft.server.wires.responses import RESPONSES

log = logging.getLogger("redraft.server")

_ANSWERED: dict[str, Wire] = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
_PASSED: dict[str, Wire] = {"/v1/completions": CHAT, "/v1/embeddings": CHAT, "/v1/messages/count_tokens": MESSAGES}
"""Paths that real models alone have."""
_GETS = {
    "/health": health,
    "/health/ready": ready,
    "/v1/models": listed_models,
    "/metrics": metrics,
    "/openapi.json": openapi,
    "/redraft/shadow": shadow_report,
}
OPEN = ("/health", "/health/ready")
"""What needs no key."""


def create_app(plans: Plans) -> Starlette:
    """The server as an ASGI app, for uvicorn or any other server of them."""
    house = House(plans)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        house.gate.closing = True
        await house.close()

    routes = [
        Route(path, _Post(house, path, wire), methods=["POST"]) for path, wire in {**_ANSWERED, **_PASSED}.items()
    ]
    routes += [Route(path, _Get(house, path, show), methods=["GET"]) for path, show in _GETS.items()]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _no_route})
    app.router.redirect_slashes = False
    app.state.house = house
    return app


async def _no_route(request: Any, error: Any) -> Any:
    """404 and 405, in the form of the API whose client asks."""
    from starlette.responses import JSONResponse

    wire = _wire_of(request.url.path, request.headers)
    told = f"there is no {request.method} {request.url.path!r:.120} here"
    refusal = Refusal(error.status_code, told, headers=dict(error.headers or {}))
    return JSONResponse(wire.error(refusal), refusal.status, headers=refusal.headers)


def _wire_of(path: str, headers: Mapping[str, str]) -> Wire:
    anthropic = path.startswith("/v1/messages") or "anthropic-version" in headers
    return MESSAGES if anthropic else CHAT


class _Endpoint:
    """One route: who asks, what is refused in which form, what is counted. The boundary to the wire: whatever goes wrong
    inside is an answer.
    """

    def __init__(self, house: House, path: str) -> None:
        self.house, self.path = house, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, begun = Exchange(scope, receive, send), time.perf_counter()
        wire, seen = self.wire(exchange), _Seen()
        try:
            exchange.refuse_doubles()
            key = None if self.path in OPEN else self.house.keys.whose(exchange.headers)
            if not self.house.keys:
                _only_from_here(exchange.headers)
            seen.key = key.name if key is not None else "-"
            await self.serve(exchange, key, seen)
        except ClientLeft:
            seen.status = CLIENT_LEFT
        except (Refusal, RedraftError) as error:
            await _refuse(exchange, wire, refusal_of(error))
        except Exception as error:
            log.exception("%s failed", self.path)
            await _refuse(exchange, wire, refusal_of(error))
        self._note(exchange, seen, time.perf_counter() - begun)

    def _note(self, exchange: Exchange, seen: _Seen, seconds: float) -> None:
        status = str(seen.status or exchange.status)
        self.house.metrics.requests.labels(self.path, seen.model, status).inc()
        self.house.metrics.seconds.labels(self.path, seen.model).observe(seconds)
        log.info("%s %s %s %s %.3f s", seen.key, self.path, seen.model or "-", status, seconds)

    def wire(self, exchange: Exchange) -> Wire:
        """In whose form errors are told."""
        return _wire_of(self.path, exchange.headers)

    async def serve(self, exchange: Exchange, key: Key | None, seen: _Seen) -> None:
        """Answer."""
        raise TypeError(f"{type(self).__name__} defines no serve for {exchange.path} ({key}, {seen})")


def _only_from_here(headers: Mapping[str, str]) -> None:
    """Without keys: a page in a browser on this machine must not reach the server, by its own name or one it made up."""
    for header in ("host", "origin"):
        said = headers.get(header)
        if said is not None and not is_loopback(_host_in(said)):
            told = f"the {header} {said!r:.80} is not this machine; set keys ({VARIABLE}) to be asked from elsewhere"
            raise Refusal(403, told, code="forbidden_origin")


def _host_in(said: str) -> str:
    try:
        return urlsplit(said if "//" in said else f"//{said}").hostname or ""
    except ValueError:  # a bracket without its other half
        return ""


class _Seen:
    """What of a request goes into the log and the metrics."""

    def __init__(self) -> None:
        self.model, self.key, self.status = "", "-", 0


async def _refuse(exchange: Exchange, wire: Wire, refusal: Refusal) -> None:
    """In a response that has begun nothing can be told any more: it breaks off."""
    if not exchange.status:
        await exchange.json(refusal.status, wire.error(refusal), refusal.headers)


class _Get(_Endpoint):
    def __init__(self, house: House, path: str, show: Any) -> None:
        super().__init__(house, path)
        self._show = show

    async def serve(self, exchange: Exchange, key: Key | None, seen: _Seen) -> None:
        """See `_Endpoint`."""
        del key, seen
        await self._show(self.house, exchange)


class _Post(_Endpoint):
    def __init__(self, house: House, path: str, wire: Wire) -> None:
        super().__init__(house, path)
        self._wire = wire

    def wire(self, exchange: Exchange) -> Wire:
        """The route's own."""
        del exchange
        return self._wire

    async def serve(self, exchange: Exchange, key: Key | None, seen: _Seen) -> None:
        """See `_Endpoint`."""
        raw = await exchange.body(self.house.terms.body_bytes, self.house.terms.patience)
        body = as_object(raw)
        model = model_of(body)
        preset = self.house.presets.get(model)
        if preset is None and model.startswith(PREFIX):
            raise unknown_preset(self.house, model)
        if preset is not None:
            seen.model = preset.id
            if self.path in _PASSED:
                raise Refusal(
                    404, f"{self.path} has no virtual models, only real ones", code="model_not_found", param="model"
                )
        else:
            upstream = self.house.upstreams.of(model, self._wire.upstream)
            seen.model = upstream.name

        posted = Posted(exchange=exchange, wire=self._wire, raw=raw, body=body, key=key)

        async def work() -> None:
            async with self.house.gate.place(key):
                if preset is not None:
                    seen.status = await answer(self.house, posted, preset)
                else:
                    await pass_through(self.house, posted, upstream)

        await exchange.unless_left(work())
