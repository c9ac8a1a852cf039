"""A backend for tests: a model that is a table of probabilities, exact to the last digit. No network, no tokenizer, no clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redraft.lm.cut import CUT, Watch
from redraft.proactive.backend import FIRSTS, KEPT, TEMPERATURES
from redraft.proactive.tokens import Token, entry_of
from redraft.protocols import LM, Delta, OnDelta
from redraft.types import Capabilities, Choice, Completion, Request, Usage

END = ""
"""The token that ends a text."""

Table = Callable[[tuple[str, ...]], Mapping[str, float]]
"""The tokens that may follow some tokens, with their probabilities."""


class TableLM:
    """A model whose next token is drawn from a table; at temperature 0 or None, the likeliest, the first of equals.

    `words` are all its tokens, in the order of their ids; `END` is one of them. With `ids` it takes what is kept as ids and ends
    at the very token it is told to; without, it takes the text as an API does, and only its stream can be cut. `forwards`
    counts the tokens that it wrote.
    """

    capabilities = Capabilities(n=True, logprobs=True, prefill=True, seed=True, stream=True)

    def __init__(self, table: Table, words: Sequence[str], *, ids: bool = True, name: str = "table") -> None:
        self.table, self.words, self.takes_ids, self.name = table, [*words], ids, name
        self.max_output: int | None = None
        self.parallel = 64
        self.overshoot = 0
        self.requests: list[Request] = []
        self.forwards = 0
        if ids:
            self.watched = lambda watch: _Watched(self, watch)

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:
        """Write from the table."""
        return self.reply(request, None, on_delta)

    def reply(self, request: Request, watch: Watch | None, on_delta: OnDelta) -> Completion:
        """The same, watched."""
        self.requests.append(request)
        kept = self._kept(request)
        firsts = request.extra.get(FIRSTS) or [None] * request.n
        warmths = request.extra.get(TEMPERATURES) or [request.temperature] * request.n
        choices = [self._choice(kept, i, firsts[i], warmths[i], request, watch, on_delta) for i in range(request.n)]
        out = sum(len(choice.logprobs or ()) for choice in choices)
        usage = Usage(input_tokens=len(kept) + 1, output_tokens=out)
        return Completion(choices=tuple(choices), model=self.name, usage=usage)

    def _choice(self, kept: list[str], i: int, first: int | None, warmth: float | None, *how: Any) -> Choice:
        request, watch, on_delta = how
        chance = random.Random(f"{request.seed}|{i}")
        so_far = kept if first is None else [*kept, self.words[first]]
        new: list[dict[str, Any]] = []
        finish = "stop" if so_far and so_far[-1] == END else "length"
        for _ in range(request.max_tokens or 1000) if finish == "length" else ():
            token = self._token(tuple(so_far), warmth, chance)
            so_far = [*so_far, self.words[token.id or 0]]
            new.append(entry_of(token))
            self.forwards += 1
            if on_delta is not None:
                on_delta(Delta(text=token.data.decode(), choice=i, tokens=(new[-1],)))
            if token.end:
                finish = "stop"
                break
            if watch is not None and watch(new[-1:]):
                finish = CUT
                break
        text = "".join(str(entry["token"]) for entry in new)
        return Choice(text=text, finish_reason=finish, logprobs=tuple(new))

    def _token(self, before: tuple[str, ...], warmth: float | None, chance: random.Random) -> Token:
        shares = {word: p for word, p in self.table(before).items() if p > 0}
        ranked = sorted(shares, key=lambda word: -shares[word])
        top = tuple(self._bare(word, shares[word]) for word in ranked)
        at = 0
        if warmth:
            at = chance.choices(range(len(top)), [math.exp(t.logprob / warmth) for t in top])[0]
        entropy = -sum(p * math.log(p) for p in shares.values())
        chosen = top[at]
        return Token(data=chosen.data, logprob=chosen.logprob, id=chosen.id, end=chosen.end, top=top, entropy=entropy)

    def _bare(self, word: str, share: float) -> Token:
        return Token(data=word.encode(), logprob=math.log(share), id=self.words.index(word), end=word == END)

    def _kept(self, request: Request) -> list[str]:
        if KEPT in request.extra:
            return [self.words[number] for number in request.extra[KEPT]]
        text, kept = request.prefill or "", []
        by_length = sorted(filter(None, self.words), key=len, reverse=True)
        while text:
            word = next(word for word in by_length if text.startswith(word))
            kept.append(word)
            text = text.removeprefix(word)
        return kept

    def count(self, request: Request) -> int | None:
        """The tokens that are kept, and one for the prompt."""
        return len(self._kept(request)) + 1

    def cost(self, usage: Usage) -> float | None:  # noqa: ARG002 - the contract's signature
        """Nothing."""
        return 0.0


class _Watched:
    """A table whose reply is watched."""

    def __init__(self, inner: TableLM, watch: Watch) -> None:
        self._inner, self._watch = inner, watch
        self.name, self.capabilities = inner.name, inner.capabilities
        self.max_output, self.parallel = inner.max_output, inner.parallel
        self.count, self.cost = inner.count, inner.cost

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:
        return self._inner.reply(request, self._watch, on_delta)


def chain(probable: Mapping[str, Mapping[str, float]]) -> Table:
    """A table by the last token alone; the first one follows `END`."""

    def table(before: tuple[str, ...]) -> Mapping[str, float]:
        return probable[before[-1] if before else END]

    return table


def as_lm(table: Table, words: Sequence[str], **options: Any) -> LM:
    """A `TableLM`, seen as an LM."""
    lm: LM = TableLM(table, words, **options)
    return lm
