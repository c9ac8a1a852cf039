"""A provider's own client library, set up so that Run alone retries, and kept for one event loop.

Everywhere: no retries of the library's own, no redirects, no proxy for a server on this machine, as many connections
as parallel calls, and no limit on the wait for one of them (Run lets no more calls through).
"""

from __future__ import annotations

import os
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from redraft.errors import ConfigError
from redraft.lm.clients import kept, no_key_here
from redraft.lm.native.table import Door

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 600.0  # Run's deadline ends a call; this only ends a connection that is dead


class Sending:
    """What one call has on the wire. Whether it has begun: an error of no known kind means something else before that
    than after. And the responses that came: not every library closes one that is left early.
    """

    def __init__(self) -> None:
        self.begun = False
        self.responses: list[Any] = []

    async def close(self) -> None:
        """Close what the library left open; what was read to its end is closed already."""
        if not self.responses:
            return
        import httpx2

        for response in self.responses:
            with suppress(httpx2.HTTPError, OSError):  # a connection that is gone is closed
                await response.aclose()


sending: ContextVar[Sending | None] = ContextVar("redraft_native_sending", default=None)


@dataclass(frozen=True, slots=True)
class Line:
    """Where requests go, and with what. In another process, which it is pickled for, the key is that of the environment
    there.
    """

    door: Door
    base_url: str | None
    key: str | None = field(repr=False)
    parallel: int
    loopback: bool

    def __reduce__(self) -> tuple[Any, ...]:
        return (_elsewhere, (self.door, self.base_url, self.parallel, self.loopback))

    def __deepcopy__(self, memo: object) -> Line:
        return self

    def __copy__(self) -> Line:
        return self


def _elsewhere(door: Door, base_url: str | None, parallel: int, loopback: bool) -> Line:
    return Line(door, base_url, door.key() or ("none" if loopback else None), parallel, loopback)


class Connected:
    """One line's client and the pydantic-ai models on it. `idle`: it only tells what is known of a model, on no loop."""

    def __init__(self, line: Line, *, idle: bool = False) -> None:
        self._door = line.door
        if line.key is None and not line.door.keyless and not idle:
            raise no_key_here(" or ".join(line.door.keys), line.door.name)
        build = _IDLE.get(line.door.wire) if idle else None
        self.provider, self._http = (build or _BUILD[line.door.wire])(line)
        self._models: dict[str, Any] = {}

    def model(self, name: str) -> Any:
        """pydantic-ai's model of that name."""
        found = self._models.get(name)
        if found is None:
            from pydantic_ai.models import infer_model

            found = infer_model(f"{self._door.pydantic_name}:{name}", lambda _: self.provider)
            self._models[name] = found
        return found

    async def close(self) -> None:
        """Close the connections."""
        closing = getattr(self._http, "aclose", None) or self._http.close
        ended = closing()
        if ended is not None:
            await ended


async def connected(line: Line) -> Connected:
    """The running loop's client on this line."""
    return await kept(line, lambda: Connected(line))


def _mark(**_: Any) -> None:
    """The call that runs here has begun to send."""
    call = sending.get()
    if call is not None:
        call.begun = True


async def _begun(_request: Any) -> None:
    _mark()


async def _came(response: Any) -> None:
    call = sending.get()
    if call is not None:
        call.responses.append(response)


def _http(line: Line) -> Any:
    """The HTTP client that all requests go through, whatever the provider's library is built on."""
    import httpx2

    limits = httpx2.Limits(max_connections=line.parallel, max_keepalive_connections=line.parallel)
    return httpx2.AsyncClient(
        limits=limits,
        timeout=httpx2.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS, pool=None),
        trust_env=not line.loopback,
        follow_redirects=False,
        event_hooks={"request": [_begun], "response": [_came]},
    )


def _anthropic(line: Line) -> tuple[Any, Any]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.providers.anthropic import AnthropicProvider

    http = _http(line)
    client = AsyncAnthropic(
        api_key=line.key, base_url=line.base_url, max_retries=0, timeout=http.timeout, http_client=http
    )
    return AnthropicProvider(anthropic_client=client), http


def _google(line: Line) -> tuple[Any, Any]:
    from pydantic_ai.providers.google import GoogleProvider

    http = _http(line)
    return GoogleProvider(api_key=line.key, base_url=line.base_url, http_client=http), http


