"""Names to things, lazily: models, strategies and checks, with entry points for plug-ins.

A plug-in package declares `[project.entry-points."redraft.models"] acme = "acme_redraft:lm"`; a program may also
call `register`. Nothing is imported before its name is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal

from redraft.errors import UnknownNameError

Kind = Literal["models", "strategies", "checks"]

_CHECKS = (
    *("bullets", "chars", "contains", "ends_with", "forbids", "json_schema", "json_valid", "keyword_counts"),
    *("language", "lowercase", "matches", "no_commas", "no_repetition", "number", "one_of", "paragraphs"),
    *("python_tests", "rubric", "sentences", "starts_with", "tool_call", "uppercase", "words"),
)

_KNOWN: dict[Kind, dict[str, Any]] = {
    # A provider's value takes (model, *, base_url=None) and returns an LM.
    "models": {
        "local": "redraft.lm.local:lm",
        "openai": "redraft.lm.openai:lm",
    },
    "strategies": {
        "predict": "redraft.strategies:Refine",
        "refine": "redraft.strategies:Refine",
        "best-of-n": "redraft.strategies:BestOfN",
        "self-refine": "redraft.strategies:SelfRefine",
        "reflect": "redraft.strategies:Reflect",
    },
    "checks": {name: f"redraft.checks:{name}" for name in _CHECKS},
}


_ONE = {"models": "model", "strategies": "strategy", "checks": "check"}


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
        module, _, attribute = target.partition(":")
        target = getattr(importlib.import_module(module), attribute)
        _KNOWN[kind][name] = target
    return target


def names(kind: Kind) -> list[str]:
    """All known names of a kind, sorted."""
    return sorted({*_KNOWN[kind], *(e.name for e in _entry_points(kind))})


def split_model(name: str) -> tuple[str | None, str]:
    """`provider/model` or `provider:model`, split only on a known provider: `Qwen/Qwen3-8B` stays whole."""
    for mark in ("/", ":"):
        provider, found, model = name.partition(mark)
        if found and model and provider in names("models"):
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
