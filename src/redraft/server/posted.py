"""One request with a body, read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redraft.server.exchange import Exchange
from redraft.server.keys import Key
from redraft.server.wires.base import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What was asked, by whom, in which API's form."""

    exchange: Exchange
    wire: Wire
    raw: bytes
    """The body as it came."""
    body: Mapping[str, Any]
    key: Key | None
