"""A transformers model that writes, goes back and branches on one cache of keys and values. Blocking; one thread at a time.

Nothing that stands is computed twice: going back crops the cache, branches run as one batch on a copy of it, and the branch
that is taken becomes the cache.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from redraft.proactive.decode import Finish
from redraft.proactive.tokens import Token

TOP = 8

Pick = Callable[[Sequence[int], Any], int]
"""Takes the ids so far and the logits of the next one (1 x vocabulary); returns its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What was written."""

    tokens: tuple[Token, ...]
    finish: Finish


class Session:
    """One model and what its cache holds. `forwards` counts its calls, `computed` the tokens that went through it."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.bytes_of = lru_cache(maxsize=None)(lambda number: token_bytes(tokenizer, number))
        self.ends = end_ids(model, tokenizer)
        self.forwards = self.computed = 0
        self.cache: Any = None
        self.ids: list[int] = []
        """What the cache holds the keys and values of."""
        self._rows: list[list[int]] = []  # the same of the branches
        self._branched: Any = None

    def write(self, ids: Sequence[int], cap: int, pick: Pick, watch: Callable[[Token], bool] | None = None) -> Stretch:
        """Continue `ids` by `cap` tokens at most, until an end, or until `watch` says so."""
        import torch

        with torch.inference_mode():
            logits = self._reach(ids)
            new: list[Token] = []
            so_far = [*ids]
            finish: Finish = "length"
            while len(new) < cap:
                new.append(self._token(logits[0], pick(so_far, logits)))
                so_far.append(new[-1].id or 0)
                assert self.cache.get_seq_length() == len(ids) + len(new) - 1, "the cache and the tokens fell apart"
                if new[-1].end or (watch is not None and watch(new[-1])):
                    finish = "stop" if new[-1].end else "cut"
                    break
                if len(new) < cap:
                    logits = self._feed([new[-1].id])
        return Stretch(tokens=tuple(new), finish=finish)

    def branch(self, ids: Sequence[int], firsts: Sequence[int], cap: int, picks: Sequence[Pick]) -> list[Stretch]:
        """Continue `ids` by each of the first tokens, as one batch of `cap` tokens at most; what was written stays as well."""
        import torch

        with torch.inference_mode():
            self._hold(ids)
            batch = copy.deepcopy(self.cache)
            batch.crop(-(len(self.ids) - len(ids)))
            batch.batch_repeat_interleave(len(firsts))
            rows = [[*ids, first] for first in firsts]
            news: list[list[Token]] = [[] for _ in firsts]
            done: list[Finish | None] = ["stop" if first in self.ends else None for first in firsts]
            last = [*firsts]
            for _ in range(cap):
                logits = self._forward([[number] for number in last], batch)
                assert batch.get_seq_length() == len(rows[0]), "the cache and the tokens fell apart"
                for i, row in enumerate(rows):
                    if done[i] is None:
                        token = self._token(logits[i], picks[i](row, logits[i : i + 1]))
                        news[i].append(token)
                        last[i] = token.id or 0
                        done[i] = "stop" if token.end else None
                    row.append(last[i])
                if all(done):
                    break
            # The last token of each row was not fed.
            self._branched, self._rows = batch, [row[:-1] for row in rows]
        return [Stretch(tokens=tuple(new), finish=end or "length") for new, end in zip(news, done, strict=True)]

    def _hold(self, ids: Sequence[int]) -> None:
        """Have the keys and values of all of `ids`, and perhaps of more that follows them."""
        if _common(self.ids, ids) < len(ids):
            self._reach(ids)

    def _reach(self, ids: Sequence[int]) -> Any:
        """The logits after `ids`; the cache then holds just these."""
        kept = _common(self.ids, ids)
        shared = [_common(row, ids) for row in self._rows]
        if shared and max(shared) > kept:
            import torch

            best = shared.index(max(shared))
            self.cache, self.ids, kept = self._branched, self._rows[best], shared[best]
            self.cache.batch_select_indices(torch.tensor([best]))
        self._branched, self._rows = None, []
        kept = min(kept, len(ids) - 1)  # the last one is fed again for its logits
        if self.cache is None or kept == 0:
            self._start()
        else:
            self.cache.crop(-(len(self.ids) - kept))
            self.ids = self.ids[:kept]
        return self._feed(ids[kept:])

    def _start(self) -> None:
        from transformers import DynamicCache

        self.cache, self.ids = DynamicCache(config=self.model.config), []
        if hasattr(self.cache, "activate_past_recording"):  # layers with a window drop what rewinds need
            self.cache.activate_past_recording()

    def _feed(self, ids: Sequence[int | None]) -> Any:
        logits = self._forward([list(ids)], self.cache)
        self.ids.extend(number for number in ids if number is not None)
        return logits

    def _forward(self, rows: list[list[Any]], cache: Any) -> Any:
        import torch

        self.forwards += 1
        self.computed += sum(map(len, rows))
        given = torch.tensor(rows, device=self.model.device)
        return self.model(input_ids=given, cache=cache, use_cache=True, logits_to_keep=1).logits[:, -1, :]

    def _token(self, logits: Any, chosen: int) -> Token:
        import torch

        shares = torch.log_softmax(logits.float(), dim=-1)
        values, places = shares.topk(TOP)
        top = tuple(self._bare(i, p) for i, p in zip(places.tolist(), values.tolist(), strict=True))
        entropy = -float(shares.exp().dot(shares))
        bare = self._bare(chosen, float(shares[chosen]))
        return Token(data=bare.data, logprob=bare.logprob, id=chosen, end=bare.end, top=top, entropy=entropy)

    def _bare(self, number: int, logprob: float) -> Token:
        end = number in self.ends
        return Token(data=b"" if end else self.bytes_of(number), logprob=max(logprob, -1e4), id=number, end=end)


def greedy(_: Any, logits: Any) -> int:
    """The likeliest token."""
    return int(logits[0].argmax())


def sampled(temperature: float, seed: int) -> Pick:
    """Tokens drawn at a temperature, from a seed."""
    import torch

    chance = torch.Generator().manual_seed(seed)

    def pick(_: Any, logits: Any) -> int:
        shares = torch.softmax(logits[0].float().cpu() / temperature, dim=-1)
        return int(torch.multinomial(shares, 1, generator=chance))

    return pick


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a reply."""
    told = getattr(model.generation_config, "eos_token_id", None)
    listed = told if isinstance(told, list | tuple) else [told]
    return frozenset(n for n in [*listed, tokenizer.eos_token_id] if isinstance(n, int))


def token_bytes(tokenizer: Any, number: int) -> bytes:
    """The bytes of a token, which need not be whole characters."""
    piece = tokenizer.convert_ids_to_tokens(number)
    if piece is None:
        return b""
    if number in tokenizer.all_special_ids:
        return str(piece).encode()
    if all(mark in _BYTES for mark in piece):  # byte-level BPE
        return bytes(_BYTES[mark] for mark in piece)
    if len(piece) == 6 and piece.startswith("<0x"):
        return bytes([int(piece[3:5], 16)])
    return str(piece).replace("\u2581", " ").encode()


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _byte_marks() -> dict[str, int]:
    """How byte-level BPE writes bytes: those that can be seen as themselves, the others from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    marks = {chr(byte): byte for byte in seen}
    return marks | {chr(0x100 + n): byte for n, byte in enumerate(b for b in range(256) if b not in seen)}


_BYTES = _byte_marks()
