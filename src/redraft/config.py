"""Settings: what is used when a call does not say. `configure` for the process, `context` for a block of code.

Resolution of the model: argument, `context`/`configure`, `REDRAFT_MODEL`, `redraft.toml` or `[tool.redraft]`,
`OPENAI_BASE_URL`/`OPENAI_API_KEY`, else the embedded model with one notice on stderr. Keys come from the environment
only; a file may name the variable (`api_key_env`), never hold the key.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from redraft import registry
from redraft.budget import Budget
from redraft.errors import ConfigError
from redraft.protocols import LM, Store
from redraft.types import Event

EMBEDDED = "local/smollm2-135m"
DEFAULT_REMOTE = "gpt-4.1-mini"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run uses when it is not told otherwise."""

    model: LM | str | None = None
    base_url: str | None = None
    budget: Budget = field(default_factory=Budget)
    """For each run that gives no budget of its own."""
    store: Store | None = None
    """None keeps the journal in memory."""
    seed: int | None = None
    """Seed of each run; None draws one and records it."""
    tries: int = 4
    """How often one call is tried in all when the upstream fails transiently."""
    listeners: tuple[Callable[[Event], None], ...] = ()
    strict: bool = False
    """Raise instead of buying anew when a replay diverges from its record."""


_process = Settings()
_local: ContextVar[Mapping[str, Any] | None] = ContextVar("redraft_settings", default=None)
_lock = threading.Lock()
_lms: dict[tuple[str, str | None], LM] = {}
_told: set[str] = set()


def configure(**changes: Any) -> None:
    """Set defaults for the whole process, e.g. `configure(model="openai/gpt-4.1-mini", budget=Budget(calls=20))`."""
    global _process  # noqa: PLW0603 - process-wide by meaning
    with _lock:
        _process = _changed(_process, changes)


@contextmanager
def context(**changes: Any) -> Iterator[Settings]:
    """Set defaults for a block of code; neither other threads nor other tasks see them."""
    _changed(_process, changes)
    token = _local.set({**(_local.get() or {}), **changes})
    try:
        yield settings()
    finally:
        _local.reset(token)


def settings() -> Settings:
    """The settings in force here."""
    local = _local.get()
    return replace(_process, **local) if local else _process


def _changed(base: Settings, changes: Mapping[str, Any]) -> Settings:
    known = Settings.__dataclass_fields__
    if unknown := [name for name in changes if name not in known]:
        raise ConfigError(f"no setting named {unknown[0]!r}; the settings are: {', '.join(known)}")
    return replace(base, **changes)


def resolve_lm(model: LM | str | None = None, base_url: str | None = None) -> LM:
    """The LM for an argument, or the configured one. The same name gives the same object."""
    if model is None and base_url is None:
        here = settings()
        model, base_url = here.model, here.base_url
    if model is not None and not isinstance(model, str):
        return model
    if model is None or base_url is None:
        model, base_url = _from_surroundings(model, base_url)
    key = (model, base_url)
    if key not in _lms:
        _lms[key] = _make(model, base_url)
    return _lms[key]


def _make(model: str, base_url: str | None) -> LM:
    if not model.strip():
        raise ConfigError("the model's name is empty; name one (-m NAME, model=...) or leave it out")
    provider, name = registry.split_model(model)
    if provider is None:
        if base_url is None and not os.environ.get("OPENAI_API_KEY"):
            raise ConfigError(
                f"unknown model {model!r}: it names no known provider "
                f"({', '.join(p + '/...' for p in registry.names('models'))}) and there is no endpoint to ask for it. "
                "Give its server (--base-url URL, OPENAI_BASE_URL) or write provider/model."
            )
        provider = "openai"
    made: LM = registry.find("models", provider)(name, base_url=base_url)
    return made


def _from_surroundings(model: str | None, base_url: str | None) -> tuple[str, str | None]:
    """Fill in what was not said: environment, then file, then an OpenAI endpoint, then the embedded model."""
    if model is None and base_url is None:
        file = project_file()
        base_url = file.get("base_url")
        model = os.environ.get("REDRAFT_MODEL") or file.get("model")
    local = model is not None and registry.split_model(model)[0] not in (None, "openai")
    if base_url is None and not local:
        base_url = os.environ.get("OPENAI_BASE_URL")
    if model is None and (base_url or os.environ.get("OPENAI_API_KEY")):
        model = DEFAULT_REMOTE
    if model is None:
        model = EMBEDDED
        say_once(
            f"redraft: no model configured, using the embedded {EMBEDDED}: small, for trying things out. "
            "Name one with -m, REDRAFT_MODEL or redraft.configure(model=...)."
        )
    return model, base_url


def project_file() -> dict[str, Any]:
    """`redraft.toml`, or `[tool.redraft]` of `pyproject.toml`, from here upwards; empty without one."""
    import tomllib

    for folder in (Path.cwd(), *Path.cwd().parents):
        for name in ("redraft.toml", "pyproject.toml"):
            path = folder / name
            if not path.is_file():
                continue
            try:
                content = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
            if name == "redraft.toml":
                return _checked(path, content)
            if "redraft" in content.get("tool", {}):
                return _checked(path, content["tool"]["redraft"])
    return {}


def _checked(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    if "api_key" in content:
        raise ConfigError(
            f"{path} holds an api_key; keys come from the environment only: remove it, set OPENAI_API_KEY, "
            'or name another variable with api_key_env = "NAME"'
        )
    for name in ("model", "base_url", "api_key_env"):
        if name in content and not isinstance(content[name], str):
            raise ConfigError(f"{path}: {name} must be a text, got {content[name]!r}")
    return content


def say_once(line: str) -> None:
    """One notice on stderr, once a process."""
    if line not in _told:
        _told.add(line)
        sys.stderr.write(line + "\n")
