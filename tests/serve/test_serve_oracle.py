"""The usage oracle: an upstream that counts every token it writes and reads agrees with what clients and metrics are told,
for every strategy, with failures, retries and cancellations.
"""

import json
import threading

import pytest
from serve_house import ASKED, BAD, GOOD, THREE, serving
from test_serve_golden import left_at_once

from redraft.testing import FaultServer, Reply
from redraft.testing.words import prompt_words

pytestmark = pytest.mark.serve

ISSUES = {"issues": [{"problem": "dull", "suggestion": "", "aspect": "", "severity": "major", "location": ""}]}
REVISE = json.dumps({**ISSUES, "keep": [], "verdict": "revise"})
STRATEGIES = {
    "predict": {"strategy": "predict"},
    "refine": THREE,
    "best": {**THREE, "strategy": "best-of-n", "attempts": 4},
    "self": {"strategy": "self-refine", "rounds": 2},
    "checked": {"strategy": "self-refine", "rounds": 2, "checks": ["sentences:3"], "critic": "strict"},
    "reflect": {"strategy": "reflect", "rounds": 2, "criteria": ["colour"]},
    "judged": {**THREE, "judge": "a kind judge"},
    "limited": {"strategy": "reflect", "rounds": 3, "limits": {"calls": 3}},
}


class Oracle:
    """Answers anything, and counts words: prompts in, replies out."""

    def __init__(self, faults=()):
        self.calls = self.given = self.written = 0
        self._faults = list(faults)
        self._lock = threading.Lock()

    def __call__(self, asked):
        with self._lock:
            fault = self._faults.pop(0) if self._faults else None
            if fault is not None:
                self.calls += 1
                return fault
            self.calls += 1
            text = REVISE if "response_format" in asked else f"Draft number {self.calls}. And more."
            self.given += prompt_words(asked["messages"])
            self.written += len(text.split()) * (asked.get("n") or 1)
            return text


def agrees(oracle, reply):
    usage = reply.json()["usage"]
    assert usage["prompt_tokens"] == oracle.given
    assert usage["completion_tokens"] == oracle.written
    assert usage["total_tokens"] == oracle.given + oracle.written
    assert int(reply.headers["x-redraft-calls"]) == oracle.calls
    assert reply.headers["x-redraft-usage"] == "exact"


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("n", [1, 2])
def test_every_strategy(name, n):
    oracle = Oracle()
    with FaultServer(oracle) as up, serving(up, {name: STRATEGIES[name]}) as served:
        agrees(oracle, served.chat(f"refine/{name}", n=n))


@pytest.mark.parametrize("name", STRATEGIES)
def test_calls_that_were_refused_count_as_calls_without_tokens(name):
    oracle = Oracle([Reply.busy("0"), Reply.error(400, "no", param="seed", code="unsupported_parameter")])
    with FaultServer(oracle) as up, serving(up, {name: STRATEGIES[name]}) as served:
        reply = served.chat(f"refine/{name}")
    if reply.status_code == 200:
        agrees(oracle, reply)
    else:
        assert oracle.calls <= 3


def test_streams_and_metrics_tell_the_same():
    oracle = Oracle()
    with FaultServer(oracle) as up, serving(up, {"self": STRATEGIES["self"]}) as served:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(served.openai().chat.completions.create(model="refine/self", messages=ASKED, **options))
        text = served.get("/metrics").text
    assert chunks[-1].usage.total_tokens == oracle.given + oracle.written
    told = [line for line in text.splitlines() if line.startswith("redraft_tokens_total")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in told) == oracle.given + oracle.written
    calls = [line for line in text.splitlines() if line.startswith("redraft_upstream_calls_total")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in calls) == oracle.calls


def test_a_call_that_broke_off_is_a_range_around_the_truth():
    replies = iter([Reply(text=GOOD, cut=1), BAD, GOOD])
    with FaultServer(lambda _: next(replies)) as up, serving(up, {"three": THREE}) as served:
        reply = served.chat("refine/three", max_tokens=20, redraft={"include": ["scores"]})
    told = reply.json()["redraft"]["usage"]
    truth = sum(prompt_words(r["messages"]) for r in up.requests) + len((GOOD + " " + BAD + " " + GOOD).split())
    assert told["calls"] == up.calls == 3
    assert told["exact"] is False
    assert reply.headers["x-redraft-usage"] == "estimated"
    assert told["tokens"] <= truth <= told["tokens"] + told["uncertain_tokens"]


async def test_a_request_that_was_left_is_charged_to_its_key(tmp_path, monkeypatch):
    path = tmp_path / "keys.toml"
    path.write_text('[ann]\nkey = "a"\ncalls = 100\n', encoding="utf-8")
    slow = Reply(text=GOOD, delay=20)
    with FaultServer(lambda _: slow) as up, serving(up, {"three": THREE}, server={"keys_file": str(path)}) as served:
        await left_at_once(served, up, {"model": "refine/three", "messages": ASKED}, key="a")
        key = served.house.keys.whose({"x-api-key": "a"})
        while key.active:
            import asyncio

            await asyncio.sleep(0.01)
        assert key.meter.usage.calls == 1
        assert key.meter.usage.exact is False
