"""What `"auto"` makes of a calibration (`redraft calibrate`) of the same model and task, whichever door asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError
from redraft.evaluate.calibrate import AUTO, key_of, kinds_of
from redraft.evaluate.critiqued import Critiqued
from redraft.evaluate.tables import found
from redraft.modules import Predict
from redraft.protocols import LM
from redraft.strategies import BestOfN, Refine
from redraft.strategies.base import Refining

if TYPE_CHECKING:
    from redraft.checks import Check

PLAIN = "task -> answer"
"""The signature of whoever asks in one text and names none; what a calibration measures unless it is told another."""

_NAMES = ("predict", "best-of-n", "refine", "critique")
_SAID = ("strategy", "revise", "critic", "attempts", "rounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The strategy that was measured to be better. False where nothing was measured, or no difference."""

    why: str
    """Either way."""
    entry: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.entry)

    @property
    def name(self) -> str:
        """The strategy's."""
        return str(self.entry["strategy"])

    @property
    def drafts(self) -> int:
        """Most of them."""
        return 1 + int(self.entry["rounds"]) if self.name == "critique" else int(self.entry["attempts"])

    def strategy(self, author: Predict, checks: Sequence[Check], **options: Any) -> Refining:
        """The strategy itself; `options` as in Refine (`fix`, which a critique has no use for) and `threshold`."""
        entry = self.entry
        if self.name == "critique":
            options.pop("fix", None)
            return Critiqued(author, str(entry.get("critic", "")), rounds=entry["rounds"], checks=checks, **options)
        if self.name == "best-of-n":
            return BestOfN(author, self.drafts, checks=checks, **{"fix": True, **options})
        revise = str(entry.get("revise", "auto")) if self.name == "refine" else "auto"
        return Refine(author, self.drafts, checks=checks, revise=revise, **options)

    def record(self, otherwise: str) -> dict[str, Any]:
        """For the journal: what `auto` took (`otherwise` where nothing is calibrated), why, and whether that was calibrated."""
        said = ", ".join(f"{n} {self.entry[n]}" if n != "strategy" else self.name for n in _SAID if n in self.entry)
        return {"took": said or otherwise, "why": self.why, "calibrated": bool(self)}


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
    were measured. Raises `ConfigError` for an entry that cannot be used.
    """
    if not checks:
        return Calibrated(why="without checks there is nothing that a calibration measures")
    if chosen:
        return Calibrated(why=chosen)
    key = key_of(lm.name, str(signature), kinds_of(checks))
    entry = found(key, tables)
    if entry is None:
        return Calibrated(why=f"nothing was calibrated for {key!r}")
    if entry.get("strategy") == AUTO:
        return Calibrated(
            why=f"calibrated{_when(entry)}: {entry.get('verdict') or 'nothing is recommended'}{_why(entry)}"
        )
    why = f"calibrated{_when(entry)}{_why(entry)}"
    return Calibrated(why=why, entry=_usable(entry, key, attempts, rounds))


def _usable(entry: Mapping[str, Any], key: str, attempts: int | None, rounds: int | None) -> dict[str, Any]:
    name = entry.get("strategy")
    if name not in _NAMES:
        raise ConfigError(
            f"[calibrated] of {key!r} says strategy = {name!r}; it is one of {', '.join(_NAMES)} or auto. "
            "Calibrate again, or name a strategy"
        )
    if name == "critique":
        number = {"rounds": _number(entry, "rounds", key, 1) if rounds is None else rounds}
    else:
        number = {"attempts": attempts or _number(entry, "attempts", key, 3)}
    return {**entry, **number}


def _number(entry: Mapping[str, Any], name: str, key: str, default: int) -> int:
    value = entry.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"[calibrated] of {key!r} says {name} = {value!r}; give a whole number, 1 or more")
    return value


def _when(entry: Mapping[str, Any]) -> str:
    evidence = entry.get("evidence")
    at = evidence.get("date") if isinstance(evidence, Mapping) else None
    return f" on {at}" if at else ""


def _why(entry: Mapping[str, Any]) -> str:
    evidence = entry.get("evidence")
    why = evidence.get("why") if isinstance(evidence, Mapping) else None
    return f", {why}" if why else ""
