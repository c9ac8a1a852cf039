"""The interface as an OpenAPI 3.1 document. Bodies are the APIs' own; what is written out is what this server reads of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from redraft import __version__
from redraft.server.asked import INCLUDES


@cache
def document() -> dict[str, Any]:
    """The document."""
    paths = {
        "/v1/chat/completions": _post("Chat completions", _chat(), ["model", "messages"]),
        "/v1/responses": _post("Responses", _response(), ["model", "input"]),
        "/v1/messages": _post("Messages", _anthropic(), ["model", "messages", "max_tokens"]),
        **{path: {"get": {"summary": told, "responses": _RESPONSES}} for path, told in _SHOWN.items()},
    }
    keys = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "redraft serve", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": keys, "schemas": {"Error": {"type": "object", "required": ["error"]}}},
        "security": [{"bearer": []}, {"x-api-key": []}],
    }


def _shared() -> dict[str, Any]:
    return {
        "model": {"type": "string"},
        "stream": {"type": "boolean"},
        "temperature": {"type": "number"},
        "top_p": {"type": "number"},
        "tools": {"type": "array", "items": {"type": "object"}},
        "redraft": _OPTIONS,
    }


def _chat() -> dict[str, Any]:
    return {
        **_shared(),
        "messages": _MESSAGES,
        "n": _COUNT,
        "seed": {"type": "integer"},
        "stop": {"type": ["string", "array"], "items": {"type": "string"}},
        "max_tokens": _COUNT,
        "logprobs": {"type": "boolean"},
        "top_logprobs": {"type": "integer", "minimum": 0},
        "response_format": {"type": "object"},
    }


def _anthropic() -> dict[str, Any]:
    return {
        **_shared(),
        "messages": _MESSAGES,
        "system": {"type": ["string", "array"]},
        "tool_choice": {"type": "object"},
        "max_tokens": _COUNT,
        "stop_sequences": {"type": "array"},
    }


def _response() -> dict[str, Any]:
    return {
        **_shared(),
        "input": {"type": ["string", "array"]},
        "instructions": {"type": "string"},
        "text": {"type": "object"},
        "max_output_tokens": _COUNT,
    }


def _post(summary: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"post": {"summary": summary, "requestBody": body, "responses": _RESPONSES}}


_COUNT = {"type": "integer", "minimum": 1}
_MESSAGE = {"type": "object", "required": ["role"], "properties": {"role": {"type": "string"}, "content": {}}}
_MESSAGES = {"type": "array", "minItems": 1, "items": _MESSAGE}
_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
_RESPONSES = {
    "200": {"description": "The answer"},
    "4XX": {"description": "Refused, in the API's own form", "content": _ERROR},
    "5XX": {"description": "Failed, in the API's own form", "content": _ERROR},
}
_SHOWN = {
    "/v1/models": "Virtual and real models",
    "/health": "It runs",
    "/health/ready": "Its upstreams answer",
    "/metrics": "For Prometheus",
    "/redraft/shadow": "How often answers would have changed",
}
_OPTIONS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "rounds": {"type": "integer", "minimum": 0, "maximum": 100},
        "attempts": {"type": "integer", "minimum": 1, "maximum": 100},
        "threshold": {"type": "number"},
        "budget": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {"type": "number", "exclusiveMinimum": 0} for name in ("calls", "tokens", "cost", "seconds")
            },
        },
        "include": {"type": "array", "items": {"enum": list(INCLUDES)}},
        "progress": {"type": "boolean"},
    },
}
