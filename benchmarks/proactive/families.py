"""Three families of items whose answers code can verify: a guarded format, additions, copying. Drawn from a seed."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from redraft.checks import Check
from redraft.checks.base import Guard


@dataclass(frozen=True)
class Item:
    id: str
    family: str
    prompt: str
    check: Check
    cap: int


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
    *("a small café", "an old lighthouse", "a night train", "a rainy market", "a mountain lake", "a busy harbour"),
    *("a village school", "a winter garden", "a street musician", "a quiet library", "a farm at dawn", "a desert road"),
    *(
        "a clock maker",
        "a fishing boat",
        "a paper kite",
        "a stone bridge",
        "a bakery",
        "a museum hall",
        "a forest path",
    ),
    *("a chess club", "a spring storm", "a ferry crossing", "a tea house", "a city roof"),
)


def items(family: str, n: int, seed: int) -> list[Item]:
    chance = random.Random(f"{family}|{seed}")
    return [_MAKERS[family](chance, i, seed) for i in range(n)]


def _format(chance: random.Random, i: int, seed: int) -> Item:
    topic = TOPICS[(i + 7 * seed) % len(TOPICS)]
    prompt = f"Describe {topic} in two sentences. Use no word twice."
    del chance
    return Item(f"format-{seed}-{i}", "format", prompt, NoWordTwice(tell=False), 70)


def _addition(chance: random.Random, i: int, seed: int) -> Item:
    top = (9, 30, 60)[i % 3]  # easy and hard alike
    a, b = chance.randint(1, top), chance.randint(1, top)
    return Item(f"addition-{seed}-{i}", "addition", f"What is {a} + {b}? Reply with the number only.", Sum(a + b), 16)


def _copy(chance: random.Random, i: int, seed: int) -> Item:
    code = "".join(chance.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=(5, 8, 11)[i % 3]))
    return Item(f"copy-{seed}-{i}", "copy", f"Repeat this code exactly, and nothing else: {code}", Copied(code), 24)


_MAKERS = {"format": _format, "addition": _addition, "copy": _copy}
