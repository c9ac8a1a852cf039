"""What was asked for on the command line, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `redraft run`; None or empty where one was not given."""

    task: str | None = None
    signature: str = "task -> answer"
    file: str | None = None
    strategy: str = "auto"
    attempts: int | None = None
    rounds: int | None = None
    writer: str | None = None
    editor: str | None = None
    critic: str | None = None
    criteria: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    check_file: tuple[str, ...] = ()
    model: str | None = None
    base_url: str | None = None
    system: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    effort: str | None = None
    seed: int | None = None
    call_limit: int | None = None
    token_limit: int | None = None
    cost_limit: float | None = None
    time_limit: float | None = None
    cache: str | None = None
    store: str | None = None
    quiet: bool = False
    json: bool = False
    show: str | None = None
    allow_fail: bool = False

    def spec(self) -> dict[str, Any]:
        """What makes a run what it is, as JSON: of the options those that were given, without how it is limited and shown."""
        given = {name: value for name, value in asdict(self).items() if value and name not in _BESIDE}
        if self.check_file:
            given["check_file"] = [str(Path(file).absolute()) for file in self.check_file]
        return {name: [*value] if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def of_spec(cls, spec: Mapping[str, Any], **more: Any) -> RunOptions:
        """The options that `spec` wrote, and some that are given anew."""
        return of_spec(cls, spec, more)


def of_spec(kind: type[T], spec: Mapping[str, Any], more: Mapping[str, Any]) -> T:
    """Options of a kind from what was recorded of them, lists as tuples; `more` are given anew."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    known = {name: value for name, value in spec.items() if name in names}
    return kind(**{**{n: tuple(v) if isinstance(v, list) else v for n, v in known.items()}, **more})


_LIMITS = ("call_limit", "token_limit", "cost_limit", "time_limit")
_BESIDE = frozenset({"task", "file", *_LIMITS, "cache", "store", "quiet", "json", "show", "allow_fail"})
