"""Calls that an earlier process has sent, and whose replies a model takes up: they are gone on with, not bought once more."""

from __future__ import annotations

from collections.abc import Callable

from redraft.budget import Ask, Reservation
from redraft.frame import Frame, paying
from redraft.protocols import LM
from redraft.record import used
from redraft.types import Event, Request, Usage


async def room_for(
    ask: Ask, *, frame: Frame, key: str, lm: LM, sent: Callable[[], Request]
) -> tuple[Reservation, Event | None]:
    """Room for one try of the call with this key, and the intent of the earlier process if it is no new call.

    That is so where no end of it is on record and `lm.under_way(request)` says that its reply is to be had: an LM may have
    such a method. What was set aside for it is given back first, so that it is charged once. Raises what `Meter.reserve` does.
    """
    meter, journal = frame.meter, frame.run.journal
    begun = journal.unfinished(key)
    if begun is None or not _under_way(lm, sent):
        return await meter.reserve(ask), None
    place = used(Usage(**begun.data["reserved"]))
    meter.charge(Usage(**{name: -amount for name, amount in place.items()}))
    held: Reservation | None = None
    try:
        held = await meter.reserve(ask)
    finally:
        if held is None:  # it stays what it was
            meter.charge(Usage(**place))
    journal.gone_on_with(begun)
    return held, begun


def _under_way(lm: LM, sent: Callable[[], Request]) -> bool:
    asked: Callable[[Request], bool] | None = getattr(lm, "under_way", None)
    if asked is None:
        return False
    with paying():
        return asked(sent())
