"""An evaluation (`redraft eval`), told for people: plain values made of the report that its run holds, with no HTML in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from redraft.jsonable import as_text
from redraft.report.page.scatter import Point, Scatter, scatter_of
from redraft.report.page.shown import money
from redraft.report.page.story import readable
from redraft.types import Event

KIND = "evaluation"
"""The event that holds a report, and what the run of it has as its strategy."""

_TONES = {"better": "good", "worse": "bad"}
Tone = Literal["yes", "no", "bad", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One strategy against another, on the examples that both have a score for."""

    ours: str
    theirs: str
    outcome: str
    mean: float | None
    """Of the scores, ours minus theirs; None for less than two pairs."""
    low: float
    high: float
    p: float
    pairs: int
    gained: int
    lost: int

    @property
    def tone(self) -> str:
        """At a glance."""
        return _TONES.get(self.outcome, "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One strategy."""

    anchor: str
    name: str
    baseline: bool
    note: str
    n: int
    """Items with a score."""
    passed: int
    passes: tuple[float, float] | None
    """Where the share that passes lies (95 %); None: it is not on record."""
    score: float | None
    scores: tuple[float, float] | None
    calls: float
    """Of an item, as are the next two."""
    tokens: float
    cost: str
    faults: str
    """What is left out or counts as wrong; empty if nothing is."""
    once: Against | None
    best: Against | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One strategy on one example."""

    tone: Tone
    sign: str
    said: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One example."""

    number: int
    asked: str
    cells: tuple[Cell | None, ...]
    """By strategy; None where none was begun."""

    @property
    def alike(self) -> bool:
        """True if all strategies did the same."""
        return len({None if cell is None else cell.sign for cell in self.cells}) < 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All that the page shows."""

    run_id: str
    title: str
    when: str | None
    """ISO 8601."""
    about: tuple[tuple[str, str], ...]
    examples: int
    complete: bool
    unequal: bool
    """The strategies have scores for different numbers of examples."""
    stopped: str
    """The limit that ended it early; empty if it ran to its end."""
    graded: bool
    """Some scores are neither 0 nor 1: passing is not all that they say."""
    lines: tuple[Line, ...]
    more: tuple[Against, ...]
    """Comparisons beside those with the two baselines."""
    notes: tuple[str, ...]
    plot: Scatter | None
    rows: tuple[Row, ...]
    earlier: int
    """Older reports on the very same items."""


def is_evaluation(events: Iterable[Event]) -> bool:
    """True for the run of an evaluation."""
    return any(event.kind == KIND for event in events)


def evaluation(run_id: str, events: Sequence[Event]) -> Evaluation:
    """The newest report that the run holds. Raises `StoreError` for events that nobody wrote so."""
    with readable(run_id):
        reports = [event.data["report"] for event in events if event.kind == KIND]
        return _told(run_id, reports[-1], len(reports) - 1)


def item_ids(events: Iterable[Event]) -> set[str]:
    """The runs of its items."""
    return {item["run_id"] for event in events if event.kind == KIND for item in event.data["report"]["items"]}


def _told(run_id: str, report: Mapping[str, Any], earlier: int) -> Evaluation:
    items: Sequence[Mapping[str, Any]] = report["items"]
    by_name: dict[str, list[Mapping[str, Any]]] = {s["name"]: [] for s in report["strategies"]}
    for item in items:
        by_name[item["strategy"]].append(item)
    lines = tuple(_line(n, s, by_name[s["name"]]) for n, s in enumerate(report["strategies"], 1))
    own = [line.name for line in lines if not line.baseline]
    plot, spoken = _plot(report["strategies"], lines), {c for line in lines for c in (line.once, line.best)}
    more = tuple(c for c in map(_against, report.get("comparisons", ())) if c is not None and c not in spoken)
    return Evaluation(
        run_id=run_id,
        title=f"{', '.join(own)} on {report['examples']} example{'' if report['examples'] == 1 else 's'}",
        when=report.get("date"),
        about=tuple(_about(report)),
        examples=report["examples"],
        complete=bool(report["complete"]),
        unequal=len({line.n for line in lines}) > 1,
        stopped=str(report["stopped"] or ""),
        graded=any(item["score"] not in (None, 0, 1, 0.0, 1.0) for item in items),
        lines=lines,
        more=more,
        notes=tuple(_notes(report)),
        plot=plot,
        rows=tuple(_rows(report, [line.name for line in lines])),
        earlier=earlier,
    )


def _about(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("model", "data", "judged_by", "seed"):
        if report.get(name) is not None:
            yield _titled(name), as_text(report[name])
    for name, value in (report.get("options") or {}).items():
        if name not in ("model", "seed", "strategy"):
            yield _titled(name), ", ".join(map(as_text, value)) if isinstance(value, list) else as_text(value)


def _titled(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _line(number: int, s: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Line:
    usage, each = s["usage"], max(1, len(items))
    priced = not usage["unpriced"]
    interval = s["interval"]
    faults = {
        "failed": "score 0: the strategy failed",
        "judge_errors": "left out: the metric failed",
        "cut_off": "left out: a limit came first",
    }
    return Line(
        anchor=f"s{number}",
        name=s["name"],
        baseline=bool(s["baseline"]),
        note=s["note"],
        n=s["n"],
        passed=sum(bool(item["passed"]) for item in items if item["score"] is not None),
        passes=tuple(s["pass_interval"]) if s.get("pass_interval") and s["n"] else None,
        score=s["score"],
        scores=None if interval is None else (interval["low"], interval["high"]),
        calls=usage["calls"] / each,
        tokens=(usage["input_tokens"] + usage["output_tokens"]) / each,
        cost=money(usage["cost"] / each if priced else None, (usage["cost"] + usage["uncertain_cost"]) / each),
        faults="; ".join(f"{s[name]} {text}" for name, text in faults.items() if s[name]),
        once=_against(s["single_shot"]),
        best=_against(s["best_of"]),
    )


def _against(c: Mapping[str, Any] | None) -> Against | None:
    if c is None:
        return None
    d = c["difference"]
    return Against(
        ours=c["ours"],
        theirs=c["theirs"],
        outcome=c["outcome"],
        mean=None if d is None else d["mean"],
        low=0.0 if d is None else d["low"],
        high=0.0 if d is None else d["high"],
        p=c["p"],
        pairs=c["pairs"],
        gained=c["wrong_to_right"],
        lost=c["right_to_wrong"],
    )


def _notes(report: Mapping[str, Any]) -> Iterator[str]:
    """What the figures leave out, but for what the tables and the head say."""
    beside = [c for s in report["strategies"] for c in (s["single_shot"], s["best_of"]) if c is not None]
    compared = [*beside, *report.get("comparisons", ())]
    said = tuple(f"{c['ours']} against {c['theirs']}: " for c in compared)
    noted = {f"{s['name']}: {s['note']}" for s in report["strategies"]}
    for note in report["notes"]:
        told = note in noted or note.startswith((*said, "PARTIAL", "UNEQUAL")) or " cut off by the budget" in note
        if not told:
            yield note
    yield from map(str, report.get("missing", ()))


def _rows(report: Mapping[str, Any], names: Sequence[str]) -> Iterator[Row]:
    asked = report.get("asked") or {}
    by_index: dict[int, dict[str, Cell]] = {}
    for item in report["items"]:
        by_index.setdefault(item["index"], {})[item["strategy"]] = _cell(item)
    for index, cells in sorted(by_index.items()):
        yield Row(number=index, asked=asked.get(str(index), ""), cells=tuple(map(cells.get, names)))


def _cell(item: Mapping[str, Any]) -> Cell:
    score, status = item["score"], item["status"]
    tone: Tone
    if status == "cut_off":
        tone, sign, said = "open", "\u2013", "a limit ended it"
    elif status == "judge_error":
        tone, sign, said = "open", "?", "it could not be judged"
    elif status == "failed":
        tone, sign, said = "bad", "!", "the strategy failed"
    else:
        tone, sign = ("yes", "\u2713") if item["passed"] else ("no", "\u2717")
        sign, said = (sign, "") if score in (0, 1) else (f"{sign} {score:.2f}", f"score {score:.2f}")
        said = f"{'passed' if item['passed'] else 'not passed'}{', ' if said else ''}{said}"
    more = item.get("said")
    return Cell(tone=tone, sign=sign, said=f"{said}: {more}" if more else said, run_id=item["run_id"])


def _plot(strategies: Sequence[Mapping[str, Any]], lines: Sequence[Line]) -> Scatter | None:
    """Score over dollars an item where every price is known and not 0, else over tokens."""
    used = [s["usage"] for s in strategies]
    priced = not any(u["unpriced"] for u in used) and any(u["cost"] for u in used)
    points = []
    for s, line in zip(strategies, lines, strict=True):
        if line.score is None:
            continue
        each = max(1, s["n"] + s["judge_errors"] + s["cut_off"])
        cost = s["usage"]["cost"] / each if priced else line.tokens
        low, high = line.scores or (line.score, line.score)
        points.append(
            Point(anchor=line.anchor, name=line.name, soft=line.baseline, at=cost, value=line.score, low=low, high=high)
        )
    return scatter_of(points, "dollars an item" if priced else "tokens an item")
