"""Where to go back to, what to try from there, and which of the alternatives to take."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from redraft.errors import InputError
from redraft.proactive.signals import Signal, consistency, mean_logprob
from redraft.proactive.tokens import Token, is_whole, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One continuation that is asked for."""

    first: Token | None = None
    """The token it begins with, out of those that were likely there; None: whatever comes."""
    temperature: float | None = None
    """None: the module's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Which alternative is taken, and why."""

    at: int
    """0 is the original."""
    why: str
    consistency: float
    """The share of all, the original included, that agree with the original."""


class DynamicBacktracker:
    """Goes back `nearest` to `farthest` tokens, and keeps at least the share `keep` of what was written, in tokens.

    From there one alternative for each of `temperatures` is written, without the token that stood there, for at most
    `horizon` tokens (None: half as many again as were taken back, and at least 16). No second look at the same place, nor
    within `gap` tokens of the last one; at most `most` rewinds a text, those of guards included. What takes the place of a
    banned token has to have a probability of at least `floor`, but where a guard has refused all of these. `agree` makes the
    answer of a text, for the vote.
    """

    def __init__(
        self,
        *,
        reach: tuple[int, int] = (5, 20),
        keep: float = 0.2,
        temperatures: Sequence[float] = (0.7, 0.8, 0.9),
        horizon: int | None = None,
        gap: int = 8,
        most: int = 24,
        floor: float = 0.02,
        agree: Callable[[str], Hashable] | None = None,
    ) -> None:
        self.nearest, self.farthest = reach
        if not 1 <= self.nearest <= self.farthest:
            raise InputError(f"reach={reach!r}: give (nearest, farthest) in tokens, from 1 up")
        if not 0 <= keep < 1 or not 0 < floor < 1:
            raise InputError(f"keep={keep!r}, floor={floor!r}: give shares between 0 and 1")
        if gap < 1 or most < 0 or (horizon is not None and horizon < 1):
            raise InputError(f"gap={gap!r}, most={most!r}, horizon={horizon!r}: give numbers of tokens, and of rewinds")
        if not temperatures or not all(0 < t < math.inf for t in temperatures):
            raise InputError(f"temperatures={temperatures!r}: give one or more, above 0")
        self.keep, self.temperatures, self.horizon = keep, tuple(temperatures), horizon
        self.gap, self.most, self.floor = gap, most, floor
        self.agree = agree or answer

    def find_refinement_point(
        self, tokens: Sequence[Token], signal: Signal, *, tabu: Callable[[int], bool] = lambda _: False
    ) -> int | None:
        """The index of the most doubtful token within reach, the first of equals; None if there is none.

        An index into `tokens`, which stays right whatever is cut; never one of the first `keep` share, never the end.
        """
        low = max(math.ceil(self.keep * len(tokens)), len(tokens) - self.farthest)
        places = (
            at
            for at in range(low, len(tokens) - self.nearest + 1)
            if len(tokens[at].top) > 1 and not tokens[at].end and is_whole(tokens[:at]) and not tabu(at)
        )
        return max(places, key=lambda at: (signal.doubt(tokens[at]), -at), default=None)

    def revise_from_point(
        self, tokens: Sequence[Token], point: int, chance: random.Random, *, banned: frozenset[Hashable] = frozenset()
    ) -> list[Branch]:
        """The alternatives to write from there: each begins with another likely token than stood there, drawn at its
        temperature. Empty if every other one is banned, or below the floor.
        """
        taken = {tokens[point].key, *banned}
        others = [t for t in self.likely(tokens, point, self.floor) if t.key not in taken]
        if not others:
            return []
        return [Branch(first=_drawn(others, t, chance), temperature=t) for t in self.temperatures]

    def likely(self, tokens: Sequence[Token], at: int, floor: float) -> list[Token]:
        """The tokens that may stand at a place, the best first: likely enough, and ending between two characters."""
        before = list(tokens[:at])
        return [t for t in tokens[at].top if t.probability >= floor and (t.end or is_whole([*before, t]))]

    def room(self, taken: int) -> int:
        """How many tokens an alternative may have for so many that are taken back."""
        return self.horizon or max(taken + taken // 2, 16)

    def select_best_alternative(
        self, tails: Sequence[Sequence[Token]], verified: Sequence[float], texts: Sequence[str]
    ) -> Selected:
        """Of the original (the first) and its alternatives: what a verifier ranks highest, among those what most agree
        on, and only then the likeliest. The original wins where nothing speaks against it.
        """
        answers = [self.agree(text) for text in texts]
        agreed = consistency(answers)
        best = max(verified)
        left = [at for at, value in enumerate(verified) if value >= best]
        votes = Counter(answers[at] for at in left)
        most = max(votes.values())
        if most > 1:
            left = [at for at in left if votes[answers[at]] == most]
        # As far as the original goes: what comes later is not what was doubted.
        at = max(left, key=lambda i: (mean_logprob(tails[i][: len(tails[0])]), -i))
        if verified[0] < best:
            why = "the checks prefer it"
        elif 0 not in left:
            why = f"{most} of {len(texts)} agree on it"
        elif at == 0:
            why = "nothing speaks against it"
        else:
            same = answers[at] == answers[0]
            at, why = (0, "the others say the same") if same else (at, "the likelier one, all else being equal")
        return Selected(at=at, why=why, consistency=agreed)


def _drawn(tokens: Sequence[Token], temperature: float, chance: random.Random) -> Token:
    weights = [math.exp(max((t.logprob - tokens[0].logprob) / temperature, -700.0)) for t in tokens]
    return chance.choices(tokens, weights)[0]


def answer(text: str) -> str:
    """A text as it counts in a vote: without case, white space and the marks at its end."""
    return re.sub(r"\s+", " ", text).strip().strip(".!?\"'*`").casefold()


def text_with(kept: Sequence[Token], tail: Sequence[Token]) -> str:
    """The text of what is kept and one of its continuations."""
    return text_of([*kept, *tail])
