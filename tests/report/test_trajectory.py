from redraft.errors import BudgetExceeded, RunClosed
from redraft.report.text import decided, judged, trajectory
from redraft.result import one_line, printable
from redraft.types import Attempt, Critique, Issue, Prediction, Score, Usage, Verdict

USAGE = Usage(calls=1, input_tokens=10, output_tokens=5)


def attempt(index, text, **more):
    return Attempt(index=index, inputs={}, prediction=Prediction(answer=text), usage=USAGE, **more)


def score(*failures, passed=1):
    verdicts = [Verdict(check="c", passed=False, score=0.0, explanation=why) for why in failures]
    verdicts += [Verdict(check="ok", passed=True, score=1.0)] * passed
    return Score(value=0.5, verdicts=tuple(verdicts))


def test_a_judgement_in_words():
    assert judged(attempt(0, "a", score=score(passed=2))) == "ok 2/2"
    assert judged(attempt(0, "a", score=score("too long", "dull"))) == "x too long; dull"
    assert judged(attempt(0, "a", score=Score(value=0.725))) == "score 0.72"
    assert judged(attempt(0, "a")) == ""
    assert judged(attempt(0, "a", error=ValueError("no"), reason="failed: no")) == "x failed: no"


def test_a_decision_in_words():
    assert decided(attempt(0, "a", accepted=True, reason="the first draft")) == "accepted: the first draft"
    assert decided(attempt(0, "a", reason="worse")) == "rejected: worse"
    assert decided(attempt(0, "a")) == "not decided: the run ended first"


def test_a_draft_is_compared_with_the_one_it_revises():
    first = attempt(0, "one two three four", accepted=True, reason="the first draft")
    second = attempt(1, "one two three 4", accepted=True, reason="better")
    third = attempt(2, "one 2 three four", parent=0, reason="worse")
    text = trajectory([first, second, third], second)
    assert "(changes to draft 1)\n\none two three [-four-] {+4+}" in text
    assert "(changes to draft 1)\n\none [-two-] {+2+} three four" in text
    assert text.endswith("== final: draft 2 ==\n\none two three 4")


def test_without_a_parent_it_is_compared_with_the_last_accepted_one():
    drafts = [
        attempt(0, "a b c", accepted=True, reason="first"),
        attempt(1, "a b d", reason="worse"),
        attempt(2, "a b e"),
    ]
    assert "(changes to draft 1)\n\na b [-c-] {+e+}" in trajectory(drafts)


def test_a_draft_with_nothing_in_common_is_shown_as_it_is():
    drafts = [attempt(0, "a b c", accepted=True, reason="first"), attempt(1, "x y z", reason="worse")]
    assert "(written anew: 0% of its words are those of draft 1)\n\nx y z" in trajectory(drafts)


def test_a_critique_stands_below_the_draft_it_speaks_of():
    critique = Critique(
        verdict="revise",
        issues=(Issue(problem="dull\nend", suggestion="add taste", location="last line"),),
        by="editor",
    )
    draft = attempt(0, "a", accepted=True, reason="first", critique=critique)
    assert trajectory([draft]).endswith("a\n\neditor: 1 issue\n  - (last line) dull end -> add taste")


def test_a_failed_draft_says_why():
    failed = Attempt(index=0, inputs={}, error=ValueError("boom"), reason="failed: boom")
    assert trajectory([failed]) == "== draft 1 | x failed: boom | 0 tokens =="


LIMIT = "the limit of 2 calls is reached (2 spent); raise it (Budget(calls=...), --call-limit) to go on"


def test_a_draft_that_was_cut_off_has_not_lost():
    late = BudgetExceeded(LIMIT, limit="calls", allowed=2, spent=2)
    shot = Attempt(index=1, inputs={}, error=late)
    assert trajectory([shot]) == "== draft 2 | cut off: the limit of 2 calls is reached (2 spent) | 0 tokens =="
    ended = Attempt(index=1, inputs={}, error=RunClosed("cancelled"), reason="cancelled")
    assert (judged(ended), decided(ended)) == ("cut off: cancelled", "")
    written = attempt(
        0, "a", error=late, accepted=True, reason="the best of what there was when the run ended (budget)"
    )
    assert judged(written) == "cut off before it was judged: the limit of 2 calls is reached (2 spent)"
    assert decided(written) == "accepted: the best of what there was when the run ended (budget)"


def test_a_draft_whose_own_limit_failed_it_has_lost():
    late = BudgetExceeded(LIMIT, limit="calls", allowed=2, spent=2)
    failed = Attempt(index=1, inputs={}, error=late, reason=f"failed: {LIMIT}")
    assert judged(failed).startswith("x failed: the limit of 2 calls")


def test_nothing_steers_the_terminal():
    assert printable("a\x1b[2Jb\tc\r\nd\r") == "a\\x1b[2Jb\tc\nd\\x0d"
    assert one_line("a\n\n b\x07") == "a b\\x07"
    assert "\x1b" not in trajectory([attempt(0, "\x1b]0;title\x07", accepted=True, reason="first")])


def test_colours_only_where_asked_for():
    drafts = [attempt(0, "a b", accepted=True, reason="first"), attempt(1, "a c", accepted=True, reason="better")]
    assert "\x1b" not in trajectory(drafts, drafts[1])
    assert "\x1b[32mc\x1b[0m" in trajectory(drafts, drafts[1], colour=True)
