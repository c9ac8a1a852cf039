"""Upstreams: whose real models pass through, byte for byte. One pooled client for each."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from redraft.errors import ConfigError
from redraft.lm.openai import checked_url, is_loopback
from redraft.server.asked import PREFIX
from redraft.server.refusal import Refusal

_SETTINGS = ("base_url", "api_key_env", "kind", "models")
_OPENAI, _ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com"
_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_OURS = frozenset(["host", "content-length", "authorization", "x-api-key", "api-key", "cookie", "forwarded", "expect"])
"""Of a request's headers, what is between the client and this server: its keys above all."""
_SILENCE = 600.0
_PROBE_SECONDS, _LIST_SECONDS, _KEPT_SECONDS = 2.0, 5.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server of models. Its key is in the environment; none is sent where the variable is not set."""

    name: str
    base_url: str
    kind: str = "openai"
    """Which API it speaks: "openai" or "anthropic"."""
    api_key_env: str = ""
    models: tuple[str, ...] = ("*",)
    """Patterns of the names that go to it."""

    @classmethod
    def read(cls, name: str, table: object) -> Upstream:
        """`[upstreams.NAME]` of redraft.toml. Raises `ConfigError`."""
        where = f"[upstreams.{name}]"
        if not isinstance(table, Mapping) or not set(table) <= set(_SETTINGS) or "base_url" not in table:
            raise ConfigError(
                f"{where} must be a table with a base_url, and of {', '.join(_SETTINGS)}; got {table!r:.120}"
            )
        kind, models = table.get("kind", "openai"), table.get("models", ["*"])
        if kind not in ("openai", "anthropic"):
            raise ConfigError(f"{where} kind must be openai or anthropic, got {kind!r:.40}")
        if not isinstance(models, list) or not all(isinstance(model, str) for model in models):
            raise ConfigError(f"{where} models must be a list of names or patterns, got {models!r:.80}")
        url, variable = checked_url(str(table["base_url"]), name), str(table.get("api_key_env", ""))
        return cls(name=name, base_url=url, kind=kind, api_key_env=variable, models=tuple(models))

    def url(self, path: str) -> str:
        """Where a path of this server's is there; base URLs of OpenAI's kind end in /v1, Anthropic's do not."""
        base = self.base_url.removesuffix("/v1") if self.kind == "anthropic" else self.base_url
        return base + (path if self.kind == "anthropic" else path.removeprefix("/v1"))

    def keyed(self) -> dict[str, str]:
        """The headers that carry this upstream's own key."""
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if not key:
            return {}
        return {"x-api-key": key} if self.kind == "anthropic" else {"authorization": f"Bearer {key}"}

    def takes(self, model: str) -> bool:
        """True if a model's name is one of its."""
        return any(fnmatch.fnmatchcase(model, pattern) for pattern in self.models)


def configured(tables: object, base_url: str | None = None) -> list[Upstream]:
    """Those of redraft.toml; without any what the environment says: `base_url` or OpenAI's, and Anthropic's, by their keys."""
    if not isinstance(tables, Mapping):
        raise ConfigError(f"upstreams must be tables, [upstreams.NAME], got {tables!r:.80}")
    found = [Upstream.read(name, table) for name, table in tables.items()]
    if found and base_url is None:
        return found
    url = base_url or os.environ.get("OPENAI_BASE_URL") or (_OPENAI if os.environ.get("OPENAI_API_KEY") else None)
    if url is not None:
        found.append(Upstream(name="openai", base_url=checked_url(url, "openai"), api_key_env="OPENAI_API_KEY"))
    if os.environ.get("ANTHROPIC_API_KEY"):
        url = checked_url(os.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC, "anthropic")
        found.append(Upstream(name="anthropic", base_url=url, kind="anthropic", api_key_env="ANTHROPIC_API_KEY"))
    return found


