"""pydantic-ai agents as modules, each of their model requests bought by the run: `wrap(agent)`.

    review = Refine(wrap(agent, "topic -> review"), N=3, checks=[checks.words(20, 40)], budget=Budget(calls=8))
    result = review(topic="La Maison")

Requests are journalled in pydantic-ai's own form, so a resumed run buys none again, whatever the provider put in a reply.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from redraft.errors import ConfigError, InputError

try:
    import pydantic_ai as _  # noqa: F401
except ImportError as missing:
    raise ConfigError(
        "redraft.integrations.pydantic_ai needs the package pydantic-ai-slim: pip install 'redraft[providers]'"
    ) from missing

from pydantic_ai import Agent, ModelMessagesTypeAdapter, exceptions
from pydantic_ai import messages as theirs
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, infer_model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RunUsage

from redraft.foreign import charge
from redraft.frame import NO_ADVICE, Advice, current_frame
from redraft.integrations.advice import Unwrapped, as_paragraphs, fields_of, here
from redraft.jsonable import plain
from redraft.lm.native import errors as native_errors
from redraft.lm.native.messages import Conversation, choice_of, usage_of
from redraft.lm.openai_errors import Endpoint
from redraft.lm.prices import price
from redraft.modules import Module
from redraft.modules.wire import compose
from redraft.protocols import LM, Delta
from redraft.signature import Field, SignatureSpec, as_signature
from redraft.types import Capabilities, Completion, Request, Usage

if not hasattr(AbstractCapability, "get_wrapper_model"):
    raise ConfigError(
        f"redraft.integrations.pydantic_ai needs pydantic-ai-slim 2.62 or newer, {version('pydantic-ai-slim')} is here: "
        "pip install --upgrade pydantic-ai-slim"
    )

__all__ = ["MeteredRequests", "PydanticAI", "wrap"]

PROVIDER = "pydantic-ai"
"""Marks the item of a completion that holds pydantic-ai's own form of the reply."""

_PASSED = ("deps", "message_history")
_VOLATILE = frozenset(
    {"timestamp", "run_id", "conversation_id", "metadata", "usage", "model_id", "history_digest", "workspace_ref"}
)
"""What differs between two processes that ask the same."""


def wrap(agent: Agent[Any, Any], signature: Any = None, **options: Any) -> PydanticAI:
    """An agent as a module.

    Its inputs become the user's prompt: one input as it is, several as paragraphs by name, content parts (and pydantic-ai's
    own `ImageUrl`, `BinaryContent`) as content; an input `deps` or `message_history` is passed to the agent's run. The
    fields of a model, dataclass or dict that it returns are the outputs, anything else is the one field `answer`; with a
    `signature` inputs are checked, and the one output has its name. `options` go to each `agent.run`: deps, model,
    model_settings, usage_limits, toolsets...

    Tools, output validators and their retries work as ever; each model request counts as a call, under the run's limits and
    retries. Advice reaches the agent: requirements and hint as instructions, temperature and effort as settings, another
    model in place of its own. What agents called in its tools use is counted softly if they share its usage
    (`usage=ctx.usage`), exactly if they have the capability `MeteredRequests()`.
    """
    return PydanticAI(agent, signature, **options)


class PydanticAI(Module):
    """An agent as a module; see `wrap`."""

    alone = True

    def __init__(self, agent: Agent[Any, Any], signature: Any = None, **options: Any) -> None:
        if isinstance(agent, type) or not callable(getattr(agent, "run", None)) or not hasattr(agent, "output_type"):
            raise InputError(f"wrap({agent!r}): give a pydantic-ai agent")
        self.agent = agent
        self.name = agent.name or ""
        self.signature = None if signature is None else as_signature(signature)
        self.options = options

    @property
    def lm(self) -> LM | None:
        """The agent's own model, for critics and advisors that have none."""
        model = self.options.get("model") or self.agent.model
        try:
            return None if model is None else ModelLM(infer_model(model))
        except (exceptions.UserError, ImportError, ValueError):  # not configured here: the agent's run will say
            return None

    async def aforward(self, **inputs: Any) -> dict[str, Any]:
        """One run of the agent."""
        advice = here()
        if self.signature is not None:
            rest = {k: v for k, v in inputs.items() if k not in _PASSED}
            inputs = {**inputs, **self.signature.bind(rest)}
        prompt, history = _prompt(self.signature, inputs)
        options: dict[str, Any] = {**self.options, **{k: inputs[k] for k in _PASSED if k in inputs}}
        if history:
            options["message_history"] = [*(options.get("message_history") or ()), *history]
        options["capabilities"] = [*(options.get("capabilities") or ()), MeteredRequests()]
        options["instructions"] = _instructions(options.get("instructions"), self.signature, advice)
        options["model_settings"] = _settings(options.get("model_settings"), advice)
        own_usage = None if "usage" in options else RunUsage()
        if own_usage is not None:
            options["usage"] = own_usage  # ours, so that it is known after a failure, too
        token = _exact.set(exact := _Exact(_exact.get()))
        try:
            with Unwrapped():
                result = await self.agent.run(prompt, **options)
        finally:
            _exact.reset(token)
            if own_usage is not None:
                exact.charge_others(own_usage)
        return fields_of(result.output, self.signature)


