"""A run told for people: what the page knows of it, without the page."""

import json

import pytest
from page_runs import BRIEF, CHECKS, FINE, FULL, LONGER, LOSES, WINS, issue, revise

from redraft import BestOfN, Budget, Module, Predict, Refine, Run, SelfRefine, context
from redraft.errors import StoreError, TransientLMError
from redraft.journal import MemoryStore
from redraft.report.page.render import run_page
from redraft.report.page.story import story
from redraft.testing import FaultyLM, ScriptedLM
from redraft.types import Event


def outcomes(told):
    return [
        (r.number, raised.issue.problem, raised.outcome, raised.tone)
        for r in told.main.rounds
        for review in r.reviews
        for raised in review.issues
    ]


def test_the_verdict_says_from_where_to_where_and_which_draft_was_kept(refined):
    told = story("r", refined)
    assert told.verdict.startswith("draft 1: 0.")
    assert told.verdict.endswith("\u2192 draft 3: 1.00 (kept draft 3 of 3)")
    assert (told.stop, told.why) == ("passed", "every check passed")
    assert told.task == "Review La Maison"
    assert told.ended is not None


def test_each_draft_has_its_changes_its_gain_and_its_decision(refined):
    first, second, third = story("r", refined).main.rounds
    assert [r.decision for r in (first, second, third)] == ["accepted"] * 3
    assert first.changes == ()
    assert [c.what for c in second.changes] == ["last accepted and the original"]
    assert [(c.number, c.what) for c in third.changes] == [(2, "last accepted"), (1, "the original")]
    assert "".join(p.text for p in third.changes[0].pieces if p.op != "-") == FULL
    assert third.best
    assert third.gain == pytest.approx(third.attempt.score.value - second.attempt.score.value)
    assert third.attempt.reason
    assert (first.anchor, third.anchor) == ("r1", "r3")


def test_a_draft_that_was_cut_off_has_not_lost(ran):
    dull = revise(issue("the end is dull"))
    lm = ScriptedLM([BRIEF, dull])
    strategy = SelfRefine(Predict("task -> poem"), rounds=2, revise="edit", budget=Budget(calls=2))
    store = MemoryStore()
    with context(model=lm, store=store), Run(run_id="r"):
        strategy(task="Sing")
    told = story("r", store.read("r"))
    second = told.main.rounds[1]
    assert (second.decision, second.attempt.accepted) == ("cut off", False)
    assert told.verdict == "kept draft 1 of 1, 1 cut off"
    assert (told.stats.rejected, told.stats.cut_off) == (0, 1)
    assert outcomes(told) == [(1, "the end is dull", "not taken up", "open")]
    page = run_page(told)
    assert '<span class="chip cut-off">cut off</span>' in page
    assert "Cut off: the limit of 2 calls is reached" in page


def test_a_draft_at_work_is_neither_accepted_nor_failed(refined):
    third = next(n for n, e in enumerate(refined) if e.kind == "propose" and e.data["index"] == 2)
    told = story("r", refined[: third + 1])
    assert [r.decision for r in told.main.rounds] == ["accepted", "accepted", "not ended"]
    assert told.verdict.endswith("(kept draft 2 of 2, 1 not ended)")
    assert (told.stats.rejected, told.stats.undecided, told.stats.wasted.tokens) == (0, 1, 0)
    assert "0 drafts, 1 not decided" in run_page(told)


def test_what_a_draft_at_work_was_asked_to_change_is_open(self_refined):
    events = self_refined("It keeps on.", revise(issue("the end is dull")), "It stays.", *WINS, FINE)
    at = {e.kind: n for n, e in enumerate(events) if e.data.get("index") == 1}
    told = story("r", events[: at["propose"] + 1])
    (raised,) = told.main.rounds[0].reviews[0].issues
    assert (raised.outcome, raised.tone, raised.why) == ("not taken up", "open", "draft 2 has not ended")
    told = story("r", events[: at["attempt"] + 1])
    assert told.main.rounds[1].decision == "not decided"
    assert (told.verdict, told.stats.rejected, told.stats.undecided) == ("kept draft 1 of 2", 0, 1)
    (raised,) = told.main.rounds[0].reviews[0].issues
    assert raised.why == "nobody has looked at it again in draft 2, on which nobody has decided"


def test_drafts_that_repeat_themselves_without_end_are_not_compared(ran):
    drafts = ["very " * 4000 + "good.", "very " * 4000 + "bad."]
    second = story("r", ran(Refine(Predict("task -> review"), N=2, checks=CHECKS), ScriptedLM(drafts))).main.rounds[1]
    assert second.changes[0].pieces == ()


def test_space_before_what_was_put_in_is_no_change(refined):
    pieces = story("r", refined).main.rounds[2].changes[0].pieces
    assert all(p.text == p.text.lstrip() for p in pieces if p.op == "+")


