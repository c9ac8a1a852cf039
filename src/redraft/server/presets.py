"""Presets: what `[presets.NAME]` of redraft.toml says, and the strategy that it makes for one request."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, partial
from typing import Any, cast

from redraft import registry
from redraft.budget import Budget
from redraft.checks import Check, from_file, json_schema, parse
from redraft.config import resolve_lm
from redraft.errors import ConfigError, RedraftError, UsageError
from redraft.evaluate.calibrated import MOST, PLAIN, Calibrated, calibrated, usable
from redraft.linear import linear
from redraft.lm.openai import OpenAILM
from redraft.protocols import LM
from redraft.server.asked import Asked, Options
from redraft.server.conversation import Conversation, ConversationReviser
from redraft.server.toolcalls import CallsFit, ToolRules, Turn, without_tools
from redraft.strategies import Refine
from redraft.strategies.base import Refining
from redraft.strategies.roles import Role, as_critic, resolved
from redraft.types import Completion, Request

PREFIX = "refine/"
_BY_CHECKS = ("refine", "best-of-n", "predict")
_CRITICISED = ("self-refine", "reflect")
_CHOSEN = ("writer", "editor", "critic", "reviser", "judge", "criteria", "models", "rounds", "effort")
"""Whose preset gives one of these has chosen: no calibration measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A virtual model. The keys of its table in redraft.toml, but for `limits` and `tools`, which are tables of their own."""

    name: str
    strategy: str = "auto"
    """predict, refine, best-of-n, self-refine or reflect. auto: what `redraft calibrate` found, else reflect with a writer, an
    editor or criteria, self-refine with a critic, refine with checks, one round of self-refine.
    """
    model: str | None = None
    """Who writes; None: the configured model."""
    base_url: str | None = None
    """Where all its models are that name no other provider than OpenAI."""
    models: tuple[str, ...] = ()
    """refine: one for each attempt, the last one for the rest."""
    writer: str | None = None
    editor: str | None = None
    critic: str | None = None
    reviser: str | None = None
    judge: str | None = None
    """Each a persona, or a model as provider/model."""
    criteria: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    check_files: tuple[str, ...] = ()
    system: str = ""
    """Stands before the client's own system message."""
    parallel: int | None = None
    """Calls of an OpenAI-compatible model at once; None: 64."""
    rounds: int | None = None
    attempts: int | None = None
    threshold: float | None = None
    temperature: float | None = None
    """Of the first draft, where the client names none."""
    max_tokens: int | None = None
    effort: str | None = None
    limits: Budget = field(default_factory=Budget)
    tools: ToolRules = field(default_factory=ToolRules)
    measured: Any = field(default_factory=dict, repr=False, hash=False)
    """`[calibrated]` of the same file."""

    @classmethod
    def read(cls, name: str, table: object, measured: Any = None) -> Preset:
        """A preset's table. Raises `ConfigError` that names the key."""
        if not isinstance(table, Mapping):
            raise ConfigError(f"[presets.{name}] must be a table, got {table!r:.80}")
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"[presets.{name!r:.80}]: a preset's name is up to 80 letters, digits and marks of ._-/:+"
            )
        known = {f.name: f for f in fields(cls) if f.name not in ("name", "measured")}
        if unknown := sorted(set(table) - set(known)):
            raise ConfigError(f"[presets.{name}]: no setting named {unknown[0]!r}; there are {', '.join(known)}")
        values = {key: _value(f"[presets.{name}] {key}", known[key], value) for key, value in table.items()}
        return cls(name=name, measured={} if measured is None else measured, **values)

    @property
    def id(self) -> str:
        """The name of the virtual model."""
        return PREFIX + self.name

    def lm(self) -> LM:
        """Who writes."""
        lm = resolve_lm(self.model, self.base_url)
        return lm if self.parallel is None else _wider(cast("Hashable", lm), self.parallel)

    def role(self, who: str | None, lm: LM | str | None) -> Role | None:
        """A persona on the author's model, or a model of its own at the preset's address."""
        return resolved(who, lm, self.base_url)

    def all_checks(self) -> list[Check]:
        """Those of the table and of its files, read once."""
        return [*_parsed(self.checks, self.check_files)]

    def fitting(self, checks: list[Check]) -> str:
        """The strategy's name."""
        if self.strategy != "auto":
            return self.strategy
        if self.writer or self.editor or (self.criteria and not self.critic):
            return "reflect"
        return "refine" if checks and not self.critic else "self-refine"

    def calibrated(self, lm: LM, checks: list[Check], request: Request, options: Options) -> Calibrated:
        """What was measured for a text that is asked for, and these checks."""
        given = next((f"the preset gives {name}" for name in _CHOSEN if getattr(self, name) not in (None, ())), "")
        return calibrated(
            lm,
            PLAIN,
            checks,
            tables=self.measured,
            chosen=given or ("the request gives effort" if request.effort else ""),
            attempts=self.attempts if options.attempts is None else options.attempts,
            rounds=options.rounds,
        )


