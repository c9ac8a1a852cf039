"""Kept runs as a table that fits the terminal, and as a paragraph."""

from __future__ import annotations

import dataclasses
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from redraft.result import count, dollars, one_line, tokens
from redraft.store.kept import KeptRun
from redraft.types import Usage

_SHORTEST = 8
_COLUMNS = ("run", "begun", "stopped", "score", "calls", "tokens", "cost", "task")
_RIGHT = ("score", "calls", "tokens", "cost")


def shorts(ids: Sequence[str]) -> dict[str, str]:
    """The beginning of each id that no other one has, eight characters at least."""
    found: dict[str, str] = {}
    ordered = sorted(ids)
    for before, run_id, after in zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False):
        alike = max(_common(run_id, before), _common(run_id, after))
        found[run_id] = run_id[: max(_SHORTEST, alike + 1)]
    return found


def table(runs: Sequence[KeptRun], short: dict[str, str]) -> Iterator[str]:
    """A line a run, below their headings; nothing for no runs."""
    if not runs:
        return
    rows = [_COLUMNS, *(_row(run, short[run.run_id]) for run in runs)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS) - 1)]
    left = max(8, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths))
    for *figures, task in rows:
        cells = [
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for name, cell, width in zip(_COLUMNS, figures, widths, strict=False)
        ]
        yield "  ".join([*cells, _cut(task, left)]).rstrip()


def heading(run: KeptRun) -> str:
    """Who, what, when and how much."""
    usage = Usage(calls=run.calls, input_tokens=run.tokens, uncertain_tokens=run.most_tokens - run.tokens)
    if run.unreadable:
        stopped = "unreadable"
    else:
        stopped = f"stopped: {run.stop}" if run.ended else "not ended: cut off, or at work"
    lines = [
        " | ".join(
            filter(None, (f"run {run.run_id}", run.strategy, f"begun {_local(run.begun, '%Y-%m-%d %H:%M:%S')}"))
        ),
        " | ".join((count(run.calls, "call"), tokens(usage), dollars(run.cost), stopped)),
    ]
    if run.models:
        lines.append(f"models: {', '.join(run.models)}")
    if run.error:
        lines.append(f"error: {run.error}")
    if run.task:
        lines.append(f"task: {run.task}")
    return "\n".join(map(one_line, lines))


def run_json(run: KeptRun) -> dict[str, Any]:
    """One run's figures, as JSON values."""
    return {**dataclasses.asdict(run), "models": list(run.models), "failed": run.failed}


def _row(run: KeptRun, short: str) -> tuple[str, ...]:
    if run.unreadable:
        nothing = ("x unreadable", "", "", "", "", one_line(run.error or ""))
        return one_line(short), _local(run.begun, "%m-%d %H:%M"), *nothing
    stopped = "not ended" if run.ended is None else f"x {run.stop}" if run.failed else str(run.stop)
    most = run.most_cost is not None and run.cost is not None and run.most_cost > run.cost
    return (
        one_line(short),
        _local(run.begun, "%m-%d %H:%M"),
        stopped,
        "" if run.score is None else f"{run.score:.2f}",
        str(run.calls),
        f"{run.tokens}{'+' if run.most_tokens > run.tokens else ''}",
        "?" if run.cost is None else f"{dollars(run.cost)}{'+' if most else ''}",
        one_line(run.task or (f"({run.strategy})" if run.strategy else "")),
    )


def _local(utc: str, form: str) -> str:
    return "" if not utc else datetime.fromisoformat(utc).astimezone().strftime(form)


def _common(a: str, b: str) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _cut(text: str, width: int) -> str:
    """As much of a text as there is room for; a wide character takes two places."""
    taken = 0
    for at, character in enumerate(text):
        taken += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if taken > width:
            return text[: max(0, at - 3)] + "..."
    return text
