"""Who may ask, and how much: the server's keys, each with a rate and a budget of its own."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import os
import stat
import time
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redraft.budget import Budget, Meter
from redraft.errors import BudgetExceeded, ConfigError, PriceUnknownError, UsageError
from redraft.server.refusal import Refusal
from redraft.types import Usage

log = logging.getLogger("redraft.server")

VARIABLE = "REDRAFT_SERVER_KEYS"
_SETTINGS = ("key", "key_env", "sha256", "rate", "parallel", "calls", "tokens", "cost")
_DAY = 86_400


@dataclass(slots=True)
class Key:
    """One key. Its budget is for a day (UTC), and begins anew with the process."""

    name: str
    digest: bytes = field(repr=False)
    rate: float | None = None
    """Requests a minute."""
    parallel: int | None = None
    """Requests at once."""
    budget: Budget = field(default_factory=Budget)
    active: int = 0
    _tokens: float = -1.0
    _seen: float = 0.0
    _day: int = -1
    _meter: Meter = field(default_factory=Meter)

    @property
    def meter(self) -> Meter:
        """What is spent today, with the limits of a day."""
        today = int(time.time() // _DAY)
        if today != self._day:
            self._day, self._meter = today, Meter(self.budget)
        return self._meter

    @property
    def limited(self) -> bool:
        """True if it has a budget, so that what passes through is counted, too."""
        return self.budget != Budget()

    def admit(self) -> None:
        """Take one request. Raises `Refusal` (429) over the rate, the number at once, or the day's budget."""
        if self.parallel is not None and self.active >= self.parallel:
            raise Refusal(429, f"the key {self.name} has {self.active} requests under way, its limit", retry_after=1)
        if self.limited:
            try:
                self.meter.check_room()
            except PriceUnknownError as error:
                raise Refusal(429, str(error), code="budget_exceeded") from error
            except BudgetExceeded as error:
                left = _DAY - time.time() % _DAY
                told = f"the key {self.name} has used up its day: {error.limit} {error.spent:g} of {error.allowed:g}"
                raise Refusal(429, told, code="budget_exceeded", retry_after=left) from error
        self._take()

    def _take(self) -> None:
        """A bucket that holds a minute's requests at most, and fills steadily."""
        if self.rate is None:
            return
        now, most = time.monotonic(), max(1.0, self.rate)
        filled = most if self._tokens < 0 else self._tokens + (now - self._seen) * self.rate / 60
        self._tokens, self._seen = min(most, filled), now
        if self._tokens < 1:
            wait = (1 - self._tokens) * 60 / self.rate
            raise Refusal(429, f"the key {self.name} may ask {self.rate:g} times a minute", retry_after=wait)
        self._tokens -= 1

    def charge(self, usage: Usage) -> None:
        """Count what passed through."""
        self.meter.charge(usage)


class Keys:
    """All keys of the server; without any everybody on this machine may ask."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)
        names = [key.name for key in self._keys]
        if len(set(names)) != len(names) or len({key.digest for key in self._keys}) != len(names):
            raise ConfigError(f"the server's keys and their names have to differ: {', '.join(names)}")

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def names(self) -> tuple[str, ...]:
        """What the keys are called, never what they are."""
        return tuple(key.name for key in self._keys)

    @classmethod
    def read(cls, file: str | os.PathLike[str] | None = None) -> Keys:
        """Those of `REDRAFT_SERVER_KEYS` (split at commas and white space) and of a TOML file, `[NAME]` a key."""
        told = os.environ.get(VARIABLE, "")
        said = told.replace(",", " ").split()
        if told.strip() and not said:
            raise ConfigError(f"{VARIABLE} is set, but holds no key: give keys, with commas between them, or unset it")
        for text in said:
            _check(VARIABLE, text)
        keys = [Key(name=f"key-{number}", digest=_digest(text)) for number, text in enumerate(said, 1)]
        return cls([*keys, *(_of_file(Path(file)) if file is not None else ())])

    def whose(self, headers: Mapping[str, str]) -> Key | None:
        """The key of a request; None where none is needed. Raises `Refusal` (401) for a missing or wrong one.

        All keys are compared, each in constant time, by their digests.
        """
        if not self._keys:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
        digest, found = _digest(given), None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None or not given:
            told = "send one of this server's keys as 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
            raise Refusal(401, told, headers={"www-authenticate": "Bearer"})
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _of_file(path: Path) -> list[Key]:
    try:
        content = tomllib.loads(path.expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the keys' file {path} cannot be read as TOML: {error}") from error
    if not content:
        raise ConfigError(f"the keys' file {path} holds no key: write [NAME] with key, key_env or sha256")
    if any(isinstance(table, Mapping) and "key" in table for table in content.values()) and _is_open(path):
        log.warning("everybody on this machine can read the keys in %s: chmod 600 it, or give sha256 or key_env", path)
    return [_key(path, name, table) for name, table in content.items()]


def _key(path: Path, name: str, table: Any) -> Key:
    where = f"{path}: [{name}]"
    if not isinstance(table, Mapping) or (unknown := sorted(set(table) - set(_SETTINGS))):
        shown = f"no setting named {unknown[0]!r}" if isinstance(table, Mapping) else "it must be a table"
        raise ConfigError(f"{where}: {shown}; there are {', '.join(_SETTINGS)}")
    limits = {limit: table[limit] for limit in ("calls", "tokens", "cost") if limit in table}
    for setting, kind in (("rate", int | float), ("parallel", int)):
        value = table.get(setting)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool) or not 0 < value < math.inf):
            shown = "whole number" if kind is int else "number"
            raise ConfigError(f"{where}: {setting} must be a {shown} above 0, got {value!r}")
    return Key(
        name=name,
        digest=_secret(where, table),
        rate=table.get("rate"),
        parallel=table.get("parallel"),
        budget=limits_of(where, limits),
    )


def _secret(where: str, table: Mapping[str, Any]) -> bytes:
    given = [setting for setting in ("key", "key_env", "sha256") if setting in table]
    if len(given) != 1 or not isinstance(table[given[0]], str):
        raise ConfigError(f"{where}: give one text of key, key_env (a variable that holds it) and sha256 (its digest)")
    said: str = table[given[0]]
    if given[0] == "sha256":
        try:
            digest = bytes.fromhex(said)
        except ValueError:
            digest = b""
        if len(digest) != 32:
            raise ConfigError(f"{where}: sha256 must be 64 hexadecimal digits")
        return digest
    key = os.environ.get(said, "") if given[0] == "key_env" else said
    if not key.strip():
        raise ConfigError(f"{where}: {f'the variable {said}' if given[0] == 'key_env' else 'the key'} is empty")
    _check(where, key.strip())
    return _digest(key.strip())


def _check(where: str, key: str) -> None:
    """A key that no header can carry would lock its owner out. Its text is not told."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{where}: a key is of printable ASCII characters without spaces")


def limits_of(where: str, table: Mapping[str, Any]) -> Budget:
    """A budget that a table of the configuration says. Raises `ConfigError` with the place."""
    try:
        return Budget(**table)
    except (UsageError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _is_open(path: Path) -> bool:
    try:
        return os.name == "posix" and bool(path.expanduser().stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
