"""What code under another framework needs of the surrounding run: its advice, its ends, its journal, a reply."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from redraft.frame import NO_ADVICE, Advice, current_frame
from redraft.protocols import LM
from redraft.run import Run
from redraft.types import Completion, Request


def here() -> Advice:
    """What the running code is advised; nothing outside a run."""
    frame = current_frame()
    return NO_ADVICE if frame is None else frame.advice


def as_paragraphs(advice: Advice) -> str:
    """The requirements and the hint as a text; empty where there are none."""
    told = "\n".join("- " + line.replace("\n", "\n  ") for line in advice.requirements)
    return "\n\n".join(filter(None, (f"Requirements:\n{told}" if told else "", advice.hint)))


async def ask(lm: LM, request: Request) -> Completion:
    """One reply: the surrounding run's, or that of a run of its own with the budget of the settings."""
    if (frame := current_frame()) is not None:
        return await frame.run.complete(request, lm=lm)
    async with Run() as run:
        return await run.complete(request, lm=lm)


async def once(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
    """What `call` returns; a resumed run gets the recorded value, if that is JSON, and does not call again.

    For what charges its usage by itself while it works, where `foreign.bought` would charge it as one call.
    """
    frame = current_frame()
    if frame is None:
        return await call()
    frame.run.check_open()
    journal = frame.run.journal
    key = journal.key(frame.scope, f"step:{name}")
    if (old := journal.recorded("step", key)) is not None:
        return old.data["value"]
    frame.meter.check_room()
    value = await call()
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return value
    await journal.commit("step", scope=frame.scope, key=key, name=name, value=value)
    return value
