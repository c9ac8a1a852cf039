"""Which sandbox a call gets: one of its own, or the user's, which serves one call at a time."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from redraft.errors import InputError, SandboxError
from redraft.frame import Frame, within
from redraft.protocols import Interpreter
from redraft.turns import Gate

AUTO = "auto"


def checked(interpreter: Any, factory: Callable[[], Any] | None, *, depth: int) -> Any:
    """What was given as `interpreter` or `interpreter_factory`. Raises `InputError` for what is neither, and what a sandbox
    of that name raises where it cannot be made: before anything is bought.
    """
    if interpreter is not None and factory is not None:
        raise InputError("give interpreter or interpreter_factory, not both")
    given = factory if interpreter is None else interpreter
    if isinstance(given, str) and given != AUTO:
        _made(given)
    if given is None or isinstance(given, str | type):
        return given
    if _is_one(given):
        if depth > 1:
            raise InputError(
                "one sandbox serves one call at a time, and with depth > 1 calls make others: give a factory, as in "
                "interpreter=lambda: Jail()"
            )
        return given
    if not callable(given):
        raise InputError(
            f"interpreter={given!r}: give a sandbox's name, an Interpreter, or a function or class that makes one"
        )
    return given


def _is_one(given: Any) -> bool:
    return not isinstance(given, type) and isinstance(given, Interpreter)


class _Place:
    """Who has a user's sandbox."""

    def __init__(self) -> None:
        self.gate = Gate(1)
        self.holder: tuple[Any, str] | None = None


_places: weakref.WeakKeyDictionary[Any, _Place] = weakref.WeakKeyDictionary()


@asynccontextmanager
async def sandbox(given: Any, frame: Frame) -> AsyncIterator[Interpreter]:
    """The sandbox of one call. Who enters closes it; a user's own is waited for."""
    if not _is_one(given):
        yield _made(given)
        return
    try:
        place = _places.setdefault(given, _Place())
    except TypeError as error:
        raise InputError(f"{given!r} cannot be told from its like ({error}): give a function that makes one") from error
    root = frame.run.root
    if place.holder is not None and place.holder[0] is root and within(frame.scope, place.holder[1]):
        raise InputError(
            "the sandbox that was given is at work for the call around this one: give a factory, as in "
            "interpreter=lambda: Jail()"
        )
    await place.gate.enter()
    place.holder = (root, frame.scope)
    try:
        yield given
    finally:
        place.holder = None
        place.gate.leave()


def _made(given: Any) -> Interpreter:
    from redraft.sandbox import interpreter

    made = interpreter(given or AUTO) if given is None or isinstance(given, str) else given()
    if not _is_one(made):
        raise SandboxError(f"the interpreter's factory made {made!r}, which is no Interpreter: see redraft.Interpreter")
    return made
