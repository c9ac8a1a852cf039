"""The tables and the verdict of a measurement, as Markdown, out of its result files alone.

    python benchmarks/proactive/report.py benchmarks/proactive/results/*.jsonl

Intervals are 95 %: Wilson's of a share, Bonett and Price's of a paired difference of right and wrong, a bootstrap's of tokens.
Arms are compared over the items that both did.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arms import ARMS, COLUMNS
from families import FAMILIES

from redraft.evaluate.stats import Estimate, paired_difference, wilson

OURS = ("guard rewinds", "signal rewinds + verifier")
FEWER, POINTS = 0.416, 0.082
"""The aims: this share of tokens less than Refine and Self-Refine, and this much more accuracy than plain."""

Rows = Sequence[dict[str, Any]]


class Pairs:
    """Two arms over the items that both did."""

    def __init__(self, rows: Rows, ours: str, theirs: str) -> None:
        both = [row["arms"] for row in rows if {ours, theirs} <= set(row["arms"])]
        self.n = len(both)
        self.ours, self.theirs = ([_of(arms[name]) for arms in both] for name in (ours, theirs))

    @property
    def gain(self) -> Estimate:
        """How much oftener ours is right."""
        return _sure(paired_difference([o["right"] for o in self.ours], [t["right"] for t in self.theirs]))

    @property
    def more(self) -> float:
        """The share of their tokens that ours took beyond them; below 0 where it took fewer."""
        return sum(o["tokens"] for o in self.ours) / sum(t["tokens"] for t in self.theirs) - 1

    def below(self, share: float) -> Estimate:
        """By how many tokens an item ours stayed below this share of theirs."""
        return _sure(paired_difference([share * t["tokens"] for t in self.theirs], [o["tokens"] for o in self.ours]))


def _of(values: Sequence[int]) -> dict[str, float]:
    return {name: float(value) for name, value in zip(COLUMNS, values, strict=True)}


def _sure(found: Estimate | None) -> Estimate:
    if found is None:
        raise SystemExit("there is only one item of a kind: nothing to compare")
    return found


def points(found: Estimate) -> str:
    """A difference of shares, in points."""
    return f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def brief(rows: Rows) -> Iterator[str]:
    """An arm a line, a family a column: right, share with its interval, tokens an item."""
    yield f"| right, tokens an item | {' | '.join(FAMILIES)} |"
    yield f"|---|{'---|' * len(FAMILIES)}"
    for arm in ARMS:
        cells = []
        for family in FAMILIES:
            done = [_of(row["arms"][arm]) for row in rows if row["family"] == family and arm in row["arms"]]
            n, right = len(done), round(sum(d["right"] for d in done))
            low, high = wilson(right, n)
            tokens = sum(d["tokens"] for d in done) / max(n, 1)
            cells.append(f"{right}/{n}, {right / n:.0%} ({low:.0%} to {high:.0%}); {tokens:.1f}" if n else "none")
        yield f"| {arm} | {' | '.join(cells)} |"


def table(rows: Rows) -> Iterator[str]:
    """An arm a line, of one family."""
    yield "| arm | right | share | beside plain, points | tokens | input | calls | rewinds, by signals |"
    yield "|---|---|---|---|---|---|---|---|"
    for arm in ARMS:
        if not (done := [_of(row["arms"][arm]) for row in rows if arm in row["arms"]]):
            continue
        n, right = len(done), round(sum(d["right"] for d in done))
        mean = {name: sum(d[name] for d in done) / n for name in COLUMNS}
        low, high = wilson(right, n)
        gain = "" if arm == "plain" else points(Pairs(rows, arm, "plain").gain)
        yield (
            f"| {arm} | {right}/{n} | {right / n:.0%} ({low:.0%} to {high:.0%}) | {gain} | {mean['tokens']:.1f} "
            f"| {mean['input']:.0f} | {mean['calls']:.1f} | {mean['rewinds']:.1f}, {mean['signals']:.1f} |"
        )


def aims(rows: Rows) -> Iterator[str]:
    """A family a line and arm of ours: each aim reached, missed, or left open by its interval, with the figures."""
    yield "| | of Self-Refine's tokens | of Refine's tokens | beside plain | beside best-of-k | beside abort and restart |"
    yield "|---|---|---|---|---|---|"
    yield f"| aim | {-FEWER:+.1%}, no points less | {-FEWER:+.1%}, no points less | {100 * POINTS:+.1f} | above 0 | above 0 |"
    for ours in OURS:
        for family in (*FAMILIES, "all"):
            of = [row for row in rows if family in (row["family"], "all")]
            cells = [_fewer(Pairs(of, ours, peer)) for peer in ("Self-Refine", "Refine")]
            cells.append(_above(Pairs(of, ours, "plain"), POINTS))
            cells += [_above(Pairs(of, ours, peer), 0.0) for peer in ("best-of-k, equal tokens", "abort and restart")]
            yield f"| {ours}, {family} | {' | '.join(cells)} |"


def _fewer(pairs: Pairs) -> str:
    below, gain = pairs.below(1 - FEWER), pairs.gain
    reached = below.mean >= 0 and gain.mean >= 0
    opened = min(below.low, gain.low) < 0 if reached else min(below.high, gain.high) >= 0
    return f"{_said(reached, opened=opened)}: {pairs.more:+.1%}, {points(gain)} points, n={pairs.n}"


def _above(pairs: Pairs, aim: float) -> str:
    gain = pairs.gain
    reached = gain.mean >= aim if aim else gain.mean > 0
    opened = gain.low < aim or gain.low == 0 if reached else gain.high > aim
    tokens = "" if aim else f", {pairs.more:+.0%} tokens"
    return f"{_said(reached, opened=opened)}: {points(gain)}{tokens}"


def _said(reached: bool, *, opened: bool) -> str:
    return ("reached" if reached else "**missed**") + (" (open)" if opened else "")


def policy(lines: Rows) -> Iterator[str]:
    """The learned trigger beside the free ones, the seeds together."""
    arms: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if "arm" in line:
            arms.setdefault(line["arm"], []).append(line)
    right = {name: [value for line in found for value in line["right"]] for name, found in arms.items()}
    peers = ("never", "random", "nll")
    yield f"| triggers | right | share |{''.join(f' beside {peer} |' for peer in peers)} tokens | moves | fixed / broken |"
    yield f"|---|---|---|{'---|' * len(peers)}---|---|---|"
    for name, found in arms.items():
        n, hits = len(right[name]), round(sum(right[name]))
        low, high = wilson(hits, n)
        beside = ["" if name == peer else points(_sure(paired_difference(right[name], right[peer]))) for peer in peers]
        tokens, moves = (sum(line[key] * len(line["right"]) for line in found) / n for key in ("tokens", "moves"))
        fixed, broken = (sum(line[key] for line in found) for key in ("fixed", "broken"))
        yield (
            f"| {name} | {hits}/{n} | {hits / n:.0%} ({low:.0%} to {high:.0%}) | {' | '.join(beside)} | {tokens:.1f} "
            f"| {moves:.2f} | {fixed} / {broken} |"
        )


def items(lines: Rows) -> list[dict[str, Any]]:
    """A row an item: of several lines the last one."""
    return list({line["id"]: line for line in lines if "id" in line}.values())


def head(name: str, lines: Rows) -> Iterator[str]:
    """What a file holds, and when, by what and on what each part of it was measured."""
    rows = items(lines)
    seeds = len({line["seed"] for line in lines if "seed" in line})
    yield f"{name}: {f'{len(rows)} items, ' if rows else ''}{seeds} seeds\n"
    for about in (line["meta"] for line in lines if "meta" in line):
        versions = ", ".join(f"{package} {number}" for package, number in about["versions"].items())
        machine = f"{about['machine']['cores']} cores of {about['machine']['cpu']}"
        yield f"- {about['date']}, commit {about['commit'][:10]}, {about['model']['file']}, {versions}, {machine}."
    yield ""


def triggers(lines: Rows) -> Iterator[str]:
    """The learned trigger's tables, a family each."""
    for family in FAMILIES:
        if of := [line for line in lines if line.get("family") == family]:
            yield from (f"\n{family}, {len({line['seed'] for line in of})} seeds:\n", *policy(of))


def short(name: str, lines: Rows) -> Iterator[str]:
    """The main tables of a file, for a page that holds others', too."""
    first, *rest = head(name, lines)
    rows = items(lines)
    yield from (f"\n### {first}", *rest, *(brief(rows) if rows else triggers(lines)))


def page(name: str, lines: Rows) -> Iterator[str]:
    """All tables of a file."""
    first, *rest = head(name, lines)
    rows = items(lines)
    yield from (f"\n## {first}", *rest)
    if not rows:
        yield from triggers(lines)
        return
    yield from brief(rows)
    for family in FAMILIES:
        yield from (f"\n### {family}\n", *table([row for row in rows if row["family"] == family]))
    yield from ("\n### The aims\n", *aims(rows), "\n(open): the 95 % interval leaves the other verdict open.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    for file in parser.parse_args().files:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        print("\n".join(page(file.stem, lines)))


if __name__ == "__main__":
    main()
