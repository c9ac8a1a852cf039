"""A loop of at most three drafts, sequentially, by each library as its documentation has it; in turn, on one loopback model.

The check is the same code for all: exactly three sentences. Each library runs in an environment and a process of its own;
the model in another, which counts what really was asked and spent. CPU is the library's process (with optillm, and with
`redraft serve`, the proxy's as well), after a warm-up; the ratio is to a bare loop around the official client in the same
round. "says" is the tokens that the library reports, beside what the model counted.
"""

import statistics
import sys

import record
from peers import envs, jobs

SAMPLES = [
    ("bare loop, openai client", "floor", "best of N"),
    ("redraft BestOfN", "redraft", "BestOfN"),
    ("redraft serve, best-of-n", "redraft", "serve"),
    ("dspy.BestOfN", "dspy", "BestOfN"),
    ("mellea rejection sampling", "mellea", "rejection"),
    ("its-hub BestOfN", "its-hub", "BestOfN"),
    ("optillm bon (the model grades)", "optillm", "bon"),
]
FEEDBACK = [
    ("bare loop that shows the bad draft", "floor", "feedback"),
    ("redraft Refine, checks", "redraft", "Refine, checks"),
    ("redraft Refine, reward and advisor", "redraft", "Refine, reward"),
    ("dspy.Refine", "dspy", "Refine"),
    ("instructor, retries", "instructor", "retries"),
    ("mellea repair template", "mellea", "repair"),
]
CASES = {"none of 3 passes": "never.0", "the first passes": "first.0", "the second passes": "second.0"}
SLOW = {"optillm"}
"""Takes 20 seconds of CPU to start: the first round only."""
BETTER = {"CPU ms": "low", "wall ms": "low", "calls": "low", "tokens": "low"}


def kept(said):
    """What the caller has after a failure, in words: the drafts say their number."""
    found = set()
    for one in said:
        text = one["text"] or ""
        draft = next((f"draft {n}" for n in "123" if f"Draft {n} " in text), "")
        error = one["error"].partition(":")[0]
        if text.startswith("Error:"):
            text = f'the text "{text}"'
        found.add(
            "passes" if text.startswith("One is here") else draft or (f"raises {error}" if error else text or "None")
        )
    return " / ".join(sorted(found)).replace("draft 2", "draft 2, the best").replace("draft 3", "draft 3, the last")


def row(case, arm, taken, floor, items):
    name, peer, _ = arm
    last = taken[-1]
    spent = last["server"].get("prompt_tokens", 0) + last["server"].get("completion_tokens", 0)
    said = [one["tokens"] for one in last["said"]]
    return {
        "case": case,
        "library": name,
        "by": peer,
        "CPU ms": min(t["cpu"] for t in taken) / items * 1e3,
        "x bare": statistics.median(t["cpu"] / f["cpu"] for t, f in zip(taken, floor, strict=False)),
        "wall ms": min(t["wall"] for t in taken) / items * 1e3,
        "calls": last["server"]["calls"] / items,
        "tokens": spent / items,
        "says": "nothing" if None in said else "exactly" if sum(said) == spent else f"{sum(said) / spent:.0%}",
        "what one gets": kept(last["said"]),
    }


def measure(options):
    with jobs.served() as url:
        for title, all_arms in (("independent samples", SAMPLES), ("retries that are told what is wrong", FEEDBACK)):
            arms = jobs.chosen(all_arms, options.only)
            rows = []
            for case, model in CASES.items():
                taken = {arm: [] for arm in arms}
                for nth in range(options.rounds):
                    for arm in arms:
                        if nth and arm[1] in SLOW:
                            continue
                        job = {"url": url, "model": model, "items": options.items, "tries": 3}
                        taken[arm].append(jobs.child(arm[1], arm[2], **job))
                        print(".", end="", file=sys.stderr, flush=True)
                rows += [row(case, arm, taken[arm], taken[arms[0]], options.items) for arm in arms]
            what = f"{options.items} items one after another, at most 3 drafts each; least of {options.rounds} rounds in turn"
            yield record.Table(f"A loop of three: {title}", f"{what}, an item", rows, BETTER)


def more(parser):
    jobs.options(parser)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)


if __name__ == "__main__":
    record.main("loop", "What a loop of three drafts costs", measure, more, about=__doc__, peers=envs.versions)
