"""Signals: how unsure the model was about what it just wrote, and from where on that is worth another look.

A model's own confidence says little about whether it is right (docs/proactive.md): a signal says where to look, never
what to accept.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, Protocol, get_args

from redraft.errors import InputError
from redraft.proactive.tokens import Token, text_of
from redraft.record import derived_seed

Measure = Literal["confidence", "entropy", "entropy_topk", "margin", "nll"]
"""Of one token: its probability; the entropy of its place in nats (whole, or of the reported top only: never mixed); the best
probability of its place less the second best; its negative log-likelihood in nats.
"""

_LOW = frozenset({"confidence", "margin"})
"""Measures of which a low value is a reason to doubt."""


class Signal(Protocol):
    """Says, after each token, whether to look back."""

    def should_refine(self, tokens: Sequence[Token]) -> bool:
        """Whether the tokens so far, the last ones above all, call for another look. Pure: a replay asks again."""

    def doubt(self, token: Token) -> float:
        """How doubtful one token is, higher is more; any unit."""


class RefinementSignal:
    """The mean of a measure over the last `window` tokens against a threshold: above it (entropy, nll), or below it
    (confidence, margin), there is reason to look back.

    The threshold is a plain number in the measure's unit, or comes from a calibration set (`calibrated`). Silent until the
    window is full.
    """

    def __init__(self, measure: Measure = "entropy_topk", threshold: float = 2.0, *, window: int = 1) -> None:
        if measure not in get_args(Measure):
            raise InputError(f"measure={measure!r}: give one of {', '.join(map(repr, get_args(Measure)))}")
        if not math.isfinite(threshold) or window < 1:
            raise InputError(f"threshold={threshold!r}, window={window!r}: give a finite number, and 1 token or more")
        self.measure, self.threshold, self.window = measure, threshold, window

    @classmethod
    def calibrated(
        cls, measure: Measure, replies: Iterable[Sequence[Token]], *, percentile: float = 95.0, window: int = 1
    ) -> RefinementSignal:
        """The signal that would fire at `100 - percentile` percent of the places of these replies."""
        if not 0 < percentile < 100:
            raise InputError(f"percentile={percentile!r}: give a number between 0 and 100")
        probe = cls(measure, 0.0, window=window)
        seen = [v for reply in replies for at in range(len(reply)) if (v := probe.value(reply[: at + 1])) is not None]
        if not seen:
            raise InputError(
                "no reply of the calibration set fills the window; give longer replies, or a smaller window"
            )
        share = (100 - percentile if measure in _LOW else percentile) / 100
        ordered = sorted(seen)
        return cls(measure, ordered[min(int(share * len(ordered)), len(ordered) - 1)], window=window)

    def compute_confidence(self, token: Token) -> float:
        """The probability of a token, 0..1."""
        return token.probability

    def compute_entropy(self, token: Token) -> float | None:
        """Entropy of a token's place in nats: the whole distribution's, else None."""
        return token.entropy

    def compute_consistency(self, texts: Sequence[str]) -> float:
        """The share of continuations that agree with the first, itself included; 1 for fewer than two."""
        return consistency(texts)

    def value(self, tokens: Sequence[Token]) -> float | None:
        """The measure's mean over the last window; None before that is full. Raises `InputError` where the backend does not
        report what it takes.
        """
        if len(tokens) < self.window:
            return None
        return sum(self._of(token) for token in tokens[-self.window :]) / self.window

    def should_refine(self, tokens: Sequence[Token]) -> bool:
        """See `Signal`. A token that the decoder put there itself raises no doubt."""
        if not tokens or tokens[-1].forced or (value := self.value(tokens)) is None:
            return False
        return value < self.threshold if self.measure in _LOW else value > self.threshold

    def doubt(self, token: Token) -> float:
        """See `Signal`."""
        return -self._of(token) if self.measure in _LOW else self._of(token)

    def _of(self, token: Token) -> float:
        match self.measure:
            case "confidence":
                return token.probability
            case "nll":
                return -token.logprob
            case "margin":
                return 1.0 if token.margin is None else token.margin  # nothing else was likely, or reported
            case "entropy_topk":
                return token.entropy_topk or 0.0
        if token.entropy is None:
            raise InputError("the backend reports the top of each place only: use 'entropy_topk', 'margin' or 'nll'")
        return token.entropy


class RandomSignal:
    """Fires at a given share of the places, whatever stands there: what a signal has to be compared with. 1.0 is always."""

    def __init__(self, rate: float, seed: int = 0) -> None:
        if not 0 <= rate <= 1:
            raise InputError(f"rate={rate!r}: give a share of the places, 0 to 1")
        self.rate, self.seed = rate, seed

    def should_refine(self, tokens: Sequence[Token]) -> bool:
        """See `Signal`: by chance, the same one for the same text."""
        return random.Random(derived_seed(self.seed, f"{len(tokens)}|{text_of(tokens)}")).random() < self.rate

    def doubt(self, token: Token) -> float:
        """By chance, too."""
        return random.Random(derived_seed(self.seed, f"{token.key!r}|{token.logprob!r}")).random()


def consistency(answers: Sequence[Hashable]) -> float:
    """The share of answers that are the first one, itself included; 1 for fewer than two."""
    return 1.0 if len(answers) < 2 else Counter(answers)[answers[0]] / len(answers)


def mean_logprob(tokens: Sequence[Token]) -> float:
    """The mean log-probability a token; minus infinity without tokens."""
    return sum(token.logprob for token in tokens) / len(tokens) if tokens else -math.inf
