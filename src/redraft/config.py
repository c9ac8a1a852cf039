"""Settings: what is used when a call does not say. `configure` for the process, `context` for a block of code.

Resolution of the model: argument, `context`/`configure`, `REDRAFT_MODEL`, `redraft.toml` or `[tool.redraft]`,
`OPENAI_BASE_URL`/`OPENAI_API_KEY`, another provider's key where `[providers]` is installed, else the embedded model with
one notice on stderr. The notice names the model servers that run on this machine (`REDRAFT_DISCOVER=0` looks for none);
they are not used unasked. Keys come from the environment only; a file may name the variable (`api_key_env`), never hold
the key.

Where runs are kept: argument, `context`/`configure`, `REDRAFT_STORE`, the file's `store` (seen from the file), else in
memory.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from redraft import registry
from redraft.budget import Budget
from redraft.errors import ConfigError, StoreError
from redraft.protocols import LM, Store
from redraft.types import Event

if TYPE_CHECKING:
    from pathlib import Path

EMBEDDED = "local/smollm2-135m"
DEFAULT_REMOTE = "gpt-4.1-mini"
FILE_SETTINGS = ("model", "base_url", "api_key_env", "store")
SERVER_TABLES = ("presets", "upstreams", "server", "shadow")
"""Tables of the same file that `redraft.server` reads."""
TABLES = (*SERVER_TABLES, "calibrated")
"""All tables; `redraft calibrate` writes the last one."""
DEFAULT_STORE = ".redraft/runs.db"
"""Where those keep runs who keep them on disk unasked, seen from where they work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run uses when it is not told otherwise."""

    model: LM | str | None = None
    base_url: str | None = None
    budget: Budget = field(default_factory=Budget)
    """For each run that gives no budget of its own."""
    store: Store | str | os.PathLike[str] | None = ""
    """A path is opened once a process. None keeps the journal in memory; "" is what `REDRAFT_STORE` or the file says."""
    seed: int | None = None
    """Seed of each run; None draws one and records it."""
    tries: int = 4
    """How often one call is tried in all when the upstream fails transiently."""
    listeners: tuple[Callable[[Event], None], ...] = ()
    strict: bool = False
    """Raise instead of buying anew when a replay diverges from its record."""
    cache: Any = None
    """Where replies are kept for other runs: a path, or a `SqliteCache`. None keeps none."""
    lint: bool = True
    """Warn, once a process, of set-ups that waste calls."""


_process = Settings()
_local: ContextVar[Mapping[str, Any] | None] = ContextVar("redraft_settings", default=None)
_lock = threading.Lock()
_lms: dict[tuple[str | None, ...], LM] = {}
_resolved: dict[tuple[str | None, ...], LM] = {}
_stores: dict[str, Store] = {}
_stores_said: dict[tuple[str, str | None], str | None] = {}
_VARIABLES = ["REDRAFT_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "REDRAFT_LOCAL_MODEL"]
"""What the resolution depends on; those of other providers join once they have been asked for."""
_ALSO = {"local": ["REDRAFT_LOCAL_MODEL", "REDRAFT_CACHE"], "ollama": ["OLLAMA_HOST"]}
"""What the models of some providers depend on besides a key."""
_OTHERS = "redraft.lm.native.table"
_told: set[str] = set()
NAME_ONE = "Name one with -m, REDRAFT_MODEL or redraft.configure(model=...)."


def configure(**changes: Any) -> None:
    """Set defaults for the whole process, e.g. `configure(model="openai/gpt-4.1-mini", budget=Budget(calls=20))`."""
    global _process  # noqa: PLW0603 - process-wide by meaning
    with _lock:
        _process = _changed(_process, _placed(changes))
        _resolved.clear()  # files are read once in a folder, and again after this
        _stores_said.clear()


@contextmanager
def context(**changes: Any) -> Iterator[Settings]:
    """Set defaults for a block of code; neither other threads nor other tasks see them."""
    changes = _placed(changes)
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
        from difflib import get_close_matches

        name = "model" if unknown[0] == "lm" else next(iter(get_close_matches(unknown[0], known, 1)), "")
        hint = f" Did you mean {name!r}?" if name else ""
        raise ConfigError(f"no setting named {unknown[0]!r}.{hint} The settings are: {', '.join(known)}")
    check_fits(changes)
    return replace(base, **changes)


def _placed(changes: dict[str, Any]) -> dict[str, Any]:
    """A store's path means what it means here, wherever the process goes."""
    store = changes.get("store")
    return {**changes, "store": _absolute(store)} if store and isinstance(store, str | os.PathLike) else changes


