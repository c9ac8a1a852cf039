"""One ask, whichever API it came by, and what is answered: the values between the wires and the refinement."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from redraft.budget import Budget
from redraft.errors import BadRequestError
from redraft.types import Completion, Request

INCLUDES = ("scores", "critiques", "drafts")
PREFIX = "x-redraft-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a request says of its own refinement: the body's `redraft` object, or `x-redraft-*` headers, which it beats."""

    rounds: int | None = None
    attempts: int | None = None
    threshold: float | None = None
    budget: Budget = field(default_factory=Budget)
    """Only ever narrows the preset's limits."""
    include: tuple[str, ...] = ()
    """What of the run the reply holds, under `redraft`."""
    progress: bool = False
    """A stream tells of drafts and critiques while they are made."""

    @classmethod
    def read(cls, body: object, headers: Mapping[str, str]) -> Options:
        """Of a body's `redraft` object and of headers. Raises `BadRequestError`, which names the option."""
        if body is None:
            body = {}
        if not isinstance(body, Mapping):
            raise _bad("redraft", "give an object, e.g. {'rounds': 2}")
        told = {**_in_headers(headers), **body}
        if unknown := sorted(set(told) - {f.name for f in fields(cls)}):
            raise _bad(f"redraft.{unknown[0]}", f"there is none; there are {', '.join(f.name for f in fields(cls))}")
        return cls(
            rounds=_count(told, "rounds", least=0),
            attempts=_count(told, "attempts", least=1),
            threshold=_number(told, "threshold"),
            budget=_budget(told.get("budget")),
            include=_includes(told.get("include")),
            progress=_flag(told, "progress"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request to a preset."""

    preset: str
    request: Request
    stream: bool = False
    stream_usage: bool = True
    """The stream ends with its tokens."""
    options: Options = field(default_factory=Options)
    echo: Mapping[str, Any] = field(default_factory=dict)
    """Of the body, what the reply repeats."""
    strict: bool = True
    """An answer that does not follow the schema is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a refinement came to."""

    completion: Completion
    """The accepted texts; its usage is the total of all calls."""
    run_id: str
    headers: Mapping[str, str]
    block: Mapping[str, Any] | None = None
    """The reply's `redraft` object, where the client asked for one."""


def _in_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    for name, value in headers.items():
        key = name.removeprefix(PREFIX)
        if key in (name, "run-id"):
            continue
        if key == "include":
            told[key] = [part.strip() for part in value.split(",") if part.strip()]
        elif key.startswith("budget-"):
            budget[key.removeprefix("budget-")] = _plain(value)
        else:
            told[key.replace("-", "_")] = _plain(value)
    return {**told, "budget": budget} if budget else told


def _plain(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _bad(name: str, why: str) -> BadRequestError:
    return BadRequestError(f"the request's {name!r} cannot be used: {why}", status=400)


def _count(told: Mapping[str, Any], name: str, *, least: int) -> int | None:
    value = told.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 100:
        raise _bad(f"redraft.{name}", f"give a whole number from {least} to 100, not {value!r:.40}")
    return value


def _number(told: Mapping[str, Any], name: str) -> float | None:
    value = told.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise _bad(f"redraft.{name}", f"give a finite number, not {value!r:.40}")
    return float(value)


def _flag(told: Mapping[str, Any], name: str) -> bool:
    value = told.get(name)
    if not isinstance(value, bool | None):
        raise _bad(f"redraft.{name}", f"give true or false, not {value!r:.40}")
    return bool(value)


def _includes(told: object) -> tuple[str, ...]:
    if told is None:
        return ()
    if not isinstance(told, list) or not all(name in INCLUDES for name in told):
        raise _bad("redraft.include", f"give a list of {', '.join(INCLUDES)}, not {told!r:.80}")
    return tuple(told)


def _budget(told: object) -> Budget:
    if told is None:
        return Budget()
    names = [f.name for f in fields(Budget)]
    if not isinstance(told, Mapping) or not set(told) <= set(names):
        raise _bad("redraft.budget", f"give an object of {', '.join(names)}, not {told!r:.80}")
    for name, value in told.items():
        whole = name in ("calls", "tokens")
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not math.isfinite(value) or value <= 0:
            raise _bad(f"redraft.budget.{name}", f"give a {'whole ' if whole else ''}number above 0, not {value!r:.40}")
    return Budget(**told)
