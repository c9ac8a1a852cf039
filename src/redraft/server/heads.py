"""uvicorn's HTTP protocol, with an end to requests whose head comes slowly, or never ends."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_SECONDS = 30.0
_MOST = 256 * 1024
"""Bytes of a request line with its headers."""


class Heads(HttpToolsProtocol):
    """One connection. What is kept open between requests is uvicorn's to close."""

    head_seconds = _SECONDS

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._alarm: asyncio.TimerHandle | None = None
        self._size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """See asyncio."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._have_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        super().data_received(data)
        if self._alarm is not None:
            self._size += len(data)
            if self._size > _MOST:
                self._have_head()
                self.send_400_response(f"The head of the request is longer than {_MOST:,} bytes.")

    def on_message_begin(self) -> None:
        """See httptools."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._have_head()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._have_head()
        self._size = 0
        self._alarm = self.loop.call_later(self.head_seconds, self._late)

    def _have_head(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _late(self) -> None:
        self._alarm = None
        self.transport.close()
