"""Models by their providers' own APIs, through pydantic-ai's direct requests: an optional extra, `redraft[providers]`.

    import redraft
    redraft.configure(model="anthropic/claude-haiku-4-5")

`openai/NAME` is not here: it is chat completions (`redraft.lm.openai`). `openai-responses/NAME` is the Responses API.
The registry reads this module's attributes: one function `(model, *, base_url=None) -> LM` for each name in `table.DOORS`.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """The provider of that name (with "_" for "-"), imported only now."""
    from functools import partial

    from redraft.lm.native.table import DOORS

    door = DOORS.get(name.replace("_", "-"))
    if door is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from redraft.lm.native.model import NativeLM

    return partial(NativeLM, door=door)
