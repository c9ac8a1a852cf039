"""The tasks: what is asked, in which fields it is answered, and the cells that a sensible root model writes for it.

Cells explore, plan, map by `llm_query_batched`, aggregate and SUBMIT. `DATA` stands for the input's name; each cell but
the last prints a line that begins with its mark (`explored:`, `mapped:`), by which the oracle knows where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import banks

LABEL = "Label each line below with exactly one of: {labels}."
"""How a prompt for labels begins; the oracle as sub-model knows it by this. So with the other two."""
CAUSE = "Which of these changes brought about the errors that began after it?"
HOOK = "On which hook does the spare key of {name} hang?"

_EXPLORE = """
print("explored:", type(DATA).__name__, len(DATA), "characters")
print(DATA[:600])
print("...")
print(DATA[-300:])
"""

_ASK = """
import re
KINDS = {kinds!r}
def prompt_for(lines, word):
    numbered = "\\n".join(f"{{i}}. {{text}}" for i, text in enumerate(lines, 1))
    return ("{head}" + "\\nAnswer with one line for each, as `number: label`, and nothing else. " + word
            + "\\n\\n" + numbered)
def read(reply, n):
    said = dict(re.findall(r"(?m)^\\s*(\\d+)\\s*[.:)]\\s*([a-z][a-z ]*?)\\s*$", reply))
    return [said.get(str(i)) if said.get(str(i)) in KINDS else None for i in range(1, n + 1)]
def label_all(texts, size=200, votes={votes}, tries=6):
    ballots = [[] for _ in texts]
    for vote in range(votes):
        left = [*range(len(texts))]
        for attempt in range(tries):
            groups = [left[i:i + size] for i in range(0, len(left), size)]
            word = f"(Reading {{vote + 1}}.{{attempt + 1}})"
            for start in range(0, len(groups), 64):
                some = groups[start:start + 64]
                replies = llm_query_batched([prompt_for([texts[i] for i in g], word) for g in some])
                for group, reply in zip(some, replies):
                    for i, kind in zip(group, read(str(reply), len(group))):
                        if kind:
                            ballots[i].append(kind)
            left = [i for i in left if len(ballots[i]) <= vote]
            if not left:
                break
    return [max(sorted(set(b)), key=b.count) if b else None for b in ballots]
"""


def _asking(kinds: tuple[str, ...], votes: int) -> str:
    return _ASK.format(kinds=kinds, head=LABEL.format(labels=", ".join(kinds)), votes=votes)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task. `cells` are given how many readings of each label are voted on, and the answers' keys where names vary."""

    name: str
    variable: str
    outputs: str
    query: Callable[[dict[str, Any]], str]
    cells: Callable[[int, dict[str, Any]], list[str]]
    graded: tuple[str, ...]
    """The outputs that have exact answers."""

    @property
    def signature(self) -> str:
        return f"{self.variable}, query -> {self.outputs}"


def _logs_cells(_votes, _gold):
    scan = r"""
import re
from collections import Counter
counts, hours, first, stamps, changes = Counter(), Counter(), {}, {}, []
def valid(stamp):
    hour = stamp[:13]
    if hour not in stamps:
        stamps[hour] = bool(validate_timestamp(hour + ":00:00"))
    return stamps[hour]
try:
    validate_timestamp
except NameError:
    from datetime import datetime
    def validate_timestamp(ts):
        try:
            datetime.fromisoformat(ts)
            return True
        except ValueError:
            return False
for m in re.finditer(r"(?m)^(\S+) (ERROR|NOTICE) (.*)$", DATA):
    stamp, level, text = m.groups()
    if not valid(stamp):
        continue
    if level == "NOTICE":
        changes.append((stamp, text.removeprefix("ops: ")))
        continue
    pattern = re.sub(r"\d+", "#", text)
    counts[pattern] += 1
    hours[stamp[:13]] += 1
    first.setdefault(pattern, stamp)
print("mapped:", sum(counts.values()), "errors of", len(counts), "kinds;", len(changes), "changes")
for pattern, n in counts.most_common(12):
    print(n, first[pattern], pattern)
"""
    cause = f"""
def why(word):
    errors = "\\n".join(f"- {{first[p]}} {{p}}" for p in sorted(first, key=first.get))
    made = "\\n".join(f"{{i}}. {{stamp}} {{text}}" for i, (stamp, text) in enumerate(changes, 1))
    return ("{CAUSE} Answer with its number only. " + word + "\\n\\nErrors, with the time each was first seen:\\n" + errors
            + "\\n\\nChanges:\\n" + made)
said = []
for attempt in range(6):
    said += [r.strip() for r in map(str, llm_query_batched([why(f"(Reading {{attempt}}.{{i}})") for i in range(3)]))
             if r.strip().isdigit() and 0 < int(r) <= len(changes)]
    if len(said) > 2:
        break
number = max(sorted(set(said)), key=said.count)
root = changes[int(number) - 1][1]
print("judged:", said, "->", root)
"""
    submit = """
top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
SUBMIT(error_patterns=[f"{n} x {p}" for p, n in top],
       timeline="\\n".join(f"{hour} {n}" for hour, n in sorted(hours.items())), root_cause=root)
"""
    return [_EXPLORE, scan, cause, submit]


