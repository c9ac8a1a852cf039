"""Critics: what is wrong with a draft, as a list of issues. A critic is never told that an error exists, and may say
that nothing needs fixing (Huang et al. 2310.01798: critics that must find faults invent them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from redraft.config import resolve_lm
from redraft.errors import ScoreError
from redraft.frame import current_frame
from redraft.modules import Module, Predict
from redraft.protocols import LM
from redraft.refusals import refuses
from redraft.scoring import name_of, takes_two
from redraft.signature import as_signature
from redraft.sync import call_user
from redraft.types import Attempt, Critique, Issue, Prediction


@dataclass(frozen=True, kw_only=True)
class Finding:  # noqa: D101 - a docstring would go into the schema, and small models copy it as a value
    # One issue as a model writes it.
    problem: str
    suggestion: str
    aspect: str
    severity: Literal["minor", "major", "critical"]
    location: str


class Critic(Module):
    """An LM critic: `Critic("senior food critic and editor", criteria=["sensory detail"], temperature=0.3)`."""

    def __init__(
        self,
        persona: str = "",
        *,
        criteria: Sequence[str] | str = (),
        lm: LM | str | None = None,
        temperature: float | None = None,
        max_tokens: int = 600,
    ) -> None:
        self.persona = persona
        self.criteria = (criteria,) if isinstance(criteria, str) else tuple(criteria)
        self.lm = lm
        options: dict[str, Any] = {
            "lm": lm,
            "system": persona_text(persona),
            "temperature": temperature,
            "max_tokens": max_tokens,
            "role": "critic",
        }
        judging = INSTRUCTIONS + ("\nJudge by: " + "; ".join(self.criteria) + "." if self.criteria else "")
        types = {"Finding": Finding}
        self.typed = Predict(as_signature(TYPED, judging, types=types), **options)
        self.plain = Predict(as_signature(PLAIN, f"{judging}\n{PLAIN_FORM}"), **options)

    async def aforward(self, **inputs: Any) -> Prediction:
        """Inputs: `task`, `draft`. Outputs: `critique`."""
        frame = current_frame()
        lm = (frame.advice.lm if frame else None) or resolve_lm(self.lm)
        name = self.persona or "critic"
        if lm.capabilities.json_schema and not refuses(lm, "schema"):
            said = await self.typed.acall(**inputs)
            return Prediction(critique=as_critique(said, name))
        said = await self.plain.acall(**inputs)
        return Prediction(critique=as_critique(said.critique, name))


async def criticise(critic: Any, inputs: Mapping[str, Any], attempt: Attempt, task: str) -> Critique:
    """Ask any critic: a module (called with `task` and `draft`), or a function `(inputs, prediction)` or `(text)`."""
    if hasattr(critic, "acall"):
        said = await critic.acall(task=task, draft=attempt.text)
    elif takes_two(critic):
        said = await call_user(critic, dict(inputs), attempt.prediction)
    else:
        said = await call_user(critic, attempt.text)
    return as_critique(said, name_of(critic))


def as_critique(said: Any, by: str) -> Critique:
    """What a critic returned as a Critique: a Critique, None or True (fine), a text, a list of issues or texts, or a
    prediction or mapping with `verdict`, `issues`, `critique` or `feedback`. The verdict is never searched for in prose:
    only a whole reply such as "OK" or "none" says that nothing needs fixing.
    """
    if isinstance(said, Critique):
        return said
    if said is None or said is True:
        return Critique(verdict="ok", by=by)
    if isinstance(said, Prediction | Mapping):
        return _from_fields(dict(said.to_dict() if isinstance(said, Prediction) else said), by)
    if isinstance(said, str):
        return _from_text(said, by)
    if isinstance(said, list | tuple):
        issues = tuple(_issue(item, by) for item in said)
        return Critique(verdict="revise" if issues else "ok", issues=issues, by=by)
    raise ScoreError(f"critic {by!r} returned {said!r}; return None for fine, a text, a list of issues, or a Critique")


def _from_fields(fields: dict[str, Any], by: str) -> Critique:
    if isinstance(fields.get("critique"), Critique):
        return fields["critique"]  # type: ignore[no-any-return]
    said = [as_critique(fields[name], by) for name in ("issues", "critique", "feedback", "answer") if name in fields]
    if not said and "verdict" not in fields:
        raise ScoreError(f"critic {by!r} returned the fields {', '.join(fields)}; name one `critique` or `issues`")
    issues = tuple(issue for critique in said for issue in critique.issues if not _is_form(issue.problem))
    # "revise" without a single issue gives a reviser nothing to go by: the critic found nothing.
    if str(fields.get("verdict", "revise")).strip().lower() == "ok" or not issues:
        return Critique(verdict="ok", by=by)
    return Critique(verdict="revise", issues=issues, by=by)


def _is_form(problem: str) -> bool:
    """True for words of the form alone, which small models copy out of the schema as their finding."""
    words = re.findall(r"\w+", problem.lower())
    return bool(words) and _FORM.issuperset(words)


def _from_text(text: str, by: str) -> Critique:
    if not text.strip() or _FINE.fullmatch(text.strip()):
        return Critique(verdict="ok", by=by)
    lines = [m.group(1).strip() for line in text.splitlines() if (m := _ITEM.match(line))]
    return Critique(verdict="revise", issues=tuple(_issue(t, by) for t in lines or [text.strip()]), by=by)


def _issue(item: Any, by: str) -> Issue:
    if isinstance(item, Issue):
        return item
    if isinstance(item, str):
        problem, _, suggestion = item.partition("->")
        return Issue(problem=problem.strip(), suggestion=suggestion.strip())
    known = item if isinstance(item, Mapping) else getattr(item, "__dict__", {})
    fields = {k: v for k, v in known.items() if k in Issue.__dataclass_fields__}
    if not fields.get("problem"):
        raise ScoreError(f"critic {by!r} returned {item!r} as an issue; give a text, an Issue, or its fields")
    return Issue(**fields)


def persona_text(persona: str) -> str:
    """A persona as a system prompt."""
    if not persona or persona.lower().startswith("you "):
        return persona
    return f"You are {persona}." if persona.lower().startswith(("a ", "an ", "the ")) else f"You are a {persona}."


_FINE = re.compile(
    r"\W*(?:ok(?:ay)?|none|fine|all good|looks? good|nothing(?: to fix| needs fixing)?"
    r"|no (?:issues?|problems?|faults?|changes?)(?: (?:found|needed|at all|to fix))?)\W*",
    re.IGNORECASE,
)
_FORM = frozenset(
    [
        "string",
        "null",
        "minor",
        "major",
        "critical",
        "revise",
        "ok",
        "verdict",
        "issues",
        "problem",
        "suggestion",
        "severity",
        "location",
    ]
)
_ITEM = re.compile(r"\s*(?:[-*\u2022]|\d+[.)])\s+(.+)")

TYPED = "draft, task -> verdict: Literal['ok', 'revise'], issues: list[Finding]"
PLAIN = "draft, task -> critique"

INSTRUCTIONS = (
    "Read the draft and compare it with the task. First verify what the draft does well against the task; then name "
    "only what really falls short, at most three issues, each with the place and a concrete change. "
    "If nothing needs fixing, say so: that is a good answer."
)
PLAIN_FORM = 'Answer with the single word OK, or with one line an issue: "- problem -> change".'
