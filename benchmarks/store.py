"""What the run store costs, in microseconds an event: `python benchmarks/store.py`.

The floor is a bare `sqlite3` autocommit insert of the same rows into the same schema, in the same run. Each figure is
the best of several rounds taken in turn, so that all of them meet the same machine. It includes the transactions of
rows that follow later: a case ends when all of its rows are in the database.
"""

import asyncio
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from redraft.store.sqlite import SqliteStore
from redraft.types import Event

EVENTS = 1920
TASKS = 64
ROUNDS = 7
DATA = {
    "model": "openai/gpt-4o",
    "role": "author",
    "usage": {"prompt_tokens": 212, "completion_tokens": 88},
    "text": "La Maison is a fine place to eat. " * 8,
}
JOURNAL = [Event(seq=i, kind="reply", time=1.7e9, scope="a.b[0]", key="k" * 32, data=DATA) for i in range(EVENTS)]


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


def main() -> None:
    cases = {
        "bare sqlite3, autocommit insert": floor,
        "awaited, one after another": one_after_another,
        "the same, each waits for its transaction": without_the_plain_file,
        f"awaited, {TASKS} tasks at once": tasks_at_once,
        "not awaited": not_awaited,
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            taken[name].append(measure(case))
    print(f"us an event, best of {ROUNDS} x {EVENTS} events{'':8}wall     CPU")
    for name, figures in taken.items():
        walls, cpus = zip(*figures, strict=True)
        print(f"{name:42}{min(walls):6.1f}  {min(cpus):6.1f}")


if __name__ == "__main__":
    main()
