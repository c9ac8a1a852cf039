"""Training sets out of runs, in the conversational forms of TRL: prompt and completion (SFT), chosen and rejected (DPO).

A prompt is what the run's first call of its author was asked; completions are whole replies in the form in which that
author gives them. Where a draft is no single reply to that prompt (several modules made it, or tools were called), or
the prompt has other parts than text, there is no example, and it is counted why.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.frame import within
from redraft.journal import CALL, INTENT
from redraft.report.kept import Drafts, drafts_of, outermost
from redraft.types import Attempt, Event

Example = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call, and its reply."""

    scope: str
    role: str
    body: Mapping[str, Any]
    """What was sent: messages and more."""
    choice: Mapping[str, Any]

    @property
    def text(self) -> str:
        return f"{self.body.get('prefill') or ''}{self.choice.get('text', '')}"


def sft(run_id: str, events: Sequence[Event], why_not: Counter[str]) -> Iterator[Example]:
    """One example for each refinement whose best draft passed its checks: `prompt`, `completion`, `score`, `run_id`."""
    for drafts in outermost(drafts_of(events)):
        best = _final(drafts, why_not)
        if best is None:
            continue
        if best.score is not None and not best.score.passed:
            why_not["its checks did not pass"] += 1
        elif (form := _Form.of(drafts, events, why_not)) and (said := form.said(best)) is not None:
            score = None if best.score is None else best.score.value
            yield {"prompt": form.prompt, "completion": said, "score": score, "run_id": run_id}
        elif form:
            why_not[_NO_REPLY] += 1


def dpo(run_id: str, events: Sequence[Event], why_not: Counter[str]) -> Iterator[Example]:
    """The best draft of each refinement with every other one that scores below it and differs: `prompt`, `chosen`,
    `rejected`, `score_chosen`, `score_rejected`, `run_id`.
    """
    for drafts in outermost(drafts_of(events)):
        best = _final(drafts, why_not)
        if best is None:
            continue
        worse = [attempt for attempt in drafts.attempts if _is_worse(attempt, best)]
        if not worse:
            why_not["no draft scores below the best one"] += 1
        elif form := _Form.of(drafts, events, why_not):
            yield from _pairs(run_id, form, best, worse, why_not)


def _pairs(
    run_id: str, form: _Form, best: Attempt, worse: Sequence[Attempt], why_not: Counter[str]
) -> Iterator[Example]:
    chosen, seen = form.said(best), set()
    for attempt in worse:
        rejected = form.said(attempt)
        if chosen is None or rejected is None:
            why_not[_NO_REPLY] += 1
            continue
        text = rejected[0]["content"]
        if text.strip() != chosen[0]["content"].strip() and text not in seen:
            seen.add(text)
            assert best.score is not None
            assert attempt.score is not None
            yield {
                "prompt": form.prompt,
                "chosen": chosen,
                "rejected": rejected,
                "score_chosen": best.score.value,
                "score_rejected": attempt.score.value,
                "run_id": run_id,
            }


_NO_REPLY = "a draft is no single reply"


def _final(drafts: Drafts, why_not: Counter[str]) -> Attempt | None:
    """The draft that the refinement ended with, if it did and that can be taught."""
    if not drafts.ended:
        why_not["it never ended"] += 1
    elif drafts.best is None or drafts.best.error is not None or not drafts.best.text.strip():
        why_not["it ended without a draft"] += 1
    else:
        return drafts.best
    return None


def _is_worse(attempt: Attempt, best: Attempt) -> bool:
    """It scores below the best one by the same scorer, and fails no fewer hard checks."""
    if attempt.error is not None or attempt.score is None or best.score is None or not attempt.text.strip():
        return False
    worse = attempt.score.value < best.score.value and attempt.score.hard_failures >= best.score.hard_failures
    return worse and attempt.text.strip() != best.text.strip()


class _Form:
    """What a refinement's author is asked, and how its replies look."""

    def __init__(self, drafts: Drafts, authors: Sequence[_Asked]) -> None:
        self._drafts = drafts
        self._authors = authors
        calls = [(attempt, self._calls(attempt)) for attempt in drafts.attempts]
        first = next(of_attempt[0] for _, of_attempt in calls if of_attempt)
        self.prompt: list[dict[str, str]] = [
            {"role": message["role"], "content": message["content"]} for message in first.body["messages"]
        ]
        self._plain = any(said and said[-1].text.strip() == attempt.text.strip() for attempt, said in calls)
        """The draft is the reply's text itself, so that what others made of it (a reviser, code) is a reply, too."""

    @classmethod
    def of(cls, drafts: Drafts, events: Sequence[Event], why_not: Counter[str]) -> _Form | None:
        scopes = [drafts.scope_of(attempt) for attempt in drafts.attempts]
        authors = [call for call in _calls(events) if call.role == "author"]
        by_attempt = [[call for call in authors if within(call.scope, scope)] for scope in scopes]
        authors = [call for calls in by_attempt for call in calls]
        if not authors:
            why_not["no call of its author is on record"] += 1
        elif any(call.choice.get("tool_calls") or call.body.get("tools") for call in authors):
            why_not["tools were called"] += 1
        elif any(len({call.scope for call in calls}) > 1 for calls in by_attempt):
            why_not["several modules made it"] += 1
        elif not all(_is_text(message) for message in authors[0].body["messages"]):
            why_not["its prompt is not text alone"] += 1
        else:
            return cls(drafts, authors)
        return None

    def said(self, attempt: Attempt) -> list[dict[str, str]] | None:
        """The attempt as the author's reply; None if it is none."""
        calls = self._calls(attempt)
        if self._plain:
            text = attempt.text
        elif calls and attempt.rung != "fix":
            text = calls[-1].text
        else:
            return None
        return [{"role": "assistant", "content": text}] if text.strip() else None

    def _calls(self, attempt: Attempt) -> list[_Asked]:
        scope = self._drafts.scope_of(attempt)
        return [call for call in self._authors if within(call.scope, scope)]


def _calls(events: Sequence[Event]) -> Iterator[_Asked]:
    """The replies that were bought, or came out of the cache, with what was asked."""
    intents = {event.seq: event for event in events if event.kind == INTENT}
    for event in events:
        if event.kind != CALL:
            continue
        asked = event if event.data.get("intent") is None else intents.get(event.data["intent"])
        if asked is None or "content" not in asked.data:
            continue  # one out of the cache said what was answered only, before version 3 of the store
        choices = event.data["completion"]["choices"]
        if len(choices) == 1:
            yield _Asked(event.scope, event.data["role"], json.loads(asked.data["content"]), choices[0])


def _is_text(message: Mapping[str, Any]) -> bool:
    return isinstance(message.get("content"), str) and message.get("role") in (
        "system",
        "user",
        "assistant",
        "developer",
    )
