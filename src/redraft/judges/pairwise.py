"""Which of two drafts is better: asked in both orders, since judges favour a place (MT-Bench: one verdict in three
flips when the order does).
"""

from __future__ import annotations

from typing import Any

from redraft.judges.critic import persona_text
from redraft.modules import Module, Predict
from redraft.protocols import LM
from redraft.signature import as_signature
from redraft.types import Prediction


class Pairwise(Module):
    """An LM judge of two drafts. Output `wins`: True if `challenger` is better than `incumbent` in both orders."""

    def __init__(
        self,
        lm: LM | str | None = None,
        *,
        persona: str = "",
        temperature: float | None = 0.0,
        max_tokens: int = 60,
    ) -> None:
        self.judge = Predict(
            as_signature(SIGNATURE, INSTRUCTIONS),
            lm=lm,
            system=persona_text(persona),
            temperature=temperature,
            max_tokens=max_tokens,
            reasks=1,
            role="judge",
        )

    async def aforward(self, **inputs: Any) -> Prediction:
        """Inputs: `task`, `challenger`, `incumbent`. The second order is asked only if the first was won."""
        task, challenger, incumbent = inputs["task"], inputs["challenger"], inputs["incumbent"]
        wins = (
            await self._better(task, challenger, incumbent) == "A"
            and await self._better(task, incumbent, challenger) == "B"
        )
        return Prediction(wins=wins)

    async def _better(self, task: Any, a: str, b: str) -> str:
        said = await self.judge.acall(draft_a=a, draft_b=b, task=task)
        return str(said.better)


SIGNATURE = "draft_a, draft_b, task -> better: Literal['A', 'B', 'tie']"
INSTRUCTIONS = "Compare the two drafts: which one does the task better? Answer A, B or tie. Length is no merit."
