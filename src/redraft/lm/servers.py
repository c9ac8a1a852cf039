"""Model servers on this machine: Ollama, llama-server, LM Studio and vLLM, by name and on their usual ports.

`ollama/NAME`, `llama-server/NAME`, `lmstudio/NAME` and `vllm/NAME` are models of such a server, reached through its
OpenAI-compatible API. `found` looks whether one runs here; it asks nothing but the list of models, and nothing is ever
sent to a server that was found: a person names it first.

What each can do is declared as its documentation states it for every recent version; more can be declared with
`OpenAILM(..., capabilities=...)`.
"""

from __future__ import annotations

import http.client
import json
import os
import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from redraft.lm.openai import OpenAILM, is_loopback
from redraft.types import Capabilities, Usage

_PATIENCE_S = 0.25
_BODY = 1 << 20
_PLAIN = Capabilities(json_schema=True, seed=True, tools=True, stream=True)


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of server and where it usually listens."""

    provider: str
    title: str
    url: str
    """Without /v1."""
    owners: tuple[str, ...] = ()
    """What it calls itself in its list of models. Empty: the port is enough."""
    capabilities: Capabilities = field(default=_PLAIN)
    parallel: int = 4


_PLACES = (
    Place("ollama", "Ollama", "http://127.0.0.1:11434"),
    # its grammars are GBNF; ours need a llama.cpp that was built with LLAMA_LLGUIDANCE
    Place(
        "llama-server",
        "llama-server",
        "http://127.0.0.1:8080",
        owners=("llamacpp",),
        capabilities=Capabilities(json_schema=True, logprobs=True, seed=True, tools=True, stream=True),
    ),
    Place("lmstudio", "LM Studio", "http://127.0.0.1:1234"),
    Place(
        "vllm",
        "vLLM",
        "http://127.0.0.1:8000",
        owners=("vllm",),
        capabilities=Capabilities(json_schema=True, n=True, logprobs=True, seed=True, tools=True, stream=True),
        parallel=64,
    ),
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs on this machine."""

    provider: str | None
    """The provider's name in `provider/model`; None for some other OpenAI-compatible server."""
    title: str
    url: str
    """Its base URL, with /v1."""
    models: tuple[str, ...]
    """At least one; models that only embed are left out."""

    @property
    def options(self) -> str:
        """What to write on the command line to use its first model."""
        usual = next((place for place in _places() if place.provider == self.provider), None)
        model = self.models[0] if self.provider is None else f"{self.provider}/{self.models[0]}"
        away = "" if usual is not None and f"{usual.url}/v1" == self.url else f" --base-url {self.url}"
        return f"-m {shlex.quote(model)}{away}"

    def __str__(self) -> str:
        more = f" and {len(self.models) - 1} more" if len(self.models) > 1 else ""
        return f"{self.title} at {self.url} with {self.models[0]}{more}: {self.options}"


class ServerLM(OpenAILM):
    """A model of one of these servers. A key is optional: `<PROVIDER>_API_KEY`, e.g. `VLLM_API_KEY`."""

    def __init__(self, model: str, place: Place, base_url: str | None) -> None:
        url = base_url or f"{place.url}/v1"
        variable = place.provider.upper().replace("-", "_") + "_API_KEY"
        super().__init__(
            model,
            base_url=url,
            api_key=os.environ.get(variable) or "none",
            provider=place.provider,
            capabilities=place.capabilities,
            parallel=place.parallel,
        )
        self._own = _is_ours(urlsplit(url).hostname or "") and not model.endswith(("-cloud", ":cloud"))

    def cost(self, usage: Usage) -> float | None:
        """Nothing on a machine of one's own; elsewhere (and for Ollama's cloud models) as listed, None if not."""
        return 0.0 if self._own else super().cost(usage)


def ollama(model: str, *, base_url: str | None = None) -> ServerLM:
    """`ollama/NAME`: Ollama, where `OLLAMA_HOST` says or on port 11434 here."""
    return _lm("ollama", model, base_url)


