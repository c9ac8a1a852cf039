"""Progress on a terminal: the same lines in colour, and below them what is being written right now."""

from __future__ import annotations

import os

from rich.console import Console
from rich.text import Text

from redraft.cli.progress import Line, Progress
from redraft.result import one_line
from redraft.types import Event

_STYLES = {"good": "green", "bad": "yellow", "note": "dim"}
_WRITES = {"author": "draft {}", "reviser": "draft {}", "critic": "critic", "judge": "judge"}
_KEPT = 400  # characters of a reply that are remembered: more than a line shows


class LiveProgress(Progress):
    """Lines scroll by; a status line follows the reply that is being written."""

    deltas = True

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._status = self._console.status("", spinner="dots")
        self.on_fetch = self._fetching
        self._tail = ""
        self._index = 0

    def __enter__(self) -> LiveProgress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def __call__(self, event: Event) -> None:
        """See `Progress`; replies are followed while they are written."""
        if event.kind == "propose" and event.scope == f"/attempt[{event.data['index']}]":
            self._index = event.data["index"]
        elif event.kind == "intent":
            self._tail = ""
            self._follow(event.data["role"])
        elif event.kind == "delta":
            self._tail = (self._tail + (event.data["text"] or event.data["reasoning"]))[-_KEPT:]
            self._follow(event.data["role"])
        super().__call__(event)

    def show(self, line: Line) -> None:
        """Write one line above the status line."""
        text = Text(str(line))
        if line.label:
            text.stylize(_STYLES[line.tone], 10, 10 + len(line.text))
        self._console.print(text)

    def abandon(self) -> None:
        """Give the cursor back."""
        if os.isatty(2):
            os.write(2, b"\x1b[?25h\n")

    def _follow(self, role: str) -> None:
        label = f"{_WRITES.get(role, role).format(self._index + 1):<9} "
        room = max(self._console.width - len(label) - 4, 10)
        self._status.update(Text(label + one_line(self._tail)[-room:], style="dim", no_wrap=True, overflow="crop"))

    def _fetching(self, done: int, total: int) -> None:
        self._status.update(Text(f"fetching the model: {done / total:.0%} of {total / 1e6:.0f} MB", style="dim"))
