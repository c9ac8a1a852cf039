"""The arms: what is done for one item, and what it took. Every token that was written counts, wherever it ended up."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any

from families import Item

from redraft import Critic, Predict, Refine, Run, SelfRefine
from redraft.lm.cut import CUT, cut_by
from redraft.lm.local import LocalLM
from redraft.proactive import DynamicBacktracker, ProactiveDecoder, RandomSignal, RefinementSignal
from redraft.proactive.backend import TOP
from redraft.proactive.tokens import text_of, tokens_of
from redraft.protocols import Delta, OnDelta
from redraft.types import Completion, Prediction, Request

ARMS = (
    *("plain", "compiled constraint", "guard rewinds", "signal rewinds + verifier", "random triggers, same rate"),
    *("always", "best-of-k, equal tokens", "abort and restart", "Refine", "Self-Refine"),
)
COLUMNS = ("right", "tokens", "input", "calls", "rewinds", "signals")
MOST, ATTEMPTS, ROUNDS, CRITIC = 16, 3, 2, 160
"""Rewinds of a text; attempts of Refine; rounds of Self-Refine, and most tokens of its critic, which writes until its limit."""


class Shared(LocalLM):
    """One slot of the embedded engine; a greedy reply is computed once, and charged in full to each arm that asks for it.

    Greedy replies to one request are the same but for rounding. A reply that was cut is not kept. An item stays in its slot, so
    that its prompt is read once.
    """

    def __init__(self, slot: int, **options: Any) -> None:
        super().__init__(**options)
        self.slot = slot
        self.held: dict[str, Completion] = {}
        self.written = 0
        """Tokens really computed, but for those of replies that were cut."""

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:
        request = request.but(extra={**request.extra, "id_slot": self.slot})
        if request.temperature != 0 or request.n != 1:
            return self._counted(await super().generate(request, on_delta))
        key = repr(request.but(seed=None, logprobs=None))
        if key not in self.held:
            self.held[key] = self._counted(await super().generate(request.but(logprobs=TOP), on_delta))
        elif on_delta is not None:
            _replay(self.held[key], on_delta)
        return self.held[key]

    def _counted(self, reply: Completion) -> Completion:
        self.written += reply.usage.output_tokens if reply.usage else 0
        return reply

    def count(self, request: Request) -> int:
        """Exact; where the engine is too busy to tell, about: a cut reply must not be charged a whole prompt for that."""
        said = super().count(request)
        return said if said is not None else sum(len(str(m["content"])) for m in request.messages) // 4 + 30


def _replay(reply: Completion, on_delta: Any) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in reply.choices[0].logprobs or ():
        on_delta(Delta(text=decoder.decode(bytes(token["bytes"])), tokens=(token,)))


class Arms:
    """All arms over one model."""

    def __init__(self, lm: Shared, signals: dict[str, RefinementSignal], rates: dict[str, float]) -> None:
        self.lm, self.signals, self.rates = lm, signals, rates

    async def item(self, item: Item, known: Mapping[str, list[int]]) -> tuple[dict[str, list[int]], dict[str, str]]:
        """What each arm came to, by COLUMNS, and the texts of those that were not known."""
        found, texts = dict(known), {}
        for arm in ARMS:
            exists = arm != "compiled constraint" or item.form is not None
            if exists and arm not in found:
                room = found["guard rewinds"][1] if "guard rewinds" in found else 0
                found[arm], texts[arm] = await self.one(arm, item, room)
        return found, texts

    async def one(self, arm: str, item: Item, room: int = 0) -> tuple[list[int], str]:
        async with Run(seed=item.seed + 1) as run:
            text = await self._text(arm, item, run, room)
            usage, causes = run.usage, [e.data["cause"] for e in run.journal.events if e.kind == "rewind"]
        right = (await item.check.verdict({}, Prediction(answer=text))).passed
        tokens = usage.output_tokens + usage.uncertain_tokens
        return [int(right), tokens, usage.input_tokens, usage.calls, len(causes), causes.count("signal")], text

    async def _text(self, arm: str, item: Item, run: Run, room: int) -> str:
        author = Predict("task -> answer", lm=self.lm, temperature=0.0, max_tokens=item.cap)
        if arm in ("best-of-k, equal tokens", "abort and restart"):
            return await self._samples(item, run, room, abort=arm == "abort and restart")
        if arm == "compiled constraint":
            constraint = item.form.constraint() if item.form else None
            assert constraint is not None
            asked = _ask(item, temperature=0.0, grammar=constraint.grammar())
            return (await run.complete(asked, lm=self.lm)).text
        if arm == "plain":
            module: Any = author
        elif arm == "Refine":
            module = Refine(author, N=ATTEMPTS, checks=[item.check])
        elif arm == "Self-Refine":
            module = SelfRefine(author, Critic(lm=self.lm, max_tokens=CRITIC), rounds=ROUNDS)
        else:
            module = self.decoder(item, self._signal(arm, item))
        return str((await module.acall(task=item.prompt)).answer)

    def decoder(self, item: Item, signal: Any) -> ProactiveDecoder:
        author = Predict("task -> answer", lm=self.lm, temperature=0.0, max_tokens=item.cap)
        back = DynamicBacktracker(reach=(1, 20), most=MOST)
        return ProactiveDecoder(author, checks=[item.check], signal=signal, back=back)

    def _signal(self, arm: str, item: Item) -> Any:
        if arm == "guard rewinds":
            return None
        if arm == "signal rewinds + verifier":
            return self.signals[item.family]
        return RandomSignal(1.0 if arm == "always" else self.rates[item.family], item.seed)

    async def _samples(self, item: Item, run: Run, room: int, *, abort: bool) -> str:
        """Greedy first, then samples, until one passes or the tokens of the arm with guards are used (the last is finished)."""
        best = ""
        for i in range(40):
            seen: list[Any] = []

            def doomed(entries: Any, seen: list[Any] = seen) -> bool:
                seen.extend(tokens_of(entries))
                return item.check.guard(text_of(seen)) == "fail"

            lm = cut_by(self.lm, doomed) if abort else self.lm
            request = _ask(item, temperature=0.8 if i else 0.0, logprobs=1 if abort else None)
            [choice] = (await run.complete(request, lm=lm)).choices
            best = best or choice.text
            if choice.finish_reason != CUT and (await item.check.verdict({}, Prediction(answer=choice.text))).passed:
                return choice.text
            if run.usage.output_tokens + run.usage.uncertain_tokens >= room:
                break
        return best


def _ask(item: Item, **more: Any) -> Request:
    return Request(messages=({"role": "user", "content": item.prompt},), max_tokens=item.cap, **more)
