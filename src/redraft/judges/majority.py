"""The answer that most drafts agree on: a judge that buys no call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from redraft.errors import InputError


class Majority:
    """Self-consistency (Wang et al. 2022, arXiv 2203.11171): `BestOfN(ChainOfThought("question -> answer"), N=5,
    judge=Majority())` keeps the first of the drafts whose answer comes most often.

    `key` makes of a draft what is compared; by default its words without case. Where every draft says something else there is
    no majority, and the first one stays.
    """

    def __init__(self, key: Callable[[str], Hashable] | None = None) -> None:
        if key is not None and not callable(key):
            raise InputError(f"key={key!r}: give a function of a draft, as in key=lambda text: text.split()[-1]")
        self.key = key or _words

    def __call__(self, task: Any, drafts: Sequence[str]) -> int | None:
        """The index of the first draft of the majority, or None where there is none. Shape: `drafts` are N texts."""
        del task
        said = [self.key(draft) for draft in drafts]
        (answer, votes), *_ = Counter(said).most_common(1) or [(None, 0)]
        return said.index(answer) if votes > 1 else None


def _words(text: str) -> Hashable:
    return tuple(text.casefold().split())
