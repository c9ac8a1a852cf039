"""What an evaluation leaves behind: JSON with everything, a page of Markdown, a plot, and one event in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redraft import __version__
from redraft.evaluate.plot import svg
from redraft.evaluate.report import Report
from redraft.evaluate.standing import Comparison
from redraft.jsonable import plain
from redraft.protocols import Store
from redraft.record import digest
from redraft.run import Run

KIND = "evaluation"
"""The event that holds a report without its items' texts: those are runs of the same store."""

_MANY = 5


def data_of(report: Report, more: Sequence[Comparison], about: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values: the report, the further comparisons, and `about`: what was evaluated, with which model."""
    compared = [{**asdict(c), "difference": plain(c.difference), "outcome": c.outcome} for c in more]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"redraft": __version__, "date": at, **about, **report.to_dict(), "comparisons": compared}


def markdown(report: Report, more: Sequence[Comparison], plot: str = "") -> str:
    """The table, all comparisons, and the plot by its file's name."""
    parts = [report.markdown().rstrip()]
    parts += [f"- {line}" for line in (*map(str, more), *caution(report, more))]
    if plot:
        parts += ["", f"![quality against cost]({plot})"]
    return "\n".join(parts) + "\n"


def caution(report: Report, more: Sequence[Comparison]) -> list[str]:
    """One line, if there are so many comparisons that some of them differ by luck."""
    number = len(more) + sum(len(s.comparisons) for s in report.standings)
    if number < _MANY:
        return []
    return [f"{number} comparisons at 95% each: about {number / 20:.1f} of them would differ by luck alone"]


def write(prefix: Path, report: Report, more: Sequence[Comparison], data: Mapping[str, Any]) -> list[Path]:
    """`PREFIX.json`, `PREFIX.md` and `PREFIX.svg`; each is whole or as it was before."""
    drawn = svg(report.standings)
    plot = Path(f"{prefix}.svg")
    made = {
        Path(f"{prefix}.json"): json.dumps(data, ensure_ascii=False, indent=1, default=plain) + "\n",
        Path(f"{prefix}.md"): markdown(report, more, plot.name if drawn else ""),
    }
    if drawn:
        made[plot] = drawn
    for path, text in made.items():
        part = Path(f"{path}.part")
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    return list(made)


async def keep(store: Store, data: Mapping[str, Any]) -> str:
    """Put the report on record as a run of its own; returns its id, the same for the same items."""
    items = [
        {n: item[n] for n in ("run_id", "strategy", "index", "status", "score", "passed")} for item in data["items"]
    ]
    run_id = f"{KIND}-{digest([item['run_id'] for item in items])[:12]}"
    short = json.loads(json.dumps({**data, "items": items}, default=plain))
    if any(_undated(event.data["report"]) == _undated(short) for event in store.read(run_id) if event.kind == KIND):
        return run_id
    opened = Run(store=store, run_id=run_id, seed=int(data["seed"]))
    opened.journal.spec = {"strategy": KIND, "task": f"{len(items)} items, judged by {data['judged_by']}"}
    async with opened as run:
        run.journal.remark(KIND, scope="", report=short)
    return run_id


def _undated(report: Mapping[str, Any]) -> dict[str, Any]:
    """All but when it was."""
    return {name: value for name, value in report.items() if name not in ("date", "redraft")}
