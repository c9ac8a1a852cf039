"""What the server says of itself: its models, its health, its numbers."""

from __future__ import annotations

from typing import Any

from redraft import __version__
from redraft.server.exchange import Exchange
from redraft.server.house import House
from redraft.server.metrics import CONTENT_TYPE
from redraft.server.openapi import document
from redraft.server.refusal import Refusal


async def health(house: House, exchange: Exchange) -> None:
    """It runs."""
    del house
    await exchange.json(200, {"status": "ok", "version": __version__})


async def ready(house: House, exchange: Exchange) -> None:
    """503 while it drains, or where an upstream does not answer."""
    faults = {} if house.gate.closing else await house.upstreams.faults()
    if house.gate.closing:
        faults = {"server": "it is closing"}
    told: dict[str, Any] = {"status": "unavailable" if faults else "ok", "presets": len(house.presets)}
    told |= {"upstreams": {u.name: faults.get(u.name, "ok") for u in house.upstreams}}
    await exchange.json(503 if faults else 200, told | ({"faults": faults} if faults else {}))


async def listed_models(house: House, exchange: Exchange) -> None:
    """Virtual and real ones, as clients of both APIs read them."""
    names = [(preset, "redraft") for preset in house.presets] + await house.upstreams.models()
    data = [_model(name, owner) for name, owner in dict(names).items()]
    edges = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    await exchange.json(200, {"object": "list", "data": data, "has_more": False, **edges})


def _model(name: str, owner: str) -> dict[str, Any]:
    openai = {"id": name, "object": "model", "created": 0, "owned_by": owner}
    return {**openai, "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


async def metrics(house: House, exchange: Exchange) -> None:
    """For Prometheus."""
    await exchange.answer(200, house.metrics.text(), CONTENT_TYPE)


async def shadow_report(house: House, exchange: Exchange) -> None:
    """How often the answers would have changed."""
    if house.shadow is None:
        raise Refusal(404, "no shadow mode: [shadow] in redraft.toml names a preset and a share", code="not_found")
    await exchange.json(200, house.shadow.report())


async def openapi(house: House, exchange: Exchange) -> None:
    """The interface as an OpenAPI document."""
    del house
    await exchange.json(200, document())
