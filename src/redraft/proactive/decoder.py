"""ProactiveDecoder: a text is mended while it is written. Guards first, then signals (arXiv 2508.12903 asks the same question of
a trained model; this is another method, which trains nothing, and its figures are its own: docs/proactive.md).

The algorithm is `redraft.proactive.decode`; here its steps are bought, judged and put on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from redraft.budget import Budget
from redraft.config import resolve_lm
from redraft.errors import BudgetExceeded, InputError
from redraft.frame import Frame, current_frame, entered
from redraft.lm.cut import Watch, cut_by
from redraft.modules import Predict
from redraft.modules.wire import parse
from redraft.proactive.backend import agrees, as_backend, check_proven, requests, takes_ids, written
from redraft.proactive.backtrack import DynamicBacktracker
from redraft.proactive.decode import Ask, Decoding, Draft, Judge, Plan, Rewind, Step, Written
from redraft.proactive.guards import Guards
from redraft.proactive.signals import Signal
from redraft.proactive.tokens import Token, tokens_of
from redraft.proactive.view import before_of
from redraft.protocols import LM
from redraft.record import derived_seed
from redraft.run import Run
from redraft.scoring import rank
from redraft.strategies import Refining
from redraft.types import Attempt, Choice, Completion, Inputs, Prediction, Request, Score, StopReason

CAP = 1024
"""Most tokens of a text for which no cap was asked."""


class ProactiveDecoder(Refining):
    """`ProactiveDecoder("topic -> review", checks=[...], signal=None)`: one text, taken back where it goes wrong.

    `module`: a Predict with one text as its output, or what makes one; its model has to report likely tokens and to continue a
    text. Checks with a guard stop a draft that cannot pass any more; another likely token takes the place of the one that
    spoilt it. A text that ends without passing is taken back likewise. `signal` (None: guards alone) says where the model was
    in doubt: there `back` writes alternatives, of which the checks, agreement and likelihood choose, in that order. `back` says
    how far, how often and at which temperatures. Every token is bought through the Run, one call a stretch between two rewinds.
    """

    def __init__(
        self,
        module: Any,
        *,
        checks: Sequence[Any] = (),
        reward_fn: Any = None,
        threshold: float | None = None,
        signal: Signal | None = None,
        back: DynamicBacktracker | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(module, checks=checks, reward_fn=reward_fn, threshold=threshold, budget=budget)
        if not isinstance(self.module, Predict) or not self.module.signature.plain:
            raise InputError(
                f"ProactiveDecoder writes one text, and {self.module!r} is no Predict with one text as its output; give "
                "'inputs -> output', or use Refine"
            )
        self.signal, self.back = signal, back or DynamicBacktracker()

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """Write; take back what cannot pass and what is doubtful; judge each text that ends; keep the best."""
        writing = _Writing(self, run, inputs)
        last: Attempt | None = None
        while True:
            rung, why = ("tell", "the first draft") if last is None else ("rewind", "the text before does not pass")
            tried = await run.attempt(
                writing.next_draft, inputs, scorer=self.scorer, parent=last, advice=self.told(), rung=rung, why=why
            )
            if tried.error is not None:
                run.reject(tried, f"failed: {tried.error}")
                raise tried.error
            cut_off = writing.over is StopReason.BUDGET and not writing.decoding.ended
            if run.best is None:
                run.accept(tried, writing.how)
            elif cut_off:
                run.reject(tried, f"it was not finished: {writing.how}")
            elif rank(tried) > rank(run.best):
                run.accept(tried, f"scores above the best so far: {writing.how}")
            else:
                run.reject(tried, f"does not score above draft {run.best.index + 1}: {writing.how}")
            if not cut_off and (stop := self.good_enough(tried)) is not None:
                return stop
            if writing.over is not None or self.scorer is None:
                return writing.over or StopReason.ROUNDS
            last = tried


class _Writing:
    """One call's text in the making: drives the steps and buys what they ask for."""

    def __init__(self, strategy: ProactiveDecoder, run: Run, inputs: Inputs) -> None:
        module = strategy.module
        self.strategy, self.run, self.inputs = strategy, run, inputs
        self.lm: LM = as_backend(resolve_lm(module.lm))
        self.guards = Guards(strategy.judgement.checks, next(iter(module.signature.outputs)))
        plan = Plan(
            guard=self.guards,
            signal=strategy.signal,
            back=strategy.back,
            max_tokens=module.max_tokens or min(CAP, self.lm.max_output or CAP),
            seed=derived_seed(run.root.seed, f"{run.scope}|proactive"),
        )
        self.decoding = Decoding(plan)
        self.over: StopReason | None = None
        """Set when nothing more will come, with the reason."""
        self.how = ""
        """How the last draft came about."""
        self._steps = self.decoding.steps()
        self._reply: Any = None
        self._scope = run.scope  # of the draft that is being written

    async def next_draft(self, **inputs: Any) -> Prediction:
        """Write until a text has ended. When the budget ends first, what there is by then."""
        frame = current_frame()
        assert frame is not None
        self._scope = frame.scope
        # Fresh: a reply that is cut stands in no cache for a whole one.
        inner = frame.inner(self.strategy.module, inputs).again()
        self.lm = as_backend(frame.advice.lm) if frame.advice.lm else self.lm
        with entered(inner):
            try:
                if not self.decoding.tokens:
                    await check_proven(self.run, self.lm)
                return self._prediction(await self._drafted(inner, inputs))
            except BudgetExceeded as error:
                if not self.decoding.tokens:
                    raise
                self.over, self.how = StopReason.BUDGET, str(error)
                return self._prediction(self.decoding.text)
            finally:
                self.run.journal.remark("decoded", scope=self._scope, tokens=dict(self.decoding.spent))

    async def _drafted(self, frame: Frame, inputs: dict[str, Any]) -> str:
        bound = self.strategy.module.signature.bind(inputs)
        base = self.strategy.module._request(frame, self.lm, bound, "plain", None)
        while True:
            try:
                step: Step = self._steps.send(self._reply)
            except StopIteration:
                self.over, self.how = StopReason.ROUNDS, "nothing else is left to try"
                return self.decoding.text
            self._reply = None
            if isinstance(step, Ask):
                self._reply = await self._bought(step, base)
            elif isinstance(step, Judge):
                self._reply = [await self._worth(text) for text in step.texts]
            elif isinstance(step, Rewind):
                self._say(step)
            else:
                return self._ended(step)

    def _ended(self, draft: Draft) -> str:
        self.how = draft.why
        if not draft.ended:
            self.over = StopReason.ROUNDS
        return draft.text

    def _say(self, step: Rewind) -> None:
        data = {**asdict(step), "before": before_of(step.before)}
        self.run.journal.remark("rewind", scope=self._scope, **data)

    async def _bought(self, ask: Ask, base: Request) -> list[Written]:
        """All branches at once; one that fails ends the others."""
        sent = requests(self.lm, base, ask)
        watches = ask.watch if len(sent) == len(ask.branches) else (None,)
        work = [asyncio.ensure_future(self._one(request, watch)) for request, watch in zip(sent, watches, strict=True)]
        try:
            replies = await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()
        if self.guards.error is not None:
            raise self.guards.error
        return [written(self.lm, choice) for reply in replies for choice in reply.choices]

    async def _one(self, request: Request, watch: Any) -> Completion:
        lm = self.lm if watch is None else cut_by(self.lm, _entries(watch))
        reply = await self.run.complete(request, lm=lm)
        if not takes_ids(self.lm) and not all(map(agrees, reply.choices)):
            said = "the tokens do not make up the text: it is cut at the tokens"
            self.run.journal.remark("token_mismatch", scope=self._scope, model=self.lm.name, error=said)
        return reply

    async def _worth(self, text: str) -> float | None:
        judgement = self.strategy.scorer
        if judgement is None:
            return None
        score = await self.run.judging(judgement, judgement.score(self.inputs, self._prediction(text)))
        return self._scaled(score)

    def _scaled(self, score: Score) -> float:
        """1 for what is good enough, else below: a reward has no scale of its own."""
        tried = Attempt(index=0, inputs=self.inputs, score=score)
        if self.strategy.good_enough(tried) is not None:
            return 1.0
        return min(0.5 + score.value / (2 + 2 * abs(score.value)), 0.999)

    def _prediction(self, text: str) -> Prediction:
        return parse(self.strategy.module.signature, Completion(choices=(Choice(text=text),)), "plain")


def _entries(watch: Any) -> Watch:
    """A watch of tokens as one of wire entries, which come a few at a time."""
    seen: list[Token] = []

    def over(entries: Any) -> bool:
        seen.extend(tokens_of(entries))
        return bool(watch(seen))

    return over
