"""How an evaluation is going: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from redraft.cli.output import say
from redraft.evaluate import Item
from redraft.result import calls, dollars, one_line, tokens
from redraft.types import Usage

_EVERY = 10.0
"""Seconds between two lines."""


class Tally:
    """Told of each item: `tally(item, done, planned)`."""

    def __init__(self, *, quiet: bool = False, judged: bool = True) -> None:
        self.quiet = quiet
        self.judged = judged
        """False: items neither pass nor fail a bar."""
        self.usage = Usage()
        self.done = self.passed = self.below = self.failed = 0
        self.planned = 0
        self._said = time.monotonic()

    def __enter__(self) -> Tally:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, item: Item, done: int, planned: int) -> None:
        """One more is done."""
        self.done, self.planned = done, planned
        self.passed += bool(item.passed)
        self.below += item.status == "done" and not item.passed
        self.failed += item.status in ("failed", "judge_error")
        self.usage = self.usage + item.usage + item.judging
        self.show()

    def show(self) -> None:
        """A line, if the last one is a while ago."""
        if not self.quiet and time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            say(f"redraft: {self.line()}")

    def note(self, text: str) -> None:
        """One line that one should know."""
        if not self.quiet:
            say(f"redraft: {one_line(text)}")

    def line(self) -> str:
        """All numbers."""
        cost = dollars(None if self.usage.unpriced else self.usage.cost)
        passed = f", {self.passed} passed, {self.below} below the bar" if self.judged else ""
        errors = f", {self.failed} with an error" if self.failed else ""
        return (
            f"{self.done} of {self.planned} items{passed}{errors} | {calls(self.usage)} | {tokens(self.usage)} | {cost}"
        )


class TallyBar(Tally):
    """The same as one line that stays where it is, with a bar. Items are told on another thread than the terminal's."""

    def __init__(self, *, judged: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__(judged=judged)
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (BarColumn(bar_width=20), TextColumn("{task.description}", markup=False))
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task: Any = self._progress.add_task("", total=None)
        self._lock = threading.Lock()

    def __enter__(self) -> TallyBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self) -> None:
        """See `Tally`."""
        with self._lock:
            self._progress.update(self._task, completed=self.done, total=self.planned, description=self.line())

    def note(self, text: str) -> None:
        """One line above the bar."""
        self._console.print(f"redraft: {one_line(text)}", markup=False)


def tally(*, quiet: bool, judged: bool = True) -> Tally:
    """What suits stderr."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        return Tally(quiet=quiet, judged=judged)
    return TallyBar(judged=judged)
