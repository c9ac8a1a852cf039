"""Metering of code that buys replies by itself: other frameworks' own clients, which no reservation holds back.

What they spent is counted when they have ended ("soft"), and the next purchase is refused once a limit is reached.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redraft.frame import Frame, current_frame, entered, recorded, warn
from redraft.journal import SOFT
from redraft.record import used
from redraft.sync import on_loop
from redraft.types import Usage

T = TypeVar("T")


class Spent(Exception):
    """Raise it from what `bought` awaits: the call failed with `error`, and used this much all the same."""

    def __init__(self, error: Exception, usage: Usage) -> None:
        super().__init__(str(error))
        self.error, self.usage = error, usage


async def bought(name: str, call: Callable[[], Awaitable[tuple[T, Usage]]]) -> T:
    """What `call` buys elsewhere, `once`, its usage counted after the fact. `name` says by whom.

    What `call` raises comes out (`Spent` is charged, and taken apart). A call that ends without a usage is charged as one
    of unknown size.
    """

    async def counted() -> T:
        usage = Usage(calls=1, unbounded=1)
        try:
            value, usage = await call()
        except Spent as spent:
            usage = spent.usage
            raise spent.error from spent.__cause__
        finally:
            charge(usage, by=name)
        return value

    return await once(name, counted)


async def once(name: str, call: Callable[[], Awaitable[T]]) -> T:
    """What `call` returns; it charges by itself what it buys.

    A value that is JSON is journalled: a resumed run gets the recorded one and calls nothing. Raises `BudgetExceeded`
    before the call if a limit is reached. Outside any run it is just awaited.
    """
    frame = current_frame()
    if frame is None:
        return await call()

    def ready() -> None:
        frame.run.check_open()
        frame.meter.check_room(name)

    return await on_loop(lambda: recorded(frame, name, call, ready=ready, keep=_is_json), frame.run.loop)


def charge(usage: Usage, by: str) -> None:
    """Count what this code has bought by itself, in the surrounding run. From any of the run's threads; nothing outside a
    run. `by` says who bought it.
    """
    frame = current_frame()
    if frame is None:
        return
    loop = frame.run.loop
    if loop is None or _running() is loop:
        _charge(frame, usage, by)
        return
    counted = _soft(usage)
    frame.meter.charge(counted)  # at once: the next purchase must see it
    loop.call_soon_threadsafe(_note, frame, counted, by)


def _charge(frame: Frame, usage: Usage, by: str) -> None:
    counted = _soft(usage)
    frame.meter.charge(counted)
    _note(frame, counted, by)


def _note(frame: Frame, usage: Usage, by: str) -> None:
    frame.run.journal.note(SOFT, scope=frame.scope, by=by, usage=used(usage))
    if usage.unbounded and frame.meter.limits_tokens:
        with entered(frame):
            warn(f"{by} does not report the tokens of all its calls, so that a limit on tokens or money cannot hold it")


def _soft(usage: Usage) -> Usage:
    """At least one call, all of them marked."""
    calls = max(1, usage.calls)
    return usage + Usage(calls=calls - usage.calls, soft=calls - usage.soft)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