def _reviews_cells(votes, _gold):
    distinct = r"""
import re
from collections import Counter
forms = Counter()
for m in re.finditer(r"(?m)^R\d+ \| (\w+) \| (.*)$", DATA):
    thing, text = m.groups()
    forms[re.sub(r"\d+", "7", text.replace(thing, "chair"))] += 1
texts = list(forms)
print("planned:", sum(forms.values()), "reviews come in", len(texts), "wordings: label each wording once")
print(texts[:3])
"""
    mapped = (
        _asking(tuple(banks.REVIEWS), votes)
        + """
kinds = label_all(texts)
totals = Counter()
for text, kind in zip(texts, kinds):
    totals[kind] += forms[text]
print("mapped:", totals.most_common(), "not labelled:", kinds.count(None))
"""
    )
    submit = """
bad = {k: n for k, n in totals.items() if k not in ("positive", "neutral", None)}
top = [f"{n} x {k}" for k, n in sorted(bad.items(), key=lambda item: (-item[1], item[0]))[:5]]
SUBMIT(summary="Most complaints are about " + ", ".join(t.split(" x ")[1] for t in top[:3]) + ".", top_complaints=top,
       sentiment_breakdown=f"positive {totals['positive']}, neutral {totals['neutral']}, negative {sum(bad.values())}")
"""
    return [_EXPLORE, distinct, mapped, submit]


def _sales_cells(_votes, _gold):
    total = """
import csv
from collections import Counter
def lines(text):
    begin = 0
    while (end := text.find("\\n", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
cents = Counter()
rows = csv.reader(lines(DATA))
next(rows)
for day, _, _, quantity, price in rows:
    cents[f"{day[:4]}-Q{(int(day[5:7]) + 2) // 3}"] += int(quantity) * int(price.replace(".", ""))
print("mapped:", sorted(cents.items()))
"""
    return [_EXPLORE, total, "\nSUBMIT(totals={q: n / 100 for q, n in sorted(cents.items())})\n"]


def _orders_cells(_votes, _gold):
    total = """
import json
from collections import Counter
refunds, unhappy, begin = Counter(), 0, 0
while (end := DATA.find("\\n", begin)) >= 0:
    line, begin = DATA[begin:end].rstrip(","), end + 1
    if not line.startswith("{"):
        continue
    customer = json.loads(line)
    back = sum(l["cents"] for o in customer["orders"] for l in o["lines"] if l["returned"])
    if back:
        refunds[customer["address"]["country"]] += back
        unhappy += 1
print("mapped:", dict(refunds), unhappy)
"""
    return [_EXPLORE, total, "\nSUBMIT(refunds=dict(refunds), customers=unhappy)\n"]


def _chat_cells(votes, _gold):
    distinct = r"""
import re
from collections import Counter, defaultdict
last = defaultdict(Counter)
for m in re.finditer(r"(?s)Session \d+ with (\w+)\n(.*?)\n\n", DATA):
    said = re.findall(r"(?m)^\[[\d:]+\] customer: (.*)$", m[2])
    last[re.sub(r"\d+", "7", said[-1])][m[1]] += 1
texts = list(last)
print("planned:", sum(c.total() for c in last.values()), "sessions end in", len(texts), "ways: label each once")
"""
    mapped = (
        _asking(tuple(banks.CLOSINGS), votes)
        + """
totals = {"resolved": Counter(), "open": Counter()}
for text, kind in zip(texts, label_all(texts)):
    if kind:
        totals[kind].update(last[text])
print("mapped:", totals)
"""
    )
    return [_EXPLORE, distinct, mapped, "\nSUBMIT(resolved=dict(totals['resolved']), left_open=dict(totals['open']))\n"]


def _needle_cells(_votes, gold):
    names = sorted(gold["hooks"])
    found = f"""
import re
names = {names!r}
spots = {{n: [] for n in names}}
for m in re.finditer(r"(?m)^.*\\b(" + "|".join(names) + r")\\b.*$", DATA):
    if "key" in m[0] or "hook" in m[0]:
        spots[m[1]].append(DATA[max(0, m.start() - 200):m.end() + 200])
print("planned:", {{n: len(s) for n, s in spots.items()}}, "places to read")
"""
    asked = f"""
hooks = {{}}
for attempt in range(6):
    left = [n for n in names if n not in hooks and spots[n]]
    prompts = ["{HOOK.replace("{name}", "{n}")} Answer with the number only, or `none`. (Reading {{attempt}})\\n\\n{{s}}"
               .replace("{{n}}", n).replace("{{s}}", s).replace("{{attempt}}", str(attempt))
               for n in left for s in spots[n][:20]]
    owners = [n for n in left for s in spots[n][:20]]
    for n, reply in zip(owners, llm_query_batched(prompts) if prompts else []):
        if str(reply).strip().isdigit():
            hooks[n] = str(reply).strip()
print("mapped:", hooks)
"""
    return [_EXPLORE, found, asked, "\nSUBMIT(hooks=hooks)\n"]


