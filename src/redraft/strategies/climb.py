"""One call of Refine or BestOfN: which rung comes next, what is kept, when it is enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redraft.config import resolve_lm
from redraft.errors import BadRequestError, LMError, ParseError, ScoreError
from redraft.frame import warn
from redraft.modules import Module
from redraft.protocols import LM
from redraft.result import count
from redraft.run import Run
from redraft.scoring import ask, name_of, rank
from redraft.strategies.advisor import advise, author_of, instructions_of
from redraft.strategies.base import is_small
from redraft.strategies.gate import newly_failed
from redraft.strategies.ladder import Rung, constraint_for, last_reply, was_cut, written
from redraft.types import APART, Attempt, Inputs, Prediction, StopReason

if TYPE_CHECKING:
    from redraft.strategies.refine import Refine


class Climb:
    """The state of one call, so that a strategy's object never changes."""

    def __init__(self, strategy: Refine, run: Run, inputs: Inputs) -> None:
        self.strategy = strategy
        self.ladder = strategy.ladder
        self.run = run
        self.inputs = inputs
        self.failures = 0
        self.models = [resolve_lm(m) for m in strategy.ladder.models]  # one that is not there is known before any call
        self.constrained = False
        """The first draft under a constraint was proposed."""
        self.last: Attempt | None = None
        """The latest draft that a model wrote, or tried to: what the next one learns from."""
        self._learned: tuple[Attempt, str, Mapping[str, str]] | None = None

    # Which rung

    async def next_rung(self, i: int) -> Rung:
        """How attempt `i` is made."""
        if i == 0 or self.last is None:
            return self.sample(i)
        lm = self._model(i)
        rung = await self._chosen(i, lm)
        hint, hints = await self._learn(self.last, lm, rung)
        own = rung.name == "constrain" and not self.constrained and not self.ladder.temperatures
        self.constrained |= rung.name == "constrain"
        advice = "advice" if self._learned and self._learned[0] is self.last else "a hint"
        why = f"{rung.why}; with {advice}" if hint or hints else rung.why
        temperature = None if own else self.ladder.temperature(i)
        learned_from = rung.parent or (self.last if hint or hints else None)
        more = {"temperature": temperature, "hint": hint, "hints": hints}
        return self._thinking(i, rung.but(why=why, parent=learned_from, lm=lm, **more))

    def sample(self, i: int) -> Rung:
        """Attempt `i` without anything learned: the first at the module's own temperature, the others varied."""
        lm = self._model(i)
        if i == 0:
            return self._thinking(0, Rung(name="tell", why="the first draft", lm=lm))
        rung = Rung(name="resample", why="an independent sample", lm=lm, temperature=self.ladder.temperature(i))
        return self._thinking(i, rung)

    def _thinking(self, i: int, rung: Rung) -> Rung:
        """The rung with the effort of attempt `i`; a change goes on record."""
        effort = self.ladder.effort(i)
        changed = i > 0 and effort != self.ladder.effort(i - 1)
        return rung.but(effort=effort, why=f"{rung.why}; effort {effort}" if changed else rung.why)

    async def _chosen(self, i: int, lm: LM | None) -> Rung:
        best, revise = self.run.best, self.ladder.revise
        if lm is not None and lm is not self._model(i - 1):
            return Rung(name="escalate", why=f"{count(i, 'draft')} not good enough: the next model is {lm.name}")
        if revise == "edit" and best is not None:
            return Rung(name="edit", why="asked for", parent=best)
        if revise in ("auto", "constrain"):
            found = await self._constraint(lm)
            return found if isinstance(found, Rung) else Rung(name="resample", why=found)
        return Rung(name="resample", why="asked for" if revise == "fresh" else "there is no draft to edit yet")

    async def _constraint(self, lm: LM | None) -> Rung | str:
        if any(a.rung == "constrain" and isinstance(a.error, BadRequestError) for a in self.run.attempts):
            return "the model refused the constraint before"
        judgement = self.strategy.judgement

        async def offered() -> Rung | str:
            return constraint_for(self.strategy.module, judgement, lm, mended=self.ladder.fix)

        try:
            return await self.run.judging(judgement, offered())
        except ScoreError as error:  # a user's check that offers one may fail, too
            self.run.journal.remark("judge_error", scope=self.run.scope, error=str(error))
            return "a check's constraint failed"

    def _model(self, i: int) -> LM | None:
        return self.models[min(i, len(self.models) - 1)] if self.models else None

    async def _learn(self, tried: Attempt, lm: LM | None, rung: Rung) -> tuple[str, Mapping[str, str]]:
        """The hint for the next draft, and those for single modules. A bad draft is never in them."""
        strategy, score = self.strategy, tried.score
        quiet = is_small(lm or author_of(self.run, tried))
        if tried.error is not None:
            usable = not isinstance(tried.error, LMError) and not _of_a_client(tried.error) and not quiet
            return (FAILED.format(error=tried.error) if usable else ""), {}
        if score is None or (score.feedback and quiet):
            return "", {}
        if score.feedback and rung.name == "edit":
            return "", {}  # the reviser is told what the checks and the reward said in any case
        if score.feedback:
            feedback = strategy.judgement.feedback(score, rung.under)
            return feedback and HINT.format(feedback=feedback), {}
        advisor = strategy.advisor
        if strategy.judgement.reward is None or advisor is None or (quiet and not self.ladder.advised):
            return "", {}
        if self._learned is None or self._learned[0] is not tried:
            hints = await advise(advisor, strategy, self.run, self.inputs, tried)
            general = hints.pop("", "")
            paths = {f"module.{path}": ADVICE.format(advice=hint) for path, hint in hints.items()}
            self._learned = tried, general and ADVICE.format(advice=general), paths
        return self._learned[1:]

    # Each draft

    async def draft(self, rung: Rung, index: int) -> Attempt:
        """Make a draft on this rung."""
        return await written(self.strategy, self.run, self.inputs, rung, index=index)

    async def settle(self, tried: Attempt) -> StopReason | None:
        """Keep it or not; repair it by code where that helps. Returns the reason if it is good enough."""
        self.last = tried
        if tried.error is not None:
            self.run.reject(tried, f"failed: {tried.error}")
            self.failures += 1
            if isinstance(tried.error, ScoreError):
                warn(f"a draft could not be judged: {tried.error}")
            if self.failures > self.strategy.fail_count:
                raise tried.error
            return None
        if (stop := self.keep(tried)) is not None:
            return stop
        if not self.ladder.fix or tried.score is None or tried.score.passed:
            return None
        return await self._repair(tried)

    def keep(self, tried: Attempt) -> StopReason | None:
        """Keep it if it is the best so far; a reason if it is good enough, too."""
        best = self.run.best
        if best is None:
            self.run.accept(tried, "the first draft")
        elif tried.rung == "edit" and (lost := newly_failed(best.score, tried.score)):
            self.run.reject(tried, f"{lost} (draft {best.index + 1} had that right)")
            return None
        elif rank(tried) > rank(best):
            self.run.accept(tried, "scores above the best so far")
        elif rank(tried) == rank(best) and self._unclean(best) and not self._unclean(tried):
            self.run.accept(tried, "scores the same and reads cleaner")
        else:
            self.run.reject(tried, f"does not score above draft {best.index + 1}")
            return None
        return self._enough(tried)

    def _enough(self, tried: Attempt) -> StopReason | None:
        if self.strategy.judgement.empty:
            return StopReason.ROUNDS if self.strategy.judge is None else None
        stop = self.strategy.good_enough(tried)
        if stop is StopReason.PASSED and self.strategy.judge is not None:
            return None  # passing is not enough: the judge picks the best that does
        if stop is not None and (why := self._unclean(tried)):
            self.run.journal.remark("unclean", scope=self.run.scope, index=tried.index, faults=why)
            return None
        return stop

    def _unclean(self, tried: Attempt) -> list[str]:
        """What is degenerate about a text that passes: weak models buy form at the price of content."""
        if not self.ladder.clean or not self.strategy.judgement.checks or not _is_text(tried):
            return []
        reply = last_reply(self.run, tried)
        if tried.rung == "constrain" and reply is not None and was_cut(reply):
            return ["it was cut off at its limit of tokens"]
        from redraft.checks.clean import faults  # its patterns take a while to compile

        asked = (instructions_of(self.strategy.module), *map(str, self.inputs.values()))
        return faults(tried.text, "\n".join(asked))

    async def _repair(self, tried: Attempt) -> StopReason | None:
        assert tried.prediction is not None
        assert tried.score is not None
        judgement = self.strategy.judgement
        try:
            repair = judgement.repaired(self.inputs, tried.prediction, tried.score)
            fixed, how = await self.run.judging(judgement, repair)
        except ScoreError as error:  # a user's fix or check may fail on what another made of the text
            self.run.journal.remark("judge_error", scope=self.run.scope, error=str(error))
            return None
        if fixed is None:
            if how:
                self.run.journal.remark("fix_refused", scope=self.run.scope, index=tried.index, why=how)
            return None

        async def by_code(**_: Any) -> Prediction:
            return fixed

        attempt = self.run.attempt(
            by_code, self.inputs, scorer=self.strategy.scorer, parent=tried, rung="fix", why=f"code can mend {how}"
        )
        mended = await attempt
        if mended.error is not None:
            self.run.reject(mended, f"failed: {mended.error}")
            return None
        return self.keep(mended)

    # The end

    async def end(self) -> StopReason:
        """All N attempts are used: have the judge pick, and say how far it got."""
        best, last = self.run.best, self.last
        self._look_for_calls()
        if best is None and last is not None and last.error is not None:
            raise last.error
        if self.strategy.judge is not None:
            await self._pick()
            best = self.run.best
        return (best and self.strategy.good_enough(best)) or StopReason.ROUNDS

    def _look_for_calls(self) -> None:
        """A function of the user's that has spent nothing under limits on spending has, perhaps, a client of its own."""
        budget, module = self.run.budget, self.strategy.module
        limited = budget.calls is not None or budget.tokens is not None or budget.cost is not None
        if limited and not isinstance(module, Module) and self.run.usage.calls == 0:
            warn(UNSEEN.format(name=name_of(module)))

    async def _pick(self) -> None:
        """Relative scoring: of the attempts that code ranks alike, the one that the judge prefers."""
        best = self.run.best
        assert best is not None
        alike = [a for a in self.run.attempts if a.error is None and a.prediction is not None and rank(a) == rank(best)]
        if len({a.text.strip() for a in alike}) < 2:
            return
        judge = self.strategy.judge
        given = {"task": self.strategy.task(self.inputs), "drafts": [a.text for a in alike]}
        try:
            chosen = await self.run.judging(judge, ask(judge, given, "best"))
        except (ParseError, ScoreError, LMError) as error:
            said = f"{name_of(judge)}: {error}"
            self.run.journal.remark("judge_error", scope=self.run.scope, error=said)
            if isinstance(error, ScoreError):  # a mistake in the user's own code, which keeps its answer from counting
                warn(f"no draft could be picked, the first of the best stays: {said}")
            return
        if chosen is None:
            self.run.journal.remark("judge_abstained", scope=self.run.scope, among=len(alike))
        elif not isinstance(chosen, int) or isinstance(chosen, bool) or not 0 <= chosen < len(alike):
            said = f"{name_of(judge)} picked {chosen!r:.80} of {len(alike)} drafts: give an index from 0"
            self.run.journal.remark("judge_error", scope=self.run.scope, error=said)
            warn(said)
        elif alike[chosen].text.strip() != best.text.strip():
            self.run.accept(alike[chosen], f"the judge prefers it to {len(alike) - 1} that score the same")


def _of_a_client(error: Exception) -> bool:
    """True for what a provider's own library raises: no news for the model that is to write."""
    return type(error).__module__.partition(".")[0] in _CLIENTS


def _is_text(tried: Attempt) -> bool:
    outputs = () if tried.prediction is None else [v for k, v in tried.prediction.to_dict().items() if k not in APART]
    return len(outputs) == 1 and isinstance(outputs[0], str)


_CLIENTS = frozenset(["openai", "anthropic", "httpx", "httpx2", "google", "botocore", "groq", "mistralai", "litellm"])
UNSEEN = (
    "no call of {name} was seen, so that its budget holds nothing: put the client that it asks through "
    "redraft.integrations.openai.metered, or take the limits away"
)
HINT = "An earlier answer fell short: {feedback} Write one that does not."
FAILED = "An earlier answer could not be used: {error}"
ADVICE = "Advice from an earlier try: {advice}"
