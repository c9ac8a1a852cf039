"""The model of all peers: a loopback server in a process of its own, which says its port and then answers by script.

The name of the model in a request is the script, with the milliseconds of each reply behind a dot: `never.50` (what follows
another dot tells callers apart). Drafts are numbered by item (`[item 7]` stands in every prompt). Of the drafts that fail the second is the best, so that who keeps the
last one, or none, is seen. Each peer gets the reply in the
form that its prompt asks for. `GET /counts` tells the calls and tokens of each script, whoever asked.
"""

import json
import re
import sys
import threading
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from redraft.testing import FaultServer, Reply
from redraft.testing.words import prompt_words

PASSING = "One is here. Two is here. Three is here."
FORMLESS = "Well, who knows"
BUSY = Reply.busy(milliseconds=20)
BROKEN = Reply.error(500, "the server has an error")
MUCH = 300.0
"""Seconds: longer than anybody waits."""

SCRIPTS = {
    "never": lambda _: None,
    "first": lambda _: PASSING,
    "second": lambda nth: PASSING if nth == 2 else None,
    "busy_once": lambda nth: BUSY if nth == 1 else PASSING,
    "busy_always": lambda _: BUSY,
    "error_once": lambda nth: BROKEN if nth == 1 else PASSING,
    "error_later": lambda nth: None if nth == 1 else BROKEN,
    "refused_later": lambda nth: None if nth == 1 else Reply.error(400, "refused"),
    "cut_once": lambda nth: "cut" if nth == 1 else PASSING,
    "cut_later": lambda nth: None if nth == 1 else "cut",
    "slow_later": lambda nth: None if nth == 1 else "slow",
    "formless_once": lambda nth: "formless" if nth == 1 else PASSING,
    "formless_always": lambda _: "formless",
    "empty_once": lambda nth: "empty" if nth == 1 else PASSING,
}
"""The reply to the nth draft of an item; None: one that fails."""


def sentences(text):
    """How many, as every peer's check counts them."""
    return len(re.findall(r"[.!?](?:\s|$)", text or ""))


def usual(nth):
    return f"Draft {nth} is here." + (" It has two." if nth == 2 else "")


class Model:
    def __init__(self):
        self.drafts, self.lock = Counter(), threading.Lock()
        self.counts = defaultdict(Counter)

    def reply(self, asked):
        name, delay, *_ = [*asked["model"].split("."), "0"]
        prompt = "\n".join(str(message.get("content")) for message in asked["messages"])
        count = self.counts[asked["model"]]
        count["calls"] += 1
        if aside := advice(prompt, asked["messages"]):
            return self.counted(count, asked, [aside], float(delay) / 1000)
        item = re.search(r"\[item (\w+)\]", prompt)
        said = []
        for _ in range(asked.get("n") or 1):
            key = (asked["model"], item[1] if item else "")
            self.drafts[key] += 1
            told = SCRIPTS[name](self.drafts[key])
            if isinstance(told, Reply):
                return told
            said.append(usual(self.drafts[key]) if told is None else told)
        texts = [form(text, prompt, asked) for text in said if text not in ("cut", "slow", "formless", "empty")]
        texts += [FORMLESS if text == "formless" else "" for text in said if text in ("formless", "empty")]
        more = {"cut": 1} if "cut" in said else {"delay": MUCH} if "slow" in said else {}
        return self.counted(count, asked, texts or [PASSING], more.pop("delay", float(delay) / 1000), **more)

    def counted(self, count, asked, texts, delay, **more):
        """A whole reply with its own usage, and each choice another text."""
        given, wrote = prompt_words(asked["messages"]), sum(len(text.split()) for text in texts)
        if not more and delay < MUCH:
            count["prompt_tokens"] += given
            count["completion_tokens"] += wrote
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "logprobs": None}
            for i, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": given, "completion_tokens": wrote, "total_tokens": given + wrote}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": asked["model"]}
        return Reply(body={**whole, "choices": choices, "usage": usage}, delay=delay, **more)

    def beside(self, target, _):
        return (
            Reply(body={name: dict(count) for name, count in self.counts.items()}) if target == "GET /counts" else None
        )


def advice(prompt, messages):
    """What is said where no draft is asked for: a hint for the next one (dspy, redraft), or a grade (optillm)."""
    if "Rate the above response" in prompt:
        return str(score_10(messages[-2]["content"]))
    if "OfferFeedback" in prompt or "[[ ## advice ## ]]" in prompt:
        return '[[ ## discussion ## ]]\nToo short.\n\n[[ ## advice ## ]]\n{"self": "Write three."}\n\n[[ ## completed ## ]]'
    if "Say in one or two sentences what the next attempt" in prompt:
        return "Write three sentences."
    return ""


def score_10(text):
    return max(0, 10 - 3 * abs(sentences(text) - 3))


def form(text, prompt, asked):
    """As this prompt's library reads replies."""
    if asked.get("response_format", {}).get("type", "text") != "text":
        return json.dumps({"answer": text})
    return f"[[ ## answer ## ]]\n{text}\n\n[[ ## completed ## ]]" if "[[ ## answer ## ]]" in prompt else text


def main():
    model = Model()
    with FaultServer(model.reply, beside=model.beside) as server:
        server.requests = server.headers = Forgetful()
        print(server.base_url, flush=True)
        sys.stdin.read()  # until whoever started it has ended


class Forgetful(list):
    def append(self, _):
        """Requests are counted, not kept."""


if __name__ == "__main__":
    main()
