"""llguidance grammars, compiled and probed before they are sent (docs/design.md section 5).

The engine drops a grammar that it cannot use, at once or in the middle of a text, and goes on unconstrained without a
word. So a grammar is compiled here first, with the same library, and walked over a vocabulary like a model's: an empty
language compiles, and one that is too large shows only when masks are computed over many tokens. The walk has a
quarter of the engine's limits, since it does not see every path.
"""

from __future__ import annotations

import random
from functools import cache, lru_cache
from itertools import product
from string import ascii_lowercase
from typing import Any, NamedTuple

from redraft.errors import BadRequestError

_HEADER = "%llguidance"
_FUEL, _ITEMS = 50_000, 12_500  # the engine's are 200,000 and 50,000
_STEPS = (16, 16, 80)  # of each walk
UNCHECKED = "it cannot be checked without the package llguidance; pip install 'redraft[local]'"


class Walk(NamedTuple):
    """A way through a grammar, by chance."""

    text: str
    whole: bool
    """The text is complete."""
    error: str
    """What the library says of the grammar, if it gave up."""


def engine_grammar(grammar: str) -> str:
    """The grammar as the engine takes it. Raises `BadRequestError` if it would not be held."""
    if said := problem(grammar):
        raise BadRequestError(
            f"the grammar was not sent, since the embedded engine would ignore it and answer freely: {said}"
        )
    return grammar if grammar.lstrip().startswith(_HEADER) else f"{_HEADER} {{}}\n{grammar}"


@lru_cache(maxsize=256)
def problem(grammar: str) -> str:
    """What is wrong with a grammar; empty if nothing is and it can be held. Some 50 ms, and once 0.1 s."""
    try:
        for seed, steps in enumerate(_STEPS):
            error = walk(grammar, seed, steps=steps, careful=True).error
            if error:
                return _in_words(error)
    except ImportError:
        return UNCHECKED
    return ""


def walk(grammar: str, seed: int = 0, *, steps: int = 2_000, careful: bool = False) -> Walk:
    """A text of the grammar by random choice, in so many tokens at most; `careful`: within a quarter of the limits."""
    from llguidance import LLMatcher, LLParserLimits

    tokenizer, tokens = _vocabulary()
    limits = LLParserLimits(step_lexer_fuel=_FUEL, step_max_items=_ITEMS) if careful else LLParserLimits()
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    chance = random.Random(seed)
    text = b""
    for _ in range(steps):
        mask = b"" if matcher.is_error() else matcher.compute_bitmask()
        if matcher.is_error():
            return Walk(text.decode(errors="replace"), whole=False, error=matcher.get_error().strip())
        chosen = _choice(mask, tokens, chance)
        if chosen is None:
            return Walk(text.decode(errors="replace"), whole=matcher.is_accepting(), error="")
        matcher.consume_token(chosen)
        text += tokens[chosen]
    return Walk(text.decode(errors="replace"), whole=matcher.is_accepting(), error="")


def accepts(grammar: str, text: str) -> bool:
    """Whether a text is in the grammar's language, to its end."""
    from llguidance import LLMatcher

    matcher = LLMatcher(_vocabulary()[0], grammar, log_level=0)
    return bool(matcher.consume_tokens(list(text.encode())) and matcher.is_accepting())


def _choice(mask: bytes, tokens: tuple[bytes, ...], chance: random.Random) -> int | None:
    """A token that the mask allows; None for the end, in half of the cases where the text may end."""
    end = len(tokens) - 1
    if mask[end // 8] >> end % 8 & 1 and chance.random() < 0.5:
        return None
    marks = mask[:8]  # of the first 64 bytes, spaces among them: words end
    if any(marks) and chance.random() < 0.3:
        return chance.choice([i for i in range(64) if marks[i // 8] >> i % 8 & 1])
    start = chance.randrange(end)
    around = (i % end for i in range(start, start + end))
    return next((i for i in around if mask[i // 8] >> i % 8 & 1), None)


def _in_words(error: str) -> str:
    line = error.partition("\n")[0]
    if "too many" in error.lower() or "TooComplex" in error:
        return f"it grows too large for the engine ({line.partition(' <state>')[0]}); combine fewer or simpler parts"
    return "no text can satisfy it" if line.startswith("NoExtension") else line or "it does not compile"


@cache
def _vocabulary() -> tuple[Any, tuple[bytes, ...]]:
    from llguidance import LLTokenizer, TokenizerWrapper

    vocabulary = _Vocabulary()
    return LLTokenizer(TokenizerWrapper(vocabulary)), vocabulary.tokens


class _Vocabulary:
    """The bytes, then tokens like a model's: made-up words of one to four syllables, marks, other scripts; an end."""

    bos_token_id = None

    def __init__(self) -> None:
        chance = random.Random(0)
        syllables = ["".join(s) for s in product(_ONSETS, _VOWELS, _CODAS)]
        words = {"".join(chance.choices(syllables, k=k)) for k in (1, 2, 3, 4) for _ in range(600)} | {*_COMMON}
        spelt = [form for word in sorted(words) for form in (word, word.capitalize())] + [w.upper() for w in _COMMON]
        starts = ["".join(letters) for n in (2, 3) for letters in product(ascii_lowercase, repeat=n)]
        pieces = {*starts, *spelt, *(f" {s}" for s in (*spelt, *starts[::3])), *_PIECES} - {*map(chr, range(128))}
        found = [piece.encode() for piece in sorted(pieces)]
        chance.shuffle(found)
        self.tokens = (*(bytes([i]) for i in range(256)), *found, b"<end>")
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = (self.eos_token_id,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


_ONSETS = ("", "b", "ch", "d", "f", "g", "h", "l", "m", "p", "r", "s", "st", "th", "tr", "w")
_VOWELS = ("a", "e", "i", "o", "u", "ea", "é")
_CODAS = ("", "ck", "l", "n", "nd", "r", "s")
_COMMON = (  # noqa: SIM905 - reads better
    "the a an of and or but with without its their his her our my your for from to into in on at by as than that which "
    "who when is are was were be have had will can very not no i it you he she we they mr dr etc"
).split()
_PIECES = (
    *(mark + after for mark in ".,!?;:\"'-)*#" for after in ("", "\n", "\n\n", '"', " ")),
    *(space * n for space in " \n" for n in range(1, 9)),
    *(f"{lead}{n}" for lead in ("", " ") for n in range(100)),
    *(
        "'s",
        "'t",
        "'re",
        "\u2019s",
        " \u201c",
        "\u201d",
        "\u2026",
        " \u2013",
        "\u2014",
        " -",
        ' "',
        " (",
        "\n- ",
        " **",
        "{\n",
        '{"',
        '":',
        '",',
    ),
    *("的", "世界", "です", "мир", " привет", "क", "안녕", "😀", "\r\n", "\t"),
)
