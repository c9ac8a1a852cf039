"""What became of each issue that was raised: as far as the record says it, and no further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from redraft.report.diff import kinship
from redraft.report.kept import unended
from redraft.result import cut_off
from redraft.types import Attempt, Critique, Issue

Tone = Literal["good", "bad", "open"]

_ALIKE = 0.6  # share of common words from which on two problems are the same one, said again


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An issue, and what became of it."""

    issue: Issue
    outcome: str
    tone: Tone
    why: str
    """What on record says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a critic said of one draft at one time."""

    by: str
    verdict: str
    keep: tuple[str, ...]
    issues: tuple[Raised, ...]


def reviewed(critique: Critique, draft: Attempt, revision: Attempt | None, later: Sequence[Critique]) -> Review:
    """A critique of a draft with what became of its issues. `revision` came next, and `later` is what was said of it."""
    found = tuple(_raised(issue, critique, draft, revision, later) for issue in critique.issues)
    return Review(by=critique.by, verdict=critique.verdict, keep=critique.keep, issues=found)


def _raised(
    issue: Issue, critique: Critique, draft: Attempt, revision: Attempt | None, later: Sequence[Critique]
) -> Raised:
    if revision is None:
        return Raised(issue=issue, outcome="not taken up", tone="open", why="no draft came after it")
    where = f"draft {revision.index + 1}"
    if cut_off(revision) or unended(revision):
        end = "was cut off" if cut_off(revision) else "has not ended"
        return Raised(issue=issue, outcome="not taken up", tone="open", why=f"{where} {end}")
    if revision.error is not None and not revision.text:
        return Raised(issue=issue, outcome="not addressed", tone="bad", why=f"{where} failed")
    if not revision.accepted:
        where += ", which was not accepted" if revision.reason else ", on which nobody has decided"
    outcome, tone, why = (
        _by_check(issue, critique, revision) or _by_critic(issue, critique, later) or _by_words(issue, draft, revision)
    )
    return Raised(issue=issue, outcome=outcome, tone=tone, why=f"{why} in {where}")


_Said = tuple[str, Tone, str]


def _by_check(issue: Issue, critique: Critique, revision: Attempt) -> _Said | None:
    """The check that had raised it has looked at the revision, too."""
    if critique.by != "checks" or revision.score is None:
        return None
    verdicts = [v for v in revision.score.verdicts if v.check == issue.aspect]
    if not verdicts:
        return None
    if all(v.passed for v in verdicts):
        return "addressed", "good", "the check passes"
    same = any(v.explanation == issue.problem for v in verdicts)
    return "not addressed", "bad", "the check says the same" if same else "the check still fails"


def _by_critic(issue: Issue, critique: Critique, later: Sequence[Critique]) -> _Said | None:
    """The same critic was asked again."""
    again = [c for c in later if c.by == critique.by]
    if not again:
        return None
    if any(_same(issue, other) for other in again[-1].issues):
        return "raised again", "bad", f"{critique.by} says it again"
    return "addressed", "good", f"{critique.by} does not raise it again"


def _by_words(issue: Issue, draft: Attempt, revision: Attempt) -> _Said:
    """Nobody has looked: at most the words that it was about can be."""
    quote = " ".join(issue.location.strip().strip("\"'\u201c\u201d\u2026.").split())
    if len(quote) < 3 or quote not in " ".join(draft.text.split()):
        return "not known", "open", "nobody has looked at it again"
    if quote in " ".join(revision.text.split()):
        return "not addressed", "bad", "the passage stands as it was"
    return "passage changed", "open", "nobody has looked at it again, but the passage has changed"


def _same(one: Issue, other: Issue) -> bool:
    if one.location and one.location == other.location and one.aspect == other.aspect:
        return True
    return kinship(one.problem.lower(), other.problem.lower()) >= _ALIKE