class MeteredRequests(AbstractCapability[Any]):
    """A pydantic-ai capability: inside a run, the agent's model requests are the run's; outside nothing changes.

    `wrap` adds it. Give it to agents of your own that functions or tools call: `Agent(..., capabilities=[MeteredRequests()])`.
    """

    def get_wrapper_model(self, model: Model[Any]) -> Model[Any] | None:
        """Every model that serves a request of the agent."""
        return InRun(model)


class _Exact:
    """What was counted exactly while an agent ran, its tools included."""

    def __init__(self, around: _Exact | None) -> None:
        self.requests = self.input_tokens = self.output_tokens = 0
        self._around = around

    def add(self, usage: Any) -> None:
        if self._around is not None:
            self._around.add(usage)
        self.requests += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens

    def charge_others(self, usage: Any) -> None:
        """Count softly what is in an agent's usage beyond that: agents in its tools, with clients of their own."""
        given = max(0, usage.input_tokens - self.input_tokens)
        written = max(0, usage.output_tokens - self.output_tokens)
        calls = usage.requests - self.requests
        if calls > 0 and (given or written):
            spent = Usage(calls=calls, unpriced=calls, input_tokens=given, output_tokens=written)
            charge(spent, PROVIDER)


_exact: ContextVar[_Exact | None] = ContextVar("redraft_pydantic_ai_exact", default=None)


