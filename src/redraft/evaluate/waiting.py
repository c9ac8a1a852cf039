"""Several evaluations on one store, one after the other or at once: what is on record counts, and what two need is made by
one of them, for which the other waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from redraft.budget import UNLIMITED, Meter
from redraft.errors import StoreError
from redraft.journal import Claim, Journal
from redraft.protocols import Store
from redraft.run import Run

_LOOK = 0.2
"""Seconds between two looks at a run that somebody else writes."""
_UNCLEAR = 2
"""How often a run may fail to begin though nobody writes it: it may have ended between the two looks."""


def preload(meter: Meter, store: Store | None, run_ids: Iterable[str]) -> None:
    """Count what these runs have spent in earlier processes against the meter's own limits, if it has any."""
    if store is None or meter.budget == UNLIMITED:
        return
    for run_id in run_ids:
        meter.preload(Journal(store, run_id).spent())


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
