"""One HTTP request and its response, on the bare ASGI: what is known of a client that has left, and what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from typing import Any, TypeVar

from redraft.lm.openai_wire import as_json
from redraft.server.refusal import Refusal
from redraft.sync import seen

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = Iterable[tuple[bytes, bytes]]

_ONCE = (b"host", b"origin", b"authorization", b"x-api-key", b"content-type")
_GOODBYE = 0.5
"""Seconds for what a client's leaving has cancelled to end."""


class ClientLeft(Exception):
    """Nobody waits for the response any more."""


class Exchange:
    """One request. Its body is read first; then only the client's leaving is left to be heard."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.raw_headers = [(name.lower(), value) for name, value in scope["headers"]]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.raw_headers}
        if len(self.headers) < len(self.raw_headers):
            self._twice = next((n.decode("latin-1") for n in _ONCE if _times(self.raw_headers, n) > 1), "")
        else:
            self._twice = ""
        self.status = 0
        """What was answered; 0: nothing yet."""
        self.ended = False

    def refuse_doubles(self) -> None:
        """Raise `Refusal` (400) where two of a header leave open who asks: another server might read the other one."""
        if self._twice:
            raise Refusal(400, f"the header {self._twice!r} comes more than once", code="invalid_request")

    async def body(self, most: int, silence: float = 30.0) -> bytes:
        """The whole body. Raises `Refusal`: 413 for a longer one, before it is read where it says its length; 408 where
        nothing comes for `silence` seconds.
        """
        told = self.headers.get("content-length", "0")
        if told.isdecimal() and int(told) > most:
            raise _too_long(most)
        pieces, size = [], 0
        while True:
            try:
                async with asyncio.timeout(silence):
                    message = await self._receive()
            except TimeoutError:
                told = f"nothing came of the body for {silence:g} s"
                raise Refusal(408, told, code="request_timeout", headers={"connection": "close"}) from None
            if message["type"] != "http.request":
                raise ClientLeft
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > most:
                raise _too_long(most)
            if not message.get("more_body"):
                return b"".join(pieces)

    async def unless_left(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work; if the client leaves, it is cancelled, and `ClientLeft` raised."""
        task, gone = asyncio.ensure_future(work), asyncio.ensure_future(self._left())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ClientLeft
        finally:
            gone.cancel()
            if not task.done():
                task.add_done_callback(seen)
                task.cancel()
                await asyncio.wait({task}, timeout=_GOODBYE)

    async def _left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Send the status and the headers."""
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes = b"") -> None:
        """Send the last piece."""
        self.ended = True
        await self._send({"type": "http.response.body", "body": piece, "more_body": False})

    async def answer(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """A whole response."""
        told = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
        await self.start(status, raw(told))
        await self.end(body)

    async def json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """A whole response of JSON."""
        await self.answer(status, as_json(body), "application/json", headers)


def raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI takes them; what does not go into one becomes "?"."""
    return [(n.encode("latin-1"), " ".join(v.split()).encode("latin-1", "replace")) for n, v in headers.items()]


def _times(headers: RawHeaders, name: bytes) -> int:
    return sum(1 for given, _ in headers if given == name)


def _too_long(most: int) -> Refusal:
    return Refusal(413, f"the body is longer than the {most:,} bytes that this server takes", code="request_too_large")
