"""Shadow mode: clients get the plain answer at once, and a report says what refining would have changed."""

import time

import pytest
from serve_house import BAD, GOOD, THREE, serving

from redraft.testing import FaultServer, Reply

pytestmark = pytest.mark.serve


def settled(served, refined):
    """The report once so many answers were refined aside."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        report = served.get("/redraft/shadow").json()
        if report["refined"] + report["failed"] + report["out_of_budget"] >= refined and not report["under_way"]:
            return report
        time.sleep(0.02)
    raise AssertionError(report)


def test_the_plain_answer_comes_and_the_report_says_what_would_have_changed():
    def script(asked):
        return GOOD if "Requirements" in str(asked["messages"]) else BAD

    shadow = {"preset": "three", "share": 1.0}
    with FaultServer(script) as up, serving(up, {"three": THREE}, shadow=shadow) as served:
        plain = served.chat("test")
        streamed = served.chat("test", stream=True)
        report = settled(served, 2)
    assert plain.json()["choices"][0]["message"]["content"] == BAD
    assert "x-redraft-run-id" not in plain.headers
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert (report["seen"], report["refined"], report["changed"]) == (2, 2, 2)
    assert report["changed_by"] == {"sentences": 2}
    assert report["mean_score_gain"] > 0
    assert report["cost"]["calls"] == 2  # the plain answer is the first draft: only what comes after it is bought
    assert up.calls == 4


def test_a_share_is_a_share_and_a_good_answer_stays():
    shadow = {"preset": "three", "share": 0.25}
    with FaultServer(lambda _: GOOD) as up, serving(up, {"three": THREE}, shadow=shadow) as served:
        for _ in range(8):
            served.chat("test")
        report = settled(served, 2)
    assert (report["seen"], report["refined"], report["kept"], report["changed_share"]) == (8, 2, 2, 0.0)
    assert up.calls == 8


def test_its_budget_ends_it():
    shadow = {"preset": "three", "share": 1.0, "limits": {"calls": 2}, "parallel": 1}
    with FaultServer(lambda _: BAD) as up, serving(up, {"three": THREE}, shadow=shadow) as served:
        served.chat("test")
        settled(served, 1)
        served.chat("test")
        report = settled(served, 2)
    assert report["out_of_budget"] == 1
    assert report["cost"]["calls"] == 2
    assert up.calls == 4


def test_what_fails_aside_hurts_nobody():
    replies = iter([Reply(text=BAD)])
    shadow = {"preset": "three", "share": 1.0}

    def script(_):
        return next(replies, Reply.error(400, "no"))

    with FaultServer(script) as up, serving(up, {"three": THREE}, shadow=shadow) as served:
        assert served.chat("test").status_code == 200
        report = settled(served, 1)
    assert report["changed"] == 0


def test_without_a_shadow_there_is_no_report():
    with FaultServer() as up, serving(up) as served:
        assert served.get("/redraft/shadow").status_code == 404
