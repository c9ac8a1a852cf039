"""Connections to one upstream, kept open and lent: `httpcore2`'s, on plain asyncio.

Its pool looks at every connection for every request, which costs more than the request with fifty of them; here the one that
was given back last is lent again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2

from redraft.lm.openai import is_loopback

FAULTS = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.RemoteProtocolError,
    httpcore2.ProxyError,
    httpcore2.ConnectionNotAvailable,
)
"""What an upstream that is not there, falls silent, or speaks no HTTP raises."""
_SILENCE, _CONNECT = 600.0, 10.0
_KEPT_SECONDS, _KEPT_MOST = 4.5, 256
"""Many servers close a connection after five seconds without a request."""
_READ_MOST = 256 * 1024
_TIMEOUT = {"timeout": {"read": _SILENCE, "write": _SILENCE, "connect": _CONNECT}}

Headers = list[tuple[bytes, bytes]]


class Connections:
    """Those to one upstream. How many there are is limited by how many requests the server answers at once."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self.scheme, self.host = parts.scheme.encode(), (parts.hostname or "").encode("idna")
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self._named = parts.netloc.encode("ascii", "replace")
        self._origin = httpcore2.Origin(self.scheme, self.host, self.port)
        self._tls = httpcore2.default_ssl_context() if parts.scheme == "https" else None
        self._around = _proxied(base_url, self._tls)
        self._idle: list[httpcore2.AsyncHTTPConnection] = []

    @asynccontextmanager
    async def post(self, target: bytes, headers: Headers, body: bytes) -> AsyncIterator[httpcore2.Response]:
        """Send; the response's headers are there, its body is not read yet. Raises one of `FAULTS`, and
        `httpcore2.LocalProtocolError` for a request that cannot be written as HTTP.
        """
        url = httpcore2.URL(scheme=self.scheme, host=self.host, port=self.port, target=target)
        told = [(b"host", self._named), *headers, (b"content-length", b"%d" % len(body))]
        request = httpcore2.Request(b"POST", url, headers=told, content=body, extensions=_TIMEOUT)
        if self._around is not None:
            behind = await self._around.handle_async_request(request)
            try:
                yield behind
            finally:
                await behind.aclose()
            return
        connection = await self._free()
        response: httpcore2.Response | None = None
        try:
            response = await connection.handle_async_request(request)
            yield response
        finally:  # also for a client that leaves before its request is written
            if response is not None:
                await response.aclose()
            if response is not None and connection.is_idle() and len(self._idle) < _KEPT_MOST:
                self._idle.append(connection)
            else:
                await connection.aclose()

    async def _free(self) -> httpcore2.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return httpcore2.AsyncHTTPConnection(
            self._origin, ssl_context=self._tls, keepalive_expiry=_KEPT_SECONDS, network_backend=_BACKEND
        )

    async def close(self) -> None:
        """Let go of those that nobody uses."""
        while self._idle:
            await self._idle.pop().aclose()
        if self._around is not None:
            await self._around.aclose()


def _proxied(base_url: str, tls: ssl.SSLContext | None) -> httpcore2.AsyncConnectionPool | None:
    """A pool behind the proxy that the environment names for this host (`HTTPS_PROXY`, `NO_PROXY`); None without one."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    told = getproxies()
    by = told.get(parts.scheme) or told.get("all")
    if not by:
        return None
    at = urlsplit(by if "//" in by else f"http://{by}")
    auth = (unquote(at.username).encode(), unquote(at.password or "").encode()) if at.username else None
    proxy = httpcore2.Proxy(f"{at.scheme}://{at.netloc.rpartition('@')[2]}", auth=auth)
    return httpcore2.AsyncConnectionPool(tls, proxy, None, _KEPT_MOST, _KEPT_SECONDS)


class _Stream(httpcore2.AsyncNetworkStream, asyncio.Protocol):
    """One socket. What is written goes out when an answer is waited for: a request's head and body in one packet."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._written: list[bytes] = []
        self._read = bytearray()
        self._waiting: asyncio.Future[None] | None = None
        self._ended, self._paused = False, False
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio; comes once more with TLS."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio. A socket that is ahead of its reader is not read from."""
        self._read += data
        if len(self._read) > _READ_MOST and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """See asyncio: the transport is closed then."""
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._ended, self._error = True, exc
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore2's
        """See `httpcore2`; empty at the end."""
        if self._written:
            self._transport.write(b"".join(self._written))
            self._written.clear()
        if not self._read and not self._ended:
            await self._wait(timeout)
        if not self._read and self._error is not None:
            raise httpcore2.ReadError(str(self._error) or type(self._error).__name__) from self._error
        piece = bytes(self._read[:max_bytes])
        del self._read[:max_bytes]
        if self._paused and len(self._read) <= _READ_MOST // 2:
            self._paused = False
            self._transport.resume_reading()
        return piece

    async def _wait(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = waiting = loop.create_future()
        alarm = None if seconds is None else loop.call_later(seconds, _late, waiting, seconds)
        try:
            await waiting
        finally:
            self._waiting = None
            if alarm is not None:
                alarm.cancel()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore2's
        """See `httpcore2` and the class."""
        del timeout
        if buffer:
            self._written.append(buffer)

    async def aclose(self) -> None:
        """At once: nothing is sent or heard any more."""
        self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's
    ) -> httpcore2.AsyncNetworkStream:
        """See `httpcore2`. Raises its `ConnectError` and `ConnectTimeout`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                made = loop.start_tls(self._transport, self, ssl_context, server_hostname=server_hostname)
                self._transport = await made
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"no TLS within {timeout:g} s") from error
        except OSError as error:  # ssl.SSLError is one
            raise httpcore2.ConnectError(str(error)) from error
        return self

    def get_extra_info(self, info: str) -> Any:
        """See `httpcore2`: "is_readable" is true of a connection that must not be lent again."""
        if info == "is_readable":
            return self._ended or bool(self._read) or self._transport.is_closing()
        return self._transport.get_extra_info({"ssl_object": "ssl_object", "socket": "socket"}.get(info, info))


def _late(waiting: asyncio.Future[None], seconds: float) -> None:
    if not waiting.done():
        waiting.set_exception(httpcore2.ReadTimeout(f"nothing came for {seconds:g} s"))


class _Asyncio(httpcore2.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """See `httpcore2`. Raises its `ConnectError` and `ConnectTimeout`."""
        del local_address, socket_options
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                # without happy eyeballs: cancelled, those of asyncio may leave a connection open
                _, stream = await loop.create_connection(_Stream, host, port)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"no connection within {timeout:g} s") from error
        except OSError as error:
            raise httpcore2.ConnectError(error.strerror or str(error)) from error
        return stream


_BACKEND = _Asyncio()
