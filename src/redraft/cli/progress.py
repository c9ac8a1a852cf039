"""Progress on stderr: events become lines, one a draft. `redraft.cli.live` shows the same lines on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from redraft.cli.output import say
from redraft.record import score_from
from redraft.report.kept import error_of
from redraft.report.text import decided, judged
from redraft.result import Result, count, cut_off, one_line, tokens
from redraft.types import Attempt, Event, StopReason, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of progress."""

    label: str
    text: str
    amount: str = ""
    tone: Literal["good", "bad", "note"] = "note"

    def __str__(self) -> str:
        if not self.label:
            return self.text
        return f"{self.label:<9} {self.text:<44} {self.amount:>12}".rstrip()


class Progress:
    """A listener of one run that writes a line to stderr for each draft and for whatever else one should know."""

    deltas = False

    def __init__(self) -> None:
        self._tried: dict[int, Attempt] = {}
        self._critic = Usage()
        self._failed: Line | None = None
        """The last draft failed: not shown before it is known whether that is the error which ends the run anyway."""
        self.on_fetch: Callable[[int, int], None] | None = None
        """Told bytes done and in all while an embedded model is fetched; None leaves it to the model's own notice."""

    @property
    def listeners(self) -> tuple[Callable[[Event], None], ...]:
        """What to give to the Run."""
        return (self,)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: Event) -> None:
        """Show what the event means, if it means something to a person."""
        for line in self._lines(event):
            self.show(line)

    def show(self, line: Line) -> None:
        """Write one line."""
        say(str(line))

    def watch(self, module: Any) -> None:
        """Follow the fetching of the module's model, should it have to be fetched."""
        lm: Any = getattr(module, "lm", None)
        if self.on_fetch is not None and hasattr(lm, "on_fetch"):
            lm.on_fetch = self.on_fetch

    def abandon(self) -> None:
        """Leave the terminal in order; the process ends right after."""

    def ended(self, result: Result) -> None:
        """The last lines: which limit ended it, if one did, and the receipt."""
        if self._failed is not None:
            self.show(self._failed)
        if result.stop_reason is StopReason.BUDGET and result.error is not None:
            self.show(Line(label="limit", text=one_line(result.error), tone="bad"))
        self.show(Line(label="", text=result.receipt()))

    def _lines(self, event: Event) -> Iterator[Line]:
        data = event.data
        index = data.get("index")
        if event.kind in _NOTES:
            label, words = _NOTES[event.kind]
            yield Line(label=label, text=one_line(words(data)), tone="bad")
        elif event.kind == "call" and data["role"] == "critic":
            self._critic = self._critic + Usage(**data["usage"])
        elif event.kind == "stop" and not event.scope:
            for attempt in self._tried.values():
                begun = attempt.error is None or (cut_off(attempt) and attempt.usage.calls)
                yield from [_draft_line(attempt)] if attempt.score or begun else []
        elif (
            index is not None and event.scope == f"/attempt[{index}]"
        ):  # the run's own drafts, not those of a strategy inside one
            yield from self._of_draft(event.kind, index, data)

    def _of_draft(self, kind: str, index: int, data: Mapping[str, Any]) -> Iterator[Line]:
        if kind == "propose" and self._failed is not None:
            failed, self._failed = self._failed, None
            yield failed
        elif kind == "attempt":
            self._tried[index] = _attempt_from(data)
        elif kind in ("accept", "reject") and index in self._tried:
            attempt = self._tried.pop(index).but(accepted=kind == "accept", reason=data["reason"])
            if attempt.error is None or cut_off(attempt):
                yield _draft_line(attempt)
            else:
                self._failed = _draft_line(attempt)
        elif kind == "critique" and data["by"] not in ("checks", "reward"):  # the draft's line said what code saw
            spent, self._critic = self._critic, Usage()
            yield _critic_line(data, spent)


class Silent(Progress):
    """Says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.on_fetch = lambda *_: None

    @property
    def listeners(self) -> tuple[Callable[[Event], None], ...]:
        """Nobody."""
        return ()

    def show(self, line: Line) -> None:
        """Nothing."""


def _rewound(data: Mapping[str, Any]) -> str:
    back = count(data["at"] - data["to"], "token")
    if not data["accepted"]:
        return f"none: {count(data['tried'], 'token')} of alternatives, {data['by']}"
    taken, put = (repr(data[name]) if data[name] else "the end" for name in ("taken", "put"))
    return f"{back}, {data['by']}: {taken} -> {put}"


_NOTES: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "retry": ("retry", lambda d: f"in {d['wait']:.1f} s: {d['error']}"),
    "dropped": ("dropped", lambda d: f"{d['parameter']}: {d['model']} does not take it"),
    "overrun": ("overrun", lambda d: f"{d['model']} wrote {count(d['tokens'], 'token')} beyond its cap of {d['cap']}"),
    "parse_error": ("asked", lambda d: f"again: {d['error']}"),
    "rewind": ("rewind", _rewound),
    "fix_refused": ("fix", lambda d: f"x {d['why']}"),
    "unclean": ("reads", lambda d: f"badly, though it passes: {'; '.join(d['faults'])}"),
    "judge_error": ("judge", lambda d: f"no verdict: {d['error']}"),
    "slowed": ("slowed", lambda d: f"{d['model']} has too many requests: {d['limit']} at once, not {d['before']}"),
    "changed": ("changed", lambda d: f"since the run began: {', '.join(d['what'])}; what that changes is bought anew"),
    "diverged": ("replay", lambda _: "asks for something else than was recorded; bought anew"),
}


def _attempt_from(data: Mapping[str, Any]) -> Attempt:
    return Attempt(
        index=data["index"],
        inputs={},
        rung=data["rung"],
        score=score_from(data["score"]),
        usage=Usage(**data["usage"]),
        error=None if data["error"] is None else error_of(data["error"]),
    )


def _draft_line(attempt: Attempt) -> Line:
    said = judged(attempt)
    if cut_off(attempt):
        said = said.partition(":")[0]  # by what is said once, when the run has ended
    decision = decided(attempt)
    if said and attempt.accepted:
        decision = ""  # the verdict says why
    good = attempt.accepted and (attempt.score is None or attempt.score.passed)
    return Line(
        label=f"{'fix' if attempt.rung == 'fix' else 'draft'} {attempt.index + 1}",
        text="; ".join(filter(None, (said, decision.removeprefix("accepted: ")))),
        amount=tokens(attempt.usage),
        tone="good" if good else "bad",
    )


def _critic_line(data: Mapping[str, Any], spent: Usage) -> Line:
    issues = data["issues"]
    said = f"{count(len(issues), 'issue')}: {'; '.join(i['problem'] for i in issues)}" if issues else "nothing to fix"
    return Line(
        label="critic",
        text=one_line(said),
        amount=tokens(spent) if spent.calls else "",
        tone="bad" if issues else "good",
    )
