"""The ladder of Refine: which rung is climbed and why, what each rung does, several drafts at a time, judges, warnings."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from redraft import BestOfN, Budget, Module, Predict, Prediction, Refine, Run, StopReason
from redraft.checks import Check, check, contains, rubric, sentences, words
from redraft.errors import BadRequestError, InputError, LMError
from redraft.journal import MemoryStore
from redraft.judges import Majority
from redraft.strategies import Role
from redraft.testing import FunctionLM, ScriptedLM
from redraft.testing.words import EVERYTHING

FREE = replace(EVERYTHING, grammar=False)


def write(lm, **options):
    return Predict("topic -> review", lm=lm, **options)


def rungs(result):
    return [(e.data["rung"], e.data["why"]) for e in result.events if e.kind == "propose"]


def noted(result, kind):
    return [dict(e.data) for e in result.events if e.kind == kind]


# which rung, and why


def test_constrain_if_the_checks_and_the_model_allow_it(script, say):
    lm = script("Too few.", "This one has five words.")
    result = Refine(write(lm), N=2, checks=[words(5)])(topic="x")
    assert rungs(result) == [("tell", "the first draft"), ("constrain", "words can be held while decoding")]
    assert lm.requests[0].grammar is None
    assert lm.requests[1].grammar.startswith("start:")
    assert noted(result, "constraint_held") == [
        {"index": 1, "held": True, "failed": [], "endless": False},
    ]
    assert result.stop_reason is StopReason.PASSED


@pytest.mark.parametrize(
    ("checks", "capabilities", "why"),
    [
        ([words(5)], FREE, "scripted takes no grammar"),
        ([check(lambda text: False, tell="Be good.")], EVERYTHING, "no check offers a constraint that compiles"),
    ],
)
def test_else_a_fresh_prompt_with_a_hint(checks, capabilities, why):
    lm = ScriptedLM(["one", "two"], capabilities=capabilities)
    result = Refine(write(lm), N=2, checks=checks)(topic="x")
    assert rungs(result)[1] == ("resample", f"{why}; with a hint")


def test_more_than_one_output_is_not_constrained(script):
    lm = script('{"title": "a", "review": "b"}', '{"title": "a", "review": "b"}')
    result = Refine(Predict("topic -> title, review", lm=lm), N=2, checks=[words(5, field="review")])(topic="x")
    assert rungs(result)[1] == ("resample", "the output is not one text; with a hint")


def test_a_constrained_draft_is_told_only_what_the_constraint_does_not_hold(script, say):
    lm = script("One", "Two", "Three")
    checks = [words(5), check(lambda text: (0.5, "it is not about salt"), tell="Write about salt.")]
    Refine(write(lm), N=2, checks=checks)(topic="x")
    assert "it is not about salt" in say.asked(lm, 1)
    assert "1 word, want 5" not in say.asked(lm, 1)


def test_a_constraint_that_was_not_held_is_on_record(script):
    result = Refine(write(script("one", "two", "three")), N=2, checks=[words(5)])(topic="x")
    assert noted(result, "constraint_held") == [
        {"index": 1, "held": False, "failed": ["1 word, want 5"], "endless": False}
    ]


def test_a_constraint_that_is_refused_is_not_insisted_on(script):
    lm = script("one", BadRequestError("no such grammar"), "this one has five words")
    result = Refine(write(lm), N=2, checks=[words(5)])(topic="x")
    assert [rung for rung, _ in rungs(result)] == ["tell", "constrain", "resample"]
    assert result.passed


@pytest.mark.parametrize("revise", ["fresh", "edit", "constrain"])
def test_the_way_to_revise_can_be_chosen(script, say, revise):
    lm = script("one", "this one has five words")
    result = Refine(write(lm), N=2, checks=[words(5)], revise=revise)(topic="x")
    assert rungs(result)[1][0] == {"fresh": "resample"}.get(revise, revise)
    assert ("Draft: one" in say.everything(lm, 1)) == (revise == "edit"), "only an edit shows the draft"


def test_an_edit_names_what_to_change_and_what_to_keep(script, say):
    lm = script("salt", "salt in all of it")
    Refine(write(lm), N=2, checks=[words(5), contains("salt")], revise="edit")(topic="x")
    assert "1 word, want 5" in say.asked(lm, 1)
    assert 'Mention "salt".' in say.asked(lm, 1)


def test_escalates_to_the_next_model():
    small, big = ScriptedLM(["one", "two"], name="small"), ScriptedLM(["this one has five words"], name="big")
    result = Refine("topic -> review", N=4, checks=[words(5)], models=[small, small, big], revise="fresh")(topic="x")
    assert [rung for rung, _ in rungs(result)] == ["tell", "resample", "escalate"]
    assert "big" in rungs(result)[2][1]
    assert (result.passed, small.left, big.left) == (True, 0, 0)


def test_the_last_model_does_the_rest():
    small, big = ScriptedLM(["one"], name="small"), ScriptedLM(["two", "three"], name="big")
    Refine("topic -> review", N=3, checks=[words(5)], models=[small, big])(topic="x")
    assert (small.left, big.left) == (0, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"revise": "again"},
        {"models": "small"},
        {"models": [3]},
        {"width": 0},
        {"temperature": -1},
        {"temperature": ()},
        {"advisor": 3},
        {"judge": 3},
        {"fail_count": -1},
        {"N": True},
    ],
)
def test_bad_options_are_refused_at_the_door(options):
    with pytest.raises(InputError, match=next(iter(options))):
        Refine("topic -> review", **options)


def test_each_retry_may_have_its_own_temperature(script):
    lm = script("one", "two", "three", "four")
    BestOfN(write(lm, temperature=0.2), N=4, checks=[words(5)], temperature=[0.5, 1.0])(topic="x")
    assert [r.temperature for r in lm.requests] == [0.2, 0.5, 1.0, 1.0]


def test_the_first_draft_under_a_constraint_keeps_the_users_temperature(script):
    """It is another draft already; the next one has to vary."""
    lm = script("one", "two", "three")
    Refine(write(lm, temperature=0.2), N=3, checks=[words(5)])(topic="x")
    assert [(r.temperature, r.grammar is not None) for r in lm.requests] == [(0.2, False), (0.2, True), (0.9, True)]


# fix


def test_what_code_can_mend_costs_no_call(script):
    lm = script("One. Two. Three.")
    result = Refine(write(lm), N=3, checks=[sentences(2)])(topic="x")
    assert [(a.text, a.rung, a.parent, a.usage.calls) for a in result.attempts] == [
        ("One. Two. Three.", "tell", None, 1),
        ("One. Two.", "fix", 0, 0),
    ]
    assert (result.review, result.stop_reason) == ("One. Two.", "passed")


def test_a_fix_that_would_break_another_check_is_refused(script):
    lm = script("One. Two. Salt.", "Salt. Two.")
    result = Refine(write(lm), N=2, checks=[sentences(2), contains("salt")], revise="fresh")(topic="x")
    assert noted(result, "fix_refused") == [{"index": 0, "why": '"salt" missing'}]
    assert result.review == "Salt. Two."


def test_fix_can_be_left_out(script):
    result = Refine(write(script("One. Two. Three.")), N=1, checks=[sentences(2)], fix=False)(topic="x")
    assert (result.review, len(result.attempts)) == ("One. Two. Three.", 1)


def test_best_of_n_leaves_drafts_as_they_came(script):
    result = BestOfN(write(script("One. Two. Three.")), N=1, checks=[sentences(2)])(topic="x")
    assert result.review == "One. Two. Three."


def test_a_users_function_may_bring_its_own_fix(script):
    shout = check(str.isupper, tell="Shout.", fix=str.upper)
    result = Refine(write(script("hey")), N=1, checks=[shout])(topic="x")
    assert result.review == "HEY"


def test_a_mended_draft_is_rewarded_anew(script):
    length = lambda args, pred: len(pred.review)
    result = Refine(write(script("One. Two. Three.")), N=1, checks=[sentences(2)], reward_fn=length)(topic="x")
    assert (result.review, result.score) == ("One. Two.", 9.0)


# a pass that reads badly


def test_an_unclean_pass_takes_another_rung_and_is_kept_if_nothing_is_better(script):
    bad = "Salt is good. Salt is good. Salt is good."
    lm = script("Salt.", bad, "Salt is good. It keeps. It is cheap, too.")
    result = Refine(write(lm), N=3, checks=[sentences(3)])(topic="x")
    assert [a.accepted for a in result.attempts] == [True, True, True]
    assert result.attempts[2].reason == "scores the same and reads cleaner"
    assert noted(result, "unclean")[0]["index"] == 1
    lm = script("Salt.", bad, "No.")
    result = Refine(write(lm), N=3, checks=[sentences(3)])(topic="x")
    assert (result.review, result.stop_reason) == (bad, "passed")
    assert Refine(write(script("Salt.", bad)), N=3, checks=[sentences(3)], clean=False)(topic="x").review == bad


def test_a_constraint_that_found_no_end_is_named_and_no_clean_pass(script):
    lm = script("No", "On and on it went and then some", "Now this has five words")
    result = Refine(write(lm, max_tokens=5), N=3, checks=[words(5)])(topic="x")
    assert noted(result, "constraint_held")[0] == {"index": 1, "held": True, "failed": [], "endless": True}
    assert noted(result, "unclean") == [{"index": 1, "faults": ["it was cut off at its limit of tokens"]}]
    assert result.attempts[1].text == "On and on it went"
    assert result.stop_reason is StopReason.PASSED


def test_what_asks_a_model_is_asked_last_and_only_of_what_code_lets_pass(script):
    asked = []

    class Costly(Asks):
        def judge(self, value):
            asked.append(value)
            return 1.0, ""

    lm = script("One", "Now this has five words")
    result = Refine(write(lm), N=2, checks=[Costly(None), words(5)])(topic="x")
    assert asked == ["Now this has five words"]
    assert [v.passed for v in result.attempts[0].score.verdicts] == [False, False]
    assert result.attempts[0].score.feedback == "1 word, want 5."


def test_a_rubric_without_a_model_asks_the_authors(script):
    lm = script("It is short.", "5", "5", name="the-author")
    result = Refine(write(lm), N=1, checks=[rubric(["It is short."])])(topic="x")
    assert [e.data["role"] for e in result.events if e.kind == "call"][:2] == ["author", "judge"]
    assert len(lm.requests) >= 2


# several at a time


class Paced(FunctionLM):
    """Replies after `seconds[i]` for call i, and remembers what was cancelled."""

    def __init__(self, *replies):
        super().__init__(self._reply)
        self.replies = list(replies)
        self.begun = self.cancelled = self.under_way = self.most = 0

    async def _reply(self, request):
        i, self.begun = self.begun, self.begun + 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            seconds, text = self.replies[i]
            await asyncio.sleep(seconds)
            return text
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1


async def test_the_first_that_passes_cancels_the_rest_and_they_are_charged():
    lm = Paced((5, "late"), (0.01, "now this has five words"), (5, "late"), (0, "no"))
    best = BestOfN(write(lm, max_tokens=50), N=4, checks=[words(5)], concurrency=4, budget=Budget(tokens=10_000))
    result = await asyncio.wait_for(best.acall(topic="x"), 2)
    assert (result.review, result.stop_reason, lm.cancelled) == ("now this has five words", "passed", 2)
    assert [a.index for a in result.attempts if a.reason.startswith("cancelled")] == [0, 2]
    assert result.usage.calls == 4
    assert result.usage.uncertain_tokens >= 2 * 50, "a cancelled call may have been billed: a stated range"


async def test_concurrency_is_a_bound():
    lm = Paced(*[(0.01, "no")] * 6)
    await BestOfN(write(lm), N=6, checks=[words(5)], concurrency=2).acall(topic="x")
    assert (lm.begun, lm.most) == (6, 2)


async def test_one_at_a_time_buys_nothing_in_vain():
    lm = Paced((0, "now this has five words"), (0, "never"))
    result = await BestOfN(write(lm), N=4, checks=[words(5)]).acall(topic="x")
    assert (lm.begun, result.usage.calls) == (1, 1)


async def test_a_limit_among_concurrent_attempts_keeps_the_best():
    lm = Paced((0.02, "one two three"), (0.03, "one two three four"), (0, "never"))
    best = BestOfN(write(lm), N=5, checks=[words(5)], concurrency=5, budget=Budget(calls=2))
    result = await best.acall(topic="x")
    assert (result.review, result.stop_reason, lm.begun) == ("one two three four", "budget", 2)


async def test_width_learns_between_rounds_only(say):
    lm = FunctionLM(lambda request: "one" if len(lm.requests) < 3 else "two")
    result = await Refine(write(lm), N=4, checks=[words(5)], width=2, revise="fresh").acall(topic="x")
    hinted = ["fell short" in say.asked(lm, i) for i in range(4)]
    assert hinted == [False, False, True, True]
    assert len({r.seed for r in lm.requests}) == 4
    assert len(result.attempts) == 4


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_resumed_best_of_n_settles_what_is_on_record_first(concurrency):
    """The last to begin ended first, and the run was killed: on resume that order is kept, and only the rest is bought."""
    store = MemoryStore()
    lm = Paced((0.3, "a"), (0.2, "b"), (0.01, "now this has five words"))
    best = BestOfN(write(lm), N=3, checks=[words(5)], concurrency=3)
    whole = await Run(store=store, run_id="r", seed=1).execute(best, {"topic": "x"})
    assert whole.passed
    recorded = store.read("r")
    cut = next(i for i, e in enumerate(recorded) if e.kind == "attempt") + 1
    killed = MemoryStore()
    await killed.append("r", recorded[:cut])
    again = Paced()
    resumed = BestOfN(write(again), N=3, checks=[words(5)], concurrency=concurrency if concurrency > 1 else 3)
    result = await Run(store=killed, run_id="r").execute(resumed, {"topic": "x"})
    assert (result.review, again.begun, result.stop_reason) == ("now this has five words", 0, "passed")


# a judge of all attempts


def test_a_judge_picks_among_those_that_code_ranks_alike(script):
    asked = []

    def judge(task, drafts):
        asked.append((task, drafts))
        return 1

    lm = script("five words are in here", "here are five words too", "no")
    result = BestOfN(write(lm), N=3, checks=[words(5)], judge=judge)(topic="x")
    assert asked[0][1] == ["five words are in here", "here are five words too"]
    assert (result.review, result.stop_reason) == ("here are five words too", "passed")


def test_the_answer_that_most_drafts_agree_on_wins(script):
    lm = script("Forty", "42", " 42", "41")
    result = BestOfN(write(lm), N=4, judge="majority")(topic="x")
    assert (result.review, result.best.index, result.usage.calls) == ("42", 1, 4)
    by_number = BestOfN(
        write(script("so 4.", "3", "it is 4")), N=3, judge=Majority(lambda text: re.findall("[0-9]", text)[0])
    )
    assert by_number(topic="x").review == "so 4."


def test_without_a_majority_the_first_draft_stays(script):
    result = BestOfN(write(script("1", "2", "3")), N=3, judge=Majority())(topic="x")
    assert result.review == "1"
    assert noted(result, "judge_abstained") == [{"among": 3}]
    with pytest.raises(InputError, match="key=3"):
        Majority(3)


def test_a_key_that_fails_on_one_draft_is_said_and_the_first_stays(script, capsys):
    last = Majority(lambda text: re.findall("[0-9]", text)[0])
    result = BestOfN(write(script("none", "4", "it is 4")), N=3, judge=last)(topic="x")
    assert (result.review, len(noted(result, "judge_error"))) == ("none", 1)
    assert "no draft could be picked, the first of the best stays: Majority: IndexError" in capsys.readouterr().err


@pytest.mark.parametrize("verdict", [7, True, "A"])
def test_a_judge_without_a_verdict_guesses_nothing(script, verdict):
    lm = script("five words are in here", "here are five words too")
    result = BestOfN(write(lm), N=2, checks=[words(5)], judge=lambda task, drafts: verdict)(topic="x")
    assert result.review == "five words are in here"
    assert len(noted(result, "judge_error")) == 1


def test_a_judge_may_abstain(script, capsys):
    lm = script("five words are in here", "here are five words too")
    result = BestOfN(write(lm), N=2, checks=[words(5)], judge=lambda task, drafts: None)(topic="x")
    assert (result.review, result.stop_reason) == ("five words are in here", "passed")
    assert noted(result, "judge_abstained") == [{"among": 2}]
    assert (noted(result, "judge_error"), capsys.readouterr().err) == ([], "")


def test_a_judge_that_fails_at_the_end_costs_its_verdict_only(script):
    lm = script("five words are in here", "here are five words too")
    result = BestOfN(write(lm), N=2, checks=[words(5)], judge=lambda task, drafts: 1 / 0)(topic="x")
    assert (result.stop_reason, result.error, len(noted(result, "judge_error"))) == ("passed", None, 1)


def test_an_edit_that_breaks_what_was_right_is_refused(script):
    lm = script("salt and", "five words without it here")
    result = Refine(write(lm), N=2, checks=[words(5), contains("salt")], revise="edit")(topic="x")
    assert result.attempts[1].reason == '"salt" missing (draft 1 had that right)'
    assert result.review == "salt and"


def test_a_program_is_edited_by_its_own_model_in_its_own_outputs(script, say):
    class Ad(Module):
        def __init__(self, lm):
            self.write = Predict("product -> ad", lm=lm)

        async def aforward(self, product):
            return Prediction(ad=(await self.write.acall(product=product)).ad)

    lm = script("one", "this one has five words")
    result = Refine(Ad(lm), N=2, checks=[words(5, field="ad")], revise="edit")(product="Suds")
    assert (result.ad, lm.left) == ("this one has five words", 0)
    assert "one" in say.asked(lm, 1)


def test_advice_is_an_issue_for_an_edit(script, say):
    lm = script("bland", '{"advice": "Add salt."}', "salty")
    Refine(write(lm), N=2, reward_fn=lambda args, pred: 0.1, threshold=1, revise="edit")(topic="soup")
    assert "Add salt." in say.asked(lm, 2)


def test_who_judges_a_draft_is_not_its_author(say):
    """A small author gets no hint, however large its judge."""
    small = ScriptedLM(["one", "two"], name="tiny-135m")
    grade = Predict("text -> grade: float", lm=FunctionLM(lambda request: '{"grade": 0.1}', name="big-400b"))

    async def reward(args, pred):
        return (await grade.acall(text=pred.review)).grade, "too bland"

    Refine(write(small), N=2, reward_fn=reward, threshold=1)(topic="x")
    assert "too bland" not in say.everything(small, 1)


@pytest.mark.parametrize("judge", [lambda t, d: 1, lambda task, options: 1, lambda drafts, task: len(drafts) - 1])
def test_a_judges_arguments_may_have_any_names(script, judge):
    result = BestOfN(write(script("a", "b")), N=2, judge=judge)(topic="x")
    assert result.review == "b"


def test_a_check_of_a_field_that_is_not_there_is_refused_at_the_door():
    with pytest.raises(InputError, match="check 'words' looks at field 'zz', but the output fields are: review"):
        Refine("topic -> review", checks=[words(3, field="zz")])


def test_a_fix_that_makes_no_text_of_a_text_is_no_repair(script):
    five = check(lambda text: "!" not in text, tell="Be calm.", fix=lambda text: 5)
    result = Refine(write(script("hey!")), N=1, checks=[five])(topic="x")
    assert result.review == "hey!"
    assert "made int of a text" in noted(result, "judge_error")[0]["error"]


def test_a_judge_alone_is_enough_to_choose_by(script):
    result = BestOfN(write(script("a", "b", "c")), N=3, judge=lambda task, drafts: 2)(topic="x")
    assert result.review == "c"


# advice


class Program(Module):
    """Two predictors, which share one signature object."""

    def __init__(self, lm, *, named=True):
        first = Predict("text -> text2", lm=lm)
        self.outline = first
        self.expand = Predict(first.signature, lm=lm)

    async def aforward(self, text):
        drawn = await self.outline.acall(text=text)
        return Prediction(review=(await self.expand.acall(text=drawn.text2)).text2)


def test_each_module_of_a_program_gets_its_own_advice(say):
    advice = '{"advice": {"outline": "Plan more.", "expand": "Write less.", "nobody": "Be kind."}}'

    def reply(request):
        return advice if "scored by code" in str(request.messages) else "text"

    lm = FunctionLM(reply)
    result = Refine(Program(lm), N=2, reward_fn=lambda args, pred: 0.2, threshold=0.5)(text="x")
    outline, expand = say.everything(lm, 3), say.everything(lm, 4)
    assert "Plan more." in outline
    assert "Plan more." not in expand
    assert "Write less." in expand
    assert "Be kind." in outline
    assert "Be kind." in expand, "advice for nobody is heard by everybody"
    assert noted(result, "advice_unaddressed")[0]["path"] == "nobody"


def test_the_advisor_knows_the_reward_and_the_score(script, say):
    def tasty(args, pred):
        """More salt is better."""
        return 0.25

    lm = script("bland", '{"advice": "Add salt."}', "salty")
    Refine(write(lm), N=2, reward_fn=tasty, threshold=0.5)(topic="soup")
    asked = say.everything(lm, 1)
    assert "More salt is better." in asked
    assert "0.25, wanted: 0.5" in asked
    assert "soup" in asked
    assert "bland" in asked
    assert "Add salt." in say.asked(lm, 2)
    assert "bland" not in say.asked(lm, 2)


@pytest.mark.parametrize("broken", [LMError("down", status=400), "not JSON at all"])
def test_an_advisor_that_fails_costs_a_hint_and_no_attempt(script, broken):
    lm = script("a", "b", "c")
    advisor = ScriptedLM([broken] * 9, name="other/advisor")
    refine = Refine(write(lm), N=3, fail_count=0, reward_fn=lambda args, pred: 0.1, advisor=advisor)
    done = refine(topic="x")
    assert [a.error for a in done.attempts] == [None] * 3


def test_an_advisor_may_be_a_persona_or_a_module(script, say):
    class Coach(Module):
        async def aforward(self, **inputs):
            return Prediction(advice=f"Beat {inputs['score']}.")

    lm = script("a", "b")
    Refine(write(lm), N=2, reward_fn=lambda args, pred: 0.1, advisor=Coach())(topic="x")
    assert "Beat 0.1." in say.asked(lm, 1)
    lm = script("a", '{"advice": "x"}', "b")
    Refine(write(lm), N=2, reward_fn=lambda args, pred: 0.1, advisor=Role("strict coach"))(topic="x")
    assert "You are a strict coach." in say.everything(lm, 1)


# warnings


def linted(strategy, capsys, **inputs):
    result = strategy(**inputs)
    return noted(result, "lint"), capsys.readouterr().err


def binary(args, pred):
    return 1.0 if pred.review else 0.0


def summed(args, pred):
    score = 0.0
    if "a" in pred.review:
        score += 0.3
    if "b" in pred.review:
        score += 0.3
    if "c" in pred.review:
        score += 0.4
    return score


class Asks(Check):
    asks = True

    def __init__(self, lm):
        super().__init__()
        self.lm = lm

    def tell_text(self):
        return "Be good."

    def judge(self, value):
        return 1.0, ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checks": [check(lambda text: True, name="secret")]}, "'secret' is never told to the author"),
        ({"reward_fn": binary, "threshold": 1.0}, "'binary' only says yes or no"),
        ({"reward_fn": summed, "threshold": 1.0}, "over 3 soft criteria"),
        ({"checks": [Asks("openai/gpt-4.1")]}, "family of the author"),
        ({"checks": [rubric(["It is short."])]}, "the author's own model"),
        ({"checks": [rubric(["It is short."], lm=FunctionLM(str, name="openai/gpt-5"))]}, "family of the author"),
        ({"judge": "openai/gpt-6"}, "family of the author"),
    ],
)
def test_wasteful_set_ups_are_named_once(options, said, capsys):
    lm = FunctionLM(lambda request: "abc", name="openai/gpt-4.1-mini")
    strategy = Refine(write(lm), N=2, **options)
    notes, err = linted(strategy, capsys, topic="x")
    assert sum(said in note["text"] for note in notes) == 1
    assert said in err
    assert linted(strategy, capsys, topic="x") == (notes, ""), "once a process, but on record in each run"


def test_a_draft_that_cannot_be_judged_is_said(script, capsys):
    notes, err = linted(
        Refine(write(script("a", "b")), N=2, reward_fn=lambda args, pred: pred.nofield), capsys, topic="x"
    )
    assert len(notes) == 2
    assert "a draft could not be judged: AttributeError" in err


def test_a_model_call_inside_a_reward_is_named(capsys):
    grade = Predict("text -> grade: float", lm=ScriptedLM(['{"grade": 0.5}'] * 3))

    def costly(args, pred):
        return grade(text=pred.review).grade

    result = BestOfN(write(ScriptedLM(["a", "b"])), N=2, reward_fn=costly)(topic="x")
    assert "'costly' calls a model" in noted(result, "lint")[0]["text"]


def test_a_well_made_set_up_is_not_commented_on(script, capsys):
    notes, err = linted(Refine(write(script("a")), N=3, reward_fn=summed, threshold=0.3), capsys, topic="x")
    assert (notes, err) == ([], "")
