"""Self-Refine (Madaan et al. 2023, arXiv 2303.17651): author, critic, reviser, until the critic has nothing left.

Where ours differs, each for a measured reason: code checks come before the critic and cost no call; the requirements
are told to the author; a revision passes a gate and the best draft is kept, never the last; the reviser sees the best
draft and the open issues only, with the task restated at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from redraft.config import resolve_lm
from redraft.errors import InputError
from redraft.judges import criticise
from redraft.modules import Predict
from redraft.run import Run
from redraft.strategies.advisor import own_lm
from redraft.strategies.base import Refining, is_small
from redraft.strategies.gate import Gate
from redraft.strategies.ladder import Rung, constraint_for, written
from redraft.strategies.roles import as_critic, as_judge, as_reviser, listed
from redraft.types import Attempt, Critique, Inputs, StopReason

Revise = Literal["auto", "edit", "fresh"]


class SelfRefine(Refining):
    """Author, critic and reviser: `SelfRefine(module_or_task, critic=, reviser=, rounds=3, checks=[...])`.

    `critic`: None (the author's own model; with checks, the checks alone), a persona ("a strict copy editor"), a model,
    a Role or Critic, a function `(inputs, prediction)` or `(text)`, or any module called with `task` and `draft`.
    `reviser`: None (the author's own model), a persona, a model, a Role, or a module called with draft, issues, keep
    and task. `judge` tells apart drafts that code cannot; by default the critic's model, in both orders.
    `revise`: "edit" shows the reviser the draft; "fresh" writes anew with the critic's issues as a hint, under the
    checks' constraint where the model takes one (measured to be better for small models); "auto" takes "fresh" for a
    small model, "edit" otherwise.
    `options`: `reward_fn`, `threshold` and `budget`, as in Refine.
    """

    def __init__(
        self,
        module: Any,
        critic: Any = None,
        reviser: Any = None,
        rounds: int = 3,
        *,
        checks: Sequence[Any] = (),
        judge: Any = None,
        revise: Revise = "auto",
        **options: Any,
    ) -> None:
        super().__init__(module, checks=checks, **options)
        if revise not in ("auto", "edit", "fresh"):
            raise InputError(f"revise={revise!r}: give 'auto', 'edit' or 'fresh'")
        if not isinstance(rounds, int) or rounds < 0:
            raise InputError(f"rounds={rounds!r}: give the number of revisions, 0 or more")
        self.rounds = rounds
        lm = own_lm(self.module)
        self.critic = as_critic(critic, lm) if critic is not None or self.judgement.empty else None
        self.reviser = as_reviser(reviser, self.module)
        self.judge = as_judge(judge, getattr(self.critic, "lm", None) or lm)
        self.revise: Revise = "edit" if revise == "auto" and reviser is not None else revise

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """Author, then rounds of critic, reviser and gate."""
        draft = await run.attempt(self.module, inputs, scorer=self.scorer, advice=self.told(), why="the first draft")
        if draft.error is not None:
            raise draft.error
        run.accept(draft, "the first draft")
        gate = Gate(run, self.judge, self.task(inputs))
        for _ in range(self.rounds):
            if stop := self.done(run):
                return stop
            critique = await self.criticise(run, inputs)
            if critique.verdict == "ok":
                return StopReason.CRITIC_OK
            revision = await self.revision(run, inputs, critique)
            if stop := await gate.decide(revision):
                return stop
        return self.done(run) or StopReason.ROUNDS

    def done(self, run: Run) -> StopReason | None:
        """Checks alone can end it; with a critic, checks only decide whether the critic is worth asking."""
        assert run.best is not None
        return self.good_enough(run.best) if self.critic is None or self.threshold is not None else None

    async def criticise(self, run: Run, inputs: Inputs) -> Critique:
        """What is wrong with the best draft: what code saw; only if code saw nothing, what the critic says."""
        best = run.best
        assert best is not None
        if best.score is not None and not (best.score.passed and self.critic is not None):
            critique = self.judgement.critique(best.score)
        else:
            asked = criticise(self.critic, inputs, best, self.task(inputs))
            critique = await run.judging(self.critic, asked)
        run.criticised(best, critique)
        return critique

    async def revision(self, run: Run, inputs: Inputs, critique: Critique) -> Attempt:
        """The next draft: an edit of the best one, or a fresh one with the issues as a hint."""
        best = run.best
        assert best is not None
        if not self._fresh():
            return await written(self, run, inputs, Rung(name="edit", why=f"{critique.by} found issues", parent=best))
        # The author was told what the checks want; repeating it helped no small model (docs/design.md section 1).
        hint = "" if critique.by == "checks" else HINT.format(issues=listed(critique.issues))
        found = constraint_for(self.module, self.judgement, None)
        rung = found if isinstance(found, Rung) else Rung(name="resample", why=found)
        return await written(self, run, inputs, rung.but(parent=best, hint=hint, temperature=FRESH_TEMPERATURE))

    def _fresh(self) -> bool:
        if self.revise != "auto":
            return self.revise == "fresh"
        return isinstance(self.module, Predict) and is_small(resolve_lm(self.module.lm))


FRESH_TEMPERATURE = 0.8  # a second greedy reply would be the first one again

HINT = "An earlier draft had these faults; write one that does not:\n{issues}"
