"""Data of any size with its exact answers: `python benchmarks/rlm/generate.py logs --size 100MB --seed 1 --out DIR`.

A file is written as it is made and never held; the same task, size and seed give the same bytes and the same answers on
every machine. It ends with the last whole record that fits. The answers are counted from what was put in, not read back.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import banks

UNITS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_PIECE = 1 << 20


@dataclass
class Draw:
    """The seeded choices of one file. `random.random` alone is drawn from: it is the same on every Python."""

    rng: random.Random
    size: int
    written: int = 0

    @property
    def share(self) -> float:
        """How much of the file stands, 0 to 1: the clock of whatever happens in it."""
        return min(self.written / self.size, 1.0)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, options):
        return options[int(self.rng.random() * len(options))]

    def number(self, low: int, high: int) -> int:
        return low + int(self.rng.random() * (high - low + 1))

    def weighted(self, options, edges):
        """One of the options, by the cumulated shares in `edges`."""
        drawn = self.rng.random()
        return next(option for option, edge in zip(options, edges, strict=True) if drawn < edge)

    def some(self, options, n: int) -> list[Any]:
        left = [*options]
        return [left.pop(int(self.rng.random() * len(left))) for _ in range(n)]

    def fill(self, stem: str, thing: str = "") -> str:
        """The stem as a sentence."""
        return re.sub("[#@_]", lambda m: thing if m[0] == "_" else self._slot(m[0]), stem)

    def _slot(self, mark: str) -> str:
        return str(self.number(2, 900)) if mark == "#" else self.pick(banks.NAMES)


Lines = Iterator[str]
"""What is counted after a yield is what was written: a record that does not fit any more is never come back from. Answers
that are functions are called at the end."""


def logs(draw: Draw, gold: dict[str, Any]) -> Lines:
    """Two days of a server. One change at 40% of the file brings about one error; others only happen."""
    begin, counts, hours = datetime(2026, 3, 1, tzinfo=UTC), Counter(), Counter()
    cause, effect = draw.pick(banks.CAUSES)
    others = draw.some([c for c, _ in banks.CAUSES if c != cause], 4)
    due = sorted([(0.4, cause), *((0.05 + 0.9 * draw.rng.random(), other) for other in others)])
    gold["error_patterns"] = lambda: [f"{n} x {stem}" for stem, n in _ranked(counts)[:5]]
    gold["timeline"] = lambda: "\n".join(f"{hour} {n}" for hour, n in sorted(hours.items()))
    gold["root_cause"] = ""
    broken = False
    while True:
        stamp = (begin + timedelta(seconds=int(draw.share * 172_800))).strftime("%Y-%m-%dT%H:%M:%SZ")
        if due and draw.share >= due[0][0]:
            _, stem = due.pop(0)
            text = draw.fill(stem)
            yield f"{stamp} NOTICE ops: {text}\n"
            if stem == cause:
                broken, gold["root_cause"] = True, text
                yield f"{stamp} ERROR {draw.fill(effect)}\n"
                counts[effect] += 1
                hours[stamp[:13]] += 1
        elif draw.chance(0.0003):
            yield f"2026-02-30T{stamp[11:]} ERROR {draw.fill(draw.pick(banks.NOISE))}\n"  # no such day
        elif draw.chance(0.05):
            stem = effect if broken and draw.chance(0.6) else draw.weighted(banks.NOISE, _EDGES)
            yield f"{stamp} ERROR {draw.fill(stem)}\n"
            counts[stem] += 1
            hours[stamp[:13]] += 1
        else:
            yield f"{stamp} INFO {draw.fill(draw.pick(banks.CALM))}\n"


_EDGES = (0.3, 0.52, 0.7, 0.84, 0.94, 1.0)


def _ranked(counts: Counter) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


_THEMES = tuple(banks.REVIEWS)


def reviews(draw: Draw, gold: dict[str, Any]) -> Lines:
    """Customer reviews: some praise, some neither, the rest complains about one of six things."""
    counts, number = Counter(), 0
    bad = lambda: Counter({t: counts[t] for t in _THEMES[2:]})  # noqa: E731
    gold["top_complaints"] = lambda: [f"{n} x {t}" for t, n in _ranked(bad())[:5] if n]
    gold["sentiment_breakdown"] = lambda: (
        f"positive {counts['positive']}, neutral {counts['neutral']}, negative {bad().total()}"
    )
    while True:
        number += 1
        theme = draw.weighted(_THEMES, (0.42, 0.55, 0.7, 0.8, 0.88, 0.93, 0.97, 1.0))
        thing = draw.pick(banks.THINGS)
        said = draw.fill(f"{draw.pick(banks.OPENERS)} {draw.pick(banks.REVIEWS[theme])}".strip(), thing)
        yield f"R{number:08d} | {thing} | {said}\n"
        counts[theme] += 1


def sales(draw: Draw, gold: dict[str, Any]) -> Lines:
    """A CSV whose quoted products hold commas."""
    totals, days = Counter(), [datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=d) for d in range(365)]
    gold["totals"] = lambda: {quarter: n / 100 for quarter, n in sorted(totals.items())}
    yield "date,region,product,quantity,unit_price\n"
    while True:
        day, thing = draw.pick(days), draw.pick(banks.THINGS)
        product = f'"{thing}, {draw.pick(("large", "small", "12,5 cm"))}"' if draw.chance(0.3) else thing
        quantity, cents = draw.number(1, 12), draw.number(99, 99_999)
        yield f"{day:%Y-%m-%d},{draw.pick(banks.PLACES)},{product},{quantity},{cents / 100:.2f}\n"
        totals[f"2025-Q{(day.month + 2) // 3}"] += quantity * cents


def orders(draw: Draw, gold: dict[str, Any]) -> Lines:
    """One JSON array of customers, who hold orders, which hold lines, some of them returned. Money is in cents."""
    refunds, unhappy, number = Counter(), Counter(), 0
    gold["refunds"], gold["customers"] = refunds, unhappy.total
    while True:
        number += 1
        country = draw.pick(("PT", "NO", "EC", "SN", "VN"))
        lines = [
            [
                {"sku": draw.pick(banks.THINGS), "cents": draw.number(100, 90_000), "returned": draw.chance(0.1)}
                for _ in range(draw.number(1, 4))
            ]
            for _ in range(draw.number(0, 3))
        ]
        back = sum(line["cents"] for order in lines for line in order if line["returned"])
        held = [{"id": f"{number}-{i}", "lines": order} for i, order in enumerate(lines)]
        record = {"id": number, "address": {"country": country, "city": draw.pick(banks.PLACES)}, "orders": held}
        yield ("" if number == 1 else ",\n") + json.dumps(record)
        if back:
            refunds[country] += back
            unhappy[country] += 1


def chat(draw: Draw, gold: dict[str, Any]) -> Lines:
    """Support sessions; only the customer's last message says whether it helped."""
    resolved, left, number = Counter(), Counter(), 0
    gold.update(resolved=resolved, left_open=left)
    middle = ("It does not turn on.", "Have you tried the other socket?", "One moment.", "It is the # model.")
    while True:
        number += 1
        clerk, minute = draw.pick(banks.NAMES[:6]), draw.number(0, 600)
        ending = "resolved" if draw.chance(0.6) else "open"
        said = [("customer", "Good morning, my order # is dark.")]
        turns = range(draw.number(1, 5))
        said += [("customer" if turn % 2 else clerk, draw.fill(draw.pick(middle))) for turn in turns]
        said.append(("customer", draw.fill(draw.pick(banks.CLOSINGS[ending]))))
        if draw.chance(0.4):
            said.append((clerk, "Have a good day."))
        lines = [
            f"[{9 + (minute + i) // 60:02d}:{(minute + i) % 60:02d}] {who}: {text}"
            for i, (who, text) in enumerate(said)
        ]
        yield "\n".join([f"Session {number} with {clerk}", *lines]) + "\n\n"
        (resolved if ending == "resolved" else left)[clerk] += 1


