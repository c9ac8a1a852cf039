"""What a calibration may conclude, as pure functions of its trials.

A nested split keeps noise from being crowned: a seeded third of the failing drafts chooses the rung, the other two thirds,
which had no part in that, test it by exact one-sided sign tests. Over all tests of one verdict the chance to recommend
what is no better is at most `ALPHA`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from redraft.evaluate.probe import (
    AGAIN,
    CONSTRAIN,
    CRITIQUE,
    DRAFT,
    EDIT,
    FIRST,
    FIX,
    HINTED,
    RESAMPLE,
    Outcome,
    Trial,
)
from redraft.evaluate.stats import UNTOLD, Estimate, changed, mcnemar, wilson

ALPHA = 0.05
SHOWN = (EDIT, CRITIQUE)
"""Rungs that show the model its bad draft."""
CHEAPEST_FIRST = (RESAMPLE, CONSTRAIN, HINTED, EDIT, CRITIQUE)
CHOOSING = 1 / 3
MIN_FAILING = 12
"""Below, the two thirds hold less than the 8 pairs without which hardly any difference can be told from luck."""
NOTHING_HELPS = 20
"""Failing drafts of which no rung mended one: then at most 14 % would have been."""
CALL_IS_WORTH = 0.1
"""By so much a critique, which takes a second call, has to do better to be chosen."""
_BOTH = "resample twice"


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its 95 % interval (Wilson)."""

    hits: int
    n: int

    @property
    def value(self) -> float:
        """0 without any."""
        return self.hits / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """0 to 1 without any."""
        return wilson(self.hits, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.hits} of {self.n} ({low:.0%} to {high:.0%})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One rung against another on the drafts that had no part in choosing it."""

    __test__ = False  # no test of pytest's

    ours: str
    theirs: str
    pairs: int
    won: int
    """Drafts that ours mended and theirs did not."""
    lost: int
    p: float

    @property
    def difference(self) -> Estimate | None:
        """Of the shares that were mended, ours minus theirs."""
        return changed(self.won, self.lost, self.pairs) if self.pairs else None

    @property
    def spans_zero(self) -> bool:
        """True if the interval leaves open which of the two mends more."""
        return self.difference is None or self.difference.spans_zero

    def __str__(self) -> str:
        d = self.difference
        by = "" if d is None else f" {d.mean:+.0%} ({d.low:+.0%} to {d.high:+.0%})"
        return f"{self.ours} against {self.theirs}:{by} on {self.pairs} drafts, {self.won} won, {self.lost} lost, p = {self.p:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found. `rung` is what is recommended; None where nothing is."""

    outcome: str
    """`recommended`, `no difference`, `not told from luck` (an interval is without 0, or p small, but not small enough for
    all that was tested), `not better` (what was chosen lost a test), `too little data` or `nothing helps`.
    """
    rung: str | None
    why: str
    chosen: str | None = None
    """The rung that the first third chose."""
    tests: tuple[Test, ...] = ()


def decide(trials: Sequence[Trial], seed: int = 0) -> Verdict:
    """The verdict on these trials."""
    failing = [t for t in trials if DRAFT in t and not t[DRAFT].passed and RESAMPLE in t]
    n = len(failing)
    of = f"{n} of {len(trials)} first drafts failed"
    rungs = [name for name in CHEAPEST_FIRST if any(name in t for t in failing)]
    if n >= NOTHING_HELPS and not any(t[name].passed for t in failing for name in (*rungs, AGAIN) if name in t):
        return Verdict(
            outcome="nothing helps", rung=None, why=f"{of}, and no rung mended any: a single shot costs less"
        )
    if n < MIN_FAILING:
        return Verdict(
            outcome="too little data",
            rung=None,
            why=f"{of}; at least {MIN_FAILING} must, so give more or harder examples",
        )
    shuffled = random.Random(seed).sample(failing, n)
    first, rest = shuffled[: round(n * CHOOSING)], shuffled[round(n * CHOOSING) :]
    # The first of equals is the cheapest: max() keeps it.
    chosen = max(rungs, key=lambda name: share(first, name).value - (CALL_IS_WORTH if name == CRITIQUE else 0.0))
    tests = _tests(chosen, rungs, first, rest)
    proven = _proven(chosen, tests)
    if not proven:
        outcome, why = _unproven(chosen, tests)
        return Verdict(outcome=outcome, rung=None, why=f"{of}; {why}", chosen=chosen, tests=tests)
    why = f"{of}; on those that had no part in choosing it, {chosen} mends more than " + " and ".join(
        t.theirs for t in proven
    )
    return Verdict(outcome="recommended", rung=chosen, why=why, chosen=chosen, tests=tests)


