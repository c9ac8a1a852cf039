"""Does mending while writing pay? Arms beside each other on the embedded model, every generated token counted.

    python benchmarks/proactive/evidence.py --n 12 --seeds 1 --out evidence.jsonl

Resumable: what stands in the file is not run again. Ends with a table; `--report` prints that alone. Tokens are all that were
generated for an item, alternatives and doomed drafts included, and those that a cut stream may have written beyond.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from families import Item, items

from redraft import Budget, Critic, Predict, Refine, Run, SelfRefine
from redraft.lm.cut import CUT, cut_by
from redraft.lm.local import LocalLM
from redraft.proactive import DynamicBacktracker, ProactiveDecoder, RandomSignal, RefinementSignal
from redraft.proactive.tokens import reported, text_of, tokens_of
from redraft.types import Prediction, Request

FAMILIES = ("format", "addition", "copy")
ARMS = (
    *("plain", "guard rewinds", "signal + checks", "random, same rate", "always"),
    *("best-of-k, equal tokens", "abort and restart", "refine", "self-refine"),
)
MOST = 16


class Bench:
    def __init__(self, out: Path) -> None:
        self.lm, self.out = LocalLM(), out
        self.critic = LocalLM()
        self.critic.max_output = 160  # it writes until its limit
        self.rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        self.done = {(row["arm"], row["id"]): row for row in self.rows}
        self.signals: dict[str, RefinementSignal] = {}

    def author(self, item: Item) -> Predict:
        return Predict("task -> answer", lm=self.lm, temperature=0.0, max_tokens=item.cap)

    def ask(self, item: Item, **more: Any) -> Request:
        return Request(messages=({"role": "user", "content": item.prompt},), max_tokens=item.cap, **more)

    async def calibrate(self, family: str) -> None:
        """The threshold that fires at a tenth of the places of other items' texts."""
        replies = []
        async with Run(seed=1) as run:
            for item in items(family, 8, 99):
                reply = await run.complete(self.ask(item, temperature=0.0, logprobs=8), lm=self.lm)
                replies.append(reported(reply.choices[0]))
        self.signals[family] = RefinementSignal.calibrated("margin", replies, percentile=90)

    async def one(self, arm: str, item: Item) -> dict[str, Any]:
        started = time.process_time()
        async with Run(seed=1, budget=Budget(tokens=10**6)) as run:  # with a limit, each call has a cap
            text = await self.text(arm, item, run)
            usage, causes = run.usage, [e.data["cause"] for e in run.journal.events if e.kind == "rewind"]
        verdict = await item.check.verdict({}, Prediction(answer=text))
        return {
            "arm": arm,
            "id": item.id,
            "family": item.family,
            "right": verdict.passed,
            "tokens": usage.output_tokens + usage.uncertain_tokens,
            "kept": len(text.split()),
            "calls": usage.calls,
            "input": usage.input_tokens,
            "rewinds": len(causes),
            "signals": causes.count("signal"),
            "cpu": round(time.process_time() - started, 3),
            "text": text,
        }

    async def text(self, arm: str, item: Item, run: Run) -> str:
        checks, task = [item.check], {"task": item.prompt}
        if arm == "plain":
            return str((await self.author(item).acall(**task)).answer)
        if arm == "refine":
            return str((await Refine(self.author(item), N=3, checks=checks).acall(**task)).answer)
        if arm == "self-refine":
            return str((await SelfRefine(self.author(item), Critic(lm=self.critic), rounds=2).acall(**task)).answer)
        if arm in ("best-of-k, equal tokens", "abort and restart"):
            return await self.samples(item, run, abort=arm == "abort and restart")
        signal: Any = {
            "guard rewinds": None,
            "signal + checks": self.signals[item.family],
            "random, same rate": RandomSignal(self.rate(item.family), 1),
            "always": RandomSignal(1.0, 1),
        }[arm]
        back = DynamicBacktracker(reach=(1, 20), most=MOST)
        return str(
            (await ProactiveDecoder(self.author(item), checks=checks, signal=signal, back=back).acall(**task)).answer
        )

    def rate(self, family: str) -> float:
        """At how many of its tokens the signal fired."""
        rows = [row for row in self.rows if row["arm"] == "signal + checks" and row["family"] == family]
        fired = sum(row["signals"] for row in rows)
        return min(1.0, fired / max(1, sum(row["tokens"] for row in rows)))

    async def samples(self, item: Item, run: Run, *, abort: bool) -> str:
        """Greedy first, then samples, until one passes or the tokens of the arm with guards are used (the last is finished)."""
        room = self.done["guard rewinds", item.id]["tokens"]
        best = ""
        for i in range(40):
            seen: list[Any] = []

            def doomed(entries: Any, seen: list[Any] = seen) -> bool:
                seen.extend(tokens_of(entries))
                return item.check.guard(text_of(seen)) == "fail"

            lm = cut_by(self.lm, doomed) if abort else self.lm
            request = self.ask(item, temperature=0.8 if i else 0.0, logprobs=1 if abort else None)
            [choice] = (await run.complete(request, lm=lm)).choices
            best = best or choice.text
            if choice.finish_reason != CUT and (await item.check.verdict({}, Prediction(answer=choice.text))).passed:
                return choice.text
            if run.usage.output_tokens + run.usage.uncertain_tokens >= room:
                break
        return best

    async def all(self, n: int, seeds: int, until: float) -> None:
        for family in FAMILIES:
            await self.calibrate(family)
        for seed in range(seeds):
            for at in range(n):
                for arm in ARMS:
                    for family in FAMILIES:
                        item = items(family, n, seed)[at]
                        if (arm, item.id) in self.done:
                            continue
                        if time.monotonic() > until:
                            return
                        row = await self.one(arm, item)
                        self.rows.append(row)
                        self.done[arm, item.id] = row
                        with self.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")


def report(rows: list[dict[str, Any]]) -> None:
    by: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    whole = set.intersection(*({row["id"] for row in rows if row["arm"] == arm} for arm in ARMS))
    for row in rows:
        if row["id"] in whole:
            by[row["family"], row["arm"]].append(row)
    for family in FAMILIES:
        print(
            f"\n{family}\n{'arm':<26}{'right':>8}{'95 % interval':>16}{'tokens':>9}{'input':>9}{'calls':>7}{'rewinds':>9}{'cpu s':>8}"
        )
        for arm in ARMS:
            if group := by[family, arm]:
                right, n = sum(row["right"] for row in group), len(group)
                mean = {
                    key: sum(row[key] for row in group) / n for key in ("tokens", "input", "calls", "rewinds", "cpu")
                }
                low, high = wilson(right, n)
                print(
                    f"{arm:<26}{f'{right}/{n}':>8}{f'{low:.0%} - {high:.0%}':>16}{mean['tokens']:>9.1f}{mean['input']:>9.0f}"
                    f"{mean['calls']:>7.1f}{mean['rewinds']:>9.1f}{mean['cpu']:>8.2f}"
                )


def wilson(right: int, n: int) -> tuple[float, float]:
    z, p = 1.96, right / n
    middle, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, (middle - spread) / (1 + z * z / n)), (middle + spread) / (1 + z * z / n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--out", type=Path, default=Path("evidence.jsonl"))
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    bench = Bench(given.out)
    if not given.report:
        asyncio.run(bench.all(given.n, given.seeds, time.monotonic() + 60 * given.minutes))
    report(bench.rows)


if __name__ == "__main__":
    main()
