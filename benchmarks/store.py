"""What the run store costs, in microseconds an event.

The floor is a bare `sqlite3` autocommit insert of the same rows into the same schema, in the same run. Each figure is
the best of several rounds taken in turn, so that all of them meet the same machine. It includes the transactions of
rows that follow later: a case ends when all of its rows are in the database.
"""

import argparse
import asyncio
import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import record

from redraft.store.sqlite import SqliteStore
from redraft.types import Event

EVENTS = 1920
TASKS = 64
DATA = {
    "model": "openai/gpt-4o",
    "role": "author",
    "usage": {"prompt_tokens": 212, "completion_tokens": 88},
    "text": "La Maison is a fine place to eat. " * 8,
}
SYSTEM = {"content": "You write short reviews of restaurants. " * 15, "role": "system"}
JOURNAL = [Event(seq=i, kind="reply", time=1.7e9, scope="a.b[0]", key="k" * 32, data=DATA) for i in range(EVENTS)]


def asked(turn: int) -> dict[str, object]:
    """An intent's data: 600 characters that every call sends, and 400 that two calls do."""
    user = {"content": f"Review no. {turn // 2}. " + "Say what one eats there, and what it costs. " * 9, "role": "user"}
    body = {"messages": [SYSTEM, user], "model": "openai/gpt-4o", "temperature": 0.7}
    content = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return {"content": content, "role": "author", "cap": None, "reserved": {"calls": 1, "uncertain_tokens": 1200}}


CALLS = [
    Event(seq=i, kind="call" if i % 2 else "intent", time=1.7e9, scope="a.b[0]", key="k" * 32, data=data)
    for i in range(EVENTS)
    for data in [DATA if i % 2 else asked(i // 2)]
]


def floor(store: SqliteStore) -> None:
    """One prepared statement, autocommit, JSON encoded beforehand: nothing of ours."""
    db = sqlite3.connect(store.path, isolation_level=None)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 4000")
    text = '{"text":"' + "x" * 370 + '"}'
    insert = "INSERT INTO events (run, seq, time, kind, scope, key, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
    for i in range(EVENTS):
        db.execute(insert, (1, i, 1.7e9, "reply", "a.b[0]", "k" * 32, text))
    db.close()


def one_after_another(store: SqliteStore) -> None:
    async def main() -> None:
        for event in JOURNAL:
            await store.append("run", (event,))

    asyncio.run(main())


def without_the_plain_file(store: SqliteStore) -> None:
    """What Windows pays, where every append waits for its transaction."""
    store._insurance.write = lambda *_: False
    one_after_another(store)


def calls_one_after_another(store: SqliteStore) -> None:
    """An intent with its messages and a reply, in turn."""

    async def main() -> None:
        for event in CALLS:
            await store.append("run", (event,))

    asyncio.run(main())


def calls_of_tasks_at_once(store: SqliteStore) -> None:
    async def task(number: int) -> None:
        for event in CALLS[: EVENTS // TASKS]:
            await store.append(f"run {number}", (event,))

    async def main() -> None:
        await asyncio.gather(*(task(number) for number in range(TASKS)))

    asyncio.run(main())


def tasks_at_once(store: SqliteStore) -> None:
    async def task(number: int) -> None:
        for event in JOURNAL[: EVENTS // TASKS]:
            await store.append(f"run {number}", (event,))

    async def main() -> None:
        await asyncio.gather(*(task(number) for number in range(TASKS)))

    asyncio.run(main())


def not_awaited(store: SqliteStore) -> None:
    async def main() -> None:
        for event in JOURNAL:
            store.append("run", (event,))

    asyncio.run(main())


def measure(case: Callable[[SqliteStore], None]) -> tuple[float, float]:
    folder = tempfile.mkdtemp(prefix="redraft-bench-")
    store = SqliteStore(Path(folder) / "runs.db")
    store.read("")  # opens the file
    wall, cpu = time.perf_counter(), time.process_time()
    case(store)
    store.read("")  # commits what is left
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    store.close()
    shutil.rmtree(folder)
    return wall / EVENTS * 1e6, cpu / EVENTS * 1e6


CASES = {
    "bare sqlite3, autocommit insert": floor,
    "awaited, one after another": one_after_another,
    "the same, each waits for its transaction": without_the_plain_file,
    f"awaited, {TASKS} tasks at once": tasks_at_once,
    "not awaited": not_awaited,
    "calls, awaited, one after another": calls_one_after_another,
    f"calls, awaited, {TASKS} tasks at once": calls_of_tasks_at_once,
}


def tables(options: argparse.Namespace) -> Iterator[record.Table]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for _ in range(options.rounds):
        for name, case in CASES.items():
            taken[name].append(measure(case))
    rows = []
    for name, figures in taken.items():
        walls, cpus = zip(*figures, strict=True)
        by = "floor" if name.startswith("bare") else "redraft"
        rows.append({"append": name, "by": by, "wall us": min(walls), "CPU us": min(cpus)})
    about = f"microseconds an event, best of {options.rounds} x {EVENTS} events in turn"
    yield record.Table("Events", about, rows, {"wall us": "low", "CPU us": "low"})


def more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=7)


if __name__ == "__main__":
    record.main("store", "What the run store costs", tables, more, about=__doc__)
