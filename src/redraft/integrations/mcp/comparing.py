"""The tool `compare`: which of two texts is better, by checks where they tell, by a judge asked in both orders otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from redraft.checks import Check, Judgement
from redraft.config import context
from redraft.errors import BudgetExceeded, InputError, LMError, ParseError, RedraftError
from redraft.integrations.mcp.checking import checks_from, verdicts_out
from redraft.integrations.mcp.forms import CompareForm, CompareOut
from redraft.integrations.mcp.refining import cancellable, log, usage_out
from redraft.integrations.mcp.terms import Terms
from redraft.judges import Pairwise
from redraft.result import calls, tokens
from redraft.run import Run
from redraft.types import Prediction, Score, Usage

Side = Literal["a", "b", "tie"]
_SIDES = {"challenger": "a", "incumbent": "b"}


async def compare(given: CompareForm, terms: Terms) -> CompareOut:
    """The tool `compare`. Raises `RedraftError` if a check or the judge fails."""
    checks = checks_from(given.checks, terms)
    if not checks and given.judge == "never":
        raise InputError("there is nothing to compare by; give checks, or let a model judge (judge: auto)")
    asking = given.judge != "never" or any(c.asks for c in checks)
    lm = terms.lm(given.model) if asking else None
    with context(model=lm):
        run = Run(budget=terms.budget(given.limits.model_dump()))
        try:
            async with run:
                out = await cancellable(run, _compared(given, checks))
        except RedraftError as error:
            error.usage = run.usage
            raise
    log.info("compare: %s by %s | %s | %s", out.winner, out.decided_by, calls(run.usage), tokens(run.usage))
    return out.model_copy(update={"usage": usage_out(run.usage)})


async def _compared(given: CompareForm, checks: Sequence[Check]) -> CompareOut:
    scores = [await _score(text, given.task, checks) for text in (given.a, given.b)]
    by_checks = _better(*scores)
    judged, failed = None, ""
    if given.judge == "always" or (given.judge == "auto" and by_checks == "tie"):
        judged, failed = await _judged(given, needed=by_checks == "tie")
    winner: Side = by_checks if by_checks != "tie" else judged if judged in ("a", "b") else "tie"
    decided: Literal["checks", "judge", "nobody"] = (
        "checks" if by_checks != "tie" else "judge" if winner != "tie" else "nobody"
    )
    return CompareOut(
        winner=winner,
        decided_by=decided,
        why="; ".join(filter(None, (_why(by_checks, judged, scores), failed))),
        checks_a=verdicts_out(scores[0]),
        checks_b=verdicts_out(scores[1]),
        judge=judged,
        usage=usage_out(Usage()),
    )


async def _judged(given: CompareForm, *, needed: bool) -> tuple[Any, str]:
    """The judge's verdict, or why there is none; where nothing else decides, that is an error."""
    try:
        said = await Pairwise(both=True).acall(task=given.task, challenger=given.a, incumbent=given.b)
    except (ParseError, LMError, BudgetExceeded) as error:
        if needed:
            raise
        return None, f"the judge gave no verdict: {error}"
    return _SIDES.get(said.verdict, said.verdict), ""


async def _score(text: str, task: str, checks: Sequence[Check]) -> Score | None:
    return await Judgement(checks).score({"task": task}, Prediction(answer=text)) if checks else None


def _better(a: Score | None, b: Score | None) -> Side:
    if a is None or b is None or a.rank == b.rank:
        return "tie"
    return "a" if a.rank > b.rank else "b"


def _why(by_checks: Side, judged: str | None, scores: Sequence[Score | None]) -> str:
    """In words: what decided, and what else was said."""
    parts = []
    if by_checks != "tie":
        loser = scores[1 if by_checks == "a" else 0]
        assert loser is not None
        failed = [v.explanation or v.check for v in loser.verdicts if not v.passed]
        parts.append(f"{'b' if by_checks == 'a' else 'a'} falls short: {'; '.join(failed)}")
    elif scores[0] is not None:
        parts.append("the checks see no difference")
    if judged is not None:
        parts.append(_JUDGED.get(judged, f"the judge prefers {judged} in both orders"))
    return "; ".join(parts)


_JUDGED = {
    "tie": "the judge sees no clear difference",
    "inconsistent": "the judge prefers whichever comes first (or last), so it gave no verdict",
}