def draft_shown(trials: Sequence[Trial]) -> Test | None:
    """What showing the model its bad draft does: an edit against a blind sample, both of one call, on all failing drafts
    (nothing was chosen by them here), two-sided. None where no draft has both.
    """
    failing = [t for t in trials if DRAFT in t and not t[DRAFT].passed]
    found = _test(EDIT, RESAMPLE, failing)
    return replace(found, p=mcnemar(found.won, found.lost)) if found.pairs else None


def shown_words(test: Test) -> str:
    """That in words."""
    if test.p > ALPHA:
        seen = "no difference seen" if test.spans_zero else f"{UNTOLD} (p is above {ALPHA:g})"
        return f"showing the draft: {seen}; {test}"
    return f"showing the draft {'helps' if test.won > test.lost else 'hurts'}; {test}"


def share(trials: Sequence[Trial], name: str, counts: Callable[[Outcome], bool] | None = None) -> Share:
    """How many of those that have this rung passed (or whatever `counts`)."""
    found = [t[name] for t in trials if name in t]
    return Share(sum(counts(o) if counts else o.passed for o in found), len(found))


def _tests(chosen: str, rungs: Sequence[str], first: Sequence[Trial], rest: Sequence[Trial]) -> tuple[Test, ...]:
    """Against blind samples of the same cost, and against the best of the other kind (shown the draft, or not); a critique
    against an edit with what code saw, too, which is a call cheaper.
    """
    peers = [] if chosen == RESAMPLE else [_BOTH if chosen == CRITIQUE else RESAMPLE]
    if chosen == CRITIQUE and EDIT in rungs:
        peers.append(EDIT)
    others = [r for r in rungs if r != RESAMPLE and (r in SHOWN) != (chosen in SHOWN)]
    if others:
        peers.append(max(others, key=lambda name: share(first, name).value))
    return tuple(_test(chosen, peer, rest) for peer in peers)


def _test(ours: str, theirs: str, trials: Sequence[Trial]) -> Test:
    pairs = [(a, b) for t in trials if (a := _mended(t, ours)) is not None and (b := _mended(t, theirs)) is not None]
    won, lost = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    return Test(ours=ours, theirs=theirs, pairs=len(pairs), won=won, lost=lost, p=_sign(won, lost))


def _mended(trial: Trial, name: str) -> bool | None:
    if name != _BOTH:
        return trial[name].passed if name in trial else None
    if RESAMPLE not in trial or AGAIN not in trial:
        return None
    return trial[RESAMPLE].passed or trial[AGAIN].passed


def _sign(won: int, lost: int) -> float:
    """The exact chance of as many wins or more, if either were as likely."""
    n = won + lost
    return sum(math.comb(n, k) for k in range(won, n + 1)) / (1 << n)


def _proven(chosen: str, tests: Sequence[Test]) -> list[Test]:
    """The tests that a recommendation rests on. A rung that shows the draft has to win all of them, each at ALPHA: if one
    is no better, that alone keeps luck below it. Another may win one (Holm).
    """
    if chosen in SHOWN:
        return [*tests] if all(t.p <= ALPHA for t in tests) else []
    proven: list[Test] = []
    for i, test in enumerate(sorted(tests, key=lambda t: t.p)):
        if test.p > ALPHA / (len(tests) - i):
            break
        proven.append(test)
    return proven


