"""The HTTP transports behind `openai.metered`, and the SDK clients that have them: inside a run, a call to a model is the run's
purchase. Internal: users import `redraft.integrations.openai`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from redraft.errors import BadRequestError, InputError, LMError, RedraftError, TransientLMError
from redraft.foreign import charge
from redraft.frame import Frame, current_frame
from redraft.integrations import wires
from redraft.integrations.advice import as_paragraphs, ask
from redraft.integrations.usage import priced, provider_at
from redraft.lm.openai_chat import read_request, reply_body, reply_chunks
from redraft.lm.openai_errors import Endpoint, Refusal, as_error
from redraft.lm.openai_wire import read_usage
from redraft.lm.prices import price
from redraft.protocols import LM, Delta
from redraft.sync import in_thread, on_loop, run_sync
from redraft.types import Capabilities, Completion, Request, Usage

C = TypeVar("C")

PROVIDER = "sdk"
"""Marks the item of a completion that holds the reply as the SDK reads it."""

Send = Callable[[dict[str, Any], str], Awaitable[Any]]
"""Sends a body to a path at the same server; returns the response, read to its end."""


@dataclass(frozen=True, slots=True)
class Told:
    """What of an attempt's advice a client's calls hear."""

    hints: bool
    """Its requirements and hint, as a paragraph of the prompt."""
    sampling: bool
    """Its temperature, where the call names none, and another model."""


class Through(BaseException):
    """Carries a run's error past the SDKs, which take every Exception for a lost connection."""

    def __init__(self, error: RedraftError) -> None:
        super().__init__(str(error))
        self.error = error


class SdkLM:
    """The model that one SDK call goes to, as an LM. It also answers ordinary requests: an advisor's, a critic's."""

    capabilities = Capabilities()
    max_output: int | None = None
    parallel = 64

    def __init__(self, body: Mapping[str, Any], url: str, wire: wires.Wire, send: Send) -> None:
        self._provider = provider_at(url, wire.provider)
        self._model = str(body.get("model") or "unnamed")
        self.name = f"{self._provider}/{self._model}"
        self.address = url
        self._body, self._wire, self._send = body, wire, send
        host = urlsplit(url).hostname or ""
        self._own = host.endswith((".openai.com", ".azure.com"))
        self.asked = wire.request(body)

    async def generate(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Completion:
        """One call, in the SDK's own words."""
        del on_delta
        if request.extra == self.asked.extra and request.messages == self.asked.messages:
            body = self._wire.capped(self._body, request.max_tokens, own=self._own)
            if request.temperature is not None:
                body["temperature"] = request.temperature
        else:
            body = self._wire.plain(request, self._model)
        at = Endpoint(self.name, self._model, self.address, "the client")
        try:
            response = await self._send(body, self.address)
        except wire_errors() as error:
            early = "Connect" in type(error).__name__ or "Pool" in type(error).__name__
            why = str(error) or type(error).__name__
            raise TransientLMError(f"{self.name} at {self.address}: no answer ({why})", sent=not early) from error
        if response.status_code >= 300:
            raise as_error(Refusal.read(response.status_code, _json(response), response.headers), body, at)
        kind = response.headers.get("content-type", "application/json")
        try:
            completion = self._wire.read(self.name, wires.values_in(response.text, kind))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise TransientLMError(f"{self.name} sent an unreadable reply: {error!r}", sent=True) from error
        kept = {k: v for k, v in response.headers.items() if k == "content-type" or k.endswith("request-id")}
        item = {"provider": PROVIDER, "headers": kept, "content": response.text}
        first, *others = completion.choices
        return replace(completion, choices=(replace(first, items=(item,)), *others))

    def count(self, request: Request) -> int | None:  # noqa: ARG002 - the contract's signature
        """None: the upstream's tokenizer is not known here."""
        return None

    def cost(self, usage: Usage) -> float | None:
        """Dollars by the endpoint's price list, or the provider's; None for a model that neither lists."""
        return price(self._model, self._provider, self.address, usage)


class _Calls:
    """What both transports do with a call inside a run."""

    def __init__(self, inner: Any, told: Told) -> None:
        self._inner = inner
        self._told = told

    def _purchase(self, request: httpx2.Request, frame: Frame | None) -> wires.Wire | None:
        if frame is None or request.method != "POST":
            return None
        return wires.wire_of(request.url.path)

    def _anew(self, request: httpx2.Request, body: dict[str, Any] | None, url: str) -> Any:
        """The request for the client that really sends, which may be of another httpx."""
        headers = {k: v for k, v in request.headers.items() if body is None or k != "content-length"}
        content = request.read() if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        timeout = {"extensions": dict(request.extensions)}
        return self._inner.build_request(request.method, url, headers=headers, content=content, **timeout)

    async def _bought(self, request: httpx2.Request, frame: Frame, wire: wires.Wire, send: Send) -> httpx2.Response:
        """The reply, from the run: a response that the SDK reads as if it came from its server."""
        body = json.loads(request.read())
        advice = frame.advice
        if self._told.hints and (paragraphs := as_paragraphs(advice)):
            body = wire.told(body, paragraphs)
        try:
            if self._told.sampling and advice.lm is not None and wire is wires.WIRES[0]:
                asked = read_request(body).but(extra={})  # what only the first one's provider knows
                warmer = advice.temperature if asked.temperature is None else asked.temperature
                return await _written_by(advice.lm, asked.but(temperature=warmer), body, request)
            lm = SdkLM(body, str(request.url), wire, send)
            warmer = advice.temperature if self._told.sampling and "temperature" not in body else None
            completion = await frame.run.complete(lm.asked.but(temperature=warmer), lm=lm)
        except LMError as error:
            return _refused(error, request)
        except RedraftError as error:
            raise Through(error) from error
        item = completion.choices[0].items[0]
        return httpx2.Response(200, headers=item["headers"], content=item["content"], request=request)

    @staticmethod
    def _check(frame: Frame) -> None:
        """For calls that are no purchase: none begins once the run is over, or a limit is reached."""
        try:
            frame.run.check_open()
            frame.meter.check_room()
        except RedraftError as error:
            raise Through(error) from error

    def _soften(self, request: httpx2.Request, response: Any, content: bytes) -> None:
        """Count a call that is no purchase, where it says what it took; a call to a model that writes in any case."""
        wire, kind = wires.wire_of(request.url.path), response.headers.get("content-type", "")
        if response.status_code >= 300 or not (wire or "application/json" in kind):
            return
        usage, model = None, ""
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, IndexError, LMError):
            values = wires.values_in(content.decode("utf-8", "replace"), kind)
            read = wire.read("", values) if wire else None
            usage = read.usage if read else read_usage(values[-1].get("usage"))
            model = read.model if read else str(values[-1].get("model") or "")
        if usage is not None or wire is not None:
            url = str(request.url)
            provider = provider_at(url, wire.provider if wire else "openai")
            charge(priced(usage, model, provider, url), provider)


