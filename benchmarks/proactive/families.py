"""Three families of items whose answers code can verify: a guarded format, additions, copying. No two items are alike."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from redraft import checks
from redraft.checks import Check
from redraft.checks.base import Guard

FAMILIES = ("format", "addition", "copy")
SEEDS, EACH, HELD = 3, 100, 6
"""Seeds; items of each, which no other has; further items of a family, for calibration only."""


@dataclass(frozen=True)
class Item:
    id: str
    family: str
    seed: int
    number: int
    """Of its seed, from 0."""
    prompt: str
    check: Check
    cap: int
    form: Check | None = None
    """The form of the answer, as a check that compiles to a constraint; None: none does."""


class NoWordTwice(Check):
    """No word of five letters or more comes twice: no regular language, so that nothing compiles it."""

    name = "no_word_twice"

    def twice(self, text: str) -> str:
        words = re.findall(r"[a-z]{5,}", text.lower())
        return next((word for i, word in enumerate(words) if word in words[:i]), "")

    def guard(self, prefix: str) -> Guard:
        whole = re.match(r"(?s).*\W", prefix)  # the last word may go on
        return "fail" if whole and self.twice(whole[0]) else "unknown"

    def judge(self, value: object) -> tuple[float, str]:
        text = str(value)
        count = len(text.split())
        if count < 15:
            return 0.3, f"{count} words, want 15 or more"
        word = self.twice(text)
        return (0.0, f"the word {word!r} comes twice") if word else (1.0, "")


class Sum(Check):
    """The one number that the answer ends with is the sum. No guard: only the whole text tells."""

    name = "sum"

    def __init__(self, total: int) -> None:
        super().__init__(tell=False)
        self.total = total

    def judge(self, value: object) -> tuple[float, str]:
        numbers = re.findall(r"\d+", str(value))
        right = bool(numbers) and int(numbers[-1]) == self.total
        return (1.0, "") if right else (0.0, "the sum is wrong")


class Copied(Check):
    """The text is the code, letter for letter; a prefix that leaves it cannot pass."""

    name = "copied"

    def __init__(self, code: str) -> None:
        super().__init__(tell=False)
        self.code = code

    def guard(self, prefix: str) -> Guard:
        begun = prefix.lstrip()
        return "unknown" if self.code.startswith(begun) or begun.rstrip() == self.code else "fail"

    def judge(self, value: object) -> tuple[float, str]:
        return (1.0, "") if str(value).strip() == self.code else (0.0, "it is not the code that was given")


TOPICS = (
    *("a small café", "an old lighthouse", "a night train", "a market", "a mountain lake", "a busy harbour"),
    *("a village school", "a garden", "a street musician", "a quiet library", "a farm", "a desert road"),
    *("a clock maker", "a fishing boat", "a paper kite", "a stone bridge", "a bakery", "a museum hall"),
    *("a forest path", "a chess club", "a storm", "a ferry crossing", "a tea house", "a city roof"),
)
TIMES = (
    *("at dawn", "at noon", "at dusk", "at midnight", "in spring", "in summer", "in autumn", "in winter"),
    *("after the rain", "before a feast", "on a Sunday", "in fog", "in your memory", "seen by a child"),
)


def items(family: str, seed: int | None) -> list[Item]:
    """The items of a seed; of None, those that no seed has."""
    first, count = (SEEDS * EACH, HELD) if seed is None else (seed * EACH, EACH)
    name = "held" if seed is None else str(seed)
    asked = _all(family)[first : first + count]
    return [
        Item(f"{family}-{name}-{i}", family, -1 if seed is None else seed, i, *_MAKERS[family](*about))
        for i, about in enumerate(asked)
    ]


@lru_cache
def _all(family: str) -> list[tuple[str | int, ...]]:
    """What the items are about, in their order: as many as there are, each once."""
    chance = random.Random(family)
    drawn: Iterator[tuple[str | int, ...]]
    if family == "format":
        drawn = iter(chance.sample([*itertools.product(TOPICS, TIMES)], len(TOPICS) * len(TIMES)))
    elif family == "addition":  # easy and hard alike
        tops = itertools.cycle((12, 30, 60))
        drawn = ((chance.randint(1, top), chance.randint(1, top)) for top in tops)
    else:
        lengths = itertools.cycle((5, 8, 11))
        drawn = (("".join(chance.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=k)),) for k in lengths)
    found: dict[tuple[str | int, ...], None] = {}
    while len(found) < SEEDS * EACH + HELD:
        found.setdefault(next(drawn))
    return [*found]


def _format(topic: str, when: str) -> tuple[Any, ...]:
    return f"Describe {topic} {when} in two sentences. Use no word twice.", NoWordTwice(tell=False), 70


def _addition(a: int, b: int) -> tuple[Any, ...]:
    return f"What is {a} + {b}? Reply with the number only.", Sum(a + b), 16, checks.matches(r"\d{1,3}")


def _copy(code: str) -> tuple[Any, ...]:
    form = checks.one_of(code, ignore_case=False)
    return f"Repeat this code exactly, and nothing else: {code}", Copied(code), 24, form


_MAKERS: dict[str, Callable[..., tuple[Any, ...]]] = {"format": _format, "addition": _addition, "copy": _copy}
"""What an item asks for, the check, the cap of a reply, and its form."""
