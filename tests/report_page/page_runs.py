"""What the runs that the page is tested on are made of."""

import json
from html.parser import HTMLParser

from redraft import checks
from redraft.types import Event

BRIEF, LONGER, FULL = (
    "Good food.",
    "La Maison has good food.",
    "La Maison has good food. Its soup is warm. Go there soon.",
)
CHECKS = [checks.contains("La Maison"), checks.words(8, 20)]


def issue(problem, suggestion="", location="", aspect="style", severity="major"):
    return {
        "problem": problem,
        "suggestion": suggestion,
        "location": location,
        "aspect": aspect,
        "severity": severity,
    }


def revise(*issues):
    return json.dumps({"verdict": "revise", "issues": issues})


FINE = json.dumps({"verdict": "ok", "issues": []})
WINS = [json.dumps({"better": "A"}), json.dumps({"better": "B"})]
LOSES = [json.dumps({"better": "B"}), json.dumps({"better": "A"})]


class Journal:
    """Events one after another, a second apart."""

    def __init__(self):
        self.events = []

    def __call__(self, kind, scope="", key="", at=None, **data):
        seq = len(self.events)
        self.events.append(
            Event(seq=seq, kind=kind, time=1000.0 + (seq if at is None else at), scope=scope, key=key, data=data)
        )
        return seq

    def asked(self, content="Say it", scope="", key="k", role="author", **more):
        """An intent, and its seq."""
        body = json.dumps({"messages": [{"content": content, "role": "user"}], "model": "m", **more})
        reserved = {"calls": 1, "uncertain_tokens": 90}
        return self("intent", scope, key, content=body, role=role, cap=None, reserved=reserved)

    def answered(self, intent, text="Here it is", scope="", key="k", role="author", **usage):
        completion = {"model": "m", "usage": None, "choices": [{"text": text, "finish_reason": "stop"}]}
        return self(
            "call",
            scope,
            key,
            intent=intent,
            role=role,
            model="m",
            usage={"calls": 1, "input_tokens": 10, "output_tokens": 5, **usage},
            completion=completion,
            seconds=0.5,
        )


class Read(HTMLParser):
    """What a browser would make of a page, as far as it matters here."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)