def needle(draw: Draw, gold: dict[str, Any]) -> Lines:
    """A long text in which one sentence matters."""
    return _needles(draw, gold, 1)


def needles(draw: Draw, gold: dict[str, Any]) -> Lines:
    """The same with five that matter, far apart."""
    return _needles(draw, gold, 5)


def _needles(draw: Draw, gold: dict[str, Any], n: int) -> Lines:
    names = draw.some(banks.NAMES, min(2 * n, 8))
    due = sorted((0.9 * draw.rng.random(), name) for name in names)
    asked, gold["hooks"] = {*names[:n]}, {}
    while True:
        if due and draw.share >= due[0][0]:
            _, name = due.pop(0)
            hook = str(draw.number(10_000, 99_999))
            yield banks.NEEDLE.replace("@", name).replace("#", hook) + "\n"
            if name in asked:
                gold["hooks"][name] = hook
        elif draw.chance(0.02):
            yield draw.fill(draw.pick(banks.DECOYS)) + "\n"
        else:
            yield " ".join(draw.pick(banks.FILLER) for _ in range(3)) + "\n"


_CLASSES = tuple(banks.QUESTIONS)
_SHARES = (0.08, 0.32, 0.5, 0.74, 0.87, 1.0)


def oolong(draw: Draw, gold: dict[str, Any]) -> Lines:
    """Questions of users, each of a class that is nowhere written: how many of each class?"""
    counts = Counter(dict.fromkeys(_CLASSES, 0))
    gold["counts"] = counts
    for line, _, kind in _asked(draw):
        yield line
        counts[kind] += 1


