"""What went on record beside drafts and calls, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from redraft.jsonable import as_text
from redraft.report.diff import Piece
from redraft.types import Event

_Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One of them."""

    kind: str
    text: str
    tone: Literal["note", "bad"]
    pieces: tuple[Piece, ...] = ()
    """What was taken back out of a text that was being written, and put in; empty for others."""


def remark(event: Event) -> Remark | None:
    """The event in words; None for one that is shown otherwise."""
    said = _SAID.get(event.kind)
    if said is None:
        return None
    text = said(event.data)
    pieces = tuple(_rewound(event.data)) if event.kind == "rewind" else ()
    return (
        Remark(kind=event.kind, text=text, tone="bad" if event.kind in _BAD else "note", pieces=pieces)
        if text
        else None
    )


def _rewind(d: _Data) -> str:
    from redraft.proactive.view import why_of

    said = f"token {d.get('at')} \u2192 {d.get('to')}, {why_of(d)}"
    if not d.get("accepted"):
        return f"{said}; it stands, after {d.get('tried')} tokens of alternatives"
    what = "" if d.get("taken") else ", the end was taken back"
    return f"{said}{what}{'' if d.get('put') else ', the text ends there'}"


def _rewound(d: _Data) -> Iterator[Piece]:
    before, taken, put = (as_text(d.get(name) or "") for name in ("before", "taken", "put"))
    changed = bool(d.get("accepted"))
    if before:
        yield Piece("=", before)
    if taken and changed:
        yield Piece("-", taken)
    if put:
        yield Piece("+" if changed else "=", put)


def _decoded(d: _Data) -> str:
    from redraft.proactive.view import written_for

    said = written_for(d.get("tokens") or {})
    return f"tokens written so far: {said}" if said else ""


def _held(d: _Data) -> str:
    if d.get("held"):
        return "the constraint was held"
    endless = "; the text did not come to its end" if d.get("endless") else ""
    return f"the constraint was not held: {_list(d.get('failed')) or 'a check of it fails'}{endless}"


def _list(values: Any) -> str:
    return ", ".join(map(as_text, values)) if isinstance(values, list | tuple) else as_text(values or "")


_SAID: dict[str, Callable[[_Data], str]] = {
    "constraint_held": _held,
    "unclean": lambda d: f"it passes, but not cleanly: {_list(d.get('faults'))}",
    "fix_refused": lambda d: f"code could not mend it: {_list(d.get('why'))}",
    "parse_error": lambda d: f"the reply could not be read: {d.get('error')}",
    "judge_error": lambda d: f"it could not be judged: {d.get('error')}",
    "judge_abstained": lambda d: f"the judge named none of {d.get('among')} drafts as the best",
    "advisor_error": lambda d: f"the advisor failed: {d.get('error')}",
    "advice_unaddressed": lambda d: f"advice for {d.get('path')!r}, which is no module of the program",
    "rewind": _rewind,
    "decoded": _decoded,
    "token_mismatch": lambda d: f"{d.get('model')}: {d.get('error')}",
    "lint": lambda d: str(d.get("text")),
    "refused": lambda d: f"the model does not take {_list(d.get('parameters'))}",
    "observation_dropped": lambda _: "an observation was too long for the prompt, and was left out",
    "dropped": lambda d: f"{d.get('model')} refused {_list(d.get('parameter'))}; it was left out",
    "retry": lambda d: f"tried again after {float(d.get('wait') or 0):.1f} s: {d.get('error')}",
    "slowed": lambda d: f"{d.get('model')} has too many requests: {d.get('limit')} at once from here on",
    "overrun": lambda d: f"{d.get('model')} wrote {d.get('tokens')} tokens beyond its cap of {d.get('cap')}",
    "resumed": lambda _: "resumed in another process",
    "changed": lambda d: f"resumed with something else than it was begun with: {_list(d.get('what'))}",
    "diverged": lambda d: f"replies on record that nobody asked for: {_list(d.get('unused'))}",
    "listener_failed": lambda d: f"a listener failed and hears no more: {d.get('error')}",
}
_BAD = {"judge_error", "advisor_error", "diverged", "overrun", "parse_error", "listener_failed"}
