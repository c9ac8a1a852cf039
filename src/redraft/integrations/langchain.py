"""LangChain runnables as modules: `wrap(prompt | model | parser)`, a graph, a retriever chain.

    answer = Refine(wrap(prompt | model | StrOutputParser()), N=3, checks=[...], budget=Budget(calls=6))
    result = answer(question="...")

LangChain's models call by themselves: what they spent is counted when a reply is there ("soft"), and the next call of a model
is refused once a limit is reached, also in the middle of a chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from redraft.errors import ConfigError, InputError

try:
    import langchain_core as _  # noqa: F401
except ImportError as missing:
    raise ConfigError(
        "redraft.integrations.langchain needs the package langchain-core: pip install langchain-core"
    ) from missing

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableLambda, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, field_validator

from redraft.config import resolve_lm
from redraft.foreign import charge, once
from redraft.frame import Advice, Frame, current_frame, entered, warn
from redraft.integrations.advice import Unwrapped, as_paragraphs, ask, fields_of, here
from redraft.integrations.usage import priced
from redraft.lm.openai_chat import read_request
from redraft.lm.openai_wire import read_usage
from redraft.modules import Module
from redraft.protocols import LM
from redraft.signature import as_signature
from redraft.sync import run_sync
from redraft.types import Completion, Usage

__all__ = ["LangChain", "RedraftChat", "wrap"]

_OURS = "redraft"
_HINT = "hint"
"""The prompt variable that takes the advice, where a prompt has one of this name."""


def wrap(runnable: Runnable[Any, Any], signature: Any = None, *, config: Mapping[str, Any] | None = None) -> LangChain:
    """A runnable as a module.

    It is invoked with the inputs as a dict if they are names that it asks for (a prompt's variables, a graph's state), with
    the value itself if there is one input and it asks for none of that name, else with the dict. A message's text is the
    output `answer`, with its `tool_calls` if it has some; of a state with `messages` it is the last one's; a model's or
    dict's fields are the outputs, anything else is `answer`. With a `signature`, inputs are checked and the one output has
    its name. `config` goes to each call.

    Advice goes where it can. A prompt with a variable `hint` is given it (empty on a first attempt without requirements);
    else a paragraph is added to the last human message on its way to each model of the sequence. The temperature is bound
    where the model has one set, an effort where it knows one, another model takes the model's place (and is counted
    exactly). What hears nothing (a graph, a lambda) only varies, and that is said once. Its cache is off in a retry.
    """
    return LangChain(runnable, signature, config=config)


class LangChain(Module):
    """A runnable as a module; see `wrap`."""

    alone = True

    def __init__(self, runnable: Any, signature: Any = None, *, config: Mapping[str, Any] | None = None) -> None:
        if not isinstance(runnable, Runnable):
            raise InputError(f"wrap({runnable!r:.80}): give a LangChain runnable")
        self.runnable = runnable
        self.name = runnable.get_name()
        self.signature = None if signature is None else as_signature(signature)
        self.config = config

    async def aforward(self, **inputs: Any) -> Any:
        """One invocation."""
        given = inputs if self.signature is None else self.signature.bind(inputs)
        return await once(f"langchain:{self.name}", lambda: self._invoked(given))

    async def _invoked(self, inputs: dict[str, Any]) -> Any:
        advice, frame = here(), current_frame()
        wanted = _variables(self.runnable)
        told = as_paragraphs(advice)
        if _HINT in wanted and _HINT not in inputs:
            inputs, told = {**inputs, _HINT: told}, ""
        one = len(inputs) == 1 and not inputs.keys() <= wanted
        sent = next(iter(inputs.values())) if one else inputs
        advised = _Advised(advice, told, fresh=frame is not None and frame.fresh)
        runnable = advised.of(self.runnable)
        if not advised.heard and (told or advice.lm is not None):
            warn(
                f"{self.name} takes no advice: give its prompt a variable {_HINT!r}, or wrap a sequence with its model"
            )
        config = dict(self.config or {})
        counting = None if frame is None else _Counting(frame, self.name)
        if counting is not None:
            config["callbacks"] = _with(config.get("callbacks"), counting)
        try:
            with Unwrapped():
                return fields_of(_told(await runnable.ainvoke(sent, config=config)), self.signature)
        finally:
            if counting is not None:
                counting.close()


class _Counting(BaseCallbackHandler):
    """A LangChain callback: counts each model call into the surrounding run, and refuses it where a limit is reached."""

    raise_error = True
    run_inline = True

    def __init__(self, frame: Frame, by: str) -> None:
        self._frame = frame
        self._by = by
        self._open: dict[UUID, tuple[str, str]] = {}

    def on_chat_model_start(self, serialized: Any, asked: Any, *, run_id: UUID, **more: Any) -> None:
        """A call is about to be made."""
        del serialized, asked
        told = more.get("metadata") or {}
        provider = str(told.get("ls_provider") or "")
        if provider == _OURS:
            return
        self._frame.run.check_open()
        self._frame.meter.check_room()
        self._open[run_id] = provider, str(told.get("ls_model_name") or "")

    on_llm_start = on_chat_model_start

    def on_llm_end(self, response: Any, *, run_id: UUID, **more: Any) -> None:
        """It is there: count what it took."""
        del more
        said = [getattr(g, "message", None) for group in response.generations for g in group]
        found = next((m.usage_metadata for m in said if isinstance(m, AIMessage) and m.usage_metadata), None)
        name = next((m.response_metadata.get("model_name") for m in said if isinstance(m, AIMessage)), None)
        self._count(run_id, read_usage(found or (response.llm_output or {}).get("token_usage")), str(name or ""))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """It failed: a call that may have been sent."""
        del error, more
        self._count(run_id, None)

    def close(self) -> None:
        """The invocation has ended: calls that were cut off are charged, too."""
        for run_id in list(self._open):
            self._count(run_id, None)

    def _count(self, run_id: UUID, usage: Usage | None, model: str = "") -> None:
        if (known := self._open.pop(run_id, None)) is None:
            return
        provider, asked = known
        with entered(self._frame):
            charge(priced(usage, model or asked, provider), f"langchain:{self._by}")


class RedraftChat(BaseChatModel):
    """A redraft model as a LangChain chat model: `RedraftChat(lm="local/smollm2-135m")`, a name or an LM, by default the
    configured one.

    Inside a run its calls are the run's, outside each opens one. It takes tools (`bind_tools`) where the model does.
    """

    lm: Any = Field(None, validate_default=True)

    @field_validator("lm")
    @classmethod
    def _resolved(cls, lm: Any) -> Any:
        return resolve_lm(lm)

    @property
    def _llm_type(self) -> str:
        return _OURS

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(stop=stop, **kwargs), "ls_provider": _OURS, "ls_model_name": self.lm.name}

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any) -> Any:
        """See `BaseChatModel`."""
        more = {} if tool_choice is None else {"tool_choice": "required" if tool_choice == "any" else tool_choice}
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **more, **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        frame = current_frame()
        home = frame.run.loop if frame else None
        return run_sync(lambda: self._agenerate(messages, stop, run_manager, **kwargs), home=home)

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        del run_manager
        lm: LM = self.lm
        tools = [convert_to_openai_tool(tool) for tool in kwargs.get("tools") or ()]
        request = read_request(
            {**kwargs, "messages": convert_to_openai_messages(messages), "stop": stop, "tools": tools}
        )
        if not lm.capabilities.temperature:
            request = request.but(temperature=None)
        message = _as_message(await ask(lm, request), lm.name)
        return ChatResult(generations=[ChatGeneration(message=message)])


class _Advised:
    """A runnable with advice at each of its models. `heard` says whether there was one to hear it."""

    def __init__(self, advice: Advice, told: str, *, fresh: bool) -> None:
        self.advice, self.told, self.fresh = advice, told, fresh
        self.heard = False

    def of(self, runnable: Any) -> Any:
        """The runnable itself where there is nothing to change."""
        if isinstance(runnable, RunnableSequence):
            steps = [self.of(step) for step in runnable.steps]
            same = all(a is b for a, b in zip(steps, runnable.steps, strict=True))
            return runnable if same else RunnableSequence(*steps, name=runnable.name)
        model = _model_in(runnable)
        if model is None:
            return runnable
        self.heard = True
        changed = self._changed(runnable, model)
        return RunnableLambda(self._say) | changed if self.told else changed

    def _changed(self, runnable: Any, model: Any) -> Any:
        if self.advice.lm is not None and isinstance(model, BaseChatModel):
            runnable = _replaced(runnable, RedraftChat(lm=self.advice.lm))
        elif self.fresh and getattr(model, "cache", None) is not False:
            runnable = _replaced(runnable, model.model_copy(update={"cache": False}))
        told: dict[str, Any] = {}
        if self.advice.temperature is not None and (
            self.advice.lm is not None or getattr(model, "temperature", None) is not None
        ):
            told["temperature"] = self.advice.temperature
        if (effort := self.advice.effort) and "reasoning_effort" in type(model).model_fields:
            told["reasoning_effort"] = effort
        return runnable.bind(**told) if told else runnable

    def _say(self, asked: Any) -> Any:
        if isinstance(asked, PromptValue):
            asked = asked.to_messages()
        messages = [HumanMessage(asked)] if isinstance(asked, str) else list(convert_to_messages(asked))
        for at in reversed(range(len(messages))):
            if isinstance(messages[at], HumanMessage):
                content = messages[at].content
                more: Any = [*content, {"type": "text", "text": self.told}] if isinstance(content, list) else ""
                messages[at] = messages[at].model_copy(update={"content": more or f"{content}\n\n{self.told}"})
                return messages
        return [*messages, HumanMessage(self.told)]


def _model_in(runnable: Any) -> Any:
    """The model that a step is, under whatever was bound to it."""
    while isinstance(runnable, RunnableBindingBase):
        runnable = runnable.bound
    return runnable if isinstance(runnable, BaseLanguageModel) else None


def _replaced(runnable: Any, model: Any) -> Any:
    if not isinstance(runnable, RunnableBindingBase):
        return model
    return runnable.model_copy(update={"bound": _replaced(runnable.bound, model)})


def _variables(runnable: Any) -> set[str]:
    """The names that a runnable asks for; none where it takes one value, or does not say."""
    try:
        schema = runnable.get_input_jsonschema()
    except (TypeError, ValueError, RuntimeError, AttributeError):  # an annotation without a JSON schema
        return set()
    return set(schema.get("properties") or ()) if schema.get("type") == "object" else set()


def _with(callbacks: Any, counting: _Counting) -> Any:
    if callbacks is None or isinstance(callbacks, list | tuple):
        return [*(callbacks or ()), counting]
    copied = callbacks.copy()
    copied.add_handler(counting, inherit=True)
    return copied


def _told(value: Any) -> Any:
    """A message's text and calls; of a state with messages the last one's, beside the rest of it."""
    if isinstance(value, BaseMessage):
        calls = [dict(call) for call in getattr(value, "tool_calls", None) or ()]
        return {"answer": str(value.text), **({"tool_calls": calls} if calls else {})}
    if isinstance(value, dict) and (said := value.get("messages")) and isinstance(said[-1], BaseMessage):
        return {**_told(said[-1]), **{k: v for k, v in value.items() if k != "messages"}}
    return value


def _as_message(completion: Completion, name: str) -> AIMessage:
    calls, broken = [], []
    for call in map(dict, completion.tool_calls):
        try:
            calls.append(parse_tool_call(call))
        except OutputParserException as error:
            broken.append(make_invalid_tool_call(call, str(error)))
    return AIMessage(
        content=completion.text,
        tool_calls=calls,
        invalid_tool_calls=broken,
        usage_metadata=None if completion.usage is None else _metadata(completion.usage),
        additional_kwargs={"reasoning_content": completion.reasoning} if completion.reasoning else {},
        response_metadata={"model_name": name, "finish_reason": completion.finish_reason},
    )


def _metadata(usage: Usage) -> Any:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
        "input_token_details": {"cache_read": usage.cached_tokens},
        "output_token_details": {"reasoning": usage.reasoning_tokens},
    }
