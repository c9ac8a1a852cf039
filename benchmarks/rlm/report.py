"""The table: `python benchmarks/rlm/report.py results.jsonl`, or the kept results.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_HEAD = (
    f"{'task':9}{'size':>7}  {'noise':>6} {'votes':>5}  {'system':9}{'exact':>6}{'share':>7}{'seconds':>9}{'cpu s':>8}{'root':>6}{'sub':>7}"
    f"{'tokens':>12}{'host MB':>9}{'sandbox':>9}"
)


def size(n: int) -> str:
    unit, name = next((u, name) for u, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB"), (1, "B")) if n >= u)
    return f"{n / unit:g} {name}"


def row(line: dict[str, Any]) -> str:
    calls = line["calls"]
    used = sum(line["read"].values()) + sum(line["written"].values())
    seconds = "" if line["seconds"] is None else f"{line['seconds']:.1f}"
    noise = (
        "/".join(f"{100 * line[k]:g}" for k in ("label", "malformed", "empty"))
        if line["label"] or line["malformed"]
        else ""
    )
    first = (
        f"{line['task']:9}{size(line['size']):>7}  {noise:>6} {line['votes']:5}  {line['system']:9}"
        f"{'yes' if line['exact'] else 'no':>6}{line['share']:7.3f}{seconds:>9}{line.get('cpu', ''):>8}"
        f"{calls.get('root', calls.get('direct', 0)):6}{calls.get('sub', 0):7}{used:12,}{line['host_mb']:9}{line['sandbox_mb']:9}"
    )
    return f"{first}\n    {line['error'].splitlines()[-1][:150]}" if line.get("error") else first


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        text = path.read_text(encoding="utf-8")
        lines = json.loads(text)["runs"] if path.suffix == ".json" else [json.loads(one) for one in text.splitlines()]
        order = [line["task"] for line in lines]
        print(_HEAD)
        for line in sorted(lines, key=lambda one: (order.index(one["task"]), one["size"], one["label"], one["votes"])):
            print(row(line))


if __name__ == "__main__":
    main()
