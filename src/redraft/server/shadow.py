"""Shadow mode: the plain answer goes to the client at once; of some, a preset is tried aside, and nobody waits for it.

The plain answer is the first draft, so that aside only what comes after it is bought.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redraft.budget import Budget, Meter
from redraft.errors import BudgetExceeded, ConfigError, RedraftError
from redraft.journal import new_run_id
from redraft.protocols import Store
from redraft.result import Result
from redraft.server.asked import Options
from redraft.server.keys import limits_of
from redraft.server.presets import PREFIX, Plan, Preset
from redraft.server.refining import Refining
from redraft.server.refusal import Refusal
from redraft.server.wires.chat import CHAT
from redraft.types import Completion, Usage

log = logging.getLogger("redraft.server")

_SETTINGS = ("preset", "share", "models", "parallel", "limits")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowTerms:
    """`[shadow]` of redraft.toml."""

    preset: str
    share: float = 0.1
    """Of the answers, how many are refined aside: 0 to 1."""
    models: tuple[str, ...] = ("*",)
    parallel: int = 4
    """How many at once; one more is left out, and counted."""
    limits: Budget = field(default_factory=lambda: Budget(tokens=1_000_000))
    """Of all that is bought aside, while the server runs."""

    @classmethod
    def read(cls, table: object, presets: Mapping[str, Preset]) -> ShadowTerms | None:
        """The table; None without one. Raises `ConfigError`."""
        if table is None:
            return None
        if not isinstance(table, Mapping) or not set(table) <= set(_SETTINGS) or "preset" not in table:
            raise ConfigError(
                f"[shadow] must be a table with a preset, and of {', '.join(_SETTINGS)}; got {table!r:.120}"
            )
        values = dict(table)
        name = PREFIX + str(values["preset"]).removeprefix(PREFIX)
        if name not in presets:
            raise ConfigError(f"[shadow] names the preset {name!r}; there are {', '.join(presets) or 'none'}")
        share = values.get("share", 0.1)
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
            raise ConfigError(f"[shadow] share must be a number above 0, at most 1, got {share!r:.40}")
        if not isinstance(values.get("limits", {}), Mapping):
            raise ConfigError(f"[shadow] limits must be a table, got {values['limits']!r:.40}")
        models, parallel = values.get("models", ["*"]), values.get("parallel", 4)
        if not isinstance(models, list) or not all(isinstance(model, str) for model in models):
            raise ConfigError(f"[shadow] models must be a list of names or patterns, got {models!r:.80}")
        if not isinstance(parallel, int) or isinstance(parallel, bool) or parallel < 1:
            raise ConfigError(f"[shadow] parallel must be a whole number above 0, got {parallel!r:.40}")
        values |= {"models": tuple(models), "preset": name}
        limits = {"limits": limits_of("[shadow] limits", values["limits"])} if "limits" in values else {}
        return cls(**{**values, **limits})


class Shadow:
    """What is refined aside, and what came of it since the server began."""

    def __init__(self, terms: ShadowTerms, preset: Preset, store: Store | None) -> None:
        self.terms = terms
        self._preset, self._store = preset, store
        self._meter = Meter(terms.limits)
        self._due = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        self._by: Counter[str] = Counter()
        self._gained = 0.0

    def wants(self, model: str) -> bool:
        """True for the share of a model's answers; which ones is evenly spread."""
        if not any(fnmatch.fnmatchcase(model, pattern) for pattern in self.terms.models):
            return False
        self._counts["seen"] += 1
        self._due += self.terms.share
        if self._due < 1:
            return False
        self._due -= 1
        return True

    def begin(self, body: Mapping[str, Any], plain: Completion | None) -> None:
        """Refine an answer aside, if there is room and money left."""
        if plain is None or len(self._tasks) >= self.terms.parallel:
            self._counts["left_out"] += 1
            return
        task = asyncio.ensure_future(self._refine(body, plain))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refine(self, body: Mapping[str, Any], plain: Completion) -> None:
        try:
            self._meter.check_room()
            asked = CHAT.read({**body, "model": self._preset.id, "stream": False, "n": 1}, Options())
            plan = Plan.of(self._preset, asked, given=plain)
            refining = Refining(asked, [plan], run_id=new_run_id(), store=self._store, around=self._meter)
            refined = await refining.answer()
        except BudgetExceeded:
            self._counts["out_of_budget"] += 1
        except (RedraftError, Refusal) as error:
            self._counts["failed"] += 1
            log.info("shadow: %s", error)
        else:
            self._note(refined.results[0])

    def _note(self, result: Result) -> None:
        first, best = result.attempts[0], result.best
        self._counts["refined"] += 1
        if best.index == first.index:
            self._counts["kept"] += 1
            return
        self._counts["changed"] += 1
        verdicts = () if first.score is None else first.score.verdicts
        by = [v.check for v in verdicts if not v.passed] or ([first.critique.by] if first.critique else ["judge"])
        self._by.update(set(by))
        if first.score is not None and best.score is not None:
            self._gained += best.score.value - first.score.value

    def report(self) -> dict[str, Any]:
        """How often an answer would have changed, by what, at which cost."""
        counts, usage = self._counts, self._meter.usage
        refined, changed = counts["refined"], counts["changed"]
        return {
            "preset": self._preset.id,
            "share": self.terms.share,
            **{
                name: counts[name]
                for name in ("seen", "refined", "kept", "changed", "failed", "left_out", "out_of_budget")
            },
            "under_way": len(self._tasks),
            "changed_share": changed / refined if refined else None,
            "changed_by": dict(self._by.most_common()),
            "mean_score_gain": self._gained / changed if changed else None,
            "cost": _cost(usage, refined),
        }

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)


def _cost(usage: Usage, refined: int) -> dict[str, Any]:
    dollars = None if usage.unpriced else usage.cost
    each = {"tokens_each": usage.tokens / refined, "calls_each": usage.calls / refined} if refined else {}
    return {"calls": usage.calls, "tokens": usage.tokens, "dollars": dollars, "exact": usage.exact, **each}
