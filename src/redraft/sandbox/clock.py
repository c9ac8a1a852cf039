"""A cell's time: it runs only while nobody on the host works for the cell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Clock:
    """Calls `late` on the loop when `seconds` have run. It stands until `go_on`."""

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._late = late
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.left = seconds
        """Seconds that remain, up to date while it stands."""

    def go_on(self) -> None:
        """It runs."""
        if self._timer is None:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(max(self.left, 0.0), self._rings)

    def stop(self) -> None:
        """It stands."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.left -= self._loop.time() - self._since

    def charge(self, seconds: float) -> None:
        """Count these although it stands; nothing while it runs."""
        if self._timer is None:
            self.left -= seconds
            if self.left <= 0:
                self._rings()

    def _rings(self) -> None:
        self._timer = None
        self.left = 0.0
        self._late()
