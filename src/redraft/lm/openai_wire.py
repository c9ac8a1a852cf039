"""Requests and replies in the chat-completions wire form. Pure: knows nothing of connections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from redraft.errors import BadRequestError, TransientLMError, UnsupportedError
from redraft.lm.thoughts import Thoughts, ThoughtSplitter, split_lone, text_of, with_thoughts
from redraft.protocols import Delta
from redraft.types import Capabilities, Choice, Completion, Request, Usage


@dataclass(frozen=True, slots=True)
class OptionalField:
    """An optional field of `Request`: the capability it needs, and what upstreams call it."""

    capability: str | None
    names: tuple[str, ...]
    """The first is the body's key, the others are words that error messages use for it."""


OPTIONAL: Mapping[str, OptionalField] = {
    "temperature": OptionalField("temperature", ("temperature",)),
    "top_p": OptionalField(None, ("top_p",)),
    "stop": OptionalField(None, ("stop",)),
    "seed": OptionalField("seed", ("seed",)),
    "n": OptionalField("n", ("n",)),
    "schema": OptionalField("json_schema", ("response_format", "json_schema", "json schema", "structured output")),
    "grammar": OptionalField("grammar", ("grammar",)),
    "tools": OptionalField("tools", ("tools", "tool use", "tool calling", "function calling")),
    "tool_choice": OptionalField("tools", ("tool_choice",)),
    "logprobs": OptionalField("logprobs", ("logprobs", "top_logprobs")),
    "prefill": OptionalField("prefill", ("prefill",)),
    "effort": OptionalField(None, ("reasoning_effort", "reasoning effort", "reasoningEffort", "thinking")),
}


GRAMMAR = "%llguidance {}\n"
"""How a grammar of ours begins on the wire."""


def asked(request: Request) -> tuple[str, ...]:
    """The optional fields that the request sets."""
    unset: tuple[Any, ...] = (None, ())
    return tuple(f for f in OPTIONAL if getattr(request, f) not in unset and (f != "n" or request.n > 1))


def refuse_unsupported(request: Request, capabilities: Capabilities, name: str) -> None:
    """Raise `UnsupportedError` for a field that needs a capability the model does not have."""
    for field in asked(request):
        needs = OPTIONAL[field].capability
        if needs and not getattr(capabilities, needs):
            raise UnsupportedError(
                f"{name} does not take {field!r} (its capability {needs!r} is off); leave it out, or declare the "
                "capability if the server has it",
                parameter=field,
            )


def request_body(request: Request, model: str, *, cap_name: str, upstream: str = "") -> dict[str, Any]:
    """The request as a body; unset fields are not in it. `extra` has the last word.

    Of the messages' `items`, those that came from this `upstream` go back to it; no other ever leaves.
    """
    messages = with_thoughts(request.messages, upstream)
    if request.prefill is not None:
        messages.append({"role": "assistant", "content": request.prefill})
    return {"model": model, "messages": messages, **options_of(request, cap_name)}


def options_of(request: Request, cap_name: str) -> dict[str, Any]:
    """The body's fields but for the model and the messages."""
    plain = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        cap_name: request.max_tokens,
        "stop": list(request.stop) or None,
        "seed": request.seed,
        "n": request.n if request.n > 1 else None,
        "response_format": None if request.schema is None else response_format(request.schema),
        "grammar": None if request.grammar is None else GRAMMAR + request.grammar,
        "tools": list(request.tools) or None,
        "tool_choice": request.tool_choice,
        "logprobs": None if request.logprobs is None else True,
        "top_logprobs": request.logprobs or None,
        "reasoning_effort": request.effort,
    }
    return {**{key: value for key, value in plain.items() if value is not None}, **request.extra}


