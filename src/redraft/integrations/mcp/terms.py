"""What the server's owner allows its clients: which models, how much of each limit, and whether files may be named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from redraft.budget import Budget
from redraft.config import resolve_lm
from redraft.errors import InputError
from redraft.evaluate.calibrated import PLAIN, usable
from redraft.protocols import LM
from redraft.registry import split_model
from redraft.strategies.roles import Role, resolved

MOST = Budget(calls=20, tokens=100_000, seconds=300.0)
"""The limits of one request where the server's owner sets none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The owner's side of every request."""

    models: tuple[str, ...] = ()
    """The first answers where a client names none, and clients choose among these alone. Without any the configured model
    answers, and only clients of a trusted server may name others.
    """
    base_url: str | None = None
    """An OpenAI-compatible server for all of them. A client never names an address: keys would go there."""
    most: Budget = MOST
    """Upper bounds of each request."""
    trusted: bool = False
    """Clients' checks may name files of this machine and run an answer's code."""
    calibrated: Any = field(default_factory=dict)
    """`[calibrated]` of redraft.toml: what was measured, for `auto`."""

    def lm(self, name: str | None) -> LM:
        """The model for a request. Raises `InputError` for one that clients may not name."""
        if name is None or name in self.models:
            return resolve_lm(name or next(iter(self.models), None), self.base_url)
        if self.models:
            raise InputError(f"model {name!r} is not offered here; choose one of: {', '.join(self.models)}")
        if not self.trusted:
            raise InputError(
                f"model {name!r} is not offered here: leave it out; the server's owner can offer it (redraft mcp --model)"
            )
        provider, rest = split_model(name)
        if provider == "local" and not _in_catalogue(rest):
            raise InputError(
                f"model {name!r} is a file or unknown; the server's owner can offer it (redraft mcp --model)"
            )
        if provider is None:
            raise InputError(f"model {name!r} names no known provider; write provider/model, or leave it out")
        return resolve_lm(name, self.base_url)

    def role(self, who: str, lm: LM) -> Role | None:
        """A persona on the request's model, or a model of its own at the owner's address."""
        return resolved(who, lm, self.base_url)

    def check(self) -> None:
        """Raises `ConfigError` for a missing key or server, and for a `[calibrated]` that cannot be used: to the owner, not
        to the first client.
        """
        lm = self.lm(None)
        for key, entry in usable(self.calibrated).items():
            # only what a client can come to has to have its key here
            if entry["strategy"] == "critique" and key.startswith(f"{lm.name} | ") and f"{PLAIN} | " in key:
                self.role(entry.get("critic", ""), lm)

    def budget(self, asked: Mapping[str, float | None]) -> Budget:
        """The limits of a request: what the client asks for, but never more than the owner allows."""
        limits: dict[str, Any] = {}
        for f in fields(Budget):
            given = [v for v in (asked.get(f.name), getattr(self.most, f.name)) if v is not None]
            limits[f.name] = min(given, default=None)
        return Budget(**limits)


def _in_catalogue(name: str) -> bool:
    from redraft.lm.catalogue import MODELS

    return name in MODELS