def _vertex(line: Line) -> tuple[Any, Any]:
    from pydantic_ai.providers.google_cloud import GoogleCloudProvider

    http = _http(line)
    return GoogleCloudProvider(api_key=line.key, base_url=line.base_url, http_client=http), http


def _groq(line: Line) -> tuple[Any, Any]:
    from groq import AsyncGroq
    from pydantic_ai.providers.groq import GroqProvider

    from redraft.lm.native.bridge import bridged

    http = bridged(_http(line))
    client = AsyncGroq(api_key=line.key, base_url=line.base_url, max_retries=0, timeout=http.timeout, http_client=http)
    return GroqProvider(groq_client=client), http


def _mistral(line: Line) -> tuple[Any, Any]:
    from pydantic_ai.providers.mistral import MistralProvider

    http = _http(line)
    return MistralProvider(api_key=line.key, base_url=line.base_url, http_client=http), http


def _cohere(line: Line) -> tuple[Any, Any]:
    from cohere import AsyncClientV2
    from pydantic_ai.providers.cohere import CohereProvider

    from redraft.lm.native.bridge import bridged

    http = bridged(_http(line))
    client = AsyncClientV2(api_key=line.key, base_url=line.base_url, httpx_client=http)
    return CohereProvider(cohere_client=client), http


def _xai_host(line: Line) -> str:
    return (line.base_url or "api.x.ai").removeprefix("https://").removeprefix("http://").rstrip("/")


def _xai_idle(line: Line) -> tuple[Any, Any]:
    """A channel would belong to a loop."""
    from pydantic_ai.providers.xai import XaiProvider

    return XaiProvider(api_key=line.key, api_host=_xai_host(line)), None


def _xai(line: Line) -> tuple[Any, Any]:
    from pydantic_ai.providers.xai import XaiProvider
    from xai_sdk import AsyncClient

    client = AsyncClient(
        api_key=line.key,
        api_host=_xai_host(line),
        channel_options=[("grpc.enable_retries", 0)],
        use_insecure_channel=line.loopback,
    )
    return XaiProvider(xai_client=client), client


def _openai(line: Line) -> tuple[Any, Any]:
    """Every provider whose API is OpenAI's, by pydantic-ai's own class for it."""
    from pydantic_ai.providers import infer_provider_class

    http = _http(line)
    provider: Any = infer_provider_class(line.door.pydantic_name)(api_key=line.key, http_client=http)
    provider.client.max_retries = 0
    if line.base_url:
        provider.client.base_url = line.base_url
    return provider, http


def _bedrock(line: Line) -> tuple[Any, Any]:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError
    from pydantic_ai.providers.bedrock import BedrockProvider

    bearer = line.key if not line.loopback else None  # never sent without TLS
    config = Config(
        retries={"total_max_attempts": 1},
        max_pool_connections=line.parallel,
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_SILENCE_SECONDS,
        proxies={} if line.loopback else None,
        signature_version="bearer" if bearer else None,
    )
    try:
        known = {"botocore_session": _bearer(bearer)} if bearer else _NOBODY if line.loopback else {}
        session = boto3.Session(**known)
        region = os.environ.get("AWS_REGION") or session.region_name or ("us-east-1" if line.loopback else None)
        client = session.client("bedrock-runtime", endpoint_url=line.base_url, config=config, region_name=region)
    except BotoCoreError as error:
        raise ConfigError(f"bedrock cannot be used: {error}; set AWS_REGION, or a profile with a region") from error
    client.meta.events.register("before-send.bedrock-runtime", _mark)
    return BedrockProvider(bedrock_client=client), client


_NOBODY = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}


def _bearer(key: str) -> Any:
    """A session that knows this one key."""
    from botocore.session import Session
    from botocore.tokens import FrozenAuthToken

    class Bearer(Session):
        def get_auth_token(self, **_: Any) -> Any:
            return FrozenAuthToken(key)

        def get_credentials(self) -> None:
            return None

    return Bearer()


_BUILD = {
    "anthropic": _anthropic,
    "google": _google,
    "vertex": _vertex,
    "bedrock": _bedrock,
    "groq": _groq,
    "mistral": _mistral,
    "cohere": _cohere,
    "xai": _xai,
    "openai": _openai,
}
_IDLE = {"xai": _xai_idle}
