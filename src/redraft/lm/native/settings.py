"""A request's fields as pydantic-ai's settings, and what a model is known not to take.

pydantic-ai leaves out what a model does not support; here that is an error that names the field, so that Run drops it
once, remembers it and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redraft.errors import BadRequestError, UnsupportedError
from redraft.lm.native.table import Door
from redraft.lm.openai_wire import is_strict
from redraft.types import Capabilities, Request

_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
_NO_EFFORT = ("none", "off")
_LOGPROBS = {"openai": "openai", "google": "google", "vertex": "google", "xai": "xai"}
"""Whose logprobs can be asked for: the prefix of pydantic-ai's settings."""
_PREFILLS = re.compile(r"claude-(instant|2|3|(opus|sonnet|haiku)-4(-[015])?(-\d{8}|@|-v\d|$|-latest))")
"""Claude up to 4.5 continues a trailing assistant message; later models refuse one."""
_SMALLEST_BUDGET = 1024
"""Anthropic's least thinking budget."""
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 10_000, "high": 16_384, "xhigh": 32_768, "max": 32_768}
_BUDGETED = ("anthropic", "bedrock")
_MORE_FIELDS = "bedrock_additional_model_requests_fields"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one model: pydantic-ai's profile of it, and the settings that its class does not send."""

    door: Door
    name: str
    model: str
    profile: Mapping[str, Any]
    unsent: frozenset[str]

    def capabilities(self) -> Capabilities:
        """What the model can do, as far as its profile says."""
        return Capabilities(
            json_schema=bool(self.profile.get("supports_json_schema_output")),
            n=True,
            logprobs=self.door.wire in _LOGPROBS and not self._always_reasons,
            prefill=self.door.wire in _BUDGETED and bool(_PREFILLS.search(self.model)),
            seed="seed" not in self.unsent,
            temperature="temperature" not in self._unsampled(None),
            tools=bool(self.profile.get("supports_tools", True)),
            reasoning=self.thinks,
            stream=True,
        )

    @property
    def thinks(self) -> bool:
        """True if the model can reason before it answers."""
        return any(self.profile.get(key) for key in ("supports_thinking", "thinking_always_enabled"))

    @property
    def max_output(self) -> int | None:
        """The most tokens that the model writes in one reply, if its profile says."""
        return self.profile.get("anthropic_max_output_tokens")

    def refuse(self, request: Request) -> None:
        """Raise `UnsupportedError` for what the model is known to refuse beyond its capabilities."""
        for field in self._unsampled(request.effort):
            if getattr(request, field) is not None:
                raise self._unsupported(field, "the model chooses its own sampling while it reasons")
        if request.stop and "stop_sequences" in self.unsent:
            raise self._unsupported("stop", "its API has no stop sequences")
        if request.effort is not None and not self.thinks:
            raise self._unsupported("effort", "it does not reason")
        if request.prefill is not None and request.effort not in (None, *_NO_EFFORT):
            raise self._unsupported("prefill", "a model that thinks first continues nothing")
        both = request.schema is not None and request.tools
        if both and self.profile.get("google_supports_tool_combination") is False:
            raise self._unsupported("schema", "it takes no schema together with tools")

    @property
    def _always_reasons(self) -> bool:
        return bool(self._unsampled(None))

    def _unsampled(self, effort: str | None) -> tuple[str, ...]:
        """The sampling fields that the model takes no value for at this effort."""
        told = self.profile.get
        if told("anthropic_disallows_sampling_settings") or told("bedrock_disallows_sampling_settings"):
            return ("temperature", "top_p")
        if not told("openai_supports_reasoning"):
            return ()
        efforts = told("openai_reasoning_efforts")
        quiet = told("openai_supports_reasoning_effort_none") if efforts is None else "none" in efforts
        active = told("thinking_enabled_by_default") if effort is None else effort not in _NO_EFFORT
        return () if quiet and not active else ("temperature", "top_p", "logprobs")

    def _unsupported(self, field: str, why: str) -> UnsupportedError:
        return UnsupportedError(f"{self.name} does not take {field!r}: {why}; leave it out", parameter=field)

    def settings(self, request: Request) -> dict[str, Any]:
        """pydantic-ai's settings for the request."""
        found: dict[str, Any] = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": request.max_tokens,
            "stop_sequences": [*request.stop] or None,
            "seed": request.seed,
            "tool_choice": _tool_choice(request.tool_choice),
            "max_retries": None if "max_retries" in self.unsent else 0,
            **self._thinking(request),
        }
        if self.door.name == "openai-responses":
            found["openai_store"] = False  # what must come back travels in `items`
        if request.logprobs is not None:
            prefix = _LOGPROBS[self.door.wire]
            found |= {f"{prefix}_logprobs": True, f"{prefix}_top_logprobs": request.logprobs or None}
        own = self._extra(request.extra)
        if (fields := found.get(_MORE_FIELDS)) is not None:
            own[_MORE_FIELDS] = {**fields, **own.get(_MORE_FIELDS, {})}
        return {key: value for key, value in found.items() if value is not None} | own

    def _thinking(self, request: Request) -> dict[str, Any]:
        effort = request.effort
        if effort is None:
            return {}
        if effort in _NO_EFFORT:
            return {"thinking": False}
        if effort not in _EFFORTS:
            raise BadRequestError(f"there is no effort {effort!r}; the efforts are none, {', '.join(_EFFORTS)}")
        if not self._counts_budget or request.max_tokens is None:
            return {"thinking": effort}
        # the cap covers the thinking; a quarter of it is left for the answer
        budget = min(_BUDGETS[effort], request.max_tokens * 3 // 4)
        if budget < _SMALLEST_BUDGET:
            raise self._unsupported("effort", f"its least budget of {_SMALLEST_BUDGET} tokens needs max_tokens 1366")
        told = {"type": "enabled", "budget_tokens": budget}
        if self.door.wire == "anthropic":
            return {"anthropic_thinking": told}
        return {_MORE_FIELDS: {"thinking": told}}

    @property
    def _counts_budget(self) -> bool:
        """True for a Claude that takes a number of thinking tokens in place of an effort."""
        if self.door.wire == "anthropic":
            return not self.profile.get("anthropic_supports_adaptive_thinking")
        claude = self.profile.get("bedrock_thinking_variant") == "anthropic"
        return claude and not self.profile.get("bedrock_supports_adaptive_thinking")

    def _extra(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Names with the provider's prefix are pydantic-ai's settings (`google_safety_settings`), others body fields."""
        prefix = {"openai": "openai_", "vertex": "google_"}.get(self.door.wire, f"{self.door.wire}_")
        found = {key: value for key, value in extra.items() if key.startswith(prefix) or key == "top_k"}
        body = {key: value for key, value in extra.items() if key not in found}
        if not body:
            return found
        if self.door.wire == "bedrock":
            return {**found, _MORE_FIELDS: {**found.get(_MORE_FIELDS, {}), **body}}
        if "extra_body" in self.unsent:
            raise self._unsupported(
                "extra", f"its library sends no fields of your own ({', '.join(body)}); {prefix}... settings it takes"
            )
        return {**found, "extra_body": body}

    def parameters(self, request: Request) -> Any:
        """pydantic-ai's request parameters: tools, and the schema of the answer."""
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        tools = [_tool(tool) for tool in request.tools]
        if request.schema is None:
            return ModelRequestParameters(function_tools=tools)
        strict = None if self.door.wire in _BUDGETED else is_strict(request.schema)
        answer = OutputObjectDefinition(json_schema=_plain(request.schema), name="answer", strict=strict)
        return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=answer)


def _tool(tool: Mapping[str, Any]) -> Any:
    from pydantic_ai.tools import ToolDefinition

    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        raise BadRequestError(f"a tool must be of type function, got {tool.get('type')!r}")
    return ToolDefinition(
        name=str(function.get("name") or ""),
        description=function.get("description"),
        parameters_json_schema=_plain(function.get("parameters") or {"type": "object", "properties": {}}),
        strict=function.get("strict"),
    )


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, Mapping):
        name = (choice.get("function") or {}).get("name")
        if not name:
            raise BadRequestError(f"tool_choice {dict(choice)!r} names no function")
        return [name]
    return choice


def _plain(schema: Any) -> Any:
    """A copy of mappings and sequences as dicts and lists: the libraries change what they are given."""
    if isinstance(schema, Mapping):
        return {key: _plain(value) for key, value in schema.items()}
    return [_plain(item) for item in schema] if isinstance(schema, list | tuple) else schema
