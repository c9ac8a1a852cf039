"""llguidance grammars, compiled and probed before they are sent (docs/design.md section 5).

The engine drops a grammar that it cannot use and answers unconstrained, without a word. So a grammar is compiled here
first, with the same library, and its first bytes are walked: an empty language compiles.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from redraft.errors import BadRequestError

_HEADER = "%llguidance"
_WALK = 32
_EOS = 256


def engine_grammar(grammar: str) -> str:
    """The grammar as the engine takes it. Raises `BadRequestError` if it would not be held."""
    if said := problem(grammar):
        raise BadRequestError(
            f"the grammar was not sent, since the embedded engine would ignore it and answer freely: {said}"
        )
    return grammar if grammar.lstrip().startswith(_HEADER) else f"{_HEADER} {{}}\n{grammar}"


@lru_cache(maxsize=256)
def problem(grammar: str) -> str:
    """What is wrong with a grammar; empty if nothing is and it can be held."""
    try:
        from llguidance import LLMatcher
    except ImportError:
        return "it cannot be checked without the package llguidance; pip install 'redraft[local]'"
    matcher = LLMatcher(_byte_tokenizer(), grammar, log_level=0)
    for _ in range(_WALK):
        allowed = b"" if matcher.is_error() else matcher.compute_bitmask()
        if matcher.is_error():
            return _first_line(matcher.get_error())
        byte = next((i for i in range(_EOS) if allowed[i // 8] >> i % 8 & 1), None)
        if byte is None:
            break  # the text may only end here
        matcher.consume_token(byte)
    return ""


def _first_line(said: str) -> str:
    line = said.strip().partition("\n")[0]
    return "no text can satisfy it" if line.startswith("NoExtension") else line or "it does not compile"


@cache
def _byte_tokenizer() -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Bytes()))


class _Bytes:
    """A tokenizer whose tokens are the bytes, and an end of text."""

    eos_token_id = _EOS
    bos_token_id = None
    tokens = (*(bytes([i]) for i in range(_EOS)), b"<end>")
    special_token_ids = (_EOS,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)