def without_system(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """For models without a system role: its text begins the first message of the user's."""
    told = [text_of(m.get("content")) for m in messages if m.get("role") in ("system", "developer")]
    others = [m for m in messages if m.get("role") not in ("system", "developer")]
    top = "\n\n".join(filter(None, told))
    first = next((at for at, m in enumerate(others) if m.get("role") == "user"), None)
    if first is None:
        return [{"role": "user", "content": top}, *others]
    content = others[first].get("content")
    if isinstance(content, list | tuple):
        content = [{"type": "text", "text": top}, *content]
    else:
        content = "\n\n".join(filter(None, (top, content)))
    others[first] = {**others[first], "content": content}
    return others


def as_json(body: Mapping[str, Any]) -> bytes:
    """The body as UTF-8 JSON. Lone surrogates (half an emoji, cut by some model) become "?"."""
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequestError(f"the request cannot be written as JSON: {error}; send plain JSON values only") from error
    return text.encode("utf-8", "replace")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def response_format(schema: Mapping[str, Any], name: str = "answer") -> dict[str, Any]:
    """A schema as the body asks for it."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema), "strict": is_strict(schema)}}


def is_strict(schema: object) -> bool:
    """True if the schema keeps the rules of OpenAI's strict mode: every object closed, with all properties required."""
    if isinstance(schema, list | tuple):
        return all(is_strict(part) for part in schema)
    if not isinstance(schema, Mapping):
        return True
    if not schema.keys().isdisjoint(("allOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas")):
        return False
    properties = schema.get("properties") or {}
    kinds = schema.get("type")
    if properties or kinds == "object" or (isinstance(kinds, list | tuple) and "object" in kinds):
        required = schema.get("required") or ()
        if schema.get("additionalProperties") is not False or set(required) != set(properties):
            return False
    named = [schema.get(key) or {} for key in ("properties", "$defs", "definitions")]
    parts = [part for table in named for part in table.values()]
    return is_strict([*parts, *(schema.get(key) for key in ("anyOf", "items", "prefixItems"))])


class Reply:
    """Builds a completion out of stream chunks; a plain reply is a stream of one chunk.

    Raises `TransientLMError` for what is no chat completion at all: a proxy's page, a cut stream, wrong types.
    """

    def __init__(self, name: str, *, upstream: str = "", in_thought: bool = False) -> None:
        self.lone = False
        """A thought was closed that was never opened: the template opened it."""
        self.bare = False
        """An answer came to its own end without any thought: no template opened one."""
        self._upstream = upstream
        self._in_thought = in_thought
        self._name = name
        self._model = ""
        self._usage: Usage | None = None
        self._parts: dict[int, _Part] = {}

    def add(self, chunk: object) -> list[Delta]:
        """Take one chunk; returns the new text and reasoning."""
        if not isinstance(chunk, Mapping):
            raise self.garbled(f"a JSON object was expected, got {type(chunk).__name__}")
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            raise self.garbled("`choices` is not a list of objects")
        self._model = str(chunk.get("model") or self._model)
        self._usage = read_usage(chunk.get("usage")) or self._usage
        return [delta for place, choice in enumerate(choices) for delta in self._add(place, choice)]

    def _add(self, place: int, choice: Mapping[str, Any]) -> list[Delta]:
        at = choice.get("index", place)
        whole = "message" in choice
        said = choice.get("message" if whole else "delta") or {}
        if not isinstance(at, int) or not isinstance(said, Mapping):
            raise self.garbled("a choice without a message")
        part = self._parts.setdefault(at, _Part())
        try:
            new = part.add(said, choice, whole=whole)
        except (TypeError, ValueError, AttributeError) as error:
            raise self.garbled(f"a choice of another shape ({error})") from error
        deltas = [Delta(reasoning=reasoning, text=text, choice=at) for reasoning, text in new if reasoning or text]
        if tokens := (choice.get("logprobs") or {}).get("content"):
            deltas.append(Delta(choice=at, tokens=tuple(tokens)))
        return deltas

    def completion(self) -> Completion:
        """The whole reply."""
        if not self._parts:
            raise self.garbled("it holds no choices")
        if not all(part.ended for part in self._parts.values()):
            raise self.garbled("the stream broke off before its finish reason")
        choices = tuple(self._choice(part) for _, part in sorted(self._parts.items()))
        return Completion(choices=choices, model=self._model, usage=self._usage)

    def _choice(self, part: _Part) -> Choice:
        choice = part.choice(self._upstream)
        if choice.reasoning:
            return choice
        thought, text = split_lone(choice.text)
        self.lone |= text is not None
        self.bare |= text is None and choice.finish_reason == "stop" and bool(choice.text.strip())
        # Cut before its end, a thought that the template opened has no mark at all.
        if text is None and self._in_thought and choice.finish_reason == "length":
            thought, text = choice.text, ""
        return choice if text is None else replace(choice, reasoning=thought, text=text)

    def garbled(self, why: str) -> TransientLMError:
        """The error for an unreadable reply; it carries the usage, if that was read."""
        return TransientLMError(f"{self._name} sent an unreadable reply: {why}", sent=True, reported=self._usage)


class _Part:
    """One choice in the making."""

    def __init__(self) -> None:
        self.ended = False
        self._splitter = ThoughtSplitter()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._thoughts = Thoughts()
        self._calls: dict[int, dict[str, Any]] = {}
        self._logprobs: list[Mapping[str, Any]] | None = None
        self._finish: str | None = None

    def add(self, said: Mapping[str, Any], choice: Mapping[str, Any], *, whole: bool) -> list[tuple[str, str]]:
        content = said.get("content")
        thought = self._thoughts.add(said, whole=whole) or text_of(content, "thinking")
        new = [(thought, ""), self._splitter.feed(text_of(content) or text_of(said.get("refusal")))]
        for call in said.get("tool_calls") or ():
            self._add_call(call)
        tokens = (choice.get("logprobs") or {}).get("content")
        if tokens is not None:
            self._logprobs = [*(self._logprobs or ()), *tokens]
        finish = choice.get("finish_reason")
        if finish or whole:
            self.ended = True
            self._finish = str(finish) if finish else None
            new.append(self._splitter.flush())
        self._reasoning += [reasoning for reasoning, _ in new]
        self._text += [text for _, text in new]
        return new

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        starts = piece.get("id") or function.get("name")
        at = piece.get("index")
        if at is None:  # some servers send whole calls without an index
            at = len(self._calls) if starts else len(self._calls) - 1
        known = self._calls.get(at)
        if known is None:
            self._calls[at] = {**{k: v for k, v in piece.items() if k != "index"}, "function": dict(function)}
        else:
            so_far = known["function"].get("arguments") or ""
            known["function"]["arguments"] = so_far + (function.get("arguments") or "")

    def choice(self, upstream: str) -> Choice:
        return Choice(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self._calls.values()),
            finish_reason=self._finish,
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            items=self._thoughts.items(upstream, "".join(self._reasoning)) if upstream else (),
        )