def _unproven(chosen: str, tests: Sequence[Test]) -> tuple[str, str]:
    """The outcome where nothing is proven, and why: p of each test that is in the way, and how small it would have to be."""
    wanted = ALPHA if chosen in SHOWN else ALPHA / max(1, len(tests))
    left = [t for t in tests if t.p > wanted]
    did = f"{chosen} did best on a third of them"
    if not left:
        return "no difference", f"{did}, and there is nothing to test it against"
    if worse := [t.theirs for t in left if t.difference is not None and t.difference.high < 0]:
        return "not better", f"{did}, but on the others it did worse than {' and '.join(worse)}"
    over = " and ".join(f"{t.theirs} (p = {t.p:.2g})" for t in left)
    told = any(not t.spans_zero or t.p <= ALPHA for t in left)
    why = f"{did}; that it does better than {over} on the others is not told from luck, which takes p of {wanted:g} or less"
    return UNTOLD if told else "no difference", why


# What critique costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Critiques:
    """What a critic does to drafts when nothing holds it back, and what a check that does is worth."""

    correcting: Share
    """Of failing drafts: those that pass after it."""
    introducing: Share
    """Of passing drafts: those that fail after it."""
    alarms: Share
    """Of passing drafts: those that it wanted revised."""
    missed: Share
    """Of failing drafts: those that it found nothing wrong with."""
    before: float
    """Share of drafts that pass."""
    alone: float
    """The same after the critic, every revision taken."""
    checked: float
    """The same, where only failing drafts are revised: what a verifier makes of it."""

    @property
    def verifier_gain(self) -> float:
        """What checking first is worth."""
        return self.checked - self.alone


def critiques(trials: Sequence[Trial]) -> Critiques | None:
    """None if no critic was asked."""
    seen = [t for t in trials if CRITIQUE in t and DRAFT in t]
    if not seen:
        return None
    failing, passing = [t for t in seen if not t[DRAFT].passed], [t for t in seen if t[DRAFT].passed]
    right = len(passing) / len(seen)
    correcting = share(failing, CRITIQUE)
    introducing = share(passing, CRITIQUE, lambda o: not o.passed)
    checked = right + (1 - right) * correcting.value
    return Critiques(
        correcting=correcting,
        introducing=introducing,
        alarms=share(passing, CRITIQUE, lambda o: o.changed),
        missed=share(failing, CRITIQUE, lambda o: not o.changed),
        before=right,
        alone=checked - right * introducing.value,
        checked=checked,
    )


def tries_worth(rung: str, trials: Sequence[Trial], *, gain: float = 0.02, most: int = 5) -> int:
    """How many retries of a rung are worth it: each is expected to mend at least `gain` of all drafts. The first's rate was
    measured; later ones are taken to be worse by as much as a second blind sample was than the first.
    """
    failing = [t for t in trials if DRAFT in t and not t[DRAFT].passed]
    rate = share(failing, rung).value
    first = share(failing, RESAMPLE).value
    second = share([t for t in failing if RESAMPLE in t and not t[RESAMPLE].passed], AGAIN).value
    later = rate * (min(1.0, second / first) if first else 1.0)
    left, tries = len(failing) / max(1, len(trials)) * (1 - rate), 1
    while tries < most and left * later >= gain:
        left, tries = left * (1 - later), tries + 1
    return tries


def table(trials: Sequence[Trial]) -> list[tuple[str, Share, float, float]]:
    """A line a rung: its name, what it mended (of `first` and `fix`: what passed), calls and tokens a try."""
    failing = [t for t in trials if DRAFT in t and not t[DRAFT].passed]
    rows = []
    for name in (FIRST, FIX, *CHEAPEST_FIRST):
        among = trials if name in (FIRST, FIX) else failing
        found = [t[name] for t in among if name in t]
        if found:
            calls = sum(o.calls for o in found) / len(found)
            rows.append((name, share(among, name), calls, sum(o.tokens for o in found) / len(found)))
    return rows