def check_fits(values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a value that is no such setting."""
    for name, value in values.items():
        fits, wanted = _FITTING.get(name, (None, ""))
        if fits is not None and not fits(value):
            raise ConfigError(f"{name}={value!r}: give {wanted}")


_FITTING: dict[str, tuple[Callable[[Any], bool], str]] = {
    "model": (lambda v: v is None or isinstance(v, str | LM), "a model's name or an LM"),
    "base_url": (lambda v: v is None or isinstance(v, str), "a URL"),
    "budget": (lambda v: isinstance(v, Budget), "a Budget, e.g. Budget(calls=10)"),
    "store": (lambda v: v is None or isinstance(v, str | os.PathLike | Store), "a path, or a SqliteStore(path)"),
    "seed": (lambda v: v is None or isinstance(v, int), "a whole number"),
    "listeners": (lambda v: isinstance(v, list | tuple) and all(map(callable, v)), "a list of functions of an Event"),
    "cache": (
        lambda v: v is None or isinstance(v, str | os.PathLike) or all(hasattr(v, n) for n in ("get", "put", "forget")),
        "a path, or a SqliteCache(path)",
    ),
    "tries": (lambda v: isinstance(v, int) and v >= 1, "how often a call is tried in all, 1 or more"),
}


def store_in_force(store: Store | str | os.PathLike[str] | None = None) -> Store | None:
    """The given store, or the configured one; None: in memory. A path is opened once a process, and closed when it ends."""
    wanted = settings().store if store is None else store
    if isinstance(wanted, str) and not wanted:
        wanted = store_said()
    if wanted is None or not isinstance(wanted, str | os.PathLike):
        return wanted
    path = _absolute(wanted)
    with _lock:
        if path not in _stores:
            if not _stores:
                atexit.register(close_stores)
            _stores[path] = registry.load("redraft.store.sqlite:SqliteStore")(path)
        return _stores[path]


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.realpath(os.path.expanduser(path))  # noqa: PTH111 - asked for every run, where a Path costs more


def store_said() -> str | None:
    """The path that `REDRAFT_STORE` or the project's file says."""
    said = (_folder(), os.environ.get("REDRAFT_STORE"))
    if said not in _stores_said:
        _stores_said[said] = said[1] or project_file().get("store")
    return _stores_said[said]


def close_stores() -> None:
    """Close the stores that were opened by their path; what a store cannot write any more, it has logged and kept."""
    with _lock:
        stores = list(_stores.values())
        _stores.clear()
    for store in stores:
        with contextlib.suppress(StoreError):
            store.close()


def resolve_lm(model: LM | str | None = None, base_url: str | None = None) -> LM:
    """The LM for an argument, or the configured one. The same name gives the same object, until a variable that it was made
    with changes: a key that was mended is used at once.
    """
    here = settings()
    wanted = here.model if model is None else model
    if wanted is not None and not isinstance(wanted, str):
        return wanted
    # Asked on every call of a module that names no LM object: worked out once for the same surroundings.
    said = (wanted, base_url or here.base_url, _folder(), *map(os.environ.get, _VARIABLES))
    if said not in _resolved:
        name, url, key = _filled_in(wanted, base_url or here.base_url)
        which = (name, url, key, *_surroundings(name, url))
        _resolved[said] = _lms.get(which) or _lms.setdefault(which, _make(name, url, key))
    return _resolved[said]


def _filled_in(model: str | None, base_url: str | None) -> tuple[str, str | None, str | None]:
    """What was not said, in order: environment, file, an OpenAI endpoint, another provider, the embedded model.

    Last, the key, where it is not the provider's own affair.
    """
    elsewhere = model is not None and _is_elsewhere(model, base_url)
    told = elsewhere or (model is not None and base_url is not None)
    file = {} if told else project_file()
    model = model if model is not None else os.environ.get("REDRAFT_MODEL") or file.get("model")
    if model is not None:
        model = _whole_name(model, base_url)
    given = base_url or (file.get("base_url") if model == file.get("model") else None)
    if model is not None and _is_elsewhere(model, given):
        return model, base_url, None
    base_url = base_url or file.get("base_url") or os.environ.get("OPENAI_BASE_URL") or None
    variable = file.get("api_key_env", "OPENAI_API_KEY")
    _depends_on([variable])
    key = os.environ.get(variable) or None
    return model or _unnamed(base_url, key), base_url, key


def _unnamed(base_url: str | None, key: str | None) -> str:
    """The model of somebody who named none, and a notice of which it is."""
    if base_url or key:
        say_once(f"redraft: no model configured, using {DEFAULT_REMOTE} of {base_url or 'OpenAI'}. {NAME_ONE}")
        return DEFAULT_REMOTE
    if (other := _of_other_key()) is not None:
        say_once(f"redraft: no model configured, using {other}, whose key is set. {NAME_ONE}")
        return other
    if os.environ.get("REDRAFT_LOCAL_MODEL"):
        return EMBEDDED
    servers = registry.load("redraft.lm.servers:notice")()
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError(f"no model configured{_idle_keys()}: {NAME_ONE} Or pip install 'redraft[local]'.{servers}")
    what = f"using the embedded {EMBEDDED}: small, for trying things out"
    say_once(f"redraft: no model configured{_idle_keys()}, {what}. {NAME_ONE}{servers}")
    return EMBEDDED


def _idle_keys() -> str:
    """Keys that are set and of no use, as a part of a sentence."""
    idle = [key for door in registry.load(f"{_OTHERS}:DOORS").values() for key in door.keys if os.environ.get(key)]
    return f" ({idle[0]} is set, but needs pip install 'redraft[providers]')" if idle else ""


def _whole_name(model: str, base_url: str | None) -> str:
    """The name without space around it. Half of one is refused: the prompt would go to whoever else is configured."""
    name = model.strip()
    if not name:
        raise ConfigError("the model's name is empty; name one (-m NAME, model=...) or leave it out")
    provider = name.rstrip("/:")
    if provider in registry.names("models") and (name != provider or base_url is None):
        raise ConfigError(f"{name!r} names no model, only who has it; write {provider}/NAME")
    return name


def _is_elsewhere(model: str, base_url: str | None) -> bool:
    """True if another provider than OpenAI is named."""
    return registry.split_model(model, base_url)[0] not in (None, "openai")


def _of_other_key() -> str | None:
    """The model of a provider whose key is set, if its libraries are installed."""
    _depends_on(sorted({key for door in registry.load(f"{_OTHERS}:DOORS").values() for key in door.keys}))
    model: str | None = registry.load(f"{_OTHERS}:configured")()
    return model


def _surroundings(model: str, base_url: str | None) -> tuple[str | None, ...]:
    """What else than its name and address the model of another provider than OpenAI depends on."""
    provider, name = registry.split_model(model, base_url)
    if provider in (None, "openai"):
        return ()
    door = registry.load(f"{_OTHERS}:DOORS").get(provider)
    keys = door.keys if door else [f"{provider.upper().replace('-', '_')}_API_KEY"]
    variables = [*keys, *_ALSO.get(provider, ())]
    _depends_on(variables)
    here = _folder() if provider == "local" and name.endswith(".gguf") else None  # the file of a path from here
    return (here, *map(os.environ.get, variables))


def _depends_on(variables: Sequence[str]) -> None:
    _VARIABLES.extend(name for name in variables if name not in _VARIABLES)


def _make(model: str, base_url: str | None, key: str | None) -> LM:
    provider, name = registry.split_model(model, base_url)
    if provider is None:
        if base_url is None and key is None:
            raise ConfigError(
                f"unknown model {model!r}: it names no known provider{_close(model)} and there is no endpoint to ask for it. "
                "Give its server (--base-url URL, OPENAI_BASE_URL) or write provider/model; the providers are "
                f"{', '.join(registry.names('models'))}."
            )
        provider = "openai"
    extra = {"api_key": key} if provider == "openai" and key is not None else {}
    made: LM = registry.find("models", provider)(name, base_url=base_url, **extra)
    return made


def _close(model: str) -> str:
    """The provider that may be meant, as a part of a sentence."""
    from difflib import get_close_matches

    provider, slash, name = model.partition("/")
    close = get_close_matches(provider.lower(), registry.names("models"), 1) if slash else []
    return f" (did you mean {close[0]}/{name}?)" if close else ""


def project_file() -> dict[str, Any]:
    """`redraft.toml`, or `[tool.redraft]` of `pyproject.toml`, from here upwards; empty without one."""
    found = _project()
    return found[1] if found else {}


def project_path() -> Path | None:
    """Where that is."""
    found = _project()
    return found[0] if found else None


def _project() -> tuple[Path, dict[str, Any]] | None:
    import tomllib
    from pathlib import Path

    here = _folder()
    for folder in (Path(here), *Path(here).parents) if here else ():
        for name in ("redraft.toml", "pyproject.toml"):
            path = folder / name
            if not path.is_file():
                continue
            try:
                content = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
            if name == "redraft.toml":
                return path, _checked(path, content)
            tools = content.get("tool")
            if isinstance(tools, dict) and "redraft" in tools:
                return path, _checked(path, tools["redraft"])
    return None


def _folder() -> str:
    """Where the process works; empty if that folder is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - asked on every call, and a Path costs five times as much
    except FileNotFoundError:
        return ""


def _checked(path: Path, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: [tool.redraft] must be a table, got {content!r}")
    if "api_key" in content:
        raise ConfigError(
            f"{path} holds an api_key; keys come from the environment only: remove it, set OPENAI_API_KEY, "
            'or name another variable with api_key_env = "NAME"'
        )
    known = (*FILE_SETTINGS, *TABLES)
    if unknown := sorted(set(content) - set(known)):
        raise ConfigError(f"{path}: no setting named {unknown[0]!r}; a file may set {', '.join(known)}")
    for name, value in content.items():
        if name in TABLES:
            continue
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{path}: {name} must be a text, got {value!r}")
    if "store" in content:
        content["store"] = _absolute(path.parent / path.__class__(content["store"]).expanduser())
    return content


def say_once(line: str) -> None:
    """One notice on stderr, once a process."""
    if line not in _told:
        _told.add(line)
        with contextlib.suppress(
            OSError, ValueError, AttributeError
        ):  # closed, full, or none at all: no reason to fail
            sys.stderr.write(line + "\n")
