"""A native provider's model as an LM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from redraft.errors import AuthError, BadRequestError, ConfigError, LMError, TransientLMError
from redraft.lm.native import install
from redraft.lm.native.clients import Connected, Line, Sending, connected, sending
from redraft.lm.native.table import Door
from redraft.lm.openai import checked_url, is_loopback
from redraft.lm.openai_errors import Endpoint
from redraft.lm.openai_wire import refuse_unsupported
from redraft.protocols import Delta
from redraft.types import Choice, Completion, Request, Usage

Listener = Callable[[Delta], None]
_Part = tuple[Choice, Usage | None, str]


class NativeLM:
    """A model behind its provider's own API, through pydantic-ai's direct requests.

    The key comes from the provider's usual variable (`table.DOORS` lists them) and is optional for a `base_url` on
    this machine. What the model takes (a schema, a seed, a temperature, a prefill) is declared by pydantic-ai's
    profile of it. `n` choices are bought by n requests at once, and their usage is summed.

    Raises `ConfigError` for a missing key, a missing library, or versions that do not fit together.
    """

    def __init__(
        self,
        model: str,
        *,
        door: Door,
        base_url: str | None = None,
        api_key: str | None = None,
        parallel: int = 64,
        max_output: int | None = None,
    ) -> None:
        install.check(door)
        self.name = f"{door.name}/{model}"
        self.parallel = parallel
        self._model = model
        self._door = door
        url = None if base_url is None else checked_url(base_url, door.name)
        loopback = url is not None and is_loopback(_host(url))
        key = api_key or door.key() or ("none" if loopback else None)
        variable = " or ".join(door.keys) or "your cloud credentials"
        if key is None and not door.keyless:
            raise ConfigError(f"no API key for {self.name}: set {variable}")
        self._line = Line(door, url, key, parallel, loopback)
        self._known, self.address = self._learn()
        """Where the model is: models of one name at two addresses share no cached reply."""
        self._endpoint = Endpoint(self.name, model, url or self.address, variable)
        self.capabilities = self._known.capabilities()
        self.max_output = max_output or self._known.max_output

    def _learn(self) -> tuple[Any, str]:
        """What pydantic-ai knows of the model, and its address. Its model class wants a client: this one never connects."""
        try:
            from redraft.lm.native.settings import Known

            theirs = Connected(self._line, idle=True).model(self._model)
        except ImportError as error:
            raise install.explain(self._door, error) from error
        except (RuntimeError, ValueError) as error:  # pydantic-ai's UserError, Google's missing credentials
            raise ConfigError(f"{self.name} cannot be used: {error}") from error
        known = Known(self._door, self.name, self._model, theirs.profile, theirs.unsupported_settings)
        return known, self._line.base_url or str(theirs.provider.base_url)

    async def generate(self, request: Request, on_delta: Listener | None = None) -> Completion:
        """One call, or n at once; streamed if somebody listens."""
        refuse_unsupported(request, self.capabilities, self.name)
        self._known.refuse(request)
        if request.n == 1:
            parts = [await self._one(request, on_delta, 0)]
        else:
            parts = await self._several(request, on_delta)
        usages = [usage for _, usage, _ in parts if usage is not None]
        return Completion(
            choices=tuple(choice for choice, _, _ in parts),
            model=parts[0][2],
            usage=sum(usages, Usage()) if len(usages) == len(parts) else None,
        )

    def count(self, request: Request) -> int | None:  # noqa: ARG002 - the contract's signature
        """None: the provider's tokenizer is not known here."""
        return None

    def cost(self, usage: Usage) -> float | None:
        """Dollars by the provider's price list; None for a model that it does not hold."""
        from redraft.lm.prices import price

        return price(self._model, self._door.price_id, self._line.base_url, usage)

    async def _several(self, request: Request, on_delta: Listener | None) -> list[_Part]:
        calls = [asyncio.create_task(self._one(request, on_delta, index)) for index in range(request.n)]
        try:
            await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            failed = next((e for call in calls if call.done() and (e := call.exception())), None)
            if failed is None:
                return [call.result() for call in calls]
            if isinstance(failed, BadRequestError | AuthError):  # it is refused to the others alike: no need to guess
                await asyncio.wait(calls)
            raise _of_all(failed, calls)
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _one(self, request: Request, on_delta: Listener | None, index: int) -> _Part:
        call = Sending()
        token = sending.set(call)
        try:
            return await self._reply(request, on_delta, index, call)
        finally:
            sending.reset(token)
            await call.close()

    async def _reply(self, request: Request, on_delta: Listener | None, index: int, call: Sending) -> _Part:
        from redraft.lm.native.messages import choice_of, usage_of

        with self._wire(request, call):
            ask = await self._ask(request)
        # of Google's streams pydantic-ai keeps no logprobs
        if on_delta is None or (request.logprobs is not None and self._door.wire in ("google", "vertex")):
            from pydantic_ai.direct import model_request

            with self._wire(request, call):
                reply = await model_request(**ask, instrument=False)
                if not reply.parts and reply.finish_reason is None:
                    raise TransientLMError(f"{self.name} sent an unreadable reply: it holds nothing", sent=True)
                choice = choice_of(reply, self._door.name)
            if on_delta is not None:
                on_delta(Delta(text=choice.text, reasoning=choice.reasoning, choice=index))
            return choice, usage_of(reply.usage), str(reply.model_name or self._model)
        text: list[str] = []
        reasoning: list[str] = []
        stream = _Stream(ask)
        async with aclosing(stream.pieces(lambda: self._wire(request, call))) as pieces:
            async for piece in pieces:
                text.append(piece.text)
                reasoning.append(piece.reasoning)
                on_delta(Delta(text=piece.text, reasoning=piece.reasoning, choice=index))
        with self._wire(request, call):
            reply = stream.whole()
            choice = choice_of(reply, self._door.name, text="".join(text), reasoning="".join(reasoning))
            # for OpenAI's format pydantic-ai makes up a finish reason where there was none; the details hold what was told
            told = (reply.provider_details or {}).get("finish_reason")
            ended = told if self._door.wire == "openai" else told or reply.finish_reason
            if not ended or reply.state == "incomplete":
                raise TransientLMError(f"{self.name}: the stream broke off before its finish reason", sent=True)
            return choice, usage_of(reply.usage), str(reply.model_name or self._model)

    async def _ask(self, request: Request) -> dict[str, Any]:
        """The arguments of pydantic-ai's direct requests."""
        from redraft.lm.native.messages import Conversation

        theirs = (await connected(self._line)).model(self._model)
        return {
            "model": theirs,
            "messages": Conversation(self._door.name, self._known.profile).build(request.messages, request.prefill),
            "model_settings": self._known.settings(request),
            "model_request_parameters": self._known.parameters(request),
        }

    @contextmanager
    def _wire(self, request: Request, call: Sending) -> Iterator[None]:
        """Nothing but `LMError` leaves: any of a dozen libraries may stand behind a request."""
        try:
            yield
        except LMError:
            raise
        except Exception as error:
            from redraft.lm.native.errors import read

            raise read(error, self._endpoint, request, begun=call.begun) from error


