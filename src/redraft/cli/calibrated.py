"""What `"auto"` makes of a calibration (`redraft calibrate`) of the same model and task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redraft.cli.options import RunOptions
from redraft.config import project_file, say_once
from redraft.errors import ConfigError
from redraft.modules import Predict
from redraft.protocols import LM, Strategy
from redraft.strategies import BestOfN, Refine

if TYPE_CHECKING:
    from redraft.checks import Check

_CHOSEN = ("writer", "editor", "critic", "criteria", "rounds", "effort")
"""Who gives one of these has chosen."""


def calibrated(
    options: RunOptions, checks: Sequence[Check], author: Predict, lm: LM
) -> tuple[Strategy | None, str, str]:
    """The strategy that was measured to be better for this model, signature and these kinds of checks, with a word on
    stderr why; None where nothing was measured, or no difference. Then what it is in words, and the reason, either way.
    """
    if not checks:
        return None, "", "without checks there is nothing that a calibration measures"
    if given := [name for name in _CHOSEN if getattr(options, name)]:
        return None, "", f"--{given[0]} was given"
    from redraft.evaluate.calibrate import AUTO, key_of, kinds_of
    from redraft.evaluate.tables import found

    key = key_of(lm.name, str(author.signature), kinds_of(checks))
    entry = found(key) if "calibrated" in project_file() else None
    if entry is None:
        return None, "", f"nothing was calibrated for {key!r}"
    if entry.get("strategy") == AUTO:
        return None, "", f"calibrated{_when(entry)}: {entry.get('verdict') or 'nothing is recommended'}{_why(entry)}"
    strategy = _of(entry, key, author, checks, options.attempts)
    say_once(f"redraft: auto takes what was calibrated{_when(entry)}: {_said(entry)}")
    return strategy, _said(entry), f"calibrated{_when(entry)}{_why(entry)}"


def _of(entry: Mapping[str, Any], key: str, author: Predict, checks: Sequence[Check], attempts: int | None) -> Strategy:
    name = entry.get("strategy")
    N, rounds = attempts or _number(entry, "attempts", key, 3), _number(entry, "rounds", key, 1)
    if name == "critique":
        from redraft.evaluate.critiqued import Critiqued

        return Critiqued(author, str(entry.get("critic", "")), rounds=rounds, checks=checks)
    makers: dict[Any, Callable[[], Strategy]] = {
        "predict": lambda: Refine(author, N, checks=checks),
        "best-of-n": lambda: BestOfN(author, N, checks=checks, fix=True),
        "refine": lambda: Refine(author, N, checks=checks, revise=str(entry.get("revise", "auto"))),
    }
    if name not in makers:
        raise ConfigError(
            f"[calibrated] of {key!r} says strategy = {name!r}; it is one of {', '.join(makers)}, critique or auto. "
            "Calibrate again, or name a --strategy"
        )
    return makers[name]()


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


def _said(entry: Mapping[str, Any]) -> str:
    names = ("strategy", "revise", "critic", "attempts", "rounds")
    return ", ".join(
        f"{name} {entry[name]}" if name != "strategy" else str(entry[name]) for name in names if name in entry
    )
