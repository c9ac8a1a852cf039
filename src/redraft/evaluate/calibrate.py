"""Calibration: what each rung brings for one model and task, and what follows from that for `"auto"`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from redraft.checks import Judgement
from redraft.config import resolve_lm
from redraft.errors import BudgetExceeded, InputError
from redraft.evaluate.evaluate import Evaluate, Progress
from redraft.evaluate.examples import as_examples
from redraft.evaluate.item import Item
from redraft.evaluate.probe import CONSTRAIN, CRITIQUE, EDIT, HINTED, RESAMPLE, Probe, Trial, trial_of
from redraft.evaluate.verdict import (
    Critiques,
    Share,
    Test,
    Verdict,
    critiques,
    decide,
    draft_shown,
    shown_words,
    table,
    tries_worth,
)
from redraft.modules import Predict
from redraft.protocols import LM, Store
from redraft.scoring import name_of
from redraft.strategies.base import as_module

AUTO = "auto"
"""The strategy of an entry that recommends nothing: the default holds."""

_STRATEGIES = {
    # rung -> the strategy that climbs it, and how it revises
    RESAMPLE: ("best-of-n", ""),
    CONSTRAIN: ("refine", "constrain"),
    HINTED: ("refine", "fresh"),
    EDIT: ("refine", "edit"),
    CRITIQUE: ("critique", ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured, and what is recommended. `print(calibration)` shows it."""

    model: str
    signature: str
    checks: tuple[str, ...]
    """The kinds of checks, and the reward, by name."""
    trials: tuple[Trial, ...]
    verdict: Verdict
    critiques: Critiques | None
    left_out: tuple[str, ...]
    """Why examples have no trial, a line each."""
    seed: int
    stopped: BudgetExceeded | None
    critic: str = ""
    """Who criticised, where that was said in a text."""

    @property
    def shown(self) -> Test | None:
        """An edit against a blind sample on all failing drafts: what showing the model its bad draft does."""
        return draft_shown(self.trials)

    @property
    def key(self) -> str:
        """Which table of `[calibrated]` it is."""
        return key_of(self.model, self.signature, self.checks)

    def entry(self) -> dict[str, Any]:
        """As it is written to `redraft.toml`: the recommendation, and in `evidence` what it rests on."""
        verdict = self.verdict
        made: dict[str, Any] = {"strategy": AUTO, "verdict": verdict.outcome}
        if verdict.outcome == "nothing helps":
            made |= {"strategy": "predict", "attempts": 1, "call_limit": 1}
        elif verdict.rung is not None:
            made |= self._recommended(verdict.rung)
        evidence: dict[str, Any] = {
            "why": verdict.why,
            "model": self.model,
            "signature": self.signature,
            "checks": [*self.checks],
            "date": datetime.now(UTC).date().isoformat(),
            "examples": len(self.trials),
            "seed": self.seed,
            "tests": [str(test) for test in verdict.tests],
            "rungs": {name: str(found) for name, found, _, _ in table(self.trials)},
        }
        if self.shown is not None:
            evidence["draft_shown"] = shown_words(self.shown)
        if self.critiques is not None:
            c = self.critiques
            rates = {"error_correcting": str(c.correcting), "error_introducing": str(c.introducing)}
            evidence["critique"] = {**rates, "verifier_gain": round(c.verifier_gain, 3)}
        return {**made, "evidence": evidence}

    def _recommended(self, rung: str) -> dict[str, Any]:
        strategy, revise = _STRATEGIES[rung]
        tries = tries_worth(rung, self.trials)
        # Of a critique each round asks critic and reviser; of a constraint the model may refuse one.
        limit = 1 + 2 * tries if rung == CRITIQUE else 1 + tries + (rung == CONSTRAIN)
        number = {"rounds": tries} if rung == CRITIQUE else {"attempts": 1 + tries}
        how = {"revise": revise} if revise else {}
        how |= {"critic": self.critic} if rung == CRITIQUE and self.critic else {}
        rungs = ["tell", "check", "fix", rung]
        most = max((o.tokens for t in self.trials for o in t.values()), default=0)
        return {
            "strategy": strategy,
            **how,
            **number,
            "rungs": rungs,
            "call_limit": limit,
            "token_limit": 2 * most * limit,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "key": self.key,
            **self.entry(),
            "critiques": None if self.critiques is None else asdict(self.critiques),
            "trials": [{name: asdict(outcome) for name, outcome in t.items()} for t in self.trials],
            "left_out": [*self.left_out],
            "stopped": None if self.stopped is None else str(self.stopped),
        }

    def __str__(self) -> str:
        lines = [f"{self.model} | {self.signature} | {', '.join(self.checks)} | {len(self.trials)} examples", ""]
        lines += [
            f"{name:<10} {_what(name)} {found}; {calls:.1f} calls, {tokens:,.0f} tokens a try"
            for name, found, calls, tokens in table(self.trials)
        ]
        found = [*map(str, self.verdict.tests), *([shown_words(self.shown)] if self.shown else [])]
        found += _said(self.critiques) if self.critiques else []
        lines += ["", *found] if found else []
        entry = self.entry()
        recommended = ", ".join(
            f"{k} {v}" for k, v in entry.items() if k in ("strategy", "revise", "attempts", "rounds")
        )
        lines += ["", f"{self.verdict.outcome}: {self.verdict.why}"]
        lines += [f"recommended: {recommended}" if entry["strategy"] != AUTO else "the default of auto holds"]
        return "\n".join([*lines, *self.left_out])


