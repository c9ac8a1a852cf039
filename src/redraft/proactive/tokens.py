"""Tokens as a backend reports them: what was written, how sure the model was, and what else it might have written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.types import Choice

END_MARKS = frozenset(
    ["<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>", "<|return|>"]
)
"""How servers spell the token that ends a reply, where they show it at all; an empty text is one, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token, chosen or possible."""

    data: bytes
    """Its bytes, which need not be whole characters; none for the end of the text."""
    logprob: float
    """Natural logarithm of its probability."""
    id: int | None = None
    """Its number in the model's vocabulary, where the backend says it."""
    end: bool = False
    """The end of the text."""
    top: tuple[Token, ...] = ()
    """The likeliest tokens at this place, itself among them perhaps, the best first."""
    entropy: float | None = None
    """Of the whole distribution at this place, in nats; None where the backend shows its top only."""
    forced: bool = False
    """Put here by the decoder, out of `top` at this place: it cost no token."""

    @property
    def key(self) -> int | bytes | None:
        """What tells it from the other tokens of its place."""
        return None if self.end else self.data if self.id is None else self.id

    @property
    def probability(self) -> float:
        """0..1."""
        return math.exp(self.logprob)

    @property
    def entropy_topk(self) -> float | None:
        """Entropy in nats of the reported top with all the rest as one more token: a lower bound of `entropy`. None where
        nothing but the token itself was reported.
        """
        if len(self.top) < 2:
            return None
        shares = [token.probability for token in self.top]
        rest = 1.0 - sum(shares)
        return -sum(p * math.log(p) for p in [*shares, rest] if p > 1e-12)

    @property
    def margin(self) -> float | None:
        """The best probability of this place less the second best; None where fewer than two were reported."""
        if len(self.top) < 2:
            return None
        return self.top[0].probability - self.top[1].probability


def text_of(tokens: Sequence[Token]) -> str:
    """The text of some tokens; what is no whole character at its end is left out."""
    return b"".join(token.data for token in tokens).decode("utf-8", "ignore")


def is_whole(tokens: Sequence[Token]) -> bool:
    """True if the tokens end between two characters."""
    data = b"".join(token.data for token in tokens[-4:])[-4:]
    for back, byte in enumerate(reversed(data), 1):
        if byte < 0x80:
            return back == 1
        if byte >= 0xC0:
            return back == (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return not data


def tokens_of(entries: Sequence[Mapping[str, Any]]) -> list[Token]:
    """The tokens of a reply's `logprobs`, in the wire form of chat completions (and `id`, `end`, `entropy` where they are)."""
    return [_token(entry) for entry in entries]


def _token(entry: Mapping[str, Any]) -> Token:
    bare = _bare(entry)
    top = tuple(sorted(map(_bare, entry.get("top_logprobs") or ()), key=lambda t: -t.logprob))
    # Where one entry stands for several tokens (pieces of one character), its alternatives are the last piece's.
    if bare.id is not None and any(t.id == bare.id and t.data != bare.data for t in top):
        top = ()
    return Token(data=bare.data, logprob=bare.logprob, id=bare.id, end=bare.end, top=top, entropy=entry.get("entropy"))


def _bare(entry: Mapping[str, Any]) -> Token:
    text = str(entry.get("token") or "")
    listed = entry.get("bytes")
    data = text.encode("utf-8", "surrogatepass") if listed is None else bytes(listed)
    end = bool(entry.get("end")) or not data or text in END_MARKS
    number = entry.get("id")
    return Token(
        data=b"" if end else data,
        logprob=max(float(entry.get("logprob", 0.0)), -1e4),
        id=number if isinstance(number, int) and number >= 0 else None,
        end=end,
    )


def entry_of(token: Token) -> dict[str, Any]:
    """A token in the wire form that `tokens_of` reads."""
    entry = _entry(token)
    if token.entropy is not None:
        entry["entropy"] = token.entropy
    return {**entry, "top_logprobs": [_entry(t) for t in token.top]}


def _entry(token: Token) -> dict[str, Any]:
    entry: dict[str, Any] = {"token": token.data.decode("utf-8", "replace"), "bytes": [*token.data]}
    entry["logprob"] = token.logprob
    if token.id is not None:
        entry["id"] = token.id
    return {**entry, "end": True} if token.end else entry


def reported(choice: Choice) -> list[Token]:
    """The tokens of one choice; none where the backend reported none."""
    return tokens_of(choice.logprobs or ())
