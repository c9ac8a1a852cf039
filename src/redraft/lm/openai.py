"""Any OpenAI-compatible endpoint as an LM: OpenAI, vLLM, llama-server, Ollama, gateways."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redraft.errors import BadRequestError, ConfigError, LMError, TransientLMError
from redraft.lm.clients import Upstream, client_for
from redraft.lm.openai_errors import NO_THOUGHT, Endpoint, Refusal, as_error
from redraft.lm.openai_wire import Reply, as_json, refuse_unsupported, request_body, without_system
from redraft.lm.thoughts import with_empty_thoughts
from redraft.protocols import Delta
from redraft.types import Capabilities, Completion, Request, Usage

if TYPE_CHECKING:
    import openai

_OPENAI_URL = "https://api.openai.com/v1"
_CAP_NAMES = ("max_completion_tokens", "max_tokens")
_INSTEAD = {
    "stream_options": "left out",
    "reasoning": "left out of the messages",
    "system": "part of the first user message",
    NO_THOUGHT: "sent with an empty one",
}
_CAPABLE = Capabilities(json_schema=True, n=True, logprobs=True, seed=True, tools=True, stream=True)


class OpenAILM:
    """A model behind an OpenAI-compatible `/chat/completions`.

    `base_url` defaults to `OPENAI_BASE_URL`, then to OpenAI; the key is `<PROVIDER>_API_KEY` of the environment and
    optional on this machine. `capabilities` says what the server can do beyond or short of OpenAI's API: declare
    `grammar` for a server that takes `%llguidance` in a `grammar` field (llama-server), `prefill` for one that
    continues a trailing assistant message and returns the continuation only.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        name: str | None = None,
        provider: str = "openai",
        capabilities: Capabilities = _CAPABLE,
        parallel: int = 64,
        max_output: int | None = None,
    ) -> None:
        self.name = name or f"{provider}/{model}"
        self.capabilities = capabilities
        self.parallel = parallel
        self.max_output = max_output
        self._model = model
        self._provider = provider
        url = checked_url(base_url, provider)
        host = urlsplit(url).hostname or ""
        variable = re.sub(r"\W", "_", provider).upper() + "_API_KEY"
        key = api_key or os.environ.get(variable) or ("none" if is_loopback(host) else None)
        if key is None:
            raise ConfigError(
                f"no API key for {self.name} at {url}: set {variable}, or give --base-url to use a server on this machine"
            )
        self.address = re.sub("//[^/]*@", "//", url)
        """Where the model is, without a password: models of one name at two addresses share no cached reply."""
        self._host = urlsplit(url).netloc.rpartition("@")[2]
        self._opens_thinking = False
        self._endpoint = Endpoint(self.name, model, self.address, variable)
        self._upstream = Upstream(url, key, parallel, is_loopback(host), variable)
        own = host == "api.openai.com" or host.endswith((".openai.com", ".openai.azure.com"))
        self._cap_names = _CAP_NAMES if own else _CAP_NAMES[::-1]
        self._refused: set[str] = set()

    async def generate(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Completion:
        """One call, streamed if somebody listens and the server can."""
        refuse_unsupported(request, self.capabilities, self.name)
        body = self._body(request)
        if on_delta is not None and self.capabilities.stream:
            body["stream"] = True
            if "stream_options" not in self._refused:
                body["stream_options"] = {"include_usage": True}
        carried = self._host if request.tools else ""
        reply = Reply(self.name, upstream=carried, in_thought=self._opens_thinking)
        async with aclosing(self._chunks(body)) as chunks:
            async for chunk in chunks:
                for delta in reply.add(chunk):
                    if on_delta is not None:
                        on_delta(delta)
        completion = reply.completion()
        self._opens_thinking = reply.lone or (self._opens_thinking and not reply.bare)
        return completion

    def _body(self, request: Request) -> dict[str, Any]:
        """In the words that this server was found to take."""
        upstream = "" if "reasoning" in self._refused else self._host
        body = request_body(request, self._model, cap_name=self._cap_name, upstream=upstream)
        if NO_THOUGHT in self._refused:  # a tool loop of another model's, say
            body["messages"] = with_empty_thoughts(body["messages"])
        if "system" in self._refused:
            body["messages"] = without_system(body["messages"])
        return body

    def count(self, request: Request) -> int | None:  # noqa: ARG002 - the contract's signature
        """None: the upstream's tokenizer is not known here."""
        return None

    def cost(self, usage: Usage) -> float | None:
        """Dollars by the endpoint's price list, or the provider's; None for a model that neither lists."""
        from redraft.lm.prices import price

        return price(self._model, self._provider, self._endpoint.base_url, usage)

    async def _chunks(self, body: dict[str, Any]) -> AsyncGenerator[object, None]:
        """The reply's JSON values as they arrive; a plain reply is one. Raises `LMError` only."""
        import httpx2
        import openai

        content = as_json(body)
        client = await client_for(self._upstream)
        try:
            if body.get("stream"):
                async with await _post(client, content, stream=True) as events:
                    if "application/json" in events.response.headers.get("content-type", ""):  # it does not stream
                        yield self._whole((await events.response.aread()).decode(), body)
                    async for event in events:
                        yield event
            else:
                yield self._whole(await _post(client, content, stream=False), body)
        except openai.APIStatusError as error:
            told = Refusal.read(error.status_code, error.body, error.response.headers)
            raise self._explained(told, body) from error
        except openai.APIConnectionError as error:
            raise self._disconnected(error.__cause__ or error) from error
        except openai.APIError as error:  # an error event within a stream
            raise self._explained(Refusal.read(None, error.body or error.message), body) from error
        except openai.OpenAIError as error:
            raise BadRequestError(f"{self.name} cannot be called: {error}") from error
        except httpx2.HTTPError as error:  # the SDK lets it through while reading an error's body
            raise self._disconnected(error) from error
        except ValueError as error:  # not JSON, not UTF-8
            raise Reply(self.name).garbled(f"not JSON ({error})") from error

    def _whole(self, raw: object, body: dict[str, Any]) -> object:
        reply = json.loads(raw) if isinstance(raw, str) else raw  # a str: JSON under another content type
        if isinstance(reply, dict) and reply.get("error") and not reply.get("choices"):
            raise self._explained(Refusal.read(None, reply), body)  # some servers fail with a status of 200
        return reply

    @property
    def _cap_name(self) -> str:
        return next((name for name in self._cap_names if name not in self._refused), self._cap_names[0])

    def _explained(self, told: Refusal, body: dict[str, Any]) -> LMError:
        """The refusal as an error. A dialect is learned: the next try is sent in other words."""
        sent = {*body, "prefill"} if body["messages"] and body["messages"][-1].get("role") == "assistant" else {*body}
        name = told.refused_in(body["messages"]) or told.refused(sent)
        if name not in (*_CAP_NAMES, *_INSTEAD):
            return as_error(told, sent, self._endpoint, body)
        self._refused.add(name)
        if self._refused.issuperset(_CAP_NAMES):
            return BadRequestError(
                f"{self.name} takes neither {_CAP_NAMES[0]} nor {_CAP_NAMES[1]} ({told.message}); run it without a "
                "token limit, or use another server",
                status=told.status,
            )
        instead = _INSTEAD.get(name) or f"sent as {self._cap_name}"
        return TransientLMError(
            f"{self.name} does not take {name}; from the next try on it is {instead}", status=told.status, retry_after=0
        )

    def _disconnected(self, error: BaseException) -> TransientLMError:
        import httpx2

        early = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
        sent = not isinstance(error, (*early, httpx2.UnsupportedProtocol))
        what = "the connection broke after the request was sent" if sent else "no connection; does a server run there?"
        why = str(error) or type(error).__name__
        return TransientLMError(f"{self.name} at {self._endpoint.base_url}: {what} ({why})", sent=sent)


lm = OpenAILM
"""The name that the registry calls: `(model, *, base_url=None) -> LM`."""


async def _post(client: openai.AsyncOpenAI, content: bytes, *, stream: bool) -> Any:
    """Bodies and replies stay plain JSON: the SDK's typed models would cost time and hide what servers add."""
    from openai import AsyncStream

    return await client.post(
        "/chat/completions",
        content=content,
        cast_to=object,
        stream=stream,
        stream_cls=AsyncStream[object],
        options={"security": {"bearer_auth": True}},
    )


def checked_url(base_url: str | None, provider: str) -> str:
    """The base URL to use, without a slash at its end; raises `ConfigError` for what is none."""
    url = base_url or (os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL if provider == "openai" else "")
    url = url.strip()
    if not re.fullmatch(r"https?://[^/\s]\S*", url):
        raise ConfigError(
            f"the base URL of {provider} must begin with http:// or https://, got {url!r}; give --base-url"
        )
    if re.search(r"[?#]", url):
        raise ConfigError(
            f"the base URL of {provider} must end with its path, without ? and #, got {url!r}; most end in /v1"
        )
    try:
        _ = urlsplit(url).port
    except ValueError as error:
        raise ConfigError(
            f"the base URL {url!r} cannot be used: {error}; give --base-url http://HOST:PORT/v1"
        ) from error
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the host."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
