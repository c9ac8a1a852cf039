"""The tables of a run, as Markdown: `python benchmarks/quality/report.py results.jsonl [--summary summary.json]`.

Pass and clean rates are percent with a 95% interval over prompts; calls, tokens (as the server counted them, prompt and completion) and
seconds are means a prompt; "vs blind" is the paired difference of clean rates in points, over the prompts that both arms did.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import suite
from arms import ARMS
from measure import Line, by_prompt, clean, difference, distinct_2, mean, rate
from tasks import Task

HEAD = "| arm | n | seeds | pass % | clean % | vs blind | calls | tokens | seconds | distinct-2 | log-likelihood | errors |"
MODELS = ("smollm2-135m", "qwen-0.5b", "qwen-1.5b")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="what run.py wrote")
    parser.add_argument("--fluency", type=Path, help="what fluency.py wrote")
    parser.add_argument("--summary", type=Path, help="write the numbers there too, as JSON")
    options = parser.parse_args()
    report = Report(_read(options.lines), _read(options.fluency) if options.fluency else [])
    print("\n".join(report.pages()))
    if options.summary:
        options.summary.write_text(json.dumps(report.summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return list({(d["model"], d["arm"], d["seed"], d["prompt"]): d for d in found}.values())


class Report:
    """All tables over the same lines."""

    def __init__(self, lines: list[dict[str, Any]], fluency: list[dict[str, Any]]) -> None:
        self.tasks: dict[str, Task] = {task.id: task for task in suite.tasks()}
        self.likely = {(d["model"], d["arm"], d["seed"], d["prompt"]): d["loglik"] for d in fluency}
        self.lines = lines
        for line in lines:
            task = self.tasks.get(line["prompt"])
            line["clean"] = clean(line, task.prompt if task else "")
            line["compilable"] = task.compilable if task else line["compilable"]
            line["tokens"] = line["prompt_tokens"] + line["completion_tokens"]
            line["loglik"] = self.likely.get((line["model"], line["arm"], line["seed"], line["prompt"]))
        self.models = [m for m in MODELS if any(d["model"] == m for d in lines)]
        self.models += sorted({d["model"] for d in lines} - {*self.models})
        self.summary: list[dict[str, Any]] = []

    def pages(self) -> list[str]:
        """The report's lines."""
        parts: list[tuple[str, Callable[[Line], bool]]] = [
            ("whole suite", lambda _: True),
            ("compilable part", lambda line: bool(line["compilable"])),
            ("part without a compilable constraint", lambda line: not line["compilable"]),
        ]
        found = []
        for model in self.models:
            for part, belongs in parts:
                found += [f"\n### {model}: {part}\n", HEAD, "|" + "---|" * 12, *self._table(model, part, belongs)]
            found += [f"\n### {model}: clean passes by family, percent\n", *self._families(model)]
        return found

    def _of(self, model: str, arm: str, belongs: Callable[[Line], bool] = lambda _: True) -> list[Line]:
        return [d for d in self.lines if d["model"] == model and d["arm"] == arm and belongs(d)]

    def _table(self, model: str, part: str, belongs: Callable[[Line], bool]) -> list[str]:
        blind = by_prompt(self._of(model, "blind", belongs), lambda d: d["clean"])
        rows = [self._row(model, part, arm, self._of(model, arm, belongs), blind) for arm in self._arms(model)]
        larger = MODELS[MODELS.index(model) + 1] if model in MODELS[:-1] else ""
        if larger and (lines := self._of(larger, "single", belongs)):
            rows.append(self._row(model, part, f"{larger} once", lines, blind))
        return list(filter(None, rows))

    def _row(self, model: str, part: str, arm: str, lines: Sequence[Line], blind: dict[str, float]) -> str:
        if not lines:
            return ""
        passed, pure = by_prompt(lines, lambda d: d["passed"]), by_prompt(lines, lambda d: d["clean"])
        seeds = len({d["seed"] for d in lines})
        against = difference(pure, blind) if arm != "blind" else None
        likely = [d["loglik"] for d in lines if d["loglik"] is not None]
        cells: dict[str, Any] = {
            "arm": arm,
            "prompts": len(passed),
            "seeds": seeds,
            "pass": rate([*passed.values()]),
            "clean": rate([*pure.values()]),
            "vs blind": against or "",
            "calls": f"{mean(lines, 'calls'):.2f}",
            "tokens": f"{mean(lines, 'tokens'):.0f}",
            "seconds": f"{mean(lines, 'seconds'):.1f}",
            "distinct-2": f"{distinct_2(d['text'] for d in lines):.3f}",
            "log-likelihood": f"{sum(likely) / len(likely):.2f} ({len(likely)})" if likely else "",
            "errors": sum(bool(d.get("error")) for d in lines),
        }
        self.summary.append({"model": model, "part": part, **{key: _plain(value) for key, value in cells.items()}})
        return f"| {' | '.join(map(str, cells.values()))} |"

    def _arms(self, model: str) -> list[str]:
        there = {d["arm"] for d in self.lines if d["model"] == model}
        return [arm for arm in ARMS if arm in there]

    def _families(self, model: str) -> list[str]:
        arms = self._arms(model)
        rows = [f"| family | compiles | {' | '.join(arms)} |", "|" + "---|" * (len(arms) + 2)]
        for family in dict.fromkeys(d["family"] for d in sorted(self.lines, key=lambda d: self._place(d["prompt"]))):
            cells = []
            for arm in arms:
                values = by_prompt(
                    self._of(model, arm, lambda d, family=family: d["family"] == family), lambda d: d["clean"]
                )
                cells.append(f"{100 * sum(values.values()) / len(values):.0f}" if values else "")
            held = {d["prompt"]: d["compilable"] for d in self.lines if d["family"] == family}
            rows.append(f"| {family} | {sum(held.values())} of {len(held)} | {' | '.join(cells)} |")
        return rows

    def _place(self, prompt: str) -> int:
        return list(self.tasks).index(prompt) if prompt in self.tasks else len(self.tasks)


def _plain(value: Any) -> Any:
    return vars(value) if hasattr(value, "low") else value


if __name__ == "__main__":
    main()