@cache
def _parsed(checks: tuple[str, ...], files: tuple[str, ...]) -> tuple[Check, ...]:
    return (*map(parse, checks), *(check for file in files for check in from_file(file)))


@cache
def _wider(lm: Hashable, parallel: int) -> LM:
    """The same model with another number of calls at once."""
    if not isinstance(lm, OpenAILM) or parallel < 1:
        raise ConfigError(f"parallel={parallel} cannot be used: give a number above 0, and an OpenAI-compatible model")
    at = lm._upstream
    return OpenAILM(
        lm._model, base_url=at.base_url, api_key=at.api_key, name=lm.name, provider=lm._provider, parallel=parallel
    )


def read_presets(tables: object, measured: Any = None) -> dict[str, Preset]:
    """All presets by the names of their virtual models. Each is made once for a try: what is wrong is said at the start.

    `measured` is `[calibrated]` of the same file.
    """
    if not isinstance(tables, Mapping):
        raise ConfigError(f"presets must be tables, [presets.NAME], got {tables!r:.80}")
    usable(measured)
    read = (Preset.read(name, table, measured) for name, table in tables.items())
    presets = {preset.id: preset for preset in read}
    for preset in presets.values():
        try:
            Plan.plain(preset)
        except RedraftError as error:
            raise ConfigError(f"[presets.{preset.name}] cannot be used: {error}") from error
    return presets


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one request to a preset comes to."""

    strategy: Any
    name: str
    lm: LM
    checks: tuple[Check, ...]
    budget: Budget
    request: Request
    """What the author is asked."""
    forbidden: tuple[str, ...] = ()
    """Tools that no answer may call."""
    auto: Mapping[str, Any] = field(default_factory=dict)
    """What `auto` took and why, for the journal; empty where the preset names a strategy."""

    @classmethod
    def plain(cls, preset: Preset) -> Plan:
        """What a request comes to that says nothing of itself."""
        return cls.of(preset, Asked(preset=preset.id, request=Request(messages=({"role": "user", "content": "?"},))))

    @classmethod
    def of(cls, preset: Preset, asked: Asked, *, given: Completion | None = None) -> Plan:
        """The strategy for a request; `given` is a first reply that is there already. Raises `UsageError` for what does not
        fit together.
        """
        lm, own = preset.lm(), preset.all_checks()
        request = without_tools(_filled(preset, asked.request), preset.tools.forbidden)
        checks = [*own, *_of_schema(request)]
        # a check of the client's schema alone does not send the preset's critic away
        found = preset.calibrated(lm, own and checks, request, asked.options) if preset.strategy == "auto" else None
        name = found.name if found else preset.fitting(own)
        text: Any = partial(_text, preset, name, checks=checks, options=asked.options, found=found)
        strategy: Any
        if request.tools and request.tool_choice != "none":
            author = Conversation(request, lm, system=preset.system, calls=True)
            fits, attempts = CallsFit(request, preset.tools), preset.tools.attempts
            again = Conversation(request, lm, system=preset.system, calls=True)
            calls = Refine(again, N=attempts, checks=[fits], clean=False, advisor=False)
            quiet = Conversation(request.but(tool_choice="none"), lm, system=preset.system)
            strategy = Turn(author, text(quiet), calls, fits, first=given)
        else:
            author = Conversation(request, lm, system=preset.system)
            author.draft = given
            strategy = text(author)
        budget = narrowed(preset.limits, asked.options.budget)
        return cls(
            strategy=strategy,
            name=name,
            lm=lm,
            checks=tuple(checks),
            budget=budget,
            request=request,
            forbidden=preset.tools.forbidden,
            auto={} if found is None else found.record(name),
        )


def narrowed(most: Budget, asked: Budget) -> Budget:
    """What is asked for, but never more than there is."""
    limits: dict[str, Any] = {}
    for f in fields(Budget):
        given = [v for v in (getattr(most, f.name), getattr(asked, f.name)) if v is not None]
        limits[f.name] = min(given, default=None)
    return Budget(**limits)


def _filled(preset: Preset, asked: Request) -> Request:
    """What the client leaves open, as the preset says."""
    temperature = preset.temperature if asked.temperature is None else asked.temperature
    caps = [cap for cap in (asked.max_tokens, preset.max_tokens) if cap is not None]
    return asked.but(temperature=temperature, max_tokens=min(caps, default=None), effort=asked.effort or preset.effort)


def _of_schema(request: Request) -> list[Check]:
    """The check of the schema that a client asks for."""
    if request.schema is None:
        return []
    try:
        with linear():
            return [json_schema(request.schema)]
    except RecursionError as error:
        raise UsageError("the request's 'response_format' cannot be used: its schema is too deep") from error


def _text(
    preset: Preset, name: str, author: Conversation, *, checks: list[Check], options: Options, found: Calibrated | None
) -> Refining:
    """The preset's strategy for a text."""
    lm = author.lm
    assert isinstance(lm, LM)
    threshold = preset.threshold if options.threshold is None else options.threshold
    more: dict[str, Any] = {"checks": checks, **({} if threshold is None else {"threshold": threshold})}
    if author.asked.logprobs is not None and (found or name in _BY_CHECKS):
        more["fix"] = False  # a text that code has mended has no probabilities
    if found:
        made = found.strategy(author, critic=preset.role(found.critic, lm), **more)
    elif name in _BY_CHECKS:
        made = _by_checks(preset, name, author, options, more)
    elif name in _CRITICISED:
        made = _criticised(preset, name, author, options, more)
    else:
        made = registry.find("strategies", name)(author, **more)  # a plug-in's
    if hasattr(made, "reviser"):
        module = made.module if isinstance(made.module, Conversation) else author
        made.reviser = ConversationReviser(module, preset.role(preset.reviser, lm) or Role())
    return made