def pairs(draw: Draw, gold: dict[str, Any]) -> Lines:
    """The same lines: which two users both ask for numbers more often than for places?"""
    lead = Counter()
    gold["pairs"] = lambda: [f"{a}-{b}" for a, b in combinations(sorted(u for u, n in lead.items() if n > 0), 2)]
    for line, user, kind in _asked(draw):
        yield line
        lead[user] += (kind == "numeric") - (kind == "location")


def _asked(draw: Draw) -> Iterator[tuple[str, int, str]]:
    users = draw.some(range(10_000, 99_999, 997), 12)
    while True:
        user, kind = draw.pick(users), draw.weighted(_CLASSES, _SHARES)
        said = draw.fill(draw.pick(banks.QUESTIONS[kind]))
        yield f"Date: Mar {draw.number(1, 28):02d}, 2026 || User: {user} || Instance: {said}\n", user, kind


GENERATORS: dict[str, Callable[[Draw, dict[str, Any]], Lines]] = {
    f.__name__: f for f in (logs, reviews, sales, orders, chat, needle, needles, oolong, pairs)
}
_AROUND = {"orders": ("[\n", "\n]\n")}


def make(task: str, size: int, seed: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file of these three in the folder, and its answers; made unless it is there."""
    path = folder / f"{task}-{size}-{seed}.txt"
    answers = path.with_suffix(".gold.json")
    if not answers.exists():
        folder.mkdir(parents=True, exist_ok=True)
        gold = write(task, size, seed, path)
        answers.write_text(json.dumps(gold, indent=1) + "\n", encoding="utf-8")
    return path, json.loads(answers.read_text(encoding="utf-8"))


def write(task: str, size: int, seed: int, path: Path) -> dict[str, Any]:
    """Write the file; its answers."""
    head, tail = _AROUND.get(task, ("", ""))
    draw, gold = Draw(random.Random(f"{task}:{seed}"), size, len(head)), {}
    pieces, held = [head], len(head)
    with path.open("w", encoding="ascii", newline="") as out:
        for record in GENERATORS[task](draw, gold):
            if draw.written + len(record) + len(tail) > size:
                break
            pieces.append(record)
            draw.written += len(record)
            held += len(record)
            if held > _PIECE:
                out.write("".join(pieces))
                pieces, held = [], 0
        out.write("".join([*pieces, tail]))
    return {name: value() if callable(value) else value for name, value in gold.items()}


def size_of(text: str) -> int:
    """100MB in bytes."""
    match = re.fullmatch(r"([\d.]+)\s*(B|KB|MB|GB)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: 1KB, 100MB, 1GB")
    return int(float(match[1]) * UNITS[(match[2] or "B").upper()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=[*GENERATORS])
    parser.add_argument("--size", type=size_of, default=size_of("1MB"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    path, gold = make(given.task, given.size, given.seed, given.out)
    print(path, json.dumps(gold)[:2000])


if __name__ == "__main__":
    main()
