"""A score as an expectation over the score's token (G-Eval, 2303.16634): where a judge says 4 but would have said 3
nearly as often, the score is 3.6, and ties between drafts come apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from redraft.types import Choice

LEAST = 0.5
"""Probability on the scale's scores below which a judge has no opinion: it was about to say something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a judge's score is on average, in units of the scale."""

    value: float
    deviation: float = 0.0
    """Standard deviation over the scores that the judge might have said."""
    mass: float = 1.0
    """Probability that it says a score at all, as far as alternatives were reported."""
    measured: bool = True
    """False: there were no log probabilities to go by, and `value` is the one score that was said."""


def expectation(
    choice: Choice, scale: tuple[int, int] = (1, 5), *, field: str = "", least: float = LEAST
) -> Expected | None:
    """The expected score of a reply that is a score, or that has one in `field`; None if it abstains: no score of the
    scale was said, or all of them together were less likely than `least`.

    Without alternatives a token, and on scales where one score begins like another (1 and 10), it is the score said.
    """
    scores = {str(value): value for value in range(scale[0], scale[1] + 1)}
    said = _place(choice.text, field)
    if said is None or said[1] not in scores:
        return None
    one_token = not any(a != b and b.startswith(a) for a in scores for b in scores)
    chances = _chances(choice, said.start(1), scores) if one_token else {}
    if not chances:
        return Expected(value=float(scores[said[1]]), measured=False)
    total = sum(chances.values())
    if total < least:
        return None
    mean = sum(value * p for value, p in chances.items()) / total
    variance = sum((value - mean) ** 2 * p for value, p in chances.items()) / total
    return Expected(value=mean, deviation=math.sqrt(variance), mass=min(1.0, total))


def _place(text: str, field: str) -> re.Match[str] | None:
    """Where the score stands: after the field's name, or else at the reply's beginning, never somewhere in prose."""
    if field:
        return re.search(rf"(?<!\w){re.escape(field)}\W{{1,8}}(\d+)(?!\w)", text, re.IGNORECASE)
    return _ALONE.match(text)


def _chances(choice: Choice, at: int, scores: Mapping[str, int]) -> dict[int, float]:
    """How likely each score was at this place of the text; empty if that was not reported."""
    token = _token_at(choice, at)
    if token is None or not token.get("top_logprobs"):
        return {}
    offered = {a["token"]: a["logprob"] for a in token["top_logprobs"]}
    offered.setdefault(token["token"], token["logprob"])
    chances: dict[int, float] = {}
    for text, logprob in offered.items():
        if (value := scores.get(_BARE.sub("", text))) is not None:
            chances[value] = chances.get(value, 0.0) + math.exp(min(0.0, logprob))
    return chances


def _token_at(choice: Choice, at: int) -> Mapping[str, Any] | None:
    """The token that holds a place of the text. Tokens are counted in bytes, since some end inside a character, and from
    the text's start, since thoughts may come before it.
    """
    tokens = choice.logprobs or ()
    pieces = [_bytes(token) for token in tokens]
    start = b"".join(pieces).rfind(choice.text.encode("utf-8", "replace"))
    if start < 0:
        return None
    wanted = start + len(choice.text[:at].encode("utf-8", "replace"))
    ends = accumulate(map(len, pieces))
    return next((token for token, end in zip(tokens, ends, strict=True) if end > wanted), None)


def _bytes(token: Mapping[str, Any]) -> bytes:
    given = token.get("bytes")
    return bytes(given) if given is not None else str(token["token"]).encode("utf-8", "replace")


_ALONE = re.compile(
    r"\W{0,9}(?:(?:the\W{1,3})?(?:score|verdict|rating|answer)(?:\W{1,3}is)?\W{1,9})?(\d+)(?!\w|[.,]\d|\s*(?:-|\u2013|to\b)\s*\d)",
    re.IGNORECASE,
)
"""A reply that opens with its score: "4", "**4**", "Score: 4/5", "4. Clear."; no range, no fraction of a point."""
_BARE = re.compile(r"^\W+|\W+$")
"""What surrounds a score inside its token: spaces, quotes, commas."""
