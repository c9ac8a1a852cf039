"""What was asked for on the command line, as one value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `redraft run`; None or empty where one was not given."""

    task: str | None = None
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
    quiet: bool = False
    json: bool = False
    show: str | None = None
    allow_fail: bool = False