class Upstreams:
    """All of them, with their clients."""

    def __init__(self, upstreams: Sequence[Upstream], *, parallel: int = 1024) -> None:
        self._all = tuple(upstreams)
        self._parallel = parallel
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._listed: dict[str, tuple[float, list[str]]] = {}
        self._probed: tuple[float, dict[str, str]] | None = None

    def __iter__(self) -> Any:
        return iter(self._all)

    def of(self, model: str, kind: str) -> Upstream:
        """The first one of the kind that takes the model. Raises `Refusal` (404)."""
        found = next((u for u in self._all if u.kind == kind and u.takes(model)), None)
        if found is None:
            told = f"no model {model!r:.80} is served here; GET /v1/models lists those that are"
            raise Refusal(404, told, code="model_not_found", param="model")
        return found

    @asynccontextmanager
    async def sent(
        self, upstream: Upstream, path: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> AsyncIterator[httpx2.Response]:
        """One request as it came, but for the headers that are between the client and us; the response is not read yet.

        Raises `Refusal` (502) if the upstream does not answer.
        """
        client = self._client(upstream)
        request = client.build_request("POST", upstream.url(path), headers=passed_on(headers, upstream), content=body)
        try:
            response = await client.send(request, stream=True)
        except httpx2.HTTPError as error:
            why = str(error) or type(error).__name__
            raise Refusal(502, f"the upstream {upstream.name} does not answer: {why}", code="upstream_error") from error
        try:
            yield response
        finally:
            await response.aclose()

    def _client(self, upstream: Upstream) -> httpx2.AsyncClient:
        found = self._clients.get(upstream.name)
        if found is None:
            most = self._parallel
            limits = httpx2.Limits(max_connections=most, max_keepalive_connections=min(most, 256))
            timeout = httpx2.Timeout(_SILENCE, connect=10.0, pool=None)
            loopback = is_loopback(urlsplit(upstream.base_url).hostname or "")
            # a redirect would send the prompt again, and to whom the server likes
            found = httpx2.AsyncClient(
                limits=limits,
                timeout=timeout,
                follow_redirects=False,
                trust_env=not loopback,
                headers={"user-agent": ""},
            )
            self._clients[upstream.name] = found
        return found

    async def models(self) -> list[tuple[str, str]]:
        """(model, upstream) of all that answer, kept for half a minute. One that does not is left out."""
        lists = await asyncio.gather(*(self._list(upstream) for upstream in self._all))
        pairs = zip(self._all, lists, strict=True)
        return [(model, upstream.name) for upstream, models in pairs for model in models if upstream.takes(model)]

    async def _list(self, upstream: Upstream) -> list[str]:
        kept = self._listed.get(upstream.name)
        if kept is not None and time.monotonic() - kept[0] < _KEPT_SECONDS:
            return kept[1]
        try:
            response = await self._get_models(upstream, _LIST_SECONDS)
            data = response.json().get("data") if response.status_code == 200 else []
            found = [str(model["id"]) for model in data or ()]
        except (httpx2.HTTPError, ValueError, AttributeError, KeyError, TypeError):
            found = kept[1] if kept is not None else []
        self._listed[upstream.name] = (time.monotonic(), found)
        return found

    async def faults(self) -> dict[str, str]:
        """What is wrong, by upstream; asked at most every ten seconds."""
        if self._probed is None or time.monotonic() - self._probed[0] > 10.0:
            told = await asyncio.gather(*(self._probe(upstream) for upstream in self._all))
            wrong = {u.name: why for u, why in zip(self._all, told, strict=True) if why}
            self._probed = (time.monotonic(), wrong)
        return self._probed[1]

    async def _probe(self, upstream: Upstream) -> str:
        try:
            response = await self._get_models(upstream, _PROBE_SECONDS)
        except httpx2.HTTPError as error:
            return str(error) or type(error).__name__
        bad = response.status_code >= 500 or response.status_code in (401, 403)
        return f"it answers {response.status_code}" if bad else ""

    async def _get_models(self, upstream: Upstream, seconds: float) -> httpx2.Response:
        headers = upstream.keyed()
        if upstream.kind == "anthropic":
            headers["anthropic-version"] = "2023-06-01"
        return await self._client(upstream).get(upstream.url("/v1/models"), headers=headers, timeout=seconds)

    async def close(self) -> None:
        """Let go of all connections."""
        while self._clients:
            await self._clients.popitem()[1].aclose()


def passed_on(headers: Iterable[tuple[str, str]], upstream: Upstream) -> list[tuple[str, str]]:
    """A client's headers for the upstream: with its key, and none of ours."""
    given = list(headers)
    hop = {part.strip().lower() for name, value in given if name == "connection" for part in value.split(",")}
    kept = [(n, v) for n, v in given if n not in _HOP and n not in _OURS and n not in hop and not n.startswith(PREFIX)]
    return [*kept, *upstream.keyed().items()]


def given_back(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """A response's headers for the client: the body follows as it comes, in the upstream's own coding."""
    raw = [(name.lower(), value) for name, value in response.headers.raw]
    hop = {part.strip().lower() for name, value in raw if name == b"connection" for part in value.split(b",")}
    gone = {name.encode() for name in _HOP} | {b"set-cookie", b"date", b"server"}
    return [(name, value) for name, value in raw if name not in gone and name not in hop]
