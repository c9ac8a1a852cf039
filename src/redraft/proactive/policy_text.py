"""Writing with moves: a text that goes back where a policy, or whatever decides, says so. Every token that is written is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redraft.errors import InputError
from redraft.proactive.policy import Move, RefinementPolicy
from redraft.proactive.tokens import Token, text_of
from redraft.proactive.torch_session import Pick, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a decision is made: right after a token."""

    hidden: Any
    """The state out of which the last token was written (hidden size numbers)."""
    tokens: Sequence[Token]
    """All that stands, that token included."""

    @property
    def nll(self) -> float:
        """The mean negative log-likelihood of what stands, in nats a token: the free signal to compare with."""
        return -sum(token.logprob for token in self.tokens) / len(self.tokens)


Decide = Callable[[Place], Move | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """At least the share `keep` of a text stands, in tokens; at most `most` moves, none within `gap` tokens of the place that the
    last one went back to, and none before the text has `start` tokens. So every text ends.
    """

    keep: float = 0.2
    most: int = 2
    gap: int = 4
    start: int = 1

    def __post_init__(self) -> None:
        """Raises `InputError` for numbers that mean nothing."""
        if not 0 <= self.keep < 1 or self.most < 0 or self.gap < 1 or self.start < 1:
            raise InputError(f"{self!r}: give a share below 1, and numbers of tokens and moves")

    def point(self, n: int, distance: int) -> int:
        """The index to go back to in a text of n tokens, the end included; never n, never below what is kept."""
        return min(max(n - distance, math.ceil(self.keep * n), 0), n - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A text, and what it took."""

    text: str
    ids: tuple[int, ...]
    """The tokens that stand, the end included."""
    tokens_generated: int
    """All that were written, those taken back included."""
    moves: tuple[Move, ...] = ()
    decisions: int = 0
    """How often it was asked whether to go back."""

    @property
    def final_tokens(self) -> int:
        """How many tokens stand, the end included."""
        return len(self.ids)

    @property
    def refinements_applied(self) -> int:
        """How many moves there were."""
        return len(self.moves)

    @property
    def efficiency(self) -> float:
        """The share of the tokens written that stands in the end."""
        return self.final_tokens / self.tokens_generated if self.tokens_generated else 1.0


class HiddenSession(Session):
    """A session that keeps the hidden state of the last place it computed, at one layer."""

    def __init__(self, model: Any, tokenizer: Any, layer: int) -> None:
        super().__init__(model, tokenizer)
        self.layer = layer
        self.hidden: Any = None

    def _forward(self, rows: list[list[Any]], cache: Any) -> Any:
        import torch

        self.forwards += 1
        self.computed += sum(map(len, rows))
        given = torch.tensor(rows, device=self.model.device)
        said = self.model(input_ids=given, cache=cache, use_cache=True, logits_to_keep=1, output_hidden_states=True)
        self.hidden = said.hidden_states[self.layer][0, -1, :].float().cpu()
        return said.logits[:, -1, :]


def generate_with_pasr(
    model: Any,
    policy: RefinementPolicy,
    tokenizer: Any,
    prompt: str,
    max_length: int = 256,
    *,
    refinement_threshold: float = 0.5,
    bounds: Bounds | None = None,
    seed: int = 0,
) -> Written:
    """Write an answer of `max_length` tokens at most, going back where the policy says so. The name is the one in circulation; the
    method is not PASR's.
    """

    def decide(place: Place) -> Move | None:
        return policy.move(place.hidden, refinement_threshold)

    session = HiddenSession(model.eval(), tokenizer, policy.layer)
    return write_with(session, prompt_ids(tokenizer, prompt), decide, cap=max_length, bounds=bounds, seed=seed)


def write_with(
    session: HiddenSession,
    prompt: Sequence[int],
    decide: Decide,
    *,
    cap: int,
    bounds: Bounds | None = None,
    seed: int = 0,
) -> Written:
    """Write greedily, and ask `decide` after each token. A move takes tokens back, writes another token than stood there, and goes
    on at its temperature for half as many again as were taken (4 at least), then greedily.
    """
    return _Writing(
        session=session, prompt=[*prompt], decide=decide, cap=cap, bounds=bounds or Bounds(), seed=seed
    ).run()


def write_after(
    session: HiddenSession, prompt: Sequence[int], stands: Sequence[Token], move: Move, *, cap: int, seed: int = 0
) -> Written:
    """The text that `write_with` would write if `move` were all that is decided, right after the tokens that stand. They count as
    written, but are not written again.
    """
    text = _Writing(session=session, prompt=[*prompt], decide=lambda _: None, cap=cap, bounds=Bounds(most=1), seed=seed)
    text.tokens, text.generated = [*stands], len(stands)
    return text.run(text._back(move))


@dataclass(kw_only=True)
class _Writing:
    session: HiddenSession
    prompt: list[int]
    decide: Decide
    cap: int
    bounds: Bounds
    seed: int
    tokens: list[Token] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    generated: int = 0
    decisions: int = 0
    quiet_until: int = 0
    found: list[Move] = field(default_factory=list)

    def run(self, pick: Pick | None = None) -> Written:
        pick = pick or _likeliest
        while len(self.tokens) < self.cap:
            self.found.clear()
            stretch = self.session.write(self._ids(), self.cap - len(self.tokens), pick, self._watch)
            self.generated += len(stretch.tokens)
            if stretch.finish == "stop":  # the session does not show the end to a watch
                self._watch(stretch.tokens[-1])
            if not self.found:
                break
            pick = self._back(self.found[0])
        return Written(
            text=text_of(self.tokens),
            ids=tuple(token.id or 0 for token in self.tokens),
            tokens_generated=self.generated,
            moves=tuple(self.moves),
            decisions=self.decisions,
        )

    def _ids(self) -> list[int]:
        return [*self.prompt, *(token.id or 0 for token in self.tokens)]

    def _watch(self, token: Token) -> bool:
        self.tokens.append(token)
        n = len(self.tokens)
        if len(self.moves) >= self.bounds.most or n < max(self.bounds.start, self.quiet_until):
            return False
        self.decisions += 1
        if move := self.decide(Place(hidden=self.session.hidden, tokens=tuple(self.tokens))):
            self.found.append(move)
        return bool(self.found)

    def _back(self, move: Move) -> Pick:
        n = len(self.tokens)
        point = self.bounds.point(n, move.distance)
        taken = self.tokens[point]
        self.tokens = self.tokens[:point]
        self.moves.append(move)
        self.quiet_until = point + self.bounds.gap
        at = len(self.prompt) + point
        back = n - point
        return _differently(
            at, at + max(back + back // 2, 4), taken.id, move.temperature, self.seed * 1009 + len(self.moves)
        )


def _likeliest(_: Any, logits: Any) -> int:
    return int(logits[0].argmax())


def _differently(at: int, until: int, banned: int | None, temperature: float, seed: int) -> Pick:
    """At index `at` another token than `banned`; up to `until` drawn at the temperature; then the likeliest."""
    import torch

    chance = torch.Generator().manual_seed(seed)

    def pick(ids: Sequence[int], logits: Any) -> int:
        if len(ids) >= until:
            return _likeliest(ids, logits)
        scores = logits[0].float().cpu() / temperature
        if len(ids) == at and banned is not None:
            scores[banned] = -math.inf
        return int(torch.multinomial(torch.softmax(scores, dim=-1), 1, generator=chance))

    return pick


def prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The ids of a question, by the chat template where there is one."""
    if getattr(tokenizer, "chat_template", None):
        message = [{"role": "user", "content": prompt}]
        return [*tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)]
    return [*tokenizer(prompt)["input_ids"]]