def _by_checks(preset: Preset, name: str, author: Conversation, options: Options, more: dict[str, Any]) -> Refining:
    attempts = preset.attempts if options.attempts is None else options.attempts
    if preset.models:
        more["models"] = [resolve_lm(model, preset.base_url) for model in preset.models]
    more["judge"] = preset.role(preset.judge, author.lm)
    made: Refining = registry.find("strategies", name)(author, 1 if name == "predict" else attempts or 3, **more)
    return made


def _criticised(preset: Preset, name: str, author: Conversation, options: Options, more: dict[str, Any]) -> Refining:
    make, lm = registry.find("strategies", name), author.lm
    rounds = preset.rounds if options.rounds is None else options.rounds
    more["judge"] = preset.role(preset.judge, lm)
    if name == "reflect":
        more |= {"rounds": 1 if rounds is None else rounds, "criteria": preset.criteria}
        editor = preset.role(preset.editor, lm) or Role(persona="senior editor", lm=lm)
        made: Refining = make(author, writer=preset.role(preset.writer, lm), editor=editor, **more)
        return made
    critic = preset.role(preset.critic, lm)
    if critic is None and not (preset.checks or preset.check_files):
        critic = Role(lm=lm)  # a check of the client's schema alone does not send the critic away
    least = 1 if preset.strategy == "auto" and preset.critic is None else 3
    more["rounds"] = least if rounds is None else rounds
    refining: Refining = make(author, critic and as_critic(critic, lm, preset.criteria), **more)
    return refining


def _value(where: str, known: Any, value: Any) -> Any:
    """A setting of the type that its default has."""
    if known.name == "limits":
        return _table(where, Budget, value)
    if known.name == "tools":
        if not isinstance(value, Mapping):
            return _table(where, ToolRules, value)
        kinds: dict[str, Callable[[str, Any], Any]] = {"attempts": _count, "required": _texts, "forbidden": _texts}
        return _table(where, ToolRules, {k: kinds[k](f"{where}.{k}", v) if k in kinds else v for k, v in value.items()})
    if known.name in _LISTS:
        return _texts(where, value)
    if known.name in _COUNTS:
        return _count(where, value, least=0 if known.name == "rounds" else 1)
    wanted: tuple[type, ...] = (int, float) if known.name in _NUMBERS else (str,)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ConfigError(f"{where} must be a {'number' if int in wanted else 'text'}, got {value!r:.80}")
    return value


def _count(where: str, value: Any, *, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        raise ConfigError(f"{where} must be a whole number from {least} to {MOST:,}, got {value!r:.80}")
    return value


def _texts(where: str, value: Any) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise ConfigError(f"{where} must be a list of texts, got {value!r:.80}")
    return tuple(given)


def _table(where: str, kind: Any, value: Any) -> Any:
    names = [f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING]
    if not isinstance(value, Mapping) or not set(value) <= set(names):
        raise ConfigError(f"{where} must be a table of {', '.join(names)}, got {value!r:.80}")
    try:
        return kind(**value)
    except UsageError as error:
        raise ConfigError(f"{where}: {error}") from error


_LISTS = ("models", "criteria", "checks", "check_files")
_COUNTS = ("parallel", "rounds", "attempts", "max_tokens")
_NUMBERS = ("threshold", "temperature")
_NAME = re.compile(r"[\w./:+-]{1,80}", re.ASCII)
"""It stands in headers, metrics and logs."""
