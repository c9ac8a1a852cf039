"""The calls of a run in order: who asked which model what, what came back, when, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from redraft.frame import within
from redraft.journal import CALL, CALL_ERROR, CALL_FAILED, INTENT, SOFT
from redraft.jsonable import as_text
from redraft.types import Event, Usage

Status = Literal["ok", "failed", "refused", "cut off", "unfinished", "cached", "metered"]

_LONG = 160  # characters of a message from which on it is shown once
_ENDS = {CALL: "ok", CALL_ERROR: "refused", CALL_FAILED: "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a prompt."""

    role: str
    text: str
    anchor: str
    """Its place on the page."""
    same_as: str = ""
    """The anchor of an earlier message with the same text, which is not shown again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One choice of a completion."""

    text: str
    reasoning: str
    tools: str
    """Its tool calls, as JSON."""
    finish: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One try at buying a reply."""

    number: int
    scope: str
    role: str
    model: str
    status: Status
    begun: float
    """Seconds that the run had worked when it began."""
    seconds: float | None
    """None: it is not known how long it took."""
    usage: Usage
    nth: int
    """Which try of the same call it is."""
    error: str
    settings: tuple[tuple[str, str], ...]
    """What was asked for beside the messages."""
    messages: tuple[Said, ...]
    replies: tuple[Reply, ...]

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return f"c{self.number}"

    @property
    def ended(self) -> float:
        """Seconds that the run had worked when it ended."""
        return self.begun + (self.seconds or 0.0)

    @property
    def finish(self) -> str:
        """Why the reply ended."""
        return ", ".join(dict.fromkeys(reply.finish for reply in self.replies if reply.finish))


class Clock:
    """How long a run had worked at a moment: the time between its processes does not count."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._gaps: list[tuple[float, float]] = []
        """When a later process began, and how long nothing had happened before."""
        before = self._start = events[0].time if events else 0.0
        for event in events:
            if event.kind == "resumed":
                self._gaps.append((event.time, max(0.0, event.time - before)))
            before = max(before, event.time)
        self.total = self.at(before)
        """Seconds of work from the first event to the last."""

    def at(self, moment: float) -> float:
        """Seconds of work until then."""
        return max(0.0, moment - self._start - sum(gap for when, gap in self._gaps if when <= moment))


@dataclass
class _Shown:
    """Which messages the page has already."""

    at: dict[tuple[str, str], str] = field(default_factory=dict)

    def settings(self, asked: Mapping[str, Any], cap: Any, number: int) -> Iterator[tuple[str, str]]:
        """What was asked for beside the messages; a long one (a grammar, tools) once."""
        if cap is not None:
            yield "cap", f"{cap} tokens"
        for name, value in asked.items():
            if name in ("model", "messages"):
                continue
            text = as_text(value)
            before = self.at.setdefault((f"setting {name}", text), str(number)) if len(text) >= _LONG else str(number)
            yield name, text if before == str(number) else f"the same as in call {before}"

    def said(self, message: Mapping[str, Any], anchor: str) -> Said:
        role, text = str(message.get("role", "")), message_text(message)
        same_as = self.at.get((role, text), "")
        if not same_as and len(text) >= _LONG:
            self.at[role, text] = anchor
        return Said(role=role, text="" if same_as else text, anchor=anchor, same_as=same_as)


def calls_of(events: Sequence[Event], clock: Clock | None = None) -> list[Call]:
    """Every try, in the order in which they began."""
    clock = clock or Clock(events)
    ends = {e.data.get("intent"): e for e in events if e.kind in _ENDS}
    tries: dict[str, int] = {}
    shown = _Shown()
    found: list[Call] = []
    for event in events:
        number = len(found) + 1
        if event.kind == INTENT:
            tries[event.key] = nth = tries.get(event.key, 0) + 1
            found.append(_bought(event, ends.get(event.seq), clock, shown, number=number, nth=nth))
        elif event.kind == SOFT or (event.kind == CALL and event.data.get("intent") is None):
            found.append(_given(event, number, clock, shown))
    return found


def of_scope(calls: Sequence[Call], scope: str) -> list[Call]:
    """Those that were made there."""
    return [call for call in calls if within(call.scope, scope)]


def _bought(intent: Event, end: Event | None, clock: Clock, shown: _Shown, *, number: int, nth: int) -> Call:
    asked = _asked(intent.data.get("content"))
    begun, data = clock.at(intent.time), {} if end is None else end.data
    status: Status = "unfinished" if end is None else _status(end)
    seconds = data.get("seconds")
    if seconds is None and end is not None:
        seconds = max(0.0, clock.at(end.time) - begun)
    completion = data.get("completion") or {}
    return Call(
        number=number,
        scope=intent.scope,
        role=str(intent.data.get("role", "")),
        model=str(asked.get("model") or data.get("model") or ""),
        status=status,
        begun=begun,
        seconds=seconds,
        usage=Usage(**(data["usage"] if end is not None else intent.data.get("reserved") or {})),
        nth=nth,
        error=str(data.get("error") or ""),
        settings=tuple(shown.settings(asked, intent.data.get("cap"), number)),
        messages=_messages(asked, number, shown),
        replies=tuple(map(_reply, completion.get("choices") or ())),
    )


def _status(end: Event) -> Status:
    if end.kind == CALL_FAILED and "class" not in end.data:
        return "cut off"
    status: Status = _ENDS[end.kind]  # type: ignore[assignment]
    return status


def _given(event: Event, number: int, clock: Clock, shown: _Shown) -> Call:
    """A reply out of the cache, or calls that other code made by itself."""
    soft, asked = event.kind == SOFT, _asked(event.data.get("content"))
    return Call(
        number=number,
        scope=event.scope,
        role=str(event.data.get("by" if soft else "role", "")),
        model=str(event.data.get("model") or ""),
        status="metered" if soft else "cached",
        begun=clock.at(event.time),
        seconds=None if soft else 0.0,
        usage=Usage(**event.data["usage"]),
        nth=1,
        error="",
        settings=tuple(shown.settings(asked, None, number)),
        messages=_messages(asked, number, shown),
        replies=tuple(map(_reply, (event.data.get("completion") or {}).get("choices") or ())),
    )


def _messages(asked: Mapping[str, Any], number: int, shown: _Shown) -> tuple[Said, ...]:
    messages = asked.get("messages") or ()
    return tuple(shown.said(m, f"c{number}-{at}") for at, m in enumerate(messages, 1) if isinstance(m, Mapping))


def _asked(content: Any) -> dict[str, Any]:
    """What was sent; nothing of it where that cannot be read."""
    try:
        asked = json.loads(content) if isinstance(content, str) else content
    except ValueError:
        return {}
    return asked if isinstance(asked, dict) else {}


def _reply(choice: Mapping[str, Any]) -> Reply:
    tools = choice.get("tool_calls")
    return Reply(
        text=str(choice.get("text") or ""),
        reasoning=str(choice.get("reasoning") or ""),
        tools=json.dumps(tools, ensure_ascii=False, indent=1) if tools else "",
        finish=str(choice.get("finish_reason") or ""),
    )


def message_text(message: Mapping[str, Any]) -> str:
    """A message as text; of what is no text (images, files) it says how much there is."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [_part_text(part) for part in parts if part is not None]
    if message.get("tool_calls"):
        texts.append(json.dumps(message["tool_calls"], ensure_ascii=False, indent=1))
    return "\n\n".join(texts)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    size = len(as_text(part))
    kind = part.get("type", "part") if isinstance(part, Mapping) else type(part).__name__
    return f"[{kind}, {size:,} characters: not shown]"