class Calibrate:
    """`Calibrate(module, examples, checks=[...])()` gives a Calibration.

    `checks` and `reward_fn` (with `threshold`, as in Refine) are the bar. `critic`: who criticises, as in SelfRefine (the
    module's own model); False for nobody. One first draft an example, and where that fails each rung once: at most 8
    calls. Resumable by `store`, bounded by `budget`, as an Evaluate.
    """

    def __init__(
        self,
        module: Any,
        examples: Iterable[Any],
        *,
        checks: Sequence[Any] = (),
        reward_fn: Callable[..., Any] | None = None,
        threshold: float | None = None,
        critic: Any = "",
        **options: Any,
    ) -> None:
        self.module = as_module(module)
        if not isinstance(self.module, Predict):
            raise InputError(
                "calibration needs a Predict, whose model and rungs are known; give a signature or a Predict"
            )
        judgement = Judgement(checks, reward_fn)
        if judgement.empty:
            raise InputError("there is no bar to calibrate for: give checks=[...], or a reward_fn and a threshold")
        if not judgement.checks and threshold is None:
            raise InputError("a reward alone says not when a draft is good enough: give a threshold")
        self.examples = as_examples(examples)
        self.checks = kinds_of(judgement.checks, reward_fn)
        self.critic = critic if isinstance(critic, str) else ""
        self.lm: LM = resolve_lm(self.module.lm)
        self.probe = Probe(self.module, checks, reward_fn, threshold, critic=critic, lm=self.lm)
        known = {"budget", "store", "seed", "concurrency"}
        if unknown := sorted(set(options) - known):
            raise InputError(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(known))}")
        self.seed = int(options.get("seed") or 0)
        store: Store | None = options.get("store")
        self.evaluation = Evaluate(
            self.examples,
            _tried,
            concurrency=options.get("concurrency") or 8,
            budget=options.get("budget"),
            store=store,
            seed=self.seed,
            baselines=False,
        )

    @property
    def key(self) -> str:
        """Which table of `[calibrated]` it will be."""
        return key_of(self.lm.name, str(self.module.signature), self.checks)

    def __call__(self, *, progress: Progress | None = None) -> Calibration:
        """Measure and wait."""
        report = self.evaluation({"calibrate": self.probe}, progress=progress)
        return self._made(report.items, report.stopped)

    async def acall(self, *, progress: Progress | None = None) -> Calibration:
        """Measure."""
        report = await self.evaluation.acall({"calibrate": self.probe}, progress=progress)
        return self._made(report.items, report.stopped)

    def _made(self, items: Sequence[Item], stopped: BudgetExceeded | None) -> Calibration:
        done = [item for item in items if item.status == "done" and item.prediction is not None]
        trials = tuple(trial_of(item.prediction) for item in done if item.prediction is not None)
        without = [item for item in items if item not in done]
        if without and not done and stopped is None and without[0].error is not None:
            raise without[0].error
        left_out = [f"{len(without)} left out; first: example {i.index}, {i.error}" for i in without[:1]]
        if stopped is not None:
            left_out.append(f"PARTIAL: {stopped}. {len(done)} of {len(self.examples)} examples done")
        return Calibration(
            model=self.lm.name,
            signature=str(self.module.signature),
            checks=self.checks,
            trials=trials,
            verdict=decide(trials, self.seed),
            critiques=critiques(trials),
            left_out=tuple(left_out),
            seed=self.seed,
            stopped=stopped,
            critic=self.critic,
        )


def kinds_of(checks: Sequence[Any], reward_fn: Any = None) -> tuple[str, ...]:
    """What kinds of checks there are, each once, and the reward."""
    reward = () if reward_fn is None else (f"reward {name_of(reward_fn)}",)
    return (*sorted({check.name for check in checks}), *reward)


def key_of(model: str, signature: str, kinds: Sequence[str]) -> str:
    """The model, and the task as far as one can tell: what was measured for one task says little of another."""
    return " | ".join([model, signature, ", ".join(kinds)])


def _tried(example: Any, prediction: Any) -> float:
    del example, prediction  # a probe's trial is not judged: its attempts were
    return 1.0


def _what(name: str) -> str:
    return "passed" if name in ("first", "fix") else "mended"


def _said(c: Critiques) -> list[str]:
    return [
        (
            f"the critic: corrected {c.correcting} failing drafts, spoiled {c.introducing} passing ones; found nothing in "
            f"{_plain(c.missed)} failing ones, something in {_plain(c.alarms)} passing ones"
        ),
        (
            f"passing before it {c.before:.0%}, after it {c.alone:.0%}, where checks hold it back {c.checked:.0%} "
            f"(verifier gain {c.verifier_gain:+.0%})"
        ),
    ]


def _plain(found: Share) -> str:
    return f"{found.hits} of {found.n}"
