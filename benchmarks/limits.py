"""A limit of tokens on an item, and a hundred drafts of which none passes: is it kept, and what is left when it is reached?

The limit is given where a library has one; the others have only their number of tries. redraft counts what a call may cost
at most before it sends it, so it stops early rather than late; instructor looks after each failed attempt, so it is over by
up to one attempt. The model writes little here, so that reservations are most of the limit.
"""

import loop
import record
from peers import envs, jobs

LIMITS, TRIES, ITEMS = (250, 1000), 100, 2
NONE = "none to give"
ARMS = [
    ("redraft BestOfN", "redraft", "BestOfN", "Budget(tokens=...)"),
    ("redraft Refine, checks", "redraft", "Refine, checks", "Budget(tokens=...)"),
    ("dspy.BestOfN", "dspy", "BestOfN", NONE),
    ("dspy.Refine", "dspy", "Refine", NONE),
    ("instructor, retries", "instructor", "retries", "token_budget=..."),
    ("mellea rejection sampling", "mellea", "rejection", NONE),
    ("its-hub BestOfN", "its-hub", "BestOfN", NONE),
]


def measure(options):
    rows = []
    with jobs.served() as url:
        for limit in LIMITS:
            rows += [row(url, limit, arm) for arm in jobs.chosen(ARMS, options.only)]
    about = f"at most so many tokens and {TRIES} drafts an item, of which none passes; means of {ITEMS} items"
    yield record.Table("A limit of tokens", about, rows, {"above the limit": "low", "left unused": "low"})


def row(url, limit, arm):
    name, peer, what, how = arm
    job = {"url": url, "model": "never.0", "items": ITEMS, "tries": TRIES, "tokens": limit, "warm": 0}
    done = jobs.child(peer, what, **job)
    spent = (done["server"].get("prompt_tokens", 0) + done["server"].get("completion_tokens", 0)) / ITEMS
    return {
        "case": f"{limit} tokens",
        "library": name,
        "by": peer,
        "limit": how,
        "calls": done["server"].get("calls", 0) / ITEMS,
        "tokens": spent,
        "above the limit": max(0.0, spent - limit),
        "left unused": max(0.0, limit - spent) if how != NONE else None,
        "what one gets": loop.kept(done["said"]),
    }


if __name__ == "__main__":
    record.main("limits", "A limit on what is spent", measure, jobs.options, about=__doc__, peers=envs.versions)
