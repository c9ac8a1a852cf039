"""`redraft runs export`: runs as JSON, and as training sets."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from redraft.cli.output import say
from redraft.cli.runs_table import run_json
from redraft.jsonable import canonical, plain
from redraft.record import digest
from redraft.report.data import drafts_data, event_data
from redraft.report.kept import drafts_of
from redraft.report.training import dpo, sft
from redraft.result import count
from redraft.store.sqlite import SqliteStore


def lines(store: SqliteStore, ids: Sequence[str], form: str, *, named: bool) -> Iterator[str]:
    """The lines to write, one run after another: memory does not grow with their number. A damaged run is left out, and said;
    raises `StoreError` for one if they were `named`.
    """
    if not named:
        ids = [run_id for run_id in ids if _readable(store, run_id)]
    if form == "jsonl":
        yield from (_json(_everything(store, run_id)) for run_id in ids)
    elif form == "json":
        yield "["
        for at, run_id in enumerate(ids, 1):
            yield _json(_everything(store, run_id)) + ("," if at < len(ids) else "")
        yield "]"
    else:
        yield from _examples(store, ids, form)


def _readable(store: SqliteStore, run_id: str) -> bool:
    run = store.run(run_id)
    if run is not None and run.unreadable:
        say(f"redraft: run {run_id} is left out: {run.error}")
    return run is not None and not run.unreadable


def _examples(store: SqliteStore, ids: Sequence[str], form: str) -> Iterator[str]:
    """Each example once, and then on stderr how many there are, and why others are not among them."""
    why_not: Counter[str] = Counter()
    seen: set[str] = set()
    for run_id in ids:
        for example in (sft if form == "sft" else dpo)(run_id, store.read(run_id), why_not):
            taught = {name: value for name, value in example.items() if isinstance(value, list)}
            if (code := digest(canonical(taught))) in seen:
                why_not["it is there already"] += 1
                continue
            seen.add(code)
            yield _json(example)
    left_out = "; ".join(f"{number} left out: {why}" for why, number in why_not.most_common())
    say(f"redraft: {count(len(seen), 'example')} of {count(len(ids), 'run')}{f'; {left_out}' if left_out else ''}")


def _everything(store: SqliteStore, run_id: str) -> dict[str, Any]:
    run, events = store.run(run_id), store.read(run_id)
    found = drafts_of(events)
    return {
        **({} if run is None else run_json(run)),
        "refinements": [drafts_data(drafts) for drafts in found],
        "events": [event_data(event) for event in events],
    }


def _json(value: object) -> str:
    wide = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    return json.dumps(value, ensure_ascii=not wide, default=plain)
