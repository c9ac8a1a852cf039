"""Dollars for tokens, out of `genai-prices`. Unknown is None, never 0."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from redraft.types import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice


def price(model: str, provider: str, base_url: str | None, usage: Usage) -> float | None:
    """What these tokens cost at this endpoint, or at that provider; None if neither price is known."""
    from genai_prices import Usage as Amounts

    found = _find(model, provider, base_url)
    if found is None:
        return None
    amounts = Amounts(
        input_tokens=usage.input_tokens,
        cache_read_tokens=min(usage.cached_tokens, usage.input_tokens),
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=min(usage.reasoning_tokens, usage.output_tokens),  # nearly always priced as output
    )
    return float(found.calc_price(amounts)["total_price"])


@cache
def _find(model: str, provider: str, base_url: str | None) -> ModelPrice | None:
    """Looked up once a process: a reservation and its settlement are made at the same price."""
    from genai_prices import Usage as Amounts
    from genai_prices import calc_price

    nothing = Amounts(input_tokens=0, output_tokens=0)
    for by_url in (True, False):
        try:
            if by_url:
                found = calc_price(nothing, model, provider_api_url=base_url or "").model_price
            else:
                found = calc_price(nothing, model, provider_id=provider).model_price
        except LookupError:
            continue
        # a listed model without token prices is not free
        return None if found.input_mtok is None or found.output_mtok is None else found
    return None
