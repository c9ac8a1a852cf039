"""The cells of a recursive language model (RLM): code that a model wrote, what it printed, and what it asked from inside;
and other steps that went on record (tools that were called).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.frame import within
from redraft.jsonable import as_text
from redraft.report.page.calls import Call, of_scope
from redraft.types import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a cell's code asked of the host: a model, or a tool."""

    function: str
    prompt: str
    reply: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One step on record."""

    number: int
    name: str
    scope: str
    is_cell: bool
    thought: str
    code: str
    """Python that was run."""
    output: str
    """What it printed; of a step that is no cell its value."""
    error: str
    submitted: str
    """The outputs that it gave as the answer, as JSON."""
    seconds: float | None
    asked: tuple[Asked, ...]
    calls: tuple[Call, ...]
    """Those that were made from inside."""

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return f"step{self.number}"


def cells_of(events: Sequence[Event], calls: Sequence[Call]) -> list[Cell]:
    """Every step, in order; what a cell has asked is part of it."""
    steps = [event for event in events if event.kind == "step"]
    inside = [scope for event in steps if _cell(event) is not None and (scope := _inside(event))]
    found = list[Cell]()
    for event in steps:
        if not any(within(event.scope, scope) for scope in inside):
            found.append(_made(event, len(found) + 1, calls))
    return found


def _made(event: Event, number: int, calls: Sequence[Call]) -> Cell:
    cell, scope = _cell(event), _inside(event)
    parts: Mapping[str, Any] = cell or {}
    seconds, submitted = parts.get("seconds"), parts.get("submitted")
    output, error = as_text(parts.get("output") or ""), as_text(parts.get("error") or "")
    return Cell(
        number=number,
        name=str(event.data.get("name") or "step").partition(":")[0],
        scope=event.scope,
        is_cell=cell is not None,
        thought=as_text(parts.get("reasoning") or ""),
        code=as_text(parts.get("code") or ""),
        output=as_text(event.data.get("value")) if cell is None else output,
        error="" if error in output else error,
        submitted="" if submitted is None else as_text(submitted),
        seconds=seconds if isinstance(seconds, int | float) else None,
        asked=tuple(_asked(parts.get("calls"))),
        calls=tuple(of_scope(calls, scope)) if scope else (),
    )


def _asked(entries: Any) -> Iterator[Asked]:
    for entry in entries if isinstance(entries, list | tuple) else ():
        if isinstance(entry, Mapping):
            texts = {name: as_text(entry.get(name) or "") for name in ("function", "prompt", "reply", "error")}
            if texts["function"] != "SUBMIT" or texts["error"]:
                yield Asked(**texts)


def _cell(event: Event) -> Mapping[str, Any] | None:
    value = event.data.get("value")
    return value if isinstance(value, Mapping) and isinstance(value.get("code"), str) else None


def _inside(event: Event) -> str:
    """Where the step's own calls were made: see `Frame.step`."""
    return f"{event.scope}/{event.key.removeprefix(f'{event.scope}|')}" if event.key else ""
