"""What a caller gets, and how many calls it pays, when the model fails: one item of at most three drafts, each fault apart.

Retries are each library's own defaults; a timeout of one second a call (eight for a whole run of redraft) is set the way each
library has it: its-hub has none, and is ended after a minute. "later" means that the first draft had
come, and failed its check only: is it still there? Calls are the model's count, those after the answer included.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import loop
import record
from peers import envs, jobs

ARMS = [
    ("bare loop, openai client", "floor", "best of N"),
    ("redraft BestOfN", "redraft", "BestOfN"),
    ("redraft Refine, checks", "redraft", "Refine, checks"),
    ("dspy.BestOfN", "dspy", "BestOfN"),
    ("dspy.Refine", "dspy", "Refine"),
    ("instructor, retries", "instructor", "retries"),
    ("mellea rejection sampling", "mellea", "rejection"),
    ("its-hub BestOfN", "its-hub", "BestOfN"),
    ("optillm bon", "optillm", "bon"),
]
CASES = {
    "429 once (Retry-After 20 ms)": "busy_once",
    "429 always": "busy_always",
    "500 once": "error_once",
    "500 later, always": "error_later",
    "400 later, always": "refused_later",
    "reply cut in its middle, once": "cut_once",
    "replies cut later, always": "cut_later",
    "no reply for five minutes, later": "slow_later",
    "a reply without the form asked for, once": "formless_once",
    "an empty reply, once": "empty_once",
}
PATIENCE = 60


RANKS = {"passes": 2, "draft": 1}


def told(arm, fault, url):
    """What came back, how many calls it took, and how long."""
    slow = {"timeout": 8 if arm[1] == "redraft" else 1} if fault.startswith("slow") else {}
    job = {"url": url, "model": f"{fault}.0.{ARMS.index(arm)}", "items": 1, "tries": 3, "warm": 0, "settle": 1, **slow}
    done = jobs.child(arm[1], arm[2], seconds=PATIENCE + 10, **job)
    if done is None:
        return f"nothing in {PATIENCE} s", None, None
    return loop.kept(done["said"]), done["server"]["calls"], done["wall"]


def measure(options):
    arms = jobs.chosen(ARMS, options.only)
    rows, notes = [], []
    with jobs.served() as url:
        for case, fault in CASES.items():
            with ThreadPoolExecutor(options.at_once) as pool:
                found = dict(zip(arms, pool.map(lambda arm, fault=fault: told(arm, fault, url), arms), strict=True))
            cells = {
                arm[0]: f"{what}; {calls}; {took:.1f} s" if calls else what
                for arm, (what, calls, took) in found.items()
            }
            rows.append({"fault": case, "by": "", **cells})
            notes += fewer(case, found)
            print(".", end="", file=sys.stderr, flush=True)
    yield record.Table("Faults", "what comes back; calls that the model received; seconds", rows, notes=notes)


def fewer(case, found):
    """Who got as much as our best with fewer calls."""
    ranked = {arm: RANKS.get(what.split()[0], 0) for arm, (what, *_) in found.items()}
    mine, calls = max((ranked[arm], -found[arm][1]) for arm in found if arm[1] == "redraft")
    ahead = [a for a in found if a[1] != "redraft" and found[a][1] and (ranked[a], -found[a][1]) > (mine, calls)]
    said = ", ".join(f"{arm[0]} {found[arm][1]}" for arm in ahead)
    return [f"{case}: as good an end with fewer calls than our {-calls}: {said}"] if ahead else []


def more(parser):
    jobs.options(parser)
    parser.add_argument("--at-once", type=int, default=3, help="libraries that are tried at the same time")


if __name__ == "__main__":
    record.main("faults", "What comes back when the model fails", measure, more, about=__doc__, peers=envs.versions)