class AsyncWire(_Calls, httpx2.AsyncBaseTransport):
    """For an async client."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One call: the run's inside a run, else the client's own."""
        await request.aread()
        frame = current_frame()
        home = asyncio.get_running_loop()

        async def send(body: dict[str, Any], url: str) -> Any:
            # a client's connections belong to the loop it is used on, which need not be the run's
            return await on_loop(lambda: self._inner.send(self._anew(request, body, url)), home)

        if (wire := self._purchase(request, frame)) is not None and frame is not None:
            return await self._bought(request, frame, wire, send)
        if frame is not None:
            self._check(frame)
        response = await self._inner.send(self._anew(request, None, str(request.url)), stream=True)
        if frame is not None and "text/event-stream" not in response.headers.get("content-type", ""):
            self._soften(request, response, await response.aread())
        return _passed_on(response, _AsyncPieces(response))

    async def aclose(self) -> None:
        """Close the client that really sends: whoever closes a metered copy may hold nothing else."""
        await self._inner.aclose()


class Served(httpx2.AsyncBaseTransport):
    """A server that is a redraft model."""

    def __init__(self, lm: LM) -> None:
        self._lm = lm

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One chat completion; nothing else is there."""
        body = json.loads(await request.aread() or b"{}")
        if wires.wire_of(request.url.path) is not wires.WIRES[0]:
            said = {"error": {"message": f"{self._lm.name} serves chat completions only, not {request.url.path}"}}
            return httpx2.Response(404, json=said, request=request)
        try:
            return await _written_by(self._lm, read_request(body), body, request)
        except LMError as error:
            return _refused(error, request)
        except RedraftError as error:
            raise Through(error) from error


async def _written_by(lm: LM, asked: Request, body: Mapping[str, Any], request: httpx2.Request) -> httpx2.Response:
    """A chat completion by a redraft model, in the form of the API."""
    completion = await ask(lm, asked if lm.capabilities.temperature else asked.but(temperature=None))
    kind, content = "application/json", ""
    if body.get("stream"):
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        chunks = [json.dumps(chunk) for chunk in reply_chunks(completion, lm.name, usage=usage)]
        kind, content = "text/event-stream", "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"])
    content = content or json.dumps(reply_body(completion, lm.name))
    return httpx2.Response(200, headers={"content-type": kind}, content=content, request=request)


class Wire(_Calls, httpx2.BaseTransport):
    """For a sync client."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """One call: the run's inside a run, else the client's own."""
        request.read()
        frame = current_frame()

        async def send(body: dict[str, Any], url: str) -> Any:
            return await in_thread(self._inner.send, self._anew(request, body, url))

        wire = self._purchase(request, frame)
        if wire is not None and frame is not None and not _on(frame.run.loop):
            return run_sync(lambda: self._bought(request, frame, wire, send), home=frame.run.loop)
        if frame is not None:
            self._check(frame)
        response = self._inner.send(self._anew(request, None, str(request.url)), stream=True)
        if frame is not None:  # on the run's own loop nothing can be awaited: it is counted when it is there
            self._soften(request, response, response.read())
        return _passed_on(response, _Pieces(response))

    def close(self) -> None:
        """Close the client that really sends."""
        self._inner.close()


def metered_copy(client: C, told: Told) -> C:
    """See `openai.metered`; `told` says which part of an attempt's advice its calls hear."""
    inner = getattr(client, "_client", None)
    if isinstance(client, type) or not is_sdk_client(client):
        raise InputError(f"metered({client!r}): give a client of the openai or anthropic SDK, e.g. AsyncOpenAI()")
    is_async = hasattr(inner, "aclose")
    http: Any = (
        httpx2.AsyncClient(transport=AsyncWire(inner, told)) if is_async else httpx2.Client(transport=Wire(inner, told))
    )
    given: Any = client
    return as_metered(given.copy(http_client=http), is_async)  # type: ignore[no-any-return]