def llama_server(model: str, *, base_url: str | None = None) -> ServerLM:
    """`llama-server/NAME`: llama.cpp's server, on port 8080 here."""
    return _lm("llama-server", model, base_url)


def lmstudio(model: str, *, base_url: str | None = None) -> ServerLM:
    """`lmstudio/NAME`: LM Studio's server, on port 1234 here."""
    return _lm("lmstudio", model, base_url)


def vllm(model: str, *, base_url: str | None = None) -> ServerLM:
    """`vllm/NAME`: vLLM's server, on port 8000 here."""
    return _lm("vllm", model, base_url)


@cache
def found() -> tuple[Server, ...]:
    """The servers that run on this machine, looked for once a process. Never raises; `REDRAFT_DISCOVER=0` finds none."""
    return () if os.environ.get("REDRAFT_DISCOVER") == "0" else look(_places())


def notice() -> str:
    """What to say to somebody who configured no model: the servers found and how to use them. Empty if there are none."""
    servers = found()
    return f" Found on this machine: {'; '.join(map(str, servers))}." if servers else ""


def look(places: Sequence[Place], patience: float = _PATIENCE_S) -> tuple[Server, ...]:
    """The servers at these places, of those on this machine's loopback, all asked at once within `patience` seconds."""
    seen: dict[int, Server] = {}

    def ask(at: int, place: Place) -> None:
        server = _ask(place, patience)
        if server is not None:
            seen[at] = server

    near = [place for place in places if is_loopback(urlsplit(place.url).hostname or "")]
    threads = [
        threading.Thread(target=ask, args=pair, name="redraft-discovery", daemon=True) for pair in enumerate(near)
    ]
    latest = time.monotonic() + patience
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, latest - time.monotonic()))
    return tuple(server for _, server in sorted(seen.copy().items()))


def _ask(place: Place, patience: float) -> Server | None:
    """The server there, if what answers lists models as such a server does."""
    address = urlsplit(place.url)
    # http.client knows no proxies, and follows no redirects
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=patience)
    try:
        connection.request("GET", f"{address.path}/v1/models", headers={"Accept": "application/json"})
        answer = connection.getresponse()
        listed = json.loads(answer.read(_BODY)) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None  # nothing there, or something else
    finally:
        connection.close()
    return _recognised(place, listed)


def _recognised(place: Place, listed: object) -> Server | None:
    entries = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        return None
    models = tuple(name for entry in entries if (name := _model_name(entry)))
    if not models:
        return None
    owner = entries[0].get("owned_by")
    usual = next((known for known in _PLACES if owner in known.owners), None if place.owners else place)
    title = usual.title if usual else "an OpenAI-compatible server"
    return Server(usual.provider if usual else None, title, f"{place.url}/v1", models)


def _model_name(entry: dict[str, Any]) -> str | None:
    """A name that can be shown and typed; None for a model that only embeds."""
    name = entry.get("id")
    fit = isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable() and "embed" not in name.lower()
    return name if fit else None


def _places() -> tuple[Place, ...]:
    url = _ollama_url(os.environ.get("OLLAMA_HOST", ""))
    return tuple(Place(p.provider, p.title, url) if p.provider == "ollama" else p for p in _PLACES)


def _ollama_url(host: str) -> str:
    """What `OLLAMA_HOST` means, read as Ollama reads it; a server's "all addresses" is this machine for a client."""
    usual = _PLACES[0].url
    said = host.strip().strip("\"'")
    if not said:
        return usual
    scheme, marked, rest = said.rpartition("://")
    scheme = scheme or "http"
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        name, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        return usual
    name = "127.0.0.1" if name in ("0.0.0.0", "::") else name  # noqa: S104 - read, not bound
    port = port or ({"http": 80, "https": 443}.get(scheme) if marked else 11434)
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}:{port}{parts.path.rstrip('/')}"


def _lm(provider: str, model: str, base_url: str | None) -> ServerLM:
    return ServerLM(model, next(place for place in _places() if place.provider == provider), base_url)


def _is_ours(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_private
    except ValueError:
        return False
