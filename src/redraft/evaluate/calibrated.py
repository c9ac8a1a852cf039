"""What `"auto"` makes of a calibration (`redraft calibrate`) of the same model and task, whichever door asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from redraft.errors import ConfigError
from redraft.evaluate.calibrate import AUTO, key_of, kinds_of
from redraft.evaluate.critiqued import Critiqued
from redraft.evaluate.tables import found
from redraft.modules import Predict
from redraft.protocols import LM
from redraft.result import one_line
from redraft.strategies import BestOfN, Refine
from redraft.strategies.base import Refining
from redraft.strategies.ladder import Revise
from redraft.strategies.roles import Role

if TYPE_CHECKING:
    from redraft.checks import Check

PLAIN = "task -> answer"
"""The signature of whoever asks in one text and names none; what a calibration measures unless it is told another."""

MOST = 10_000_000
"""Attempts or rounds, here and in a preset."""

_NAMES = ("predict", "best-of-n", "refine", "critique")
_SAID = ("strategy", "revise", "critic", "attempts", "rounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The strategy that was measured to be better. False where nothing was measured, or no difference."""

    why: str
    """Either way."""
    entry: Mapping[str, Any] = field(default_factory=dict)
    given: str = ""
    """Which number of it was given, and not measured."""

    def __bool__(self) -> bool:
        return bool(self.entry)

    @property
    def name(self) -> str:
        """The strategy's."""
        return str(self.entry["strategy"])

    @property
    def critic(self) -> str:
        """Who criticised: a persona or a model; empty for the author's own."""
        return str(self.entry.get("critic", ""))

    @property
    def drafts(self) -> int:
        """Most of them."""
        return 1 + int(self.entry["rounds"]) if self.name == "critique" else int(self.entry["attempts"])

    def strategy(self, author: Predict, checks: Sequence[Check], critic: Role | None, **options: Any) -> Refining:
        """The strategy itself. `critic` is `self.critic`, resolved by whoever knows the address; `options` as in Refine
        (`fix`, which a critique has no use for) and `threshold`.
        """
        entry = self.entry
        if self.name == "critique":
            options.pop("fix", None)
            return Critiqued(author, critic or "", rounds=entry["rounds"], checks=checks, **options)
        if self.name == "best-of-n":
            return BestOfN(author, self.drafts, checks=checks, **{"fix": True, **options})
        revise = str(entry.get("revise", "auto")) if self.name == "refine" else "auto"
        return Refine(author, self.drafts, checks=checks, revise=revise, **options)

    def record(self, otherwise: str) -> dict[str, Any]:
        """For the journal: what `auto` took (`otherwise` where nothing is calibrated), why, whether that was calibrated, and
        which number was not.
        """
        said = ", ".join(f"{n} {self.entry[n]}" if n != "strategy" else self.name for n in _SAID if n in self.entry)
        given = {"given": self.given} if self.given else {}
        return {"took": one_line(said) or otherwise, "why": self.why, "calibrated": bool(self), **given}


def calibrated(
    lm: LM,
    signature: Any,
    checks: Sequence[Check],
    *,
    tables: Any = None,
    chosen: str = "",
    attempts: int | None = None,
    rounds: int | None = None,
) -> Calibrated:
    """What was measured for this model, signature and these kinds of checks, in `tables` (None: of the project's file).

    `chosen` says why nothing is asked for: who has named a part has chosen. `attempts` and `rounds` go before those that
    were measured; who gives several attempts where a single draft was measured to do wants the default. Raises `ConfigError`
    for an entry that cannot be used.
    """
    if not checks:
        return Calibrated(why="without checks there is nothing that a calibration measures")
    if chosen:
        return Calibrated(why=chosen)
    key = key_of(lm.name, str(signature), kinds_of(checks))
    entry = found(key, tables)
    if entry is None:
        return Calibrated(why=f"nothing was calibrated for {key!r}")
    entry = _usable(entry, key)
    if entry["strategy"] == AUTO:
        verdict = one_line(entry.get("verdict") or "nothing is recommended")
        return Calibrated(why=f"calibrated{_when(entry)}: {verdict}{_why(entry)}")
    return _with(entry, attempts, rounds)


def usable(tables: Any) -> dict[str, dict[str, Any]]:
    """All of `[calibrated]` (None: nothing), so that a fault is said at the start. Raises `ConfigError` that names the entry."""
    tables = {} if tables is None else tables
    keys = [*tables] if isinstance(tables, Mapping) else [""]  # what is no table is said by `found`
    return {key: _usable(entry, key) for key in keys if (entry := found(key, tables)) is not None}


def _with(entry: Mapping[str, Any], attempts: int | None, rounds: int | None) -> Calibrated:
    """The entry with the numbers that were given, which it says."""
    name, why = entry["strategy"], f"calibrated{_when(entry)}{_why(entry)}"
    if name == "predict" and attempts is not None and attempts > 1:
        return Calibrated(why=f"attempts {attempts} is given, not one draft as {why}")
    if name == "critique" and attempts is not None:
        why += f"; attempts {attempts} has no use in it"
    part, asked = ("rounds", rounds) if name == "critique" else ("attempts", attempts)
    if asked is None or asked == entry[part]:
        return Calibrated(why=why, entry=entry)
    why += f"; but {part} {asked} is given, calibrated is {entry[part]}"
    return Calibrated(why=why, entry={**entry, part: asked}, given=part)


def _usable(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The entry, its number filled in."""
    name = entry.get("strategy")
    if name not in (*_NAMES, AUTO):
        raise _wrong(entry, key, "strategy", f"it is one of {', '.join(_NAMES)} or {AUTO}")
    if not isinstance(entry.get("critic", ""), str):
        raise _wrong(entry, key, "critic", "give a persona or a model as a text")
    if entry.get("revise", "auto") not in get_args(Revise):
        raise _wrong(entry, key, "revise", f"it is one of {', '.join(get_args(Revise))}")
    numbers = {part: _number(entry, part, key, default) for part, default in (("attempts", 3), ("rounds", 1))}
    if name == "predict":
        numbers["attempts"] = 1
    wanted = {AUTO: (), "critique": ("rounds",)}.get(name, ("attempts",))
    return {**entry, **{part: numbers[part] for part in wanted}}


def _number(entry: Mapping[str, Any], name: str, key: str, default: int) -> int:
    value = entry.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise _wrong(entry, key, name, f"give a whole number from 1 to {MOST:,}")
    return value


def _wrong(entry: Mapping[str, Any], key: str, name: str, wanted: str) -> ConfigError:
    said = f"{name} = {entry[name]!r:.80}" if name in entry else f"no {name}"
    return ConfigError(
        f"[calibrated] of {key!r} says {said}; {wanted}. Calibrate again, remove the table, or name a strategy"
    )


def _when(entry: Mapping[str, Any]) -> str:
    at = _evidence(entry).get("date")
    return f" on {one_line(at)}" if at else ""


def _why(entry: Mapping[str, Any]) -> str:
    why = _evidence(entry).get("why")
    return f", {one_line(why)}" if why else ""


def _evidence(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    evidence = entry.get("evidence")
    return evidence if isinstance(evidence, Mapping) else {}
