"""Carries the requests of libraries built on `httpx` over `httpx2`.

`httpx` 0.28 loses a connection's slot when calls are cancelled while they wait for one: after enough of them no request
is sent any more. `httpx2` does not, so one stack serves every provider.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2


def bridged(carrier: httpx2.AsyncClient) -> httpx.AsyncClient:
    """A client for such a library. The carrier's limits, proxies and hooks hold; closing the client closes it."""
    return httpx.AsyncClient(
        transport=_Over(carrier), timeout=httpx.Timeout(None), trust_env=False, follow_redirects=False
    )


class _Over(httpx.AsyncBaseTransport):
    def __init__(self, carrier: httpx2.AsyncClient) -> None:
        self._carrier = carrier

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent = self._carrier.build_request(
            request.method, str(request.url), headers=request.headers.raw, content=await request.aread()
        )
        with _as_httpx(request):
            response = await self._carrier.send(sent, stream=True)
        return httpx.Response(response.status_code, headers=response.headers.raw, stream=_Body(response, request))

    async def aclose(self) -> None:
        await self._carrier.aclose()


class _Body(httpx.AsyncByteStream):
    """The bytes as they came: the client on this side decodes them."""

    def __init__(self, response: httpx2.Response, request: httpx.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx(self._request):
            async for piece in self._response.aiter_raw():
                yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _as_httpx(request: httpx.Request) -> Iterator[None]:
    """The errors of one library have the same names in the other."""
    try:
        yield
    except httpx2.TransportError as error:
        kind: Any = getattr(httpx, type(error).__name__, httpx.TransportError)
        raise kind(str(error), request=request) from error
