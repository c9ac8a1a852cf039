"""docs/benchmarks.md out of the committed results: `python -m benchmarks --docs`. It measures nothing."""

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import record

PAGE = record.ROOT / "docs" / "benchmarks.md"
ORDER = (
    "loop",
    "many",
    "faults",
    "limits",
    "install",
    "overhead",
    "methods",
    "batch",
    "store",
    "sandbox",
    "server",
    "page",
    "crash",
)

HEAD = """\
# What was measured

*This page is generated from the results in `benchmarks/results/` by `make bench-docs`; a test holds it to them. Do not edit it.*

Each section says what was measured, the command that measures it again, and on what: commit, versions, machine and its load. On a
**loaded** machine other programs took part of the cores: there, seconds say little, CPU more, and ratios taken in turn in the same run most. Other
machines give other figures; `make bench ARGS=NAME` gives yours.

Under each table, **where we lose** lists every column in which another library, or a bare loop without one, was better than the best of ours
in the same case. It is worked out from the rows, not chosen. Fewer checks, books and records cost less: a bare loop keeps no journal, has no
budget and does not outlive a kill.
"""


def page() -> str:
    """The page's text."""
    there = {path.stem: path for path in sorted(record.RESULTS.glob("*.json"))}
    names = [*(name for name in ORDER if name in there), *(name for name in there if name not in ORDER)]
    results = {name: record.read(there[name]) for name in names}
    parts = [HEAD, *summary(results)]
    for name, (result, tables) in results.items():
        parts += [f"\n## {result['title']}\n", result["about"], "", *origin(name, result["header"])]
        for table in tables:
            parts += ["", f"### {table.title}", "", capital(table.about) + ".", "", *markdown(table), *tail(table)]
    parts += ["", *quality(), "", *rlm(), "", *proactive(), *ELSEWHERE]
    return "\n".join(parts).rstrip() + "\n"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def summary(results: dict[str, Any]) -> Iterator[str]:
    """All losses of all results, in short: how often, and to whom."""
    yield "\n| measured | date | commit | load | columns in which others are ahead |\n|---|---|---|---|---|"
    for result, tables in results.values():
        head, lost = result["header"], sum(len(table.losses()) for table in tables)
        of = sum(comparisons(table) for table in tables)
        ahead = (
            f"{lost} of {of}"
            if of
            else "see its notes"
            if any(table.notes for table in tables)
            else "compares with nobody"
        )
        yield f"| {result['title']} | {head['date'][:10]} | {said_commit(head)} | {said_load(head)} | {ahead} |"


def comparisons(table: record.Table) -> int:
    """In how many columns of how many cases ours stand beside others."""
    found = 0
    for rows in table.cases:
        who = {"ours" if row["by"] == record.OURS else "others" for row in rows}
        found += len(table.better) if len(who) == 2 else 0
    return found


def said_commit(head: dict[str, Any]) -> str:
    return f"`{head['commit']}`" + (" and changes" if head["dirty"] else "")


def said_load(head: dict[str, Any]) -> str:
    load = head["load"]
    return f"{'quiet' if head['quiet'] else '**loaded**'}, {load['start']:g} to {load['end']:g} on {head['machine']['cores']} cores"


def origin(name: str, head: dict[str, Any]) -> list[str]:
    """Where the figures come from."""
    here, packages = head["machine"], ", ".join(f"{n} {v}" for n, v in head["packages"].items())
    peers = "; ".join(
        f"{peer}: {', '.join(f'{n} {v}' for n, v in found.items())}" for peer, found in head.get("peers", {}).items()
    )
    seeds = ", ".join(map(str, head["seeds"])) or "none, since replies are scripted"
    return [
        f"- Again: `make bench ARGS='{name}'`; these figures: `{head['command']}` (took {head['seconds']:,.0f} s)",
        f"- {head['date']}, commit {said_commit(head)}, Python {head['python']}, {packages}; seeds {seeds}",
        f"- {here['cpu']}, {here['cores']} cores, {here['memory_gb']} GB, {here['system']}; load {said_load(head)}",
        *([f"- In environments of their own: {peers}"] if peers else []),
    ]


def markdown(table: record.Table) -> list[str]:
    """The rows."""
    columns = table.columns
    text = [any(isinstance(row.get(name), str) for row in table.rows) for name in columns]
    lines = [
        "| " + " | ".join("" if name == "case" else name for name in columns) + " |",
        "|" + "".join("---|" if left else "---:|" for left in text),
    ]
    last = None
    for row in table.rows:
        cells = {name: escaped(record.cell(row.get(name))) for name in columns}
        if "case" in cells:
            cells["case"], last = ("" if row["case"] == last else cells["case"]), row["case"]
        lines.append("| " + " | ".join(cells.values()) + " |")
    return lines