def is_sdk_client(client: object) -> bool:
    """True for what `metered` takes."""
    inner = getattr(client, "_client", None)
    return hasattr(inner, "build_request") and callable(getattr(client, "copy", None))


def as_metered(client: Any, is_async: bool) -> Any:
    """The client itself, with the run's retries in place of the SDK's, and the run's errors as they are."""
    client.__class__ = _kind(client.__class__, is_async)
    return client


@lru_cache(maxsize=64)
def _kind(kind: Any, is_async: bool) -> type:
    async def request_async(self: Any, cast_to: Any, options: Any, **more: Any) -> Any:
        try:
            return await super(made, self).request(cast_to, _once(options), **more)
        except Through as through:
            raise through.error from through.error.__cause__

    def request(self: Any, cast_to: Any, options: Any, **more: Any) -> Any:
        try:
            return super(made, self).request(cast_to, _once(options), **more)
        except Through as through:
            raise through.error from through.error.__cause__

    made: Any = type(f"Metered{kind.__name__}", (kind,), {"request": request_async if is_async else request})
    return made  # type: ignore[no-any-return]


def _once(options: Any) -> Any:
    """Inside a run the SDK tries once: the run retries."""
    if current_frame() is not None:
        options.max_retries = 0
    return options


def wire_errors() -> tuple[type[BaseException], ...]:
    """What a client raises when a connection fails: of httpx2, and of httpx where somebody uses that."""
    legacy = sys.modules.get("httpx")
    return (httpx2.HTTPError, OSError) if legacy is None else (httpx2.HTTPError, OSError, legacy.HTTPError)


def _on(loop: asyncio.AbstractEventLoop | None) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _json(response: Any) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text


def _refused(error: LMError, request: httpx2.Request) -> httpx2.Response:
    """The refusal as the server's answer, so that the SDK raises its own error; a lost connection as httpx's."""
    status = error.status or (400 if isinstance(error, BadRequestError) else 0)
    if status >= 400:
        said = {"error": {"message": str(error), "type": type(error).__name__}}
        return httpx2.Response(status, json=said, headers={"x-should-retry": "false"}, request=request)
    if isinstance(error.__cause__, wire_errors()):
        raise httpx2.ConnectError(str(error), request=request) from error
    raise Through(error) from error


def _passed_on(response: Any, pieces: Any) -> httpx2.Response:
    """A response of the inner client as the outer one's."""
    headers = response.headers.multi_items()
    if response.is_stream_consumed:
        plain = [(name, value) for name, value in headers if name.lower() not in _CODED]
        return httpx2.Response(response.status_code, headers=plain, content=response.content)
    return httpx2.Response(response.status_code, headers=headers, stream=pieces)


class _AsyncPieces(httpx2.AsyncByteStream):
    """An inner client's response as the outer one's stream: the inner may be of another httpx."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._response.aiter_raw():
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


class _Pieces(httpx2.SyncByteStream):
    """The same for a sync client."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._response.iter_raw()

    def close(self) -> None:
        self._response.close()


_CODED = ("content-encoding", "content-length", "transfer-encoding")
