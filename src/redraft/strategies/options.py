"""What Refine and BestOfN are told, checked at the door."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from redraft.errors import InputError
from redraft.protocols import LM
from redraft.strategies.ladder import Revise

VARIED = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """How far and in which way the ladder is climbed."""

    models: tuple[LM | str, ...] = ()
    revise: Revise = "auto"
    advised: bool = False
    """An advisor was asked for, also where "auto" would do without."""
    width: int = 1
    temperatures: tuple[float, ...] = ()
    """The retries'; without any, VARIED, and the module's own for the first draft under a constraint, which is another
    draft already.
    """
    efforts: tuple[str, ...] = ()
    """How much a reasoning model thinks, by attempt; the last one for the rest."""
    fix: bool = True
    clean: bool = True

    def temperature(self, i: int) -> float:
        """The temperature of attempt `i`, from 1 on."""
        return self.temperatures[min(i, len(self.temperatures)) - 1] if self.temperatures else VARIED

    def effort(self, i: int) -> str | None:
        """The effort of attempt `i`."""
        return self.efforts[min(i, len(self.efforts) - 1)] if self.efforts else None


def checked_efforts(effort: str | Sequence[str] | None) -> tuple[str, ...]:
    """Efforts by attempt; none for None."""
    given = () if effort is None else (effort,) if isinstance(effort, str) else effort
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and one.strip() for one in given):
        raise InputError(f"effort={effort!r}: give one, or one for each attempt: ('low', 'high')")
    return tuple(given)


def checked_attempts(N: int, fail_count: int | None) -> tuple[int, int]:
    """N, and how many of the attempts may fail with an error."""
    if not _is_count(N) or N < 1:
        raise InputError(f"N={N!r}: give the number of attempts, 1 or more")
    if fail_count is not None and (not _is_count(fail_count) or fail_count < 0):
        raise InputError(f"fail_count={fail_count!r}: give how many attempts may fail, 0 or more, or None")
    return N, N - 1 if fail_count is None else fail_count


def checked_revise(revise: str) -> Revise:
    """One of the modes."""
    if revise not in get_args(Revise):
        raise InputError(f"revise={revise!r}: give one of {', '.join(map(repr, get_args(Revise)))}")
    return revise  # type: ignore[return-value]


def checked_models(models: Any) -> tuple[LM | str, ...]:
    """Models by attempt."""
    if isinstance(models, str | LM) or not all(isinstance(m, str | LM) for m in models):
        raise InputError(f"models={models!r}: give a list, one model for each attempt: ['small', 'small', 'big']")
    return tuple(models)


def checked_width(width: int, name: str) -> int:
    """How many at a time."""
    if not _is_count(width) or width < 1:
        raise InputError(f"{name}={width!r}: give how many attempts are made at the same time, 1 or more")
    return width


def checked_temperatures(temperature: float | Sequence[float] | None) -> tuple[float, ...]:
    """The retries' temperatures; none for None."""
    if temperature is None:
        return ()
    given = (temperature,) if isinstance(temperature, int | float) else tuple(temperature)
    if not given or not all(isinstance(t, int | float) and 0 <= t < math.inf for t in given):
        raise InputError(f"temperature={temperature!r}: give a finite number, 0 or more, or one for each retry")
    return given


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