class _Stream:
    """One streamed reply; what the consumer of its pieces raises is not the wire's."""

    def __init__(self, ask: dict[str, Any]) -> None:
        self._ask = ask
        self._response: Any = None

    async def pieces(self, wire: Callable[[], Any]) -> AsyncGenerator[Delta, None]:
        """The new text and reasoning as they arrive."""
        from pydantic_ai.direct import model_request_stream

        opened = model_request_stream(**self._ask, instrument=False)
        with wire():
            self._response = await opened.__aenter__()
        ended: BaseException | None = None
        try:
            events = aiter(self._response)
            said = _Said()
            while True:
                with wire():
                    event = await anext(events, None)
                if event is None:
                    return
                piece = said.piece(event)
                if piece is not None:
                    yield piece
        except BaseException as error:
            ended = error
            raise
        finally:
            with wire():
                await opened.__aexit__(type(ended) if ended else None, ended, None)

    def whole(self) -> Any:
        """The reply once it has ended."""
        return self._response.get()


class _Said:
    """Turns events into pieces; a second thought begins a paragraph, as in `messages.thoughts`."""

    def __init__(self) -> None:
        self._thought: int | None = None

    def piece(self, event: Any) -> Delta | None:
        """The event's new text or reasoning."""
        from pydantic_ai import messages as theirs

        part = event.part if isinstance(event, theirs.PartStartEvent) else None
        delta = event.delta if isinstance(event, theirs.PartDeltaEvent) else None
        if isinstance(part, theirs.TextPart) and part.content:
            return Delta(text=part.content)
        if isinstance(delta, theirs.TextPartDelta) and delta.content_delta:
            return Delta(text=delta.content_delta)
        new = part.content if isinstance(part, theirs.ThinkingPart) else None
        if isinstance(delta, theirs.ThinkingPartDelta):
            new = delta.content_delta
        if not new:
            return None
        apart = self._thought is not None and self._thought != event.index
        self._thought = event.index
        return Delta(reasoning=("\n\n" if apart else "") + new)


def _of_all(failed: BaseException, calls: list[asyncio.Task[_Part]]) -> BaseException:
    """The error of one of n calls, with what all of them used: told if all have ended, else not known."""
    if not isinstance(failed, LMError):
        return failed
    ended = [call for call in calls if call.done() and not call.cancelled()]
    errors = [e for call in ended if (e := call.exception())]
    usages = [call.result()[1] for call in ended if call.exception() is None]
    known = [usage for usage in usages if usage is not None]
    if len(ended) < len(calls) or len(known) < len(usages) or any(isinstance(e, LMError) and e.sent for e in errors):
        failed.sent = True
    elif known:
        failed.reported = sum(known, Usage())
    return failed


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname or ""
