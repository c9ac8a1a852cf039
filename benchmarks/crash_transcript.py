"""One `redraft batch`, killed twice with SIGKILL, then gone on with on a Ray cluster of which a worker is killed, to its end.

`python benchmarks/crash_transcript.py [--rows N]` with `redraft[ray]` prints what happened, and the counts of the loopback
model itself beside those of the store.
"""

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))
from far_parts import Books, Counting, worker_pids

from redraft import SqliteStore

BATCH = "transcript"


def command(folder, url, *more):
    own = ["batch", "in.jsonl", "out.jsonl", "--store", "runs.db", "--batch-id", BATCH, "--concurrency", "12", *more]
    asked = ["--check", "words:5", "--attempts", "3", "--model", "openai/test", "--base-url", url, "--seed", "1"]
    shown = " ".join(map(shlex.quote, ["redraft", *own]))
    print(f"\n$ {shown} ...", flush=True)
    where = {"cwd": folder, "stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "redraft", *own, *asked], **where)


def tell(folder, server, what):
    """What the model has counted, and what is on record."""
    with SqliteStore(folder / "runs.db") as store:
        books = Books(store, BATCH)
    books.check(server)
    out = folder / "out.jsonl"
    rows = [json.loads(line) for line in (out.read_text().splitlines() if out.exists() else [])]
    assert len({row["id"] for row in rows}) == len(rows), "a row is there twice"
    again = sum(times - 1 for times in server.received.values())
    print(
        f"  {what}: the server has received {server.total} calls, {again} of them again; on record: "
        f"{sum(books.committed.values())} replies, each bought once, and {sum(books.lost.values())} calls that died in "
        f"flight; {len(rows)} rows in out.jsonl",
        flush=True,
    )
    return rows, books


def killed(folder, server, calls):
    process = command(folder, server.url)
    server.until(server.total + calls)
    process.kill()
    process.communicate()
    tell(folder, server, f"kill -9 {process.pid} (the batch)")


def finished(folder, server, calls, rng):
    process = command(folder, server.url, "--cluster", "local", "--workers", "4")
    server.until(server.total + calls)
    victim = rng.choice(worker_pids(process.pid))
    os.kill(victim, signal.SIGKILL)
    print(f"  kill -9 {victim} (one of 4 Ray workers): the server has received {server.total} calls", flush=True)
    _, err = process.communicate(timeout=300)
    print("  " + "\n  ".join(line for line in err.splitlines() if "raylet" not in line))
    print(f"  exit code {process.returncode}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, began = random.Random(given.seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="redraft-transcript-") as name, Counting(given.seed, delay=0.1) as server:
        folder = Path(name)
        items = [{"id": i, "task": f"question {i}"} for i in range(given.rows)]
        (folder / "in.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))
        print(f"{given.rows} rows, 3 drafts each: {3 * given.rows} calls if nothing is killed")
        killed(folder, server, given.rows // 2)
        killed(folder, server, given.rows // 2)
        finished(folder, server, given.rows // 2, rng)
        rows, books = tell(folder, server, "the end")
    assert sorted(row["id"] for row in rows) == list(range(given.rows))
    assert sum(books.committed.values()) == 3 * given.rows
    print(
        f"\n{len(rows)} rows, each once; no reply that was on record was bought again. {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
