"""Does mending while writing pay? Arms beside each other on an embedded model, every generated token counted.

    python benchmarks/proactive/evidence.py --out results/smollm2-135m.jsonl
    python benchmarks/proactive/evidence.py --model DIR/qwen-0.5b.gguf --out results/qwen-0.5b.jsonl
    python benchmarks/proactive/report.py results/*.jsonl

A line an item, with all its arms, written when the last arm has ended; items are the outer loop, families and seeds take turns: a
part of the work is a comparison already. Resumable: what stands in the file is not run again; where arms are missing they are
added, in a line that takes the place of the one before. Each start adds a line `meta`.
Several items are written at once, in the engine's slots: what another slot does changes the rounding, so that a second run is
not the same run, token for token.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

from arms import ARMS, ATTEMPTS, COLUMNS, CRITIC, MOST, ROUNDS, Arms, Shared
from families import EACH, FAMILIES, SEEDS, Item, items
from meta import meta

from redraft import Run
from redraft.proactive import RandomSignal, RefinementSignal
from redraft.proactive.tokens import Token, reported
from redraft.types import Request

PERCENTILE = 90
"""The signal fires at a tenth of the places of texts of items that are not measured."""


async def calibrate(slots: list[Arms]) -> None:
    """The signals' thresholds, and the rates at which random triggers do as much, out of items that are not measured."""
    signals, rates = slots[0].signals, slots[0].rates
    for family in FAMILIES:
        held = [*zip(items(family, None), itertools.cycle(slots))]
        signals[family] = RefinementSignal.calibrated(
            "margin", await asyncio.gather(*(drafted(arms, item) for item, arms in held)), percentile=PERCENTILE
        )
        share = 1 - PERCENTILE / 100
        wanted, got = [
            sum(await asyncio.gather(*(fired(arms, item, signal) for item, arms in held)))
            for signal in (signals[family], RandomSignal(share, 99))
        ]
        rates[family] = round(min(1.0, share * wanted / max(got, 1)), 4)


async def drafted(arms: Arms, item: Item) -> list[Token]:
    """The tokens of a plain text."""
    async with Run(seed=1) as run:
        asked = Request(messages=({"role": "user", "content": item.prompt},), max_tokens=item.cap, temperature=0.0)
        return reported((await run.complete(asked.but(logprobs=8), lm=arms.lm)).choices[0])


async def fired(arms: Arms, item: Item, signal: Any) -> int:
    """How often a signal led to another look at an item."""
    async with Run(seed=1) as run:
        await arms.decoder(item, signal).acall(task=item.prompt)
        return sum(e.kind == "rewind" and e.data["cause"] == "signal" for e in run.journal.events)


async def work(slots: list[Arms], left: list[Item], rows: dict[str, Any], out: Path, until: float) -> None:
    todo = iter(left)

    async def worker(arms: Arms) -> None:
        for item in todo:
            if time.monotonic() > until:
                return
            row = rows.get(item.id, {"id": item.id, "family": item.family, "seed": item.seed, "arms": {}})
            row["arms"], texts = await arms.item(item, row["arms"])
            if item.family == "format" and "texts" not in row:
                row["texts"] = {arm: texts[arm] for arm in ("plain", "guard rewinds")}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    await asyncio.gather(*map(worker, slots))


def header(given: argparse.Namespace, lm: Shared) -> dict[str, Any]:
    file = Path(lm.address)
    settings = {
        "slots": given.slots,
        "threads": given.threads,
        "items": EACH,
        "seeds": SEEDS,
        "rewinds": MOST,
        "refine_attempts": ATTEMPTS,
        "self_refine_rounds": ROUNDS,
        "critic_max_tokens": CRITIC,
    }
    model = {"name": lm.name, "file": file.name, "bytes": file.stat().st_size}
    return {**meta(model, settings, ("redraft", "xllamacpp")), "columns": COLUMNS, "arms": ARMS}


async def measure(given: argparse.Namespace) -> None:
    begun, used = time.monotonic(), time.process_time()
    options = {"path": given.model, "threads": given.threads, "slots": given.slots, "ctx": 1536}
    signals: dict[str, RefinementSignal] = {}
    rates: dict[str, float] = {}
    slots = [Arms(Shared(slot, **options), signals, rates) for slot in range(given.slots)]
    old = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    rows = {row["id"]: row for row in old if "id" in row}
    about = header(given, slots[0].lm)
    await calibrate(slots)
    about["settings"]["margin_below"] = {family: round(signal.threshold, 4) for family, signal in signals.items()}
    about["settings"]["random_rates"] = rates
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"meta": about}) + "\n")
    pools = [items(family, seed) for seed in range(SEEDS) for family in FAMILIES]
    wanted = {family: set(ARMS) - ({"compiled constraint"} if family == "format" else set()) for family in FAMILIES}
    everything = [item for row in zip(*pools, strict=True) for item in row]
    left = [item for item in everything if wanted[item.family] - rows.get(item.id, {"arms": {}})["arms"].keys()]
    await work(slots, left[: given.most], rows, given.out, begun + 60 * given.minutes)
    written = sum(arms.lm.written for arms in slots)
    print(f"{time.monotonic() - begun:.0f} s, {time.process_time() - used:.0f} CPU s, {written} tokens computed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the embedded model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--slots", type=int, default=8, help="items at once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600.0, help="no item begins after")
    parser.add_argument("--most", type=int, help="items, of all families together")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
