"""An RLM's turns on stderr while they happen: the code before it is run, sub-calls when they are paid, what was printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redraft.cli.progress import Line, Progress
from redraft.record import completion_from
from redraft.result import count, one_line, printable, tokens
from redraft.rlm.parsing import read
from redraft.types import Event, Usage

_LINES = 14  # of code or output that are shown
_LISTED = 4  # sub-calls of a turn that get a line each
_NO_CODE = "no code"
_NESTED = "/rlm_query:"


class Steps(Progress):
    """Lines for each turn. A nested RLM's turns are marked with `>`."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[str, int] = {}
        self._subs: dict[str, Usage] = {}
        self._shown: dict[str, int] = {}

    def _lines(self, event: Event) -> Iterator[Line]:
        data = event.data
        if event.kind == "call" and data["role"] == "author":
            yield from self._turn(event)
        elif event.kind == "call" and data["role"] == "sub":
            yield from self._sub(event)
        elif event.kind == "step" and isinstance(data.get("value"), dict) and "code" in data["value"]:
            yield from self._step(event.scope, data["value"])
        else:
            # the only draft is what its turns have shown, unless something judged it
            yield from (line for line in super()._lines(event) if line.text != "the first draft")

    def _turn(self, event: Event) -> Iterator[Line]:
        """What the author wrote, as soon as it is there."""
        at, data = event.scope, event.data
        turn = self._turns[at] = self._turns.get(at, 0) + 1
        reply = read(completion_from(data["completion"]))
        label = f"{_deep(at)}turn {turn}"
        yield Line(label=label, text=one_line(reply.thought)[:200], amount=tokens(Usage(**data["usage"])))
        yield from _block("  ", reply.code)

    def _sub(self, event: Event) -> Iterator[Line]:
        at = event.scope.rpartition("/step:cell[")[0]
        used = Usage(**event.data["usage"])
        self._subs[at] = self._subs.get(at, Usage()) + used
        shown = self._shown[at] = self._shown.get(at, 0) + 1
        if shown <= _LISTED:
            said = completion_from(event.data["completion"]).text or "(nothing)"
            yield Line(label=f"{_deep(at)}sub {shown}", text=one_line(said)[:80], amount=tokens(used))
        elif shown % 10 == 0:
            yield Line(label=f"{_deep(at)}sub {shown}", text="...", amount=tokens(self._subs[at]))

    def _step(self, at: str, step: Mapping[str, Any]) -> Iterator[Line]:
        if step["error"] == _NO_CODE:  # the journal's note has said so
            return
        mark = next((mark for mark in ("bypass", "fallback") if step.get(mark)), "")
        if mark != "fallback":  # whose output is the reason
            yield from _block("  | ", step["output"])
        subs, self._shown[at] = self._subs.pop(at, Usage()), 0
        parts = [count(subs.calls, "sub-call")] if subs.calls else []
        parts += [f"{step['seconds']:.1f} s"] if step["seconds"] else []
        if mark or step["error"]:
            parts.insert(0, _DIRECT if mark == "bypass" else _error(step))
        if parts:
            spent = Usage(**{k: v for k, v in step["usage"].items() if k in _USED}) if step["usage"] else Usage()
            amount = "" if not spent.calls else f"{tokens(spent)}{f', ${spent.cost:.4f}' if spent.cost else ''}"
            bad = step["error"] or mark == "fallback"
            yield Line(label=f"{_deep(at)}->", text=", ".join(parts), amount=amount, tone="bad" if bad else "note")


_USED = ("calls", "input_tokens", "output_tokens", "cost")
_DIRECT = "the inputs are short: asked directly"


def _error(step: Mapping[str, Any]) -> str:
    """What went wrong; the kind of error alone where the output, which is shown, ends with all of it."""
    error, output = one_line(step["error"]), one_line(step["output"])
    if step.get("fallback"):
        return ": ".join(filter(None, (output, error)))[:200]
    kind = error.partition(":")[0]
    return kind if kind.isidentifier() and output.endswith(error) else error[:160]


def _deep(scope: str) -> str:
    return ">" * scope.count(_NESTED)


def _block(before: str, text: str) -> Iterator[Line]:
    lines = printable(text).rstrip().splitlines()
    cut = len(lines) - _LINES if len(lines) > _LINES + 1 else 0
    if cut:
        lines = [*lines[: _LINES // 2 + 1], f"... {cut} lines ...", *lines[-(_LINES // 2) :]]
    for line in lines:
        yield Line(label="", text=f"{before}{line[:160]}")


def live() -> Progress:
    """The same on a terminal, with a line below that follows the reply which is being written."""
    from redraft.cli.live import LiveProgress

    class LiveSteps(Steps, LiveProgress):
        deltas = True

    return LiveSteps()
