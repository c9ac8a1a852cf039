"""Two hundred items at the same time, three drafts each of which none passes; the model takes 50 ms for each.

Each library as it does many at once: `acall` or its own async calls on one loop, dspy's `batch` in threads, optillm and
`redraft serve` as proxies with 200 clients. Peak memory is of the process (of the proxy, where there is one), imports
included. The floor is the same loop on the official async client: 0.15 s is what three replies of 50 ms take.
"""

import statistics
import sys

import loop
import record
from peers import envs, jobs

ARMS = [
    ("bare loops, openai client", "floor", "at once", {}),
    ("redraft BestOfN", "redraft", "at once", {}),
    ("redraft Refine, checks", "redraft", "Refine at once", {}),
    ("redraft serve, best-of-n", "redraft", "serve at once", {}),
    ("dspy.BestOfN, batch of 200 threads", "dspy", "BestOfN", {}),
    ("dspy.BestOfN, batch of 8 threads (default)", "dspy", "BestOfN", {"at_once": 8}),
    ("instructor, async", "instructor", "at once", {}),
    ("mellea rejection sampling, async", "mellea", "at once", {}),
    ("its-hub BestOfN, async", "its-hub", "BestOfN", {}),
    ("optillm bon", "optillm", "at once", {}),
]
BETTER = {"wall s": "low", "CPU ms": "low", "peak MB": "low", "calls": "low"}


def row(arm, taken, floor, items):
    name, peer, *_ = arm
    last = taken[-1]
    return {
        "library": name,
        "by": peer,
        "wall s": min(t["wall"] for t in taken),
        "x bare": statistics.median(t["wall"] / f["wall"] for t, f in zip(taken, floor, strict=False)),
        "CPU ms": min(t["cpu"] for t in taken) / items * 1e3,
        "peak MB": round(max(t["peak_mb"] for t in taken)),
        "calls": last["server"]["calls"] / items,
        "what one gets": loop.kept(last["said"]),
    }


def measure(options):
    arms = [arm for arm in ARMS if arm[:3] in jobs.chosen([arm[:3] for arm in ARMS], options.only)]
    taken = {arm[0]: [] for arm in arms}
    with jobs.served() as url:
        for nth in range(options.rounds):
            for name, peer, what, more in arms:
                if nth and peer in loop.SLOW:
                    continue
                job = {"url": url, "model": "never.50", "items": options.items, "at_once": options.items, "tries": 3}
                taken[name].append(jobs.child(peer, what, **{**job, **more}))
                print(".", end="", file=sys.stderr, flush=True)
    rows = [row(arm, taken[arm[0]], taken[arms[0][0]], options.items) for arm in arms]
    what = f"{options.items} items at once, 3 replies of 50 ms each; least of {options.rounds} rounds in turn"
    yield record.Table("Many at once", f"{what}; CPU and calls an item", rows, BETTER)


def more(parser):
    jobs.options(parser)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)


if __name__ == "__main__":
    record.main("many", "200 items at the same time", measure, more, about=__doc__, peers=envs.versions)