def test_issues_of_a_critic_that_was_asked_again_are_addressed_or_raised_again(self_refined):
    dull, worn = issue("the end is dull"), issue("the verb is worn", location="keeps", aspect="diction")
    told = story(
        "r",
        self_refined(
            "It keeps on. End.",
            revise(dull, worn),
            "It keeps on. Dawn.",
            *WINS,
            revise(worn),
            "It stays. Dawn.",
            *WINS,
            FINE,
        ),
    )
    assert outcomes(told) == [
        (1, "the end is dull", "addressed", "good"),
        (1, "the verb is worn", "raised again", "bad"),
        (2, "the verb is worn", "addressed", "good"),
    ]
    assert told.main.rounds[2].reviews[0].verdict == "ok"
    assert told.verdict == "kept draft 3 of 3"


def test_where_nobody_looked_again_the_words_are_all_that_is_known(self_refined):
    raised = [issue("gone", location="on"), issue("there", location="It keeps"), issue("nowhere", location="")]
    told = story("r", self_refined("It keeps on. End.", revise(*raised), "It keeps going.", *LOSES, rounds=1))
    assert [(o, t) for _, _, o, t in outcomes(told)] == [
        ("not known", "open"),  # "on" is too short to be told from other words
        ("not addressed", "bad"),
        ("not known", "open"),
    ]
    assert told.main.rounds[1].decision == "rejected"
    assert "which was not accepted" in told.main.rounds[0].reviews[0].issues[1].why


def test_an_issue_of_a_check_is_addressed_when_that_check_passes(self_refined):
    told = story("r", self_refined(BRIEF, LONGER, FULL, checks=CHECKS))
    assert outcomes(told)[0][2:] == ("addressed", "good")
    assert outcomes(told)[1][2:] == ("not addressed", "bad")


def test_an_issue_that_no_draft_followed_was_not_taken_up(journal):
    journal("propose", "/attempt[0]", "/attempt[0]", index=0, rung="tell", why="", parent=None)
    attempt = {"index": 0, "parent": None, "rung": "tell", "text": "x", "score": None, "error": None, "usage": {}}
    journal("attempt", "/attempt[0]", "/attempt[0]", **attempt)
    journal(
        "critique", "/attempt[0]", "/attempt[0]", index=0, verdict="revise", issues=[issue("dull")], keep=[], by="me"
    )
    told = story("r", journal.events)
    assert outcomes(told) == [(1, "dull", "not taken up", "open")]
    assert told.why.startswith("it has not ended")
    assert told.main.rounds[0].decision == "not decided"


def test_a_failed_draft_says_why(ran):
    def broken(task):
        raise ValueError("cannot do it")

    told = story("r", ran(Refine(broken, N=1, reward_fn=lambda *_: 1.0), ScriptedLM([])))
    assert told.main.rounds[0].decision == "failed"
    assert str(told.main.rounds[0].attempt.error) == "cannot do it"
    assert told.stop == "error"
    assert "cannot do it" in told.error


def test_every_try_of_a_call_is_a_call(ran):
    events = ran(
        BestOfN(Predict("task -> answer"), N=1, reward_fn=lambda *_: 1.0),
        FaultyLM(ScriptedLM(["yes"]), [TransientLMError("429: too many", status=429, sent=True, retry_after=0.001)]),
    )
    calls = story("r", events).calls
    assert [(c.status, c.nth) for c in calls] == [("failed", 1), ("ok", 2)]
    assert calls[0].error
    assert calls[1].begun >= calls[0].ended


def test_what_came_of_calls(journal):
    journal.answered(journal.asked())
    journal(
        "call_failed", key="k2", intent=journal.asked(key="k2"), usage={"calls": 1}, error="cancelled after sending"
    )
    journal(
        "call_error",
        key="k3",
        intent=journal.asked(key="k3"),
        usage={"calls": 1},
        error="400: no",
        **{"class": "BadRequestError"},
    )
    journal(
        "call",
        key="k5",
        intent=None,
        role="author",
        model="m",
        usage={},
        completion={"model": "m", "usage": None, "choices": [{"text": "c"}]},
        seconds=0.0,
        cached=True,
    )
    journal("soft", by="crew", usage={"calls": 3, "soft": 3})
    journal.asked(key="k4")
    told = story("r", journal.events)
    assert [c.status for c in told.calls] == ["ok", "cut off", "refused", "cached", "metered", "unfinished"]
    assert told.calls[-1].usage.uncertain_tokens == 90
    assert (told.stats.failed, told.stats.cached) == (2, 1)
    assert told.stats.usage.calls == 1 + 1 + 1 + 3 + 1


def test_the_time_between_processes_does_not_count(journal):
    journal("note", at=10)
    journal("resumed", at=5000)
    journal("stop", at=5004, key="|stop", reason="passed", error=None)
    assert story("r", journal.events).seconds == 14


