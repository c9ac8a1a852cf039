"""One result: tables of rows under a header that says what was measured, on what, when, and how busy the machine was.

A benchmark is a script whose `measure(options)` yields tables; `main` prints each, and writes all with their header where
`--out` says. `python -m benchmarks NAME` gives `--out benchmarks/results/NAME.json`.
"""

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("redraft", "openai", "httpx2", "pydantic", "dspy")
QUIET = 0.25
"""Load a core, at the start, below which a machine counts as quiet."""

OURS, FLOOR = "redraft", "floor"
MANY = 6
"""Cases of a table above which losses are counted by rival."""


@dataclass
class Table:
    """`rows` are cells by title. The hidden ones: `by` (redraft, floor, or a peer), `case` (rows of one case compare)."""

    title: str
    about: str
    rows: list[dict[str, Any]]
    better: dict[str, str] = field(default_factory=dict)
    """Titles of the columns in which rows compare: "low" or "high"."""
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return [name for name in dict.fromkeys(key for row in self.rows for key in row) if name != "by"]

    @property
    def cases(self) -> list[list[dict[str, Any]]]:
        """The rows that compare with each other."""
        names = dict.fromkeys(row.get("case") for row in self.rows)
        return [[row for row in self.rows if row.get("case") == name] for name in names]

    def losses(self) -> list[str]:
        """Where others are better than the best of ours in the same case: by case, or if there are many, by rival."""
        found = [
            (rows, column, *ahead)
            for rows in self.cases
            for column in self.better
            if (ahead := self._ahead(rows, column))
        ]
        if len(self.cases) > MANY:
            return self._by_rival(found)
        lines = []
        for rows, column, best, rivals in found:
            said = "; ".join(f"{name_of(row)} {cell(row[column])}{times(row[column], best)}" for row in rivals)
            lines.append(f"{rows[0]['case'] + ', ' if 'case' in rows[0] else ''}{column}: ours {cell(best)}; {said}")
        return lines

    def _ahead(self, rows: list[dict[str, Any]], column: str) -> tuple[float, list[dict[str, Any]]] | None:
        """Our best, and the rows of others that are better, the best first."""
        low = self.better[column] == "low"
        there = [row for row in rows if is_number(row.get(column))]
        ours = [row[column] for row in there if row["by"] == OURS]
        if not ours:
            return None
        best = min(ours) if low else max(ours)
        rivals = [r for r in there if r["by"] != OURS and (r[column] < best if low else r[column] > best)]
        return (best, sorted(rivals, key=lambda row: row[column], reverse=not low)) if rivals else None

    def _by_rival(self, found: list[Any]) -> list[str]:
        counted: dict[tuple[str, str], list[float]] = {}
        for _, column, best, rivals in found:
            for row in rivals:
                counted.setdefault((column, name_of(row)), []).append(row[column] / best if best else 0.0)
        lines = []
        for (column, rival), ratios in counted.items():
            least = f", at best {min(ratios):.2f} x ours" if self.better[column] == "low" else ""
            both = sum(rival in map(name_of, rows) for rows in self.cases)
            lines.append(f"{column}: {rival}, in {len(ratios)} of {both} cases{least}")
        return lines


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def times(value: float, best: float) -> str:
    return f" ({value / best:.2f} x ours)" if value and best else ""


def name_of(row: dict[str, Any]) -> str:
    """What a row is called: its first column that is no case."""
    return str(next(value for key, value in row.items() if key not in ("case", "by")))


def cell(value: Any) -> str:
    """A value as a reader wants it: three digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def shown(table: Table) -> str:
    """The table for a terminal."""
    columns = table.columns
    lines = [columns, *([cell(row.get(name)) for name in columns] for row in table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    text = [columns[i] for i in range(len(columns)) if any(isinstance(row.get(columns[i]), str) for row in table.rows)]
    out = [f"\n{table.title}: {table.about}", ""]
    for line in lines:
        cells = [v.ljust(w) if c in text else v.rjust(w) for v, w, c in zip(line, widths, columns, strict=True)]
        out.append("  ".join(cells).rstrip())
    return "\n".join([*out, *table.notes, *(f"better than ours: {line}" for line in table.losses())])


# The header


def machine() -> dict[str, Any]:
    """What it is; neither its name nor where anything lies on it."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", info)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
    }


def commit() -> tuple[str, bool | None]:
    """Of the checkout; and whether the library differs from it."""
    git = ["git", "--no-optional-locks", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return "unknown", None
    changed = subprocess.run([*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True, check=False)
    return head.stdout.strip(), bool(changed.stdout.strip())


def versions(names: Iterable[str]) -> dict[str, str]:
    """Of those that are installed here."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def header(name: str, arguments: list[str], seeds: list[int]) -> dict[str, Any]:
    head, dirty = commit()
    load = round(os.getloadavg()[0], 2)
    here = machine()
    return {
        "commit": head,
        "dirty": dirty,
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python -m benchmarks", name, *arguments]),
        "seeds": seeds,
        "python": platform.python_version(),
        "packages": versions(PACKAGES),
        "machine": here,
        "load": {"start": load},
        "quiet": load / (here["cores"] or 1) < QUIET,
    }


def main(
    name: str,
    title: str,
    measure: Callable[[argparse.Namespace], Iterable[Table]],
    options: Callable[[argparse.ArgumentParser], Any] | None = None,
    *,
    about: str = "",
    seeds: tuple[int, ...] = (),
    peers: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Measure, print, and write the result where `--out` says. `peers` gives their versions, in their own environments."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result there, as JSON")
    if options:
        options(parser)
    given = parser.parse_args()
    arguments, out = sys.argv[1:], given.out
    if out:
        at = arguments.index("--out")
        del arguments[at : at + 2]
    result: dict[str, Any] = {"benchmark": name, "title": title, "about": " ".join(about.split()), "header": {}}
    head, began = (
        header(name, arguments, [getattr(given, "seed", None)] if hasattr(given, "seed") else [*seeds]),
        time.monotonic(),
    )
    tables = []
    for table in measure(given):
        print(shown(table), flush=True)
        tables.append(
            {
                "title": table.title,
                "about": table.about,
                "better": table.better,
                "rows": table.rows,
                "notes": table.notes,
            }
        )
    if peers:
        head["peers"] = peers()
    head["load"]["end"] = round(os.getloadavg()[0], 2)
    head["seconds"] = round(time.monotonic() - began, 1)
    load = head["load"]
    print(
        f"\n{head['commit']}{' and changes' if head['dirty'] else ''}, {head['date']}, load {load['start']} to {load['end']} on {head['machine']['cores']} cores"
    )
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        result |= {"header": head, "tables": tables}
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> tuple[dict[str, Any], list[Table]]:
    """A committed result and its tables."""
    result = json.loads(path.read_text(encoding="utf-8"))
    return result, [Table(**table) for table in result["tables"]]
