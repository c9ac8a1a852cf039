"""How a batch is going: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from typing import Any

from redraft.batch import Batch
from redraft.batch.output import Output
from redraft.cli.output import say
from redraft.result import calls, count, dollars, one_line, tokens
from redraft.types import Event

_EVERY = 10.0
"""Seconds between two lines."""


class Counted:
    """Told of each row that is written; also a listener of the runs, for what one should know of them."""

    def __init__(self, output: Output, total: int | None, *, quiet: bool) -> None:
        self._output = output
        self._total = total
        self._quiet = quiet
        self._before = output.rows
        self._began = self._said = time.monotonic()
        self.batch: Batch | None = None

    def __enter__(self) -> Counted:
        self._began = self._said = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: Event) -> None:
        """Say what holds for all rows."""
        if event.kind == "slowed":
            d = event.data
            self.note(f"{d['model']} has too many requests: {d['limit']} at once from here on, not {d['before']}")

    def row(self) -> None:
        """A row was written."""
        if not self._quiet and time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            say(self.line())

    def note(self, text: str) -> None:
        """One line that one should know."""
        if not self._quiet:
            say(f"redraft: {one_line(text)}")

    def abandon(self) -> None:
        """Leave the terminal in order; the process ends right after."""

    @property
    def rate(self) -> float:
        """Rows a second, in this process."""
        return (self._output.rows - self._before) / max(time.monotonic() - self._began, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds until the end, as far as one can tell."""
        if self._total is None or self._output.rows == self._before:
            return None
        return max(0, self._total - self._output.rows) / self.rate

    def line(self) -> str:
        """All numbers."""
        out, batch = self._output, self.batch
        of = "" if self._total is None else f" of {self._total}"
        parts = [f"{out.rows}{of} done, {out.passed} passed, {out.failed} failed"]
        if batch is not None:
            usage = batch.usage
            parts += [calls(usage), tokens(usage), dollars(None if usage.unpriced else usage.cost)]
        parts.append(f"{self.rate:.3g}/s")
        if self.left is not None and out.rows != self._total:
            parts.append(f"{_clock(self.left)} left")
        return " | ".join(parts)


class Bar(Counted):
    """The same as one line that stays where it is, with a bar."""

    def __init__(self, output: Output, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__(output, total, quiet=False)
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (BarColumn(bar_width=20), TextColumn("{task.description}", markup=False))
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task: Any = self._progress.add_task(self.line(), total=total, completed=output.rows)

    def __enter__(self) -> Bar:
        super().__enter__()
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def row(self) -> None:
        """A row was written."""
        now = time.monotonic()
        if now - self._said >= 0.1:
            self._said = now
            self._progress.update(self._task, completed=self._output.rows, description=self.line())

    def note(self, text: str) -> None:
        """One line above the bar."""
        self._console.print(f"redraft: {one_line(text)}", markup=False)

    def abandon(self) -> None:
        """Give the cursor back."""
        self._progress.stop()


def counted(output: Output, total: int | None, *, quiet: bool) -> Counted:
    """What suits stderr."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        return Counted(output, total, quiet=quiet)
    return Bar(output, total)


def summary(output: Output, batch: Batch, total: int | None) -> str:
    """The last line: what is done, what it cost, what is not done."""
    usage = batch.usage
    left = "" if total is None or total <= output.rows else f", {count(total - output.rows, 'row')} left"
    return (
        f"{count(output.rows, 'row')} done, {output.passed} passed, {output.failed} failed{left} | {calls(usage)} | "
        f"{tokens(usage)} | {dollars(None if usage.unpriced else usage.cost)} | {output.path}"
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