def read_usage(raw: object) -> Usage | None:
    """The reported tokens, in the words of chat completions, of OpenAI's Responses or Anthropic's Messages, or of LangChain;
    None if they are missing or make no sense.
    """
    if not isinstance(raw, Mapping):
        return None
    chat = "prompt_tokens" in raw
    asked, replied = ("prompt", "completion") if chat else ("input", "output")
    given, written = _tokens(raw, f"{asked}_tokens"), _tokens(raw, f"{replied}_tokens")
    total = _tokens(raw, "total_tokens") or 0
    if chat and total and "completion_tokens" not in raw:
        written = 0  # embeddings do not say so
    if given is None or written is None:
        return None
    # Anthropic counts cached tokens beside the input, the others within it
    read, made = (0 if chat else _tokens(raw, f"cache_{kind}_input_tokens") or 0 for kind in ("read", "creation"))
    given += read + made
    reasoned = _detail(raw, replied, "reasoning_tokens", "reasoning") or _tokens(raw, "reasoning_tokens") or 0
    # Some upstreams leave reasoning out of completion_tokens, but never out of the total; or it shows by itself.
    output = max(written, total - given)
    if reasoned > output:
        output += reasoned
    cached = _detail(raw, asked, "cached_tokens", "cache_read") or _tokens(raw, "prompt_cache_hit_tokens") or read
    return Usage(input_tokens=given, output_tokens=output, cached_tokens=min(cached, given), reasoning_tokens=reasoned)


def _detail(raw: Mapping[str, Any], word: str, *names: str) -> int | None:
    told = raw.get(f"{word}_tokens_details") or raw.get(f"{word}_token_details")
    return next(filter(None, (_tokens(told, name) for name in names)), None)


def _tokens(raw: object, key: str) -> int | None:
    value = raw.get(key) if isinstance(raw, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
