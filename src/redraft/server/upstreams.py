"""Upstreams: whose real models pass through, byte for byte. One pooled client for each."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpcore2
import httpx2

from redraft.errors import ConfigError
from redraft.lm.openai import checked_url, is_loopback
from redraft.server.asked import PREFIX
from redraft.server.connections import FAULTS, Connections, Headers
from redraft.server.refusal import Refusal

_SETTINGS = ("base_url", "api_key_env", "kind", "models")
_OPENAI, _ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com"
_HOP = frozenset(
    [
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ]
)
_OURS = frozenset(
    [b"host", b"content-length", b"authorization", b"x-api-key", b"api-key", b"cookie", b"forwarded", b"expect"]
)
"""Of a request's headers, what is between the client and this server: its keys above all."""
_GONE = _HOP | {b"set-cookie", b"date", b"server"}
_PREFIX = PREFIX.encode()
_PROBE_SECONDS, _LIST_SECONDS, _KEPT_SECONDS = 2.0, 5.0, 30.0
_LAST_STATUS = 599
_CHOICE = re.compile(r"\[!?\]?[^\]]*\]")
"""Of a pattern, what stands for one character."""
_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server of models. Its key is in the environment; none is sent where no variable is named."""

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
        url, variable = _address(str(table["base_url"]), name), table.get("api_key_env", "")
        if not isinstance(variable, str):
            raise ConfigError(f"{where} api_key_env must be the name of a variable, got {variable!r:.40}")
        if variable and not variable.isidentifier():  # not told: it may be the key
            raise ConfigError(f"{where} api_key_env must be the name of a variable, not the key that is in it")
        if variable and not (key := os.environ.get(variable, "").strip()):
            raise ConfigError(
                f"{where} sends the key in {variable}, which is not set: set it, or leave api_key_env out"
            )
        if variable and not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"{where} sends the key in {variable}, which no header can carry: it is of printable ASCII"
            )
        return cls(name=name, base_url=url, kind=kind, api_key_env=variable, models=tuple(models))

    def url(self, path: str) -> str:
        """Where a path of this server's is there; base URLs of OpenAI's kind end in /v1, Anthropic's do not."""
        base = self.base_url.removesuffix("/v1") if self.kind == "anthropic" else self.base_url
        return base + (path if self.kind == "anthropic" else path.removeprefix("/v1"))

    def target(self, path: str) -> bytes:
        """The same, as a request line names it."""
        parts = urlsplit(self.url(path))
        return f"{parts.path}?{parts.query}".encode("latin-1") if parts.query else parts.path.encode("latin-1")

    def keyed(self) -> dict[str, str]:
        """The headers that carry this upstream's own key."""
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if not key:
            return {}
        return {"x-api-key": key} if self.kind == "anthropic" else {"authorization": f"Bearer {key}"}

    def takes(self, model: str) -> bool:
        """True if a model's name is one of its."""
        return any(fnmatch.fnmatchcase(model, pattern) for pattern in self.models)

    def may_take(self, pattern: str) -> bool:
        """True if there may be a name that fits the pattern and is one of its."""
        return any(_meet(_CHOICE.sub("?", pattern), _CHOICE.sub("?", own)) for own in self.models)


@cache
def _meet(one: str, other: str) -> bool:
    """True if some text fits both patterns of characters, ? and *."""
    if not one or not other:
        return not (one + other).strip("*")
    if one[0] == "*":
        return _meet(one[1:], other) or _meet(one, other[1:])
    if other[0] == "*":
        return _meet(other, one)
    return (one[0] == other[0] or "?" in (one[0], other[0])) and _meet(one[1:], other[1:])


def _address(base_url: str, name: str) -> str:
    """A base URL that can be passed through to. Raises `ConfigError`."""
    url = checked_url(base_url, name)
    parts = urlsplit(url)
    if parts.username is not None:
        raise ConfigError(
            f"the base URL of {name} holds a name or a password: put the key into a variable (api_key_env)"
        )
    try:
        (parts.hostname or "").encode("idna")
        url.encode("ascii")
    except UnicodeError as error:
        raise ConfigError(f"the base URL of {name} cannot be used, got {url!r:.120}: {error}") from error
    return url


