"""Ctrl-C and SIGTERM: the first ends the run with its best so far, the second ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.protocols import Strategy
from redraft.result import Result
from redraft.run import Run
from redraft.sync import private_loop, submit

if TYPE_CHECKING:
    from redraft.cli.progress import Progress

T = TypeVar("T")

_LOOK = 0.2  # seconds: a wait without an end would hide Ctrl-C on Windows


class Stopper:
    """Executes a run so that a signal ends it with its best so far. `signal` is the one that came, if any."""

    def __init__(self, run: Run, told: Progress) -> None:
        self.run = run
        self.told = told
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM: as shells count."""
        return 128 + (self.signal or 0)

    def execute(self, strategy: Strategy, inputs: Mapping[str, Any]) -> Result:
        """`Run.execute` on the private loop, awaited here, where signals arrive."""
        # after a signal a second one still ends the process at once
        with listening(self._on_signal, until=lambda: self.signal is None):
            return waited_for(submit(lambda: self.run.execute(strategy, inputs), private_loop())).result()

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.signal is not None:  # asked twice
            self.told.abandon()
            os._exit(128 + number)
        self.signal = number
        self.run.cancel()


def waited_for(done: Future[T]) -> Future[T]:
    """The future, once it has ended: waited for so that signals are heard meanwhile."""
    while not wait([done], timeout=_LOOK).done:
        pass
    return done


@contextlib.contextmanager
def listening(on_signal: Callable[[int, Any], None], until: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Ctrl-C and SIGTERM go to `on_signal` for a block of code, and as before it afterwards, if `until` says so then."""
    if threading.current_thread() is not threading.main_thread():  # Python hears signals in the main thread only
        yield
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if until():
            for number, handler in before.items():
                signal.signal(number, handler)