_INSTANCES = r"""
import re
users, texts = [], []
for m in re.finditer(r"(?m)^Date: [^|]* \|\| User: (\d+) \|\| Instance: (.*)$", DATA):
    users.append(int(m[1]))
    texts.append(m[2])
print("planned:", len(texts), "questions of", len(set(users)), "users: every one must be read")
"""


def _oolong_cells(votes, _gold):
    mapped = (
        _asking(tuple(banks.QUESTIONS), votes)
        + """
from collections import Counter
totals = Counter(dict.fromkeys(KINDS, 0))
totals.update(k for k in label_all(texts) if k)
print("mapped:", dict(totals), "of", len(texts))
"""
    )
    return [_EXPLORE, _INSTANCES, mapped, "\nSUBMIT(counts=dict(totals))\n"]


def _pairs_cells(votes, _gold):
    mapped = (
        _asking(tuple(banks.QUESTIONS), votes)
        + """
from collections import Counter
from itertools import combinations
lead = Counter()
for user, kind in zip(users, label_all(texts)):
    lead[user] += (kind == "numeric") - (kind == "location")
fit = sorted(u for u, n in lead.items() if n > 0)
print("mapped:", dict(lead))
"""
    )
    return [_EXPLORE, _INSTANCES, mapped, '\nSUBMIT(pairs=[f"{a}-{b}" for a, b in combinations(fit, 2)])\n']


def _always(text: str) -> Callable[[dict[str, Any]], str]:
    return lambda _gold: text


_CLASSES = ", ".join(banks.QUESTIONS)
_THEMES = ", ".join([*banks.REVIEWS][2:])

TASKS = {
    task.name: task
    for task in (
        Task(
            name="logs",
            variable="logs",
            outputs="error_patterns: list[str], timeline: str, root_cause: str",
            graded=("error_patterns", "timeline", "root_cause"),
            query=_always(
                "Lines whose time stamp is impossible do not count. Give the five most frequent ERROR messages (every number "
                "written as #), each as `COUNT x MESSAGE`, most frequent first, then by name; as timeline the hours with "
                "errors, one a line, as `2026-03-01T07 COUNT`; as root cause the text of the one NOTICE change that brought "
                "about the errors which began after it, without `ops: `."
            ),
            cells=_logs_cells,
        ),
        Task(
            name="reviews",
            variable="reviews",
            outputs="summary, top_complaints: list[str], sentiment_breakdown: str",
            graded=("top_complaints", "sentiment_breakdown"),
            query=_always(
                "Summarize the themes in a sentence. Each complaint is about one of: "
                + _THEMES
                + "; give the top 5 as "
                "`COUNT x THEME`. Give the sentiments as `positive N, neutral N, negative N`."
            ),
            cells=_reviews_cells,
        ),
        Task(
            name="sales",
            variable="sales",
            outputs="totals: dict[str, float]",
            graded=("totals",),
            query=_always("What was sold for (quantity times unit price) in each quarter? Keys like 2025-Q1."),
            cells=_sales_cells,
        ),
        Task(
            name="orders",
            variable="orders",
            outputs="refunds: dict[str, int], customers: int",
            graded=("refunds", "customers"),
            query=_always(
                "How many cents of returned lines are there by country, and how many customers returned any?"
            ),
            cells=_orders_cells,
        ),
        Task(
            name="chat",
            variable="sessions",
            outputs="resolved: dict[str, int], left_open: dict[str, int]",
            graded=("resolved", "left_open"),
            query=_always(
                "Count for each support person the sessions that were resolved and those left open, by what the customer's "
                "last message says."
            ),
            cells=_chat_cells,
        ),
        *(
            Task(
                name=name,
                variable="document",
                outputs="hooks: dict[str, str]",
                graded=("hooks",),
                query=lambda gold: f"On which hook does the spare key of {', '.join(sorted(gold['hooks']))} hang?",
                cells=_needle_cells,
            )
            for name in ("needle", "needles")
        ),
        Task(
            name="oolong",
            variable="questions",
            outputs="counts: dict[str, int]",
            graded=("counts",),
            query=_always(f"Each instance is a question of one class: {_CLASSES}. How many are there of each?"),
            cells=_oolong_cells,
        ),
        Task(
            name="pairs",
            variable="questions",
            outputs="pairs: list[str]",
            graded=("pairs",),
            query=_always(
                f"Each instance is a question of one class: {_CLASSES}. List all pairs of users, as `LOW-HIGH`, in order, in "
                "which both ask more numeric than location questions."
            ),
            cells=_pairs_cells,
        ),
    )
}