def test_a_long_message_is_shown_once(journal):
    long = "Be brief. " * 40
    journal.answered(journal.asked(long))
    journal.answered(journal.asked(long, key="k2", grammar="g" * 300), key="k2")
    journal.answered(journal.asked("short", key="k3", grammar="g" * 300), key="k3")
    first, second, third = story("r", journal.events).calls
    assert first.messages[0].text == long
    assert (second.messages[0].text, second.messages[0].same_as) == ("", first.messages[0].anchor)
    assert dict(second.settings)["grammar"] == "g" * 300
    assert dict(third.settings)["grammar"] == "the same as in call 2"


def test_images_are_said_not_shown(journal):
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}},
    ]
    journal.answered(journal.asked(parts))
    text = story("r", journal.events).calls[0].messages[0].text
    assert text.startswith("look\n\n[image_url, 5,0")
    assert "AAAA" not in text


def test_a_nested_refinement_is_told_with_where_it_is(ran):
    class Outer(Module):
        def __init__(self):
            super().__init__()
            self.inner = Refine(Predict("task -> review"), N=2, checks=CHECKS)

        async def aforward(self, task):
            return await self.inner.acall(task=task)

    told = story("r", ran(Refine(Outer(), N=1, reward_fn=lambda *_: 1.0), ScriptedLM([BRIEF, FULL])))
    outer, inner = told.refinements
    assert inner.inside == "r1"
    assert [r.anchor for r in inner.rounds] == ["s2-r1", "s2-r2"]
    assert outer.rounds[0].nested == (inner.anchor,)
    assert told.main is outer


def test_cells_of_an_rlm_have_code_output_and_what_they_asked(journal):
    scope, inside = "/attempt[0]/module:1#1", "/attempt[0]/module:1#1/step:cell[0]|1"
    journal("propose", "/attempt[0]", "/attempt[0]", index=0, rung="tell", why="", parent=None)
    journal.answered(journal.asked(scope=scope), scope=scope)
    journal.answered(
        journal.asked(scope=f"{inside}/llm_query:1#1", key="s", role="sub"),
        scope=f"{inside}/llm_query:1#1",
        key="s",
        role="sub",
    )
    journal(
        "step", f"{inside}/llm_query:1#1", f"{inside}/llm_query:1#1|step:answer|1", name="answer", value={"value": "y"}
    )
    value = {"reasoning": "look", "code": "print(1)", "output": "1\n", "error": "", "seconds": 0.1}
    value["calls"] = [{"function": "llm_query", "prompt": "what?", "reply": "that", "error": ""}]
    journal("step", scope, f"{scope}|step:cell[0]|1", name="cell[0]", value=value)
    journal("step", scope, f"{scope}|step:search:abc|1", name="search:abc", value="found")
    cell, tool = story("r", journal.events).main.rounds[0].cells
    assert (cell.name, cell.thought, cell.code, cell.output) == ("cell[0]", "look", "print(1)", "1\n")
    assert [(a.function, a.prompt, a.reply) for a in cell.asked] == [("llm_query", "what?", "that")]
    assert [c.role for c in cell.calls] == ["sub"]
    assert (tool.name, tool.code, tool.output) == ("search", "", "found")


def test_what_it_was_asked_is_the_question_not_the_material(journal):
    journal("run", key="run", seed=1, spec={"inputs": {"logs": "x" * 5000, "question": "How many?"}})
    assert story("r", journal.events).task == "How many?"


def test_what_improving_cost(refined):
    stats = story("r", refined).stats
    assert stats.gain == pytest.approx(1 - story("r", refined).main.rounds[0].attempt.score.value)
    assert stats.cost_per_point == 0
    assert stats.tokens_per_point == pytest.approx(stats.usage.tokens / stats.gain)
    assert sum(share.share for share in stats.roles) == pytest.approx(1)


def test_a_threshold_is_on_record_and_on_the_curve(ran):
    from redraft.report.page.charts import curve_of

    strategy = Refine(
        Predict("task -> review"), N=2, reward_fn=lambda _, p: len(p.review) / 100, threshold=0.4, fix=False
    )
    told = story("r", ran(strategy, ScriptedLM([BRIEF, "Say more.", FULL])))
    assert told.threshold == 0.4
    curve = curve_of(told.main, told.threshold)
    assert curve.bar_text == "threshold"
    assert len(curve.marks) == 2
    assert curve.marks[0].y > curve.bar > curve.marks[1].y


def test_events_that_nobody_wrote_so_are_a_store_error():
    damaged = [Event(seq=0, kind="attempt", time=1.0, scope="/attempt[0]", data={"index": 0})]
    with pytest.raises(StoreError, match="cannot be read"):
        story("r", damaged)


def test_a_story_of_nothing():
    told = story("r", [])
    assert (told.verdict, told.calls, told.main) == ("no draft", (), None)
    assert json.dumps(told.task) == '""'
