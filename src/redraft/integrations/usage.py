"""What other frameworks' calls cost, in redraft's words."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from redraft.lm.prices import price
from redraft.types import Usage

_HOSTS = ("azure", "openai", "anthropic")


def provider_at(url: str, otherwise: str) -> str:
    """The provider whose server a URL is: of those whose SDKs are known here, else `otherwise` (a gateway, a server of one's
    own).
    """
    host = urlsplit(url).hostname or ""
    return next((name for name in _HOSTS if name in host), otherwise)


def priced(usage: Usage | None, model: str, provider: str, url: str | None = None) -> Usage:
    """The usage of one call with its price, or marked as one of unknown price; None is a call of unknown size."""
    if usage is None:
        return Usage(calls=1, unbounded=1, unpriced=1)
    cost = price(model, provider, url, usage)
    return replace(usage, calls=1, cost=cost or 0.0, unpriced=int(cost is None))
