"""The native providers: who they are, what they need, what is tried first. Light: imports none of their libraries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Literal

Wire = Literal["anthropic", "google", "vertex", "bedrock", "groq", "mistral", "cohere", "xai", "openai"]
"""Whose client library carries the requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One provider, reached by its own API."""

    name: str
    """As it stands before the slash of a model's name."""
    wire: Wire
    keys: tuple[str, ...]
    """Environment variables that may hold the key; the first one that is set counts."""
    module: str
    """What must be importable besides pydantic-ai."""
    package: str
    """Its name for pip."""
    model: str | None = None
    """The model to use when only the key is set."""
    kind: str = ""
    """pydantic-ai's name of it, if another."""
    prices: str = ""
    """genai-prices' name of it, if another."""
    host: str = ""
    """Where requests go by default, for messages."""
    keyless: bool = False
    """Credentials may come from elsewhere: a profile, a metadata server."""

    @property
    def pydantic_name(self) -> str:
        """pydantic-ai's name of this provider."""
        return self.kind or self.name

    @property
    def price_id(self) -> str:
        """genai-prices' name of this provider."""
        return self.prices or self.name

    def key(self) -> str | None:
        """The key out of the environment."""
        return next((value for name in self.keys if (value := os.environ.get(name))), None)


def _openai_like(name: str, key: str, model: str | None = None, prices: str = "") -> Door:
    return Door(name=name, wire="openai", keys=(key,), module="openai", package="openai", model=model, prices=prices)


_ALL = (
    Door(
        name="anthropic",
        wire="anthropic",
        keys=("ANTHROPIC_API_KEY",),
        module="anthropic",
        package="anthropic",
        model="claude-haiku-4-5",
        host="https://api.anthropic.com",
    ),
    Door(
        name="google",
        wire="google",
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        module="google.genai",
        package="google-genai",
        model="gemini-3.5-flash-lite",
        host="https://generativelanguage.googleapis.com",
    ),
    Door(
        name="google-cloud",
        wire="vertex",
        keys=(),
        module="google.genai",
        package="google-genai",
        prices="google",
        host="https://aiplatform.googleapis.com",
        keyless=True,
    ),
    Door(
        name="bedrock",
        wire="bedrock",
        keys=("AWS_BEARER_TOKEN_BEDROCK",),
        module="boto3",
        package="boto3",
        prices="aws",
        host="the Bedrock endpoint of your AWS region",
        keyless=True,
    ),
    Door(
        name="groq",
        wire="groq",
        keys=("GROQ_API_KEY",),
        module="groq",
        package="groq",
        model="openai/gpt-oss-20b",
        host="https://api.groq.com",
    ),
    Door(
        name="mistral",
        wire="mistral",
        keys=("MISTRAL_API_KEY",),
        module="mistralai",
        package="mistralai",
        model="mistral-small-latest",
        host="https://api.mistral.ai",
    ),
    Door(
        name="cohere",
        wire="cohere",
        keys=("CO_API_KEY", "COHERE_API_KEY"),
        module="cohere",
        package="cohere",
        model="command-r7b-12-2024",
        host="https://api.cohere.com",
    ),
    Door(
        name="xai",
        wire="xai",
        keys=("XAI_API_KEY",),
        module="xai_sdk",
        package="xai-sdk",
        model="grok-4-1-fast-non-reasoning",
        prices="x-ai",
        host="https://api.x.ai",
    ),
    Door(
        name="openai-responses",
        wire="openai",
        keys=("OPENAI_API_KEY",),
        module="openai",
        package="openai",
        prices="openai",
        host="https://api.openai.com/v1",
    ),
    _openai_like("openrouter", "OPENROUTER_API_KEY"),
    _openai_like("deepseek", "DEEPSEEK_API_KEY", "deepseek-flash"),
    _openai_like("cerebras", "CEREBRAS_API_KEY", "gpt-oss-120b"),
    _openai_like("together", "TOGETHER_API_KEY"),
    _openai_like("fireworks", "FIREWORKS_API_KEY"),
    _openai_like("moonshotai", "MOONSHOTAI_API_KEY"),
    _openai_like("zai", "ZAI_API_KEY"),
)

DOORS: Mapping[str, Door] = MappingProxyType({door.name: door for door in _ALL})
"""Every native provider by name."""

INSTALL = "pip install 'redraft[providers]'"


def installed(module: str) -> bool:
    """True if the module can be imported, found without importing it (its parents excepted)."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def configured() -> str | None:
    """The model to use when nothing but a native provider's key is set: the first of `DOORS` whose libraries are there."""
    for door in DOORS.values():
        if door.model and door.key() and installed("pydantic_ai") and installed(door.module):
            return f"{door.name}/{door.model}"
    return None
