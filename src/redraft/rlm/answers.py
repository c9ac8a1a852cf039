"""What host functions answer: asked once, kept, and given again where a cell is run again.

A cell's code calls functions on the host: sub-queries, tools, SUBMIT. Every answer lies under (cell, function and
arguments, how often that was asked in the cell), in this process's memory and, by the same place, in the journal. So
a cell that is run again to restore its variables buys nothing and repeats no effect.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from redraft.errors import (
    AuthError,
    InputError,
    LMError,
    ParseError,
    RedraftError,
    SandboxError,
    ScoreError,
    StoreError,
    UsageError,
)
from redraft.frame import Frame, current_frame, entered, recorded
from redraft.jsonable import as_text
from redraft.protocols import LM, CellEnd
from redraft.record import digest
from redraft.types import Completion

SHOWN = 200
"""Characters of prompts, arguments and replies in a trajectory."""

LISTED = 200
"""Calls of one cell that a trajectory lists, but for sub-calls, which are all listed."""

_GOODBYE = 0.5  # seconds for what was cancelled to end

Outcome = dict[str, Any]
"""`value`, or `error` (the message) and `kind` (its class's name)."""

Work = Callable[..., Awaitable[Any]]
"""What a host function does: takes an `Asked`, then the arguments of the code."""


class LimitReached(RuntimeError):
    """More sub-calls were asked for than are left; none of them was made."""


class Failure(Exception):
    """A host function's failure, as the outcome that is kept of it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome["error"])
        self.outcome = outcome


class Limit:
    """How many sub-calls may be made, here and in the calls around this one."""

    def __init__(self, most: int, around: Limit | None = None) -> None:
        self.most = most
        self.used = 0
        self.around = around

    @property
    def left(self) -> int:
        """How many may still be made."""
        here = self.most - self.used
        return here if self.around is None else min(here, self.around.left)

    def take(self, n: int) -> None:
        """Count `n` sub-calls that will be made now. Raises `LimitReached`, and counts none, if that is too many."""
        if n > self.left:
            raise LimitReached(
                f"{n} sub-call{'s' if n != 1 else ''} asked for and {self.left} of {self.most} left: none was made. "
                "Ask for fewer, with more text in each, or go on without"
            )
        self.count(n)

    def count(self, n: int) -> None:
        """Count what was made, whatever is left."""
        self.used += n
        if self.around is not None:
            self.around.count(n)


@dataclass(slots=True)
class Asked:
    """One call of a host function."""

    frame: Frame
    """Where what it buys is kept."""
    limit: Limit
    entry: dict[str, Any]
    """What the trajectory says of it."""
    unsure: bool = False
    """A failure that may not happen again is part of the answer: it has to be recorded."""
    more: list[dict[str, Any]] = field(default_factory=list)
    """Entries instead of the one, for the prompts of a batch."""
    taken: int = 0
    """Sub-calls that it made."""

    def take(self, n: int) -> None:
        """Count sub-calls that will be made now. Raises `LimitReached`, and counts none, if that is too many."""
        self.limit.take(n)
        self.taken += n

    def at(self, place: str) -> Frame:
        """A place of its own for one of several purchases."""
        return replace(self.frame, scope=f"{self.frame.scope}/{place}", counts={})


class Cell:
    """One cell at work: counts what its code asks, and hears what ends it."""

    def __init__(self, index: int, frame: Frame, limit: Limit, known: dict[tuple[int, str, int], Outcome]) -> None:
        self.index, self.frame, self.limit = index, frame, limit
        self.entries: list[dict[str, Any]] = []
        self.over = asyncio.Event()
        """Nothing of the cell is wanted any more."""
        self.ended: BaseException | None = None
        """What ended the run in it."""
        self.submitted: dict[str, Any] | None = None
        """The outputs that were accepted, as the code gave them."""
        self.unlisted = 0
        """Calls that are not among the entries: code may check every line of a log with a tool."""
        self._known = known
        self._counts: dict[str, int] = {}
        self._asking: set[asyncio.Task[Any]] = set()

    async def ask(self, name: str, work: Work, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The answer of a host function; raises in the code what it raised. Ends the cell if the run has ended."""
        if self.over.is_set():
            raise CellEnd
        what = f"{name}:{digest([args, dict(kwargs)])}"
        self._counts[what] = nth = self._counts.get(what, 0) + 1
        outcome = self._known.get((self.index, what, nth))
        if outcome is None:
            task = asyncio.current_task()
            self._asking |= {task} if task else set()
            try:
                outcome = await self._answer(name, work, f"{what}#{nth}", args, kwargs)
            finally:
                self._asking -= {task} if task else set()
            self._known[self.index, what, nth] = outcome
        if "error" in outcome:
            raise raised(outcome)
        return outcome["value"]

    async def _answer(
        self, name: str, work: Work, place: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Outcome:
        frame = replace(self.frame, scope=f"{self.frame.scope}/{place}", counts={}, paths=None)
        entry: dict[str, Any] = {"function": name, "error": ""}
        asked = Asked(frame, self.limit, entry)
        is_sub_call = name.startswith(("llm_", "rlm_")) and self.limit.left > 0
        if is_sub_call or len(self.entries) < LISTED:
            self.entries.append(entry)
        else:
            self.unlisted += 1

        async def outcome() -> Outcome:
            asked.frame = current_frame() or frame  # inside the step: a replay of it asks for nothing that it bought
            try:
                found: Outcome = {"value": await work(asked, *args, **kwargs)}
            except Failure as failure:
                found = failure.outcome
            except (TypeError, ValueError, RuntimeError, ParseError, InputError) as error:
                found = failed(error)
            entry["error"] = found.get("error", "")
            return {**found, "taken": asked.taken, "entries": asked.more or [entry]}

        try:
            with entered(frame):
                found = await recorded(
                    frame, "answer", outcome, ready=frame.run.check_open, keep=lambda _: asked.unsure
                )
        except (CellEnd, asyncio.CancelledError):
            raise
        except RedraftError as error:
            self.ended = self.ended or error
            self.over.set()
            raise CellEnd from error
        if asked.frame is frame:  # it is on record
            self.limit.count(found["taken"])
        self._list(entry, found["entries"], refused=is_sub_call and not found["taken"])
        return found

    def _list(self, entry: dict[str, Any], entries: list[dict[str, Any]], *, refused: bool) -> None:
        """What a call came to in the place of what was said of it before. Code may ask for what is refused for ever."""
        at = next((i for i, e in enumerate(self.entries) if e is entry), None)
        if at is None:
            return
        if refused and at >= LISTED:
            entries = []
            self.unlisted += 1
        self.entries[at : at + 1] = entries

    def listed(self) -> list[dict[str, Any]]:
        """The entries, and how many more there were."""
        more = [{"function": f"... and {self.unlisted:,} more calls", "error": ""}] if self.unlisted else []
        return [*self.entries, *more]

    async def settle(self) -> None:
        """Wait for what is still being asked when the cell has ended; cut it off if nothing of it is wanted."""
        left = [task for task in self._asking if task is not asyncio.current_task() and not task.done()]
        if self.over.is_set():
            for task in left:
                task.cancel()
        if left:
            gone = all(task.cancelling() for task in left)  # a tool that ignores it is left behind
            await asyncio.wait(left, timeout=_GOODBYE if gone else None)
        self.over.set()


def failed(error: BaseException) -> Outcome:
    """An exception as an outcome."""
    return {"error": str(error), "kind": type(error).__name__}


_OWN_WAYS = (UnicodeError, StopIteration, StopAsyncIteration, BaseExceptionGroup)
"""Exceptions that are not made of a message alone, or cannot be raised here."""


def raised(outcome: Mapping[str, Any]) -> Exception:
    """The exception that an outcome says: a builtin one of its kind, else a RuntimeError."""
    kind = getattr(builtins, str(outcome.get("kind")), None)
    plain = isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, _OWN_WAYS)
    return kind(outcome["error"]) if plain and kind is not None else RuntimeError(outcome["error"])


def ending(frame: Frame, error: BaseException) -> BaseException | None:
    """What an error says of the run: it has ended, or cannot go on; None for what the code can deal with."""
    if (ended := frame.meter.ended_by(error)) is not None:
        return ended
    wrong = isinstance(error, UsageError) and not isinstance(error, InputError)
    return error if wrong or isinstance(error, StoreError | SandboxError | ScoreError | AuthError) else None


def may_pass(error: LMError) -> bool:
    """True for a failure that is not on record as final, so that asking again might succeed."""
    return not hasattr(error, "parameter") and type(error).__name__ in (
        "TransientLMError",
        "LMError",
        "LocalEngineError",
    )


def head(value: Any) -> str:
    """The beginning of a value, as a trajectory shows it."""
    text = as_text(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"


def bought(lm: LM, completion: Completion) -> dict[str, Any]:
    """What a reply used, as far as it was reported."""
    usage = completion.usage
    if usage is None:
        return {"calls": 1}
    cost = lm.cost(usage)
    return {
        "calls": 1,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        **({"cost": cost} if cost else {}),
    }


def added(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of what several calls used."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}
