"""A real model's request, passed through byte for byte, as it comes."""

from __future__ import annotations

import logging

from redraft.server.connections import FAULTS
from redraft.server.heard import Heard, usage_in
from redraft.server.house import House
from redraft.server.posted import Posted
from redraft.server.refusal import Refusal
from redraft.server.upstreams import Upstream, given_back

log = logging.getLogger("redraft.server")


async def pass_through(house: House, posted: Posted, upstream: Upstream) -> None:
    """Send the request on, and the response back. A response that breaks off here breaks off there."""
    exchange, body, key = posted.exchange, posted.body, posted.key
    if "redraft" in body:
        told = "'redraft' goes with the virtual models refine/...; a real model's request is passed on as it is"
        raise Refusal(400, told, code="invalid_request", param="redraft")
    path = f"{exchange.path}?{exchange.query}" if exchange.query else exchange.path
    model = str(body.get("model"))
    chat = exchange.path == "/v1/chat/completions"
    aside = chat and house.shadow is not None and house.shadow.wants(model)
    async with house.upstreams.sent(upstream, path, exchange.raw_headers, posted.raw) as response:
        heard = Heard(response.headers) if aside or (key is not None and key.limited) else None
        await exchange.start(response.status, given_back(response.headers))
        whole = False
        try:
            async for piece in response.aiter_stream():
                await exchange.write(piece)
                if heard is not None:
                    heard.add(piece)
            whole = True
        except FAULTS as error:
            log.warning("the upstream %s broke off: %s", upstream.name, error or type(error).__name__)
        finally:
            if key is not None and key.limited and heard is not None and response.status < 400:
                key.charge(usage_in(heard.values(), model, upstream))
    if whole:
        await exchange.end()
    if aside and whole and house.shadow is not None and heard is not None and response.status == 200:
        house.shadow.begin(body, heard.completion())
