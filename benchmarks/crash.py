"""One batch, killed with SIGKILL at random points, 500 times unless fewer are asked for, and resumed to its end.

The model is a loopback server that counts each call. After each kill: no reply that was on record has been bought again,
no call was repeated that was not in flight, no row was lost or is there twice.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "crash"))
import record
from batch_kills import killed_again_and_again, rows


def tables(given):
    n = given.kills * 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="redraft-crash-") as folder:
        say = print if given.verbose else lambda _: None
        server, store, books, kills = killed_again_and_again(Path(folder), given.kills, n=n, seed=given.seed, say=say)
        there = rows(Path(folder))
    assert sorted(row["id"] for row in there) == list(range(n))
    assert server.total <= books["calls"] == sum(store.intents.values())
    counted = {
        "kills": kills,
        f"rows that are there, each once, of {n:,}": len(there),
        "calls that the model received": server.total,
        "calls that the books charge": books["calls"],
        "replies on record, each bought once": sum(store.committed.values()),
        "calls in flight when a process died": sum(store.lost.values()),
        "cancelled losers": sum(store.failed.values()),
    }
    found = [{"what": what, "by": record.OURS, "how many": count} for what, count in counted.items()]
    yield record.Table("A batch, killed again and again", f"in {time.monotonic() - began:.0f} s", found)


def more(parser):
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")


if __name__ == "__main__":
    record.main("crash", "A batch that is killed", tables, more, about=__doc__)
