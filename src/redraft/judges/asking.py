"""What judges share: drafts between marks, hints of bounded length, calls side by side, and the reply's choice itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from redraft.modules import Predict
from redraft.record import digest
from redraft.types import Completion, Prediction

T = TypeVar("T")

HINT = 200
"""Characters of a hint. Longer ones go with worse revisions, and small models copy what they are shown."""

_heard: ContextVar[list[Completion] | None] = ContextVar("redraft_heard", default=None)


def marked(text: str, name: str = "draft") -> str:
    """The text between marks that it cannot close: they carry its own digest."""
    tag = f"{name}-{digest(text)[:8]}"
    return f"<{tag}>\n{text}\n</{tag}>"


def bounded(hint: str, most: int = HINT) -> str:
    """One line of at most that many characters, cut between words where there are any."""
    line = " ".join(hint[: 4 * most].split())
    if len(line) <= most:
        return line
    head = line[: most - 3]
    return f"{head.rpartition(' ')[0] or head}..."


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order, or the first error in order once all have ended: a call that another's error cancelled would
    be bought anew whenever the run is replayed.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)  # type: ignore[arg-type]


class Overheard(Predict):
    """A Predict whose prediction also has `choice`: what the fields were read from, log probabilities included."""

    async def aforward(self, **inputs: Any) -> Prediction:
        """See `Module`."""
        heard: list[Completion] = []
        token = _heard.set(heard)
        try:
            said = await super().aforward(**inputs)
        finally:
            _heard.reset(token)
        return Prediction({**said.to_dict(), "choice": heard[-1].choices[0]})

    async def _ask(self, *args: Any) -> Completion:
        completion = await super()._ask(*args)
        heard = _heard.get()
        assert heard is not None
        heard.append(completion)
        return completion