class InRun(WrapperModel):
    """A pydantic-ai model whose requests inside a run are bought by it: see `MeteredRequests`."""

    async def request(self, messages: list[Any], model_settings: Any, model_request_parameters: Any) -> Any:
        """One request: the journal's reply, or a new one. Raises redraft's errors."""
        frame = current_frame()
        if frame is None:
            return await self.wrapped.request(messages, model_settings, model_request_parameters)
        if (other := frame.advice.lm) is not None and not isinstance(other, ModelLM):
            reply = await _served_by(other).request(messages, model_settings, model_request_parameters)
        else:
            lm = ModelLM(self.wrapped, (messages, model_settings or {}, model_request_parameters))
            completion = await frame.run.complete(lm.asked(), lm=lm)
            item = completion.choices[0].items[0]
            reply = ModelMessagesTypeAdapter.validate_python([item["response"]])[0]
        if (exact := _exact.get()) is not None:
            exact.add(reply.usage)
        return reply

    @asynccontextmanager
    async def request_stream(
        self, messages: list[Any], model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncGenerator[Any, None]:
        """The same for a stream: inside a run it begins when the reply is whole."""
        if current_frame() is None:
            ask = (messages, model_settings, model_request_parameters, run_context)
            async with self.wrapped.request_stream(*ask) as stream:
                yield stream
            return
        reply = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(reply, model_request_parameters=model_request_parameters, replay_events=True)


class ModelLM:
    """A pydantic-ai model as an LM: for one request of an agent, or, without `ask`, for any request of redraft's."""

    parallel = 64
    max_output: int | None = None

    def __init__(self, model: Model[Any], ask: tuple[list[Any], Mapping[str, Any], Any] | None = None) -> None:
        self.model = model
        self.name = f"{model.system}/{model.model_name}"
        self.address = model.base_url or ""
        self.capabilities = Capabilities()
        self._ask = ask
        self._given = ask[0] if ask else None

    def asked(self) -> Request:
        """What makes the agent's request this one: messages, settings and tools, without what differs on each run."""
        assert self._ask is not None
        messages, settings, parameters = self._ask
        dumped = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
        return Request(
            messages=tuple(map(_stable, dumped)),
            temperature=settings.get("temperature"),
            max_tokens=settings.get("max_tokens"),
            extra={
                "settings": {k: v for k, v in settings.items() if k not in ("temperature", "max_tokens")},
                "parameters": _pruned({k: v for k, v in plain(parameters).items() if not k.startswith("_")}),
            },
        )

    async def generate(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Completion:
        """One request through pydantic-ai, tried once."""
        del on_delta
        settings: dict[str, Any]
        if self._ask is not None and "parameters" in request.extra:
            messages, given, parameters = self._ask
            settings = {k: v for k, v in given.items() if k not in ("temperature", "max_tokens")}
        else:
            messages = Conversation(PROVIDER, self.model.profile).build(request.messages, request.prefill)
            parameters, settings = ModelRequestParameters(), {"top_p": request.top_p}
        settings |= {"temperature": request.temperature, "max_tokens": request.max_tokens, **self._once()}
        settings = {k: v for k, v in settings.items() if v is not None}
        try:
            # the agent has opened its model for its own requests
            async with contextlib.nullcontext() if messages is self._given else self.model:
                reply = await self.model.request(messages, settings, parameters)
        except (exceptions.AgentRunError, exceptions.UserError) as error:
            at = Endpoint(self.name, self.model.model_name, self.model.base_url or self.name, "the agent's model")
            raise native_errors.read(error, at, request, begun=True) from error
        dumped = ModelMessagesTypeAdapter.dump_python([reply], mode="json")[0]
        choice = replace(choice_of(reply, PROVIDER), items=({"provider": PROVIDER, "response": dumped},))
        failed = [usage_of(tried.usage) for tried in reply.failed_attempts or () if tried.usage is not None]
        usage = usage_of(reply.usage)
        total = None if usage is None else sum((u for u in failed if u is not None), usage)
        return Completion(choices=(choice,), model=str(reply.model_name or self.name), usage=total)

    def count(self, request: Request) -> int | None:  # noqa: ARG002 - the contract's signature
        """None: the provider's tokenizer is not known here."""
        return None

    def cost(self, usage: Usage) -> float | None:
        """Dollars by the provider's price list; None for a model that it does not hold."""
        return price(self.model.model_name, self.model.system, self.model.base_url, usage)

    def _once(self) -> dict[str, Any]:
        """The run retries, not the provider's library, where that can be told so."""
        model: Any = self.model
        while isinstance(model, WrapperModel):
            model = model.wrapped
        return {} if "max_retries" in model.unsupported_settings else {"max_retries": 0}


def _served_by(lm: LM) -> Model[Any]:
    """A redraft model as pydantic-ai's."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from redraft.integrations.openai import served_by

    return OpenAIChatModel(lm.name, provider=OpenAIProvider(openai_client=served_by(lm)))


def _stable(message: dict[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in message.items() if v is not None and k not in _VOLATILE}
    kept["parts"] = [_stable_part(part) for part in message["parts"]]
    return kept


def _stable_part(part: dict[str, Any]) -> dict[str, Any]:
    unnamed = part.get("part_kind") == "retry-prompt" and part.get("tool_name") is None  # its id is drawn, and not sent
    return {
        k: v
        for k, v in part.items()
        if v is not None and k not in ("timestamp", "metadata") and not (unnamed and k == "tool_call_id")
    }


def _pruned(value: Any) -> Any:
    """Without what is empty: most of the parameters are, in most requests."""
    if not isinstance(value, str | int | float | bool | Mapping | list | tuple | set | frozenset | None):
        value = plain(value)
    if isinstance(value, Mapping):
        pruned = {str(k): _pruned(v) for k, v in value.items()}
        return {k: v for k, v in pruned.items() if v not in (None, {}, [], "", False)}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return [_pruned(item) for item in value] if isinstance(value, list | tuple) else value


def _prompt(signature: SignatureSpec | None, inputs: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """The inputs as the user's prompt, and the messages among them as history."""
    given = {k: v for k, v in inputs.items() if k not in _PASSED}
    native = [v for v in given.values() if _is_content(v)]
    worded = {k: v for k, v in given.items() if not _is_content(v)}
    spec = signature or SignatureSpec([Field(name) for name in given or {"question": ""}], [Field("answer")])
    messages = compose(spec.with_instructions(""), worded, style="plain") if worded else ()
    built = Conversation(PROVIDER, {"supports_inline_system_prompts": True}).build(messages, None) if messages else []
    prompt: Any = None
    last = built[-1] if built else None
    if isinstance(last, theirs.ModelRequest) and isinstance(part := last.parts[-1], theirs.UserPromptPart):
        prompt = part.content
        last.parts = last.parts[:-1]
        built = built if last.parts else built[:-1]
    for value in native:
        pieces = [value] if not isinstance(value, list | tuple) else value
        prompt = [*([prompt] if isinstance(prompt, str) else prompt or ()), *pieces]
    return prompt, built


_CONTENT = (theirs.ImageUrl, theirs.AudioUrl, theirs.DocumentUrl, theirs.VideoUrl, theirs.BinaryContent)


def _is_content(value: Any) -> bool:
    return isinstance(value, _CONTENT) or (
        isinstance(value, list | tuple) and any(isinstance(item, _CONTENT) for item in value)
    )


def _instructions(given: Any, signature: SignatureSpec | None, advice: Advice) -> Any:
    own = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    task = signature.instructions if signature is not None else ""
    return [*own, *filter(None, (task, as_paragraphs(advice)))] or None


def _settings(given: Any, advice: Advice) -> Any:
    told: dict[str, Any] = {}
    if advice.temperature is not None and math.isfinite(advice.temperature):
        told["temperature"] = advice.temperature
    if (effort := advice.effort) is not None:
        told["thinking"] = False if effort in ("none", "off") else effort
    if not told or advice is NO_ADVICE:
        return given
    if callable(given):
        return lambda ctx: {**(given(ctx) or {}), **told}
    return {**(given or {}), **told}
