"""Names to things, lazily: models, strategies and checks, with entry points for plug-ins.

A plug-in package declares `[project.entry-points."redraft.models"] acme = "acme_redraft:lm"`; a program may also
call `register`. Nothing is imported before its name is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal

from redraft.errors import UnknownNameError

Kind = Literal["models", "strategies", "checks", "wrappers"]

_CHECKS = (
    *("bullets", "chars", "contains", "ends_with", "forbids", "json_schema", "json_valid", "keyword_counts"),
    *("language", "lowercase", "matches", "no_commas", "no_repetition", "number", "one_of", "paragraphs"),
    *("python_tests", "rubric", "sentences", "starts_with", "tool_call", "uppercase", "words"),
)

_NATIVE = (
    *("anthropic", "bedrock", "cerebras", "cohere", "deepseek", "fireworks", "google", "google-cloud", "groq"),
    *("mistral", "moonshotai", "openai-responses", "openrouter", "together", "xai", "zai"),
)
"""Providers by their own APIs (`redraft.lm.native.table`); they need the extra `providers`."""

_MAKERS = frozenset(_NATIVE) - {"bedrock", "google-cloud", "openai-responses"}
"""Those whose names also stand before the slash in other servers' names of models."""

_KNOWN: dict[Kind, dict[str, Any]] = {
    # A provider's value takes (model, *, base_url=None) and returns an LM.
    "models": {
        "local": "redraft.lm.local:lm",
        "openai": "redraft.lm.openai:lm",
        **{name: f"redraft.lm.native:{name.replace('-', '_')}" for name in _NATIVE},
        "ollama": "redraft.lm.servers:ollama",
        "llama-server": "redraft.lm.servers:llama_server",
        "lmstudio": "redraft.lm.servers:lmstudio",
        "vllm": "redraft.lm.servers:vllm",
    },
    "strategies": {
        "predict": "redraft.strategies:Refine",
        "refine": "redraft.strategies:Refine",
        "best-of-n": "redraft.strategies:BestOfN",
        "self-refine": "redraft.strategies:SelfRefine",
        "critique": "redraft.evaluate.critiqued:Critiqued",
        "proactive": "redraft.proactive:ProactiveDecoder",
        "reflect": "redraft.strategies:Reflect",
    },
    "checks": {name: f"redraft.checks:{name}" for name in _CHECKS},
    # A wrapper makes a module of what another framework's package defines; it is found by that package's name.
    "wrappers": {
        "dspy": "redraft.integrations.dspy:as_module",
        "instructor": "redraft.integrations.instructor:wrap",
        "langchain_core": "redraft.integrations.langchain:wrap",
        "pydantic_ai": "redraft.integrations.pydantic_ai:wrap",
    },
}


_ONE = {"models": "model", "strategies": "strategy", "checks": "check", "wrappers": "wrapper"}


def register(kind: Kind, name: str, target: Any) -> None:
    """Make a thing known by name. `target` is the thing itself or "package.module:attribute"."""
    _KNOWN[kind][name] = target


def find(kind: Kind, name: str) -> Any:
    """The thing of that name. Raises `UnknownNameError`, which lists the known names."""
    if kind not in _KNOWN:
        raise UnknownNameError(f"nothing is registered as {kind!r}; the kinds are: {', '.join(_KNOWN)}")
    target = _KNOWN[kind].get(name) or _from_entry_points(kind, name)
    if target is None:
        import difflib

        known = names(kind)
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UnknownNameError(f"no {_ONE[kind]} named {name!r}.{hint} Known {kind}: {', '.join(known)}.")
    if isinstance(target, str):
        target = _KNOWN[kind][name] = load(target)
    return target


def wrapped(thing: Any) -> Any:
    """What another framework defines (told by the package of its class) as a module; everything else as it is."""
    for base in type(thing).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _KNOWN["wrappers"]:
            return find("wrappers", package)(thing)
    return thing


def load(target: str) -> Any:
    """What "package.module:attribute" names, imported now: how a lower floor reaches something of a higher one."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def names(kind: Kind) -> list[str]:
    """All known names of a kind, sorted."""
    return sorted({*_KNOWN[kind], *(e.name for e in _entry_points(kind))})


def split_model(name: str, base_url: str | None = None) -> tuple[str | None, str]:
    """`provider/model` or `provider:model`, split only on a known provider: `Qwen/Qwen3-8B` stays whole.

    So does `google/gemma-3-4b` where a server is given: gateways and model hubs use such names. `google:NAME` asks for
    the provider's own API at that URL.
    """
    for mark in ("/", ":"):
        provider, found, model = name.partition(mark)
        if found and model and provider in names("models"):
            if mark == "/" and base_url is not None and provider in _MAKERS:
                return None, name
            return provider, model
    return None, name


def _from_entry_points(kind: Kind, name: str) -> Any:
    for entry in _entry_points(kind):
        if entry.name == name:
            return entry.load()
    return None


def _entry_points(kind: Kind) -> Any:
    # importlib.metadata costs 10 ms to import: only when a name is looked up.
    from importlib.metadata import entry_points

    return entry_points(group=f"redraft.{kind}")
