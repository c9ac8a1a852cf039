"""Host functions as the jailed code sees them: plain functions that may be called from any thread."""

from __future__ import annotations

import builtins
import collections.abc
import enum
import itertools
import signal
import sys
import threading
from collections.abc import Callable

from redraft.sandbox.child import wire

TYPE_CHECKING = False  # `typing` is slow to load, and type checkers know the name
if TYPE_CHECKING:
    from typing import Any


class CellEnded(BaseException):
    """Ends the cell from inside a host function. No `Exception`: code that catches those must not stop it."""


class Bridge:
    """Calls to the host, and the interrupts that end a cell."""

    def __init__(self, inbox: wire.Inbox) -> None:
        self._inbox = inbox
        self._ids = itertools.count(1)
        self._kinds: dict[str, type[Exception]] = {}
        self.running = False
        self.ending = False
        self._late = False

    def begin(self) -> None:
        """A cell begins: from here on it can be interrupted."""
        self.ending = self._late = False
        self.running = True

    def interrupt(self, *_signal: object) -> None:
        """The handler of SIGINT: the cell's time is over, or another of its threads has ended it."""
        if not self.running:
            return
        if self._inbox.busy:
            self._late = True  # a frame must not be torn apart
            return
        raise CellEnded if self.ending else KeyboardInterrupt

    def function(self, name: str) -> Callable[..., Any]:
        """The function of that name on the host."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = f"{name}: runs outside of this sandbox. Call it from threads to run several at the same time."
        return call

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number = next(self._ids)
        try:
            frame = wire.pack({"call": number, "name": name, "args": args, "kwargs": kwargs}, plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"{name}: arguments are what JSON can hold (text, numbers, lists, dicts): {error}"
            ) from None
        if len(frame) > wire.LARGEST:
            raise ValueError(f"{name}: arguments of {len(frame)} bytes, at most {wire.LARGEST} can be passed: cut them")
        try:
            wire.weight(frame)
        except wire.TooLarge as error:
            raise ValueError(f"{name}: {error}: pass fewer, or one text of them (json.dumps)") from None
        self._inbox.expect(number)
        self._inbox.send(frame)
        reply = self._inbox.take(number)
        if self._late and threading.current_thread() is threading.main_thread():
            self._late = False
            raise CellEnded if self.ending else KeyboardInterrupt
        if "end" in reply:
            self._end()
        if "raise" in reply:
            kind, message = reply["raise"]
            raise self._kind(kind)(message)
        return reply["value"]

    def _end(self) -> None:
        self.ending = True
        main = threading.main_thread()
        if threading.current_thread() is not main:
            signal.pthread_kill(main.ident or 0, signal.SIGINT)
        raise CellEnded

    def _kind(self, name: str) -> type[Exception]:
        """The built-in exception of that name, or one made for it."""
        known = getattr(builtins, name, None)
        if isinstance(known, type) and issubclass(known, Exception) and known not in _NEEDS_MORE:
            return known
        return self._kinds.setdefault(name, type(name, (RuntimeError,), {"__module__": "builtins"}))


_NEEDS_MORE = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError, BaseExceptionGroup, ExceptionGroup)
"""Exceptions that cannot be made of a message alone."""


def plain(value: object) -> object:
    """What JSON has no word for and everybody would write the same way."""
    if isinstance(value, set | frozenset | collections.deque | collections.abc.KeysView | collections.abc.ValuesView):
        return list(value)
    if isinstance(value, collections.abc.Generator | range | map | filter | zip):
        return list(value)
    if (dates := sys.modules.get("datetime")) and isinstance(value, dates.date | dates.time):
        return value.isoformat()
    if isinstance(value, enum.Enum):
        return value.value
    if hasattr(type(value), "__dataclass_fields__"):
        import dataclasses

        return dataclasses.asdict(value)  # type: ignore[call-overload]
    if isinstance(value, collections.UserDict | collections.UserList | collections.UserString):
        return value.data
    raise TypeError(f"a {type(value).__name__} is none of these")
