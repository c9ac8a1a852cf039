"""What an evaluation leaves behind: JSON with everything, a page of Markdown, a plot, and one event in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redraft import __version__
from redraft.evaluate.plot import svg
from redraft.evaluate.report import Report, escaped
from redraft.evaluate.standing import Comparison
from redraft.evaluate.waiting import begun
from redraft.jsonable import as_text, plain
from redraft.protocols import Store
from redraft.record import digest
from redraft.result import count
from redraft.run import Run

KIND = "evaluation"
"""The event that holds a report without its items' texts: those are runs of the same store."""

_MANY = 5
_SAID = 200
"""Characters of an example, or of what was said of an item, that the record holds."""


def data_of(report: Report, more: Sequence[Comparison], about: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values: the report, the further comparisons, and `about`: what was evaluated, with which model. Numbers that JSON
    has no form for (an example's NaN) are texts.
    """
    compared = [c.to_dict() for c in (*report.between, *more)]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    whole = {"redraft": __version__, "date": at, **about, **report.to_dict(), "comparisons": compared}
    read: dict[str, Any] = json.loads(json.dumps(whole, default=plain), parse_constant=str)
    return read


def markdown(report: Report, more: Sequence[Comparison], plot: str = "", missing: Sequence[str] = ()) -> str:
    """The table, all comparisons, what is `missing`, and the plot by its file's name."""
    parts = [report.markdown().rstrip()]
    parts += [f"- {escaped(line)}" for line in (*map(str, more), *caution(report, more), *missing)]
    if plot:
        parts += ["", f"![quality against cost]({plot})"]
    return "\n".join(parts) + "\n"


def caution(report: Report, more: Sequence[Comparison]) -> list[str]:
    """One line, if there are so many comparisons that some of them differ by luck."""
    number = len(more) + len(report.between) + sum(len(s.comparisons) for s in report.standings)
    if number < _MANY:
        return []
    return [f"{number} comparisons at 95% each: about {number / 20:.1f} of them would differ by luck alone"]


def write(prefix: Path, report: Report, more: Sequence[Comparison], data: Mapping[str, Any]) -> list[Path]:
    """`PREFIX.json`, `PREFIX.md` and `PREFIX.svg`; each is whole or as it was before."""
    drawn = svg(report.standings)
    plot = Path(f"{prefix}.svg")
    made = {
        Path(f"{prefix}.json"): json.dumps(data, ensure_ascii=False, indent=1, default=plain, allow_nan=False) + "\n",
        Path(f"{prefix}.md"): markdown(report, more, plot.name if drawn else "", data.get("missing", ())),
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
    items = [_short(item) for item in data["items"]]
    run_id = f"{KIND}-{digest([item['run_id'] for item in items])[:12]}"
    asked = {str(item["index"]): _asked(item) for item in data["items"]}
    short = json.loads(json.dumps({**data, "items": items, "asked": asked}, default=plain))

    def is_there() -> bool:
        return any(_undated(e.data["report"]) == _undated(short) for e in store.read(run_id) if e.kind == KIND)

    def make() -> Run:
        opened = Run(store=store, run_id=run_id, seed=int(data["seed"]))
        opened.journal.spec = {"strategy": KIND, "task": _title(data)}
        return opened

    if is_there():
        return run_id
    async with await begun(make) as run:
        if not is_there():  # nor has somebody else put it there meanwhile
            run.journal.remark(KIND, scope="", report=short)
    return run_id


def _title(data: Mapping[str, Any]) -> str:
    names = [s["name"] for s in data["strategies"] if not s["baseline"]]
    return f"{', '.join(names)} on {count(data['examples'], 'example')}, judged by {data['judged_by']}"


def _short(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item without its texts: those are in its own run."""
    error = item["error"] or {}
    said = str(item["feedback"] or error.get("message") or "")[:_SAID]
    used = item["usage"]
    made = {n: item[n] for n in ("run_id", "strategy", "index", "status", "score", "passed")}
    return {**made, "said": said, "calls": used["calls"], "tokens": used["input_tokens"] + used["output_tokens"]}


def _asked(item: Mapping[str, Any]) -> str:
    """What tells an example from others, in short."""
    return "; ".join(as_text(item["example"][name])[:_SAID] for name in item["inputs"])[:_SAID]


def _undated(report: Mapping[str, Any]) -> dict[str, Any]:
    """All but when it was."""
    return {name: value for name, value in report.items() if name not in ("date", "redraft")}
