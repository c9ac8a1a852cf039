"""What code under another framework needs of the surrounding run: its advice, and a reply."""

from __future__ import annotations

from redraft.frame import NO_ADVICE, Advice, current_frame
from redraft.modules.wire import listed
from redraft.protocols import LM
from redraft.run import Run
from redraft.types import Completion, Request


def here() -> Advice:
    """What the running code is advised; nothing outside a run."""
    frame = current_frame()
    return NO_ADVICE if frame is None else frame.advice


def as_paragraphs(advice: Advice) -> str:
    """The requirements and the hint as a text; empty where there are none."""
    return "\n\n".join(filter(None, (listed(advice.requirements) if advice.requirements else "", advice.hint)))


async def ask(lm: LM, request: Request) -> Completion:
    """One reply: the surrounding run's, or that of a run of its own with the budget of the settings."""
    if (frame := current_frame()) is not None:
        return await frame.run.complete(request, lm=lm)
    async with Run() as run:
        return await run.complete(request, lm=lm)