def escaped(text: str) -> str:
    """For a cell or a line: what is between backticks stays as it is, but for bars."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = [part.replace("[", "\\[").replace("_", "\\_").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def tail(table: record.Table) -> list[str]:
    """What we lose, and what else is to be said."""
    lost = [f"- {escaped(line)}" for line in table.losses()]
    notes = [f"- {escaped(note)}" for note in table.notes]
    found = ["", "**Where we lose**", "", *lost] if lost else []
    if table.better and not lost and comparisons(table):
        found = ["", "Nobody was ahead in any column."]
    return [*found, *(["", "**Notes**", "", *notes] if notes else [])]


# Results of their own form, of 2026-11-30, from before there was a header


def read(*where: str) -> Any:
    return json.loads(record.ROOT.joinpath("benchmarks", *where).read_text(encoding="utf-8"))


def quality() -> list[str]:
    """The summary that benchmarks/quality/report.py wrote."""
    rows = [
        {
            "case": row["model"],
            "arm": row["arm"],
            "by": record.OURS if row["arm"] == "refine" else row["arm"],
            "n x seeds": f"{row['prompts']} x {row['seeds']}",
            "pass %": row["pass"]["value"],
            "95% of it": f"{row['pass']['low']:.0f} to {row['pass']['high']:.0f}",
            "clean %": row["clean"]["value"],
            "95% of them": f"{row['clean']['low']:.0f} to {row['clean']['high']:.0f}",
            "calls": float(row["calls"]),
            "tokens": int(row["tokens"]),
            "seconds": float(row["seconds"]),
            "errors": row["errors"],
        }
        for row in read("quality", "results.json")
        if row["part"] == "whole suite"
    ]
    better = {"pass %": "high", "clean %": "high", "calls": "low", "tokens": "low", "seconds": "low"}
    table = record.Table("The whole suite", "means a prompt, as the server counted them", rows, better)
    return [*QUALITY, "", *markdown(table), *tail(table)]


QUALITY = """\
## Does it pay? Refine beside its peers

145 prompts whose requirements code verifies, three small models on the machine, at most three tries an arm; "clean" passes hold nothing degenerate,
either. Intervals are over prompts. Peers did a part of the prompts. Run on 2026-11-30 on two cores over hours; neither commit nor load is on record.
Where no constraint compiles, `refine` is blind resampling. How each arm was set, the parts of the suite and how to run it again:
`benchmarks/quality/README.md`.
""".splitlines()


def rlm() -> list[str]:
    """Those of benchmarks/rlm/results.json without ordered noise, at 1 and 100 MB."""
    told = read("rlm", "results.json")
    runs = [
        run
        for run in told["runs"]
        if run["size"] in (10**6, 10**8)
        and run["votes"] == 1
        and not (run["label"] or run["malformed"] or run["empty"])
    ]
    order = {"redraft": 0, "rlms": 1, "dspy": 2, "direct": 3}
    runs.sort(key=lambda run: (-run["size"], run["task"], order[run["system"]]))
    rows = [
        {
            "case": f"{run['task']}, {run['size'] // 10**6} MB",
            "system": run["system"],
            "by": run["system"],
            "exact": run["exact"],
            "share": float(run["share"]),
            "CPU s": run.get("cpu"),
            "root calls": run["calls"].get("root", run["calls"].get("direct", 0)),
            "sub-calls": run["calls"].get("sub", 0),
            "tokens": sum(run["read"].values()) + sum(run["written"].values()),
            "host MB": run["host_mb"],
            "sandbox MB": run["sandbox_mb"],
        }
        for run in runs
    ]
    better = {"share": "high", "CPU s": "low", "tokens": "low", "host MB": "low", "sandbox MB": "low"}
    table, about = record.Table("RLM", "", rows, better), told["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    origin = f"{about['date']}, commit {about['commit']}; Python {about['python']}, {versions}; seed {about['seed']}. {about['machine']}."
    return [*RLM, "", origin, "", *markdown(table), *tail(table)]


RLM = """\
## RLM over generated data

An oracle plays root and sub-model, so that a wrong answer is the scaffold's; "direct" reads what fits its window without an error. rlms runs the
model's code in its own process, without a sandbox: its "sandbox MB" are those of processes beside it. Noise, other sizes, a real small model and how to
run it again: `benchmarks/rlm/README.md`.
""".splitlines()


def proactive() -> Iterator[str]:
    """Of each file the tables in short, as its own report draws them."""
    folder = record.ROOT / "benchmarks" / "proactive"
    sys.path.insert(0, str(folder))
    try:
        tables = importlib.import_module("report")
    finally:
        sys.path.remove(str(folder))
    yield from PROACTIVE
    for path in sorted(
        (folder / "results").glob("*.jsonl"), key=lambda path: (path.stem.startswith("policy"), path.stem)
    ):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        yield from "\n".join(tables.short(path.stem, lines)).splitlines()


PROACTIVE = """\
## Mending while writing

Right of all, its share and 95 % interval; tokens an item, all that were generated, wherever they ended up. Fewer tokens than another arm say nothing by
themselves: see what is right. The arms, the paired differences and what follows from them: [proactive decoding](proactive.md); the learned trigger:
[PASR](pasr.md); all tables: `benchmarks/proactive/results/report.md`.
""".splitlines()

ELSEWHERE = """
A benchmark that writes its result by `record.main` into `benchmarks/results/` is on this page by itself.
""".splitlines()
