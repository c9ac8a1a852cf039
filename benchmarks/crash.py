"""One batch, killed with SIGKILL 500 times at random points, resumed to its end: `python benchmarks/crash.py [--kills N]`.

The model is a loopback server that counts each call. After each kill: no reply that was on record has been bought again,
no call was repeated that was not in flight, no row was lost or is there twice.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "crash"))
from batch_kills import killed_again_and_again, rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    n = given.kills * 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="redraft-crash-") as folder:
        say = print if given.verbose else lambda _: None
        server, store, books, kills = killed_again_and_again(Path(folder), given.kills, n=n, seed=given.seed, say=say)
        there = rows(Path(folder))
    assert sorted(row["id"] for row in there) == list(range(n))
    assert server.total <= books["calls"] == sum(store.intents.values())
    print(f"kills {kills}, seed {given.seed}, {time.monotonic() - began:.0f} s")
    print(f"rows: {len(there)} of {n}, each once")
    print(f"calls: the server received {server.total}, the books charge {books['calls']}")
    print(f"replies on record: {sum(store.committed.values())}, each bought once")
    print(f"in flight when a process died: {sum(store.lost.values())}; cancelled losers: {sum(store.failed.values())}")


if __name__ == "__main__":
    main()
