"""A model that knows the answers: root and sub-model of an RLM, and the model of a direct call, with faults on order.

As root it writes the task's cells in turn, goes on from what the last observation shows, and writes a cell that failed
once again. As sub-model it labels, judges and reads exactly, but for a seeded share of wrong labels, replies out of form
and empty replies. Asked directly, it answers as well as can be from what fits its window. A token is four characters,
whatever asks; so its counts compare, and are no model's.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import banks
import tasks
from tasks import Task

FENCES = {"redraft": "python", "dspy": "python", "rlms": "repl"}
_SUBMIT_RLMS = """
import json
def SUBMIT(**fields):
    answer["content"] = json.dumps(fields)
    answer["ready"] = True
"""
_MARKS = ("explored:", "planned:", "mapped:", "judged:")
_LABELS = re.compile(re.escape(tasks.LABEL).replace(r"\{labels\}", "(.*?)"))
_HOOK = re.compile(re.escape(tasks.HOOK).replace(r"\{name\}", r"(\w+)"))


def tokens(text: str) -> int:
    return -(-len(text) // 4)


@dataclass
class Noise:
    """Shares of what goes wrong, 0 to 1: a label, a whole reply's form, a whole reply."""

    label: float = 0.0
    malformed: float = 0.0
    empty: float = 0.0


@dataclass
class Ledger:
    """What was asked, by role."""

    calls: Counter = field(default_factory=Counter)
    read: Counter = field(default_factory=Counter)
    written: Counter = field(default_factory=Counter)
    longest: Counter = field(default_factory=Counter)
    """The longest prompt's tokens."""
    again: Counter = field(default_factory=Counter)
    """Prompts that had been asked before, word for word."""
    _seen: set[str] = field(default_factory=set, repr=False)

    def add(self, role: str, prompt: str, read: int, written: int) -> None:
        name = hashlib.sha256(f"{role}:{prompt}".encode()).hexdigest()
        self.again[role] += name in self._seen
        self._seen.add(name)
        self.calls[role] += 1
        self.read[role] += read
        self.written[role] += written
        self.longest[role] = max(self.longest[role], read)


class Oracle:
    """Answers `(role, messages)` for one task on one file; `gold` gives it the names that the query speaks of."""

    def __init__(
        self,
        task: Task,
        gold: Mapping[str, Any],
        *,
        noise: Noise | None = None,
        seed: int = 0,
        votes: int = 1,
        system="redraft",
    ) -> None:
        self.task, self.noise, self.seed, self.system = task, noise or Noise(), seed, system
        self.cells = task.cells(votes, dict(gold))
        self.ledger = Ledger()
        self.window = 128_000
        """Tokens; what a direct call sends beyond it is not read."""
        self.careless = 0
        """How many submissions leave their first list empty."""
        self._lock = threading.Lock()

    def reply(self, role: str, messages: Iterable[Mapping[str, Any]]) -> str:
        """`role` is root, sub or direct."""
        texts = [as_text(message["content"]) for message in messages]
        said = {"root": self._root, "sub": lambda t: self.sub(t[-1]), "direct": self._direct}[role](texts)
        with self._lock:
            self.ledger.add(role, "\n".join(texts), sum(tokens(t) + 4 for t in texts), tokens(said))
        return said

    def _root(self, texts: list[str]) -> str:
        done = sum(1 for cell in self.cells if (mark := _mark(cell)) and any(_shown(mark, t) for t in texts[1:]))
        cell = self.cells[min(done, len(self.cells) - 1)]
        if self.careless and "SUBMIT(" in cell:
            self.careless -= 1
            cell = re.sub(r"=\[.*?\](?=,)", "=[]", cell, count=1)
        return self.phrase(
            ("Look first.", "Plan.", "Go over all of it.", "Judge, then submit.", "Submit.")[min(done, 4)], cell
        )

    def phrase(self, reasoning: str, cell: str) -> str:
        """The cell as the system wants code written."""
        variable = "context" if self.system == "rlms" else self.task.variable
        code = re.sub(r"\bDATA\b", variable, cell).strip()
        if self.system == "rlms" and "SUBMIT(" in code:
            code = _SUBMIT_RLMS.strip() + "\n" + code
        fenced = f"```{FENCES[self.system]}\n{code}\n```"
        if self.system == "dspy":
            return f"[[ ## reasoning ## ]]\n{reasoning}\n\n[[ ## code ## ]]\n{fenced}\n\n[[ ## completed ## ]]"
        return f"{reasoning}\n\n{fenced}"

    def sub(self, prompt: str) -> str:
        """The sub-model's reply. The same prompt gets the same one."""
        luck = random.Random(hashlib.sha256(f"{self.seed}:{prompt}".encode()).digest())
        if luck.random() < self.noise.empty:
            return ""
        if luck.random() < self.noise.malformed:
            return "Of course! I have read all of it, and the labels are mostly as one would expect."
        if match := _LABELS.search(prompt):
            return self._labels(match[1].split(", "), prompt[match.end() :], luck)
        if match := _HOOK.search(prompt):
            return _hook(match[1], prompt)
        if tasks.CAUSE in prompt:
            return self._cause(prompt, luck)
        return "I do not know."

    def _labels(self, kinds: list[str], rest: str, luck: random.Random) -> str:
        out = []
        for number, text in re.findall(r"(?m)^(\d+)\. (.*)$", rest):
            kind = banks.label(text) or kinds[-1]
            if luck.random() < self.noise.label:
                kind = luck.choice([k for k in kinds if k != kind])
            out.append(f"{number}: {kind}")
        return "\n".join(out)

    def _cause(self, prompt: str, luck: random.Random) -> str:
        changes = re.findall(r"(?m)^(\d+)\. \S+ (.*)$", prompt)
        errors = {banks.stem(text) for text in re.findall(r"(?m)^- \S+ (.*)$", prompt)}
        effects = dict(banks.CAUSES)
        right = [n for n, text in changes if effects.get(banks.stem(text)) in errors]
        wrong = [n for n, _ in changes if n not in right]
        chosen = wrong if wrong and luck.random() < self.noise.label else right
        return chosen[0] if chosen else "none"

    def _direct(self, texts: list[str]) -> str:
        """The policy's own cells, run on what fits: a reader that is exact in what it sees, to whom labels come with noise."""
        seen = "\n".join(texts)[: self.window * 4]
        begin = seen.find(START)
        held = seen[begin + len(START) :] if begin >= 0 else seen
        held = held.partition(END)[0]
        said: dict[str, Any] = {}
        world = {
            "DATA": held,
            "llm_query_batched": lambda ps: [self.sub(p) for p in ps],
            "SUBMIT": lambda **kw: said.update(kw),
        }
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(ValueError, KeyError, IndexError):
            for cell in self.cells:
                exec(cell, world)
        return json.dumps(said)


START, END = "<data>\n", "</data>"
"""Around the data in a direct call's prompt."""


def direct_prompt(task: Task, query: str, data: str) -> str:
    fields = task.outputs
    return f"{START}{data}{END}\n\n{query}\n\nAnswer with one JSON object that holds: {fields}."


def _hook(name: str, prompt: str) -> str:
    match = re.search(re.escape(banks.NEEDLE).replace("@", name).replace(r"\#", r"(\d+)"), prompt)
    return match[1] if match else "none"


def _mark(cell: str) -> str | None:
    return next((mark for mark in _MARKS if f'print("{mark}"' in cell), None)


def _shown(mark: str, text: str) -> bool:
    """The mark as a printed line, not as the code that prints it."""
    return re.search(rf"(?m)^\W*(?:Output: ?)?{mark}", text) is not None


def as_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
