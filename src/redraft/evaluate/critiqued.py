"""Self-Refine with a critic that is asked about failing drafts, too: what `redraft calibrate` measures as `critique`."""

from __future__ import annotations

from typing import Any

from redraft.judges import criticise
from redraft.run import Run
from redraft.strategies import SelfRefine
from redraft.types import Attempt, Critique, Inputs, StopReason


class Critiqued(SelfRefine):
    """`Critiqued(module, critic, rounds=1, checks=[...])`: the checks end it and guard the gate; what is to be changed the
    critic says, who is not told what the checks said. `critic=False` asks nobody. Further options as in `SelfRefine`.
    """

    def __init__(self, module: Any, critic: Any = "", rounds: int = 1, **options: Any) -> None:
        super().__init__(module, critic if critic is not False else None, rounds=rounds, revise="edit", **options)
        if critic is False:
            self.critic = None

    def done(self, run: Run) -> StopReason | None:
        """What passes needs no critic."""
        assert run.best is not None
        return self.good_enough(run.best)

    async def criticise(self, run: Run, inputs: Inputs) -> Critique:
        """What the critic says of the best draft. Where it sees nothing to revise, that is the end."""
        best = run.best
        assert best is not None
        critique = await self.asked(run, inputs, best)
        run.criticised(best, critique)
        return critique

    async def asked(self, run: Run, inputs: Inputs, draft: Attempt) -> Critique:
        """What the critic says of a draft."""
        asked = criticise(self.critic, inputs, draft, self.task(inputs))
        critique: Critique = await run.judging(self.critic, asked)
        return critique