def configured(tables: object, base_url: str | None = None) -> list[Upstream]:
    """Those of redraft.toml; without any what the environment says: `base_url` or OpenAI's, and Anthropic's, by their keys."""
    if not isinstance(tables, Mapping):
        raise ConfigError(f"upstreams must be tables, [upstreams.NAME], got {tables!r:.80}")
    found = [Upstream.read(name, table) for name, table in tables.items()]
    if found and base_url is None:
        return found
    url = base_url or os.environ.get("OPENAI_BASE_URL") or (_OPENAI if os.environ.get("OPENAI_API_KEY") else None)
    if url is not None:
        found.append(Upstream(name="openai", base_url=_address(url, "openai"), api_key_env="OPENAI_API_KEY"))
    if os.environ.get("ANTHROPIC_API_KEY"):
        url = _address(os.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC, "anthropic")
        found.append(Upstream(name="anthropic", base_url=url, kind="anthropic", api_key_env="ANTHROPIC_API_KEY"))
    return found


class Upstreams:
    """All of them, with their clients."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._all = tuple(upstreams)
        self._connections: dict[str, Connections] = {}
        self._clients: dict[str, httpx2.AsyncClient] = {}
        """Those that ask for lists of models."""
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
        self, upstream: Upstream, path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> AsyncIterator[httpcore2.Response]:
        """One request as it came, but for the headers that are between the client and us; the response is not read yet.

        Raises `Refusal`: 502 if the upstream does not answer, 400 for what cannot be sent on.
        """
        connections = self._connections.get(upstream.name)
        if connections is None:
            connections = self._connections[upstream.name] = Connections(upstream.base_url)
        target = upstream.target(path)
        async with AsyncExitStack() as held:
            try:
                sending = connections.post(target, passed_on(headers, upstream), body)
                response = await held.enter_async_context(sending)
            except FAULTS as error:
                why = str(error) or type(error).__name__
                told = f"the upstream {upstream.name} does not answer: {why}"
                raise Refusal(502, told, code="upstream_error") from error
            except httpcore2.LocalProtocolError as error:
                raise Refusal(400, f"the request cannot be passed on: {error}", code="invalid_request") from error
            if response.status > _LAST_STATUS:
                told = f"the upstream {upstream.name} answers with the status {response.status}, which there is not"
                raise Refusal(502, told, code="upstream_error")
            if any(_UNSENDABLE.search(value) for _, value in response.headers):
                raise Refusal(502, f"the upstream {upstream.name} sends a header that is none", code="upstream_error")
            yield response

    def _client(self, upstream: Upstream) -> httpx2.AsyncClient:
        found = self._clients.get(upstream.name)
        if found is None:
            loopback = is_loopback(urlsplit(upstream.base_url).hostname or "")
            # a redirect would take the key to whom the server likes
            found = httpx2.AsyncClient(follow_redirects=False, trust_env=not loopback)
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
        while self._connections:
            await self._connections.popitem()[1].close()


def passed_on(headers: Iterable[tuple[bytes, bytes]], upstream: Upstream) -> Headers:
    """A client's headers for the upstream: with its key, and none of ours."""
    given = list(headers)
    gone = _HOP | _OURS | _named_hop(given)
    kept = [(name, value) for name, value in given if name not in gone and not name.startswith(_PREFIX)]
    return [*kept, *((name.encode(), value.encode()) for name, value in upstream.keyed().items())]


def given_back(headers: Headers) -> Headers:
    """A response's headers for the client: the body follows as it comes, in the upstream's own coding."""
    raw = [(name.lower(), value) for name, value in headers]
    gone = _GONE | _named_hop(raw)
    return [(name, value) for name, value in raw if name not in gone]


def _named_hop(headers: Headers) -> set[bytes]:
    """What `Connection` says is for one connection only."""
    return {part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")}
