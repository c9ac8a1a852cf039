"""A run as text: each draft, how it was judged, what was asked to change, and what did change, word by word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redraft.report.diff import kinship, marked, word_diff
from redraft.report.kept import unended
from redraft.result import count, cut_off, one_line, printable, tokens
from redraft.types import Attempt, Critique, Issue

_AKIN = 0.1  # below this share of common words a diff is harder to read than the draft itself


def judged(attempt: Attempt) -> str:
    """What code or a reward said of a draft: `ok 2/2`, `x 5 sentences, want 3`, `score 0.72`, or why nothing could; empty if
    nothing did.
    """
    if cut_off(attempt):
        what = "cut off" if attempt.prediction is None else "cut off before it was judged"
        return one_line(f"{what}: {str(attempt.error).partition(';')[0]}")
    if unended(attempt):
        return str(attempt.error)
    if attempt.error is not None:
        return one_line(f"x {(not attempt.accepted and attempt.reason) or f'failed: {attempt.error}'}")
    score = attempt.score
    if score is None:
        return ""
    if not score.verdicts:
        return f"score {score.value:.2f}"
    how = {"constrain": ", decoded under a constraint", "fix": ", mended by code"}.get(attempt.rung, "")
    if score.passed:
        return f"ok {len(score.verdicts)}/{len(score.verdicts)}{how}"
    return one_line("x " + "; ".join(v.explanation or v.check for v in score.verdicts if not v.passed) + how)


def decided(attempt: Attempt) -> str:
    """`accepted: why`, `rejected: why`, or that nobody decided. A failed draft's reason is in `judged` already."""
    if attempt.error is not None and not attempt.accepted:
        ended_first = cut_off(attempt) or unended(attempt)
        return "" if attempt.reason or ended_first else "rejected"
    if not attempt.reason:
        return "not decided: the run ended first"
    return one_line(f"{'accepted' if attempt.accepted else 'rejected'}: {attempt.reason}")


def issue_text(issue: Issue) -> str:
    """One issue on one line: where, what, and what to do about it."""
    where = f"({issue.location}) " if issue.location else ""
    return one_line(f"{where}{issue.problem}{f' -> {issue.suggestion}' if issue.suggestion else ''}")


def trajectory(attempts: Sequence[Attempt], best: Attempt | None = None, *, colour: bool = False) -> str:
    """All drafts in order, each as a word diff against the one it revises (or else the last accepted one), its issues
    and what was decided; then `best`, marked as final.
    """
    paragraphs: list[str] = []
    accepted: Attempt | None = None
    by_index = {a.index: a for a in attempts}
    for attempt in attempts:
        base = accepted if attempt.parent is None else by_index.get(attempt.parent, accepted)
        paragraphs += _draft(attempt, base, colour=colour)
        accepted = attempt if attempt.accepted else accepted
    if best is not None:
        paragraphs += [_heading(f"final: draft {best.index + 1}", colour=colour), printable(best.text)]
    return "\n\n".join(paragraphs)


def _draft(attempt: Attempt, base: Attempt | None, *, colour: bool) -> Iterator[str]:
    against = base if base is not None and base.text and attempt.text else None
    parts = [f"draft {attempt.index + 1}", judged(attempt), tokens(attempt.usage), decided(attempt)]
    yield _heading(" | ".join(filter(None, parts)), colour=colour)
    if against is None:
        yield from [printable(attempt.text)] if attempt.text else []
    elif (kin := kinship(against.text, attempt.text)) < _AKIN:
        yield f"(written anew: {kin:.0%} of its words are those of draft {against.index + 1})"
        yield printable(attempt.text)
    else:
        yield f"(changes to draft {against.index + 1})"
        yield marked(word_diff(printable(against.text), printable(attempt.text)), colour=colour)
    if attempt.critique is not None:
        yield _critique(attempt.critique)


def _critique(critique: Critique) -> str:
    if critique.verdict == "ok":
        return f"{one_line(critique.by)}: nothing to fix"
    lines = [f"{one_line(critique.by)}: {count(len(critique.issues), 'issue')}"]
    return "\n".join([*lines, *(f"  - {issue_text(issue)}" for issue in critique.issues)])


def _heading(text: str, *, colour: bool) -> str:
    return f"\x1b[1m== {text} ==\x1b[0m" if colour else f"== {text} =="
