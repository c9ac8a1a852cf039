"""The report of an evaluation: a table that can be read, and all items behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redraft.errors import BudgetExceeded
from redraft.evaluate.item import Item
from redraft.evaluate.standing import Comparison, Standing
from redraft.result import count, one_line

UNEQUAL = (
    "UNEQUAL: the scores of the table are means over different examples, and what takes long is cut off first: they cannot be "
    "set against each other. The comparisons are of examples that both have."
)


class Report:
    """`print(report)` shows a table; `report["refine"]` is one line of it, `report.items` are all items."""

    def __init__(
        self,
        standings: Sequence[Standing],
        *,
        items: Sequence[Item],
        judged_by: str,
        examples: int,
        seed: int,
        baselines: bool,
        stopped: BudgetExceeded | None,
    ) -> None:
        self.standings = tuple(standings)
        self.items = tuple(items)
        """By example, then by strategy."""
        self.judged_by = judged_by
        self.examples = examples
        self.seed = seed
        self.baselines = baselines
        ours = [s.name for s in self.standings if not s.baseline]
        stood = [{c.ours, c.theirs} for s in self.standings for c in s.comparisons]
        pairs = [(a, b) for i, a in enumerate(ours) for b in ours[i + 1 :] if {a, b} not in stood]
        self.between = tuple(Comparison.of(a, b, self.items, seed) for a, b in pairs)
        """Each strategy that was given against those given after it, where neither is a baseline of the other."""
        self.stopped = stopped
        """The limit that ended the evaluation early; None if it ran to its end."""

    def __getitem__(self, name: str) -> Standing:
        for standing in self.standings:
            if standing.name == name:
                return standing
        raise KeyError(f"no strategy {name!r}; there are: {', '.join(s.name for s in self.standings)}")

    @property
    def failure(self) -> Exception | None:
        """What went wrong first, where not one item came to an end with a score; None otherwise."""
        ended = [item for item in self.items if item.status != "cut_off"]
        errors = [item.error for item in ended if item.status in ("failed", "judge_error") and item.error is not None]
        return errors[0] if errors and len(errors) == len(ended) else None

    @property
    def complete(self) -> bool:
        """True if every planned item was evaluated."""
        return self.stopped is None

    def notes(self) -> list[str]:
        """Comparisons, how baselines were matched, and everything that the figures leave out."""
        lines = [str(c) for c in (*(c for s in self.standings for c in s.comparisons), *self.between)]
        lines += [f"{s.name}: {s.note}" for s in self.standings if s.note]
        lines += self._left_out()
        if self.stopped is not None:
            ended = sum(1 for item in self.items if item.status != "cut_off")
            lines.append(f"PARTIAL: {self.stopped}. {count(ended, 'item')} done; what has no score is in no mean.")
        if len({s.n for s in self.standings}) > 1:
            lines.append(UNEQUAL)
        return [one_line(line) for line in lines]

    def _left_out(self) -> Iterator[str]:
        if not self.baselines:
            yield "baselines were switched off: nothing here says whether a single shot or blind samples do as well"
        for s in self.standings:
            own = [item for item in self.items if item.strategy == s.name]
            if self.baselines and not s.baseline and s.single_shot is None:
                yield f"{s.name}: it is a single shot itself, and has no baselines"
            elif self.baselines and not s.baseline and s.best_of is None:
                why = "the budget ended first" if not self.complete else s.no_best
                yield f"{s.name}: no equal-cost best of N: {why}"
            if s.failed:
                yield f"{s.name}: {s.failed} of {count(s.items, 'item')} failed and score 0; {_first(own, 'failed')}"
            if s.judge_errors:
                errors = count(s.judge_errors, "judge error")
                yield f"{s.name}: {errors}, left out of the mean; {_first(own, 'judge_error')}"
            if s.cut_off:
                yield f"{s.name}: {count(s.cut_off, 'item')} cut off by the budget, left out of the mean"
            if s.no_effort:
                yield f"{s.name}: the model has refused the effort, so nothing thought more than it does by itself"
            if lost := sum(item.lost for item in own):
                yield f"{s.name}: {count(lost, 'call')} cut off with an earlier process and bought again, in its figures"
            if s.judging.calls:
                yield f"{s.name}: judging took {count(s.judging.calls, 'call')}, not counted above"

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = [
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join([self._title(), "", *map(str.rstrip, table), "", *self.notes()]).rstrip()

    def markdown(self) -> str:
        """The same as Markdown."""
        head, *rows = [[escaped(cell).replace("|", "\\|") for cell in row] for row in self._rows()]
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        table = [f"| {' | '.join(line)} |" for line in lines]
        return (
            "\n".join([self._title(), "", *table, "", *(f"- {escaped(note)}" for note in self.notes())]).rstrip() + "\n"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "judged_by": self.judged_by,
            "examples": self.examples,
            "seed": self.seed,
            "baselines": self.baselines,
            "complete": self.complete,
            "stopped": None if self.stopped is None else str(self.stopped),
            "notes": self.notes(),
            "comparisons": [c.to_dict() for c in self.between],
            "strategies": [s.to_dict() for s in self.standings],
            "items": [item.to_dict() for item in self.items],
        }

    def _title(self) -> str:
        resumed = sum(item.resumed for item in self.items)
        found = f", {count(resumed, 'item')} found in the store" if resumed else ""
        return f"{count(self.examples, 'example')}, judged by {self.judged_by}, seed {self.seed}{found}"

    def _rows(self) -> list[list[str]]:
        return [list(COLUMNS), *([cell(s) for cell in COLUMNS.values()] for s in self.standings)]


def _first(items: Sequence[Item], status: str) -> str:
    item = next(item for item in items if item.status == status)
    return f"first: example {item.index}, {type(item.error).__name__}: {item.error}"


def escaped(text: str) -> str:
    """No tag, whatever a strategy is called."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _interval(s: Standing) -> str:
    return "" if s.interval is None else f"{s.interval.low:.3f} to {s.interval.high:.3f}"


COLUMNS: dict[str, Callable[[Standing], str]] = {
    "strategy": lambda s: f"{'' if not s.baseline else '- '}{s.name}",
    "n": lambda s: str(s.n),
    "score": lambda s: "" if s.score is None else f"{s.score:.3f}",
    "95% interval": _interval,
    "pass": lambda s: "" if s.pass_rate is None else f"{s.pass_rate:.1%}",
    "calls/item": lambda s: f"{s.usage.calls / max(1, s.items):.2f}",
    "tokens/item": lambda s: s.tokens_an_item,
    "cost": lambda s: s.cost,
    "p50 s": lambda s: f"{s.p50:.2f}",
    "p95 s": lambda s: f"{s.p95:.2f}",
    "sum s": lambda s: f"{s.seconds:.1f}",
}
