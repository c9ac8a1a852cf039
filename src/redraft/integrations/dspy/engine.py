"""A redraft LM as an engine of `dspy.LM`: one lm15 request in, one response out. Retries and cache are elsewhere."""

from __future__ import annotations

import asyncio
import json
import queue
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import dspy
from dspy import lm15

from redraft.config import resolve_lm
from redraft.errors import RedraftError
from redraft.integrations.dspy.failures import as_engine_error
from redraft.integrations.dspy.purchases import Escaped, awaited, buy, here
from redraft.integrations.dspy.wire import as_tool_arguments, without_own
from redraft.lm.openai_chat import read_request, reply_body
from redraft.protocols import LM, Delta
from redraft.run import Run
from redraft.sync import private_loop, submit
from redraft.types import Completion, Request

_SAMPLING = ("temperature", "max_tokens", "top_p", "stop")
_DIALECT = "conversion-only"


class _Engine:
    """What both faces share. `redraft_model` is the model."""

    def __init__(self, model: LM) -> None:
        self.redraft_model = model
        can = model.capabilities
        self.supports_function_calling = can.tools
        self.supports_reasoning = can.reasoning
        self.supports_response_schema = can.json_schema
        offered = {
            "seed": can.seed,
            "logprobs": can.logprobs,
            "top_logprobs": can.logprobs,
            "response_format": can.json_schema,
            "tools": can.tools,
            "tool_choice": can.tools,
            "reasoning_effort": can.reasoning,
        }
        self.supported_params = {*_SAMPLING, *(name for name, given in offered.items() if given)}

    def __deepcopy__(self, memo: object) -> Any:
        return self  # it holds connections, and no state of a program

    def __reduce__(self) -> tuple[Any, ...]:
        return (_loaded, (type(self), self.redraft_model.name))

    def dump_state(self) -> dict[str, Any]:
        """The model's name: keys and connections are no part of a saved program."""
        return {"model": self.redraft_model.name}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> Any:
        """The engine for the model of that name."""
        return _loaded(cls, state["model"])


class RedraftEngine(_Engine):
    """The sync face."""

    def complete(self, request: Any) -> Any:
        """One reply. Raises lm15 errors, as DSPy's engines do."""
        frame = here()
        return _response(self, awaited(lambda: _reply(self, request, None), frame))

    def stream(self, request: Any) -> Iterator[Any]:
        """The reply's events while it is written."""
        frame, pieces = here(), queue.SimpleQueue[Delta | None]()
        home = frame.run.loop if frame is not None and frame.run.loop is not None else private_loop()
        reply = submit(lambda: _reply(self, request, pieces.put), home)
        reply.add_done_callback(lambda _: pieces.put(None))
        events = _Events()
        try:
            while (piece := pieces.get()) is not None:
                yield from events.of(piece)
            yield from events.rest(_response(self, reply.result()))
        finally:
            reply.cancel()


class AsyncRedraftEngine(_Engine):
    """The async face."""

    async def complete(self, request: Any) -> Any:
        """One reply. Raises lm15 errors, as DSPy's engines do."""
        return _response(self, await _reply(self, request, None))

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """The reply's events while it is written."""
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[Delta | None]()

        def put(piece: Delta | None) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        reply = asyncio.ensure_future(_reply(self, request, put))
        reply.add_done_callback(lambda _: put(None))
        events = _Events()
        try:
            while (piece := await pieces.get()) is not None:
                for event in events.of(piece):
                    yield event
            for event in events.rest(_response(self, await reply)):
                yield event
        finally:
            reply.cancel()


class _Events:
    """A stream's events: thoughts are part 0, the text part 1."""

    def __init__(self) -> None:
        self.begun = False
        self.told = {"text": "", "thinking": ""}

    def of(self, piece: Delta) -> Iterator[Any]:
        """The events of a piece."""
        if piece.choice == 0:
            yield from self._told("thinking", piece.reasoning)
            yield from self._told("text", piece.text)

    def _told(self, kind: str, text: str) -> Iterator[Any]:
        if not text:
            return
        yield from self._start("")
        self.told[kind] += text
        made = (
            lm15.TextDelta(text=text, part_index=1) if kind == "text" else lm15.ThinkingDelta(text=text, part_index=0)
        )
        yield lm15.StreamDeltaEvent(delta=made)

    def _start(self, model: str) -> Iterator[Any]:
        if not self.begun:
            self.begun = True
            yield lm15.StreamStartEvent(id=None, model=model or None)

    def rest(self, response: Any) -> Iterator[Any]:
        """What the pieces did not tell (all of it, if the run had the reply on record), and the end."""
        yield from self._start(response.model)
        parts = list(response.message.parts)
        for kind in ("thinking", "text"):
            said = "".join(part.text for part in parts if part.type == kind)
            if said.startswith(self.told[kind]):
                for piece in _words(said[len(self.told[kind]) :]):
                    yield from self._told(kind, piece)
        for at, part in enumerate(p for p in parts if p.type == "tool_call"):
            call = lm15.ToolCallDelta(input=json.dumps(part.input), part_index=2 + at, id=part.id, name=part.name)
            yield lm15.StreamDeltaEvent(delta=call)
        yield lm15.StreamEndEvent(finish_reason=response.finish_reason, usage=response.usage)


def _words(text: str) -> list[str]:
    """A text in pieces of about a word: DSPy's listeners take a reply in one piece for one of its cache, and pass over it."""
    return re.findall(r"\s*\S+|\s+$", text)


async def _reply(engine: _Engine, request: Any, on_delta: Callable[[Delta], None] | None) -> Completion:
    """The reply, bought by the run around this call; without one, by a run of its own."""
    lm = engine.redraft_model
    try:
        asked = _asked(request)
        if here() is not None:
            tracker = dspy.settings.usage_tracker
            if isinstance(tracker, Escaped):
                tracker.ours.add(request.model)
            return await buy(asked, lm, on_delta)
        async with Run() as run:
            return await run.complete(asked, lm=lm, on_delta=on_delta)
    except RedraftError as error:
        raise as_engine_error(error) from error


def _asked(request: Any) -> Request:
    """An lm15 request as ours, by way of the chat-completions body that DSPy's own dialect writes."""
    body = lm15.OpenAIChatLM(api_key=_DIALECT).build_request(request, stream=False).body
    return read_request(without_own(json.loads(body)))


def _response(engine: _Engine, completion: Completion) -> Any:
    body = reply_body(completion, engine.redraft_model.name)
    message = body["choices"][0]["message"]
    if "tool_calls" in message:
        message["tool_calls"] = as_tool_arguments(message["tool_calls"])
    response = lm15.response_from_openai_chat(body, choice=0)
    return replace(response, provider_data=None)


def _loaded(kind: Any, name: str) -> Any:
    return kind(resolve_lm(name))
