"""Two evaluations at once on one store: what both need is made by one of them, and the other waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redraft.budget import Meter
from redraft.errors import StoreError
from redraft.journal import Claim
from redraft.protocols import Store
from redraft.run import Run

_LOOK = 0.2
"""Seconds between two looks at a run that somebody else writes."""
_UNCLEAR = 2
"""How often a run may fail to begin though nobody writes it: it may have ended between the two looks."""


async def begun(make: Callable[[], Run], within: Meter | None = None) -> Run:
    """The run that `make` makes, begun: at once, or when whoever writes it now has ended. Then its replies are there.

    Raises `BudgetExceeded` when the time of `within` is over before that.
    """
    unclear = 0
    while True:
        run = make()
        try:
            _ = run.seed  # it begins
            return run
        except StoreError:
            unclear += not at_work(run.journal.store, run.run_id)
            if unclear > _UNCLEAR:
                raise
        if within is not None:
            within.check_time()
        await asyncio.sleep(_LOOK)


def at_work(store: Store | None, run_id: str) -> bool:
    """True if somebody writes that run now."""
    if store is None:
        return False
    try:
        Claim(store, run_id).release()
    except StoreError:
        return True
    return False
