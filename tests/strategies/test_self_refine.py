"""SelfRefine on scripted models: its trajectory, how it ends, who is told what."""

from __future__ import annotations

import asyncio
import json

import pytest

from redraft import Critic, Critique, Issue, Module, Predict, Prediction, Role, Run, SelfRefine, StopReason, registry
from redraft.budget import Budget
from redraft.checks import contains, forbids, sentences, words
from redraft.errors import AuthError, BudgetExceeded, InputError, LMError, ParseError, RunFailed, ScoreError
from redraft.journal import MemoryStore
from redraft.judges.critic import as_critique
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Capabilities, Choice, Completion

# Four sentences; three; three with a dish.
LONG = "La Maison is nice. It serves food. We like it. Go there."
FLAT = "La Maison is a nice French restaurant. It serves good food. Go there."
RICH = "La Maison is warm. Its onion soup is deep and sweet. Go there."
CHECKS = [sentences(3), contains("La Maison")]


def review(lm, **options):
    return SelfRefine(Predict("topic -> review", lm=lm), **options)


# the trajectory


def golden(script, say):
    """Code first, then the critic, then a judge: every rung that is needed, none that is not."""
    vague = say.found(
        {
            "problem": "vague",
            "suggestion": "name a dish",
            "aspect": "detail",
            "severity": "major",
            "location": "good food",
        }
    )
    lm = script(LONG, FLAT, vague, RICH, *say.wins, say.ok)
    return lm, review(lm, critic="strict food editor", checks=CHECKS)


def test_the_golden_trajectory(script, say):
    lm, write = golden(script, say)
    result = write(topic="La Maison")
    assert say.trail(result) == [
        (LONG, "tell", None, True, "the first draft"),
        (FLAT, "edit", 0, True, "score 0.83 -> 1.00"),
        (RICH, "edit", 1, True, "the judge prefers it in both orders"),
    ]
    assert [a.critique for a in result.attempts] == [
        Critique(
            verdict="revise",
            issues=(
                Issue(
                    problem="4 sentences, want 3",
                    suggestion="Write exactly 3 sentences.",
                    aspect="sentences",
                    severity="critical",
                ),
            ),
            keep=('Mention "La Maison".',),
            by="checks",
        ),
        Critique(
            verdict="revise",
            issues=(Issue(problem="vague", suggestion="name a dish", aspect="detail", location="good food"),),
            by="strict food editor",
        ),
        Critique(verdict="ok", by="strict food editor"),
    ]
    assert (result.review, result.stop_reason, result.score, result.passed) == (RICH, StopReason.CRITIC_OK, 1.0, True)
    assert (result.usage.calls, lm.left, result.error) == (7, 0, None)
    roles = [e.data["role"] for e in result.events if e.kind == "call"]
    assert roles == ["author", "reviser", "critic", "reviser", "judge", "judge", "critic"]


def test_what_the_golden_trajectory_asks(script, say):
    lm, write = golden(script, say)
    write(topic="La Maison")
    told = 'Requirements:\n- Write exactly 3 sentences.\n- Mention "La Maison".'
    assert say.asked(lm, 0) == f"Topic: La Maison\n\n{told}\n\nWrite the review."
    assert say.asked(lm, 1) == (
        f"Draft: {LONG}\n\n"
        "Issues (change these): - 4 sentences, want 3 -> Write exactly 3 sentences.\n\n"
        'Keep (leave these as they are): Mention "La Maison".\n\n'
        f"Topic: La Maison\n\n{told}"
    )
    assert say.asked(lm, 2).startswith(f"Draft: {FLAT}\n\nTask:\nLa Maison\n\n{told}\n\n")
    assert say.asked(lm, 3) == (
        f"Draft: {FLAT}\n\nIssues (change these): - (good food) vague -> name a dish\n\nTopic: La Maison\n\n{told}"
    )
    assert say.asked(lm, 4).startswith(f"Draft a: {RICH}\n\nDraft b: {FLAT}\n\nTask:\nLa Maison\n\n{told}")
    assert say.asked(lm, 5).startswith(f"Draft a: {FLAT}\n\nDraft b: {RICH}\n\nTask:\nLa Maison\n\n{told}")
    assert say.asked(lm, 6).startswith(f"Draft: {RICH}\n\nTask:\nLa Maison\n\n{told}")


def outcome(result):
    """All of a result that must be the same however it came about."""
    attempts = [(a.index, a.text, a.score, a.critique, a.accepted, a.reason, a.usage) for a in result.attempts]
    events = [
        (e.kind, e.scope, e.key, e.data.get("usage"), e.data.get("reason"))
        for e in result.events
        if e.kind != "resumed"  # the one line that a replay adds
    ]
    return result.to_dict(), result.stop_reason, result.usage, attempts, events


async def test_sync_async_and_replay_are_one(script, say):
    _, write = golden(script, say)
    sync = await asyncio.to_thread(lambda: write(topic="La Maison"))
    _, write = golden(script, say)
    assert outcome(await write.acall(topic="La Maison")) == outcome(sync)

    store = MemoryStore()
    _, write = golden(script, say)
    first = await Run(store=store, run_id="r").execute(write, {"topic": "La Maison"})
    assert outcome(first) == outcome(sync)
    written = store.read("r")
    write.module.lm = script()  # not one reply left
    write.critic.typed.lm = write.judge.judge.lm = write.reviser.lm = write.critic.lm = write.module.lm
    replayed = await Run(store=store, run_id="r").execute(write, {"topic": "La Maison"})
    assert outcome(replayed) == outcome(first)
    assert [e for e in store.read("r") if e.kind != "resumed"] == written, "a replay buys and decides nothing"


async def test_a_run_killed_anywhere_ends_where_it_would_have_ended(say):
    def answer(request):
        """The golden replies as a function of the prompt."""
        text = request.messages[-1]["content"]
        if text.startswith("Topic"):
            return LONG
        if text.startswith("Draft a"):
            return say.a if text.index(RICH) < text.index(FLAT) else say.b
        if "Issues" in text:
            return FLAT if LONG in text else RICH
        return say.found("vague") if FLAT in text else say.ok

    def make():
        lm = FunctionLM(answer)
        return lm, review(lm, critic="strict food editor", checks=CHECKS)

    whole = MemoryStore()
    _, write = make()
    expected = await Run(store=whole, run_id="r", seed=1).execute(write, {"topic": "La Maison"})
    events = whole.read("r")
    for kept in range(len(events)):
        store = MemoryStore()
        await store.append("r", events[:kept])
        lm, write = make()
        result = await Run(store=store, run_id="r", seed=1).execute(write, {"topic": "La Maison"})
        assert say.trail(result) == say.trail(expected)
        assert result.stop_reason == expected.stop_reason
        assert len(lm.requests) == 7 - sum(e.kind == "call" for e in events[:kept]), (
            "a committed reply is not bought again"
        )


async def test_a_strategy_serves_many_calls_at_once_and_stays_as_it_is():
    lm = FunctionLM(lambda request: "A. B." if "Issues" in request.messages[-1]["content"] else "A. B. Cc.")
    write = review(lm, checks=[sentences(2, 2)], rounds=2)
    before = {name: repr(value) for name, value in vars(write).items()}
    results = await asyncio.gather(*(write.acall(topic=f"t{i}") for i in range(20)))
    assert len({r.run_id for r in results}) == 20
    assert {r.usage.calls for r in results} == {results[0].usage.calls}
    assert {name: repr(value) for name, value in vars(write).items()} == before


# how it ends: each stop reason by a real run


def test_passed(script):
    lm = script(FLAT)
    result = review(lm, checks=CHECKS)(topic="La Maison")
    assert (result.stop_reason, result.usage.calls) == ("passed", 1)


def test_passed_in_the_last_round(script):
    result = review(script(LONG, FLAT), checks=CHECKS, rounds=1)(topic="La Maison")
    assert (result.stop_reason, result.review, result.usage.calls) == ("passed", FLAT, 2)


def test_threshold(script):
    lm = script("one two", "one two three")
    write = review(lm, reward_fn=lambda args, pred: len(pred.review.split()) / 3, threshold=1.0)
    result = write(topic="x")
    assert (result.stop_reason, result.review, result.score) == ("threshold", "one two three", 1.0)


def test_a_threshold_comes_before_the_critic(script):
    lm = script("one two three")
    write = review(lm, critic="editor", reward_fn=lambda args, pred: 1.0, threshold=0.9)
    assert (write(topic="x").stop_reason, len(lm.requests)) == ("threshold", 1)


def test_critic_ok(script, say):
    result = review(script(FLAT, say.ok))(topic="x")
    assert (result.stop_reason, result.review, result.usage.calls) == ("critic_ok", FLAT, 2)


def test_plateau(script):
    """Revisions that differ but do not move the score."""
    lm = script("Aa. Bb. Cc. Dd. Ee.", "Ff. Gg. Hh. Ii. Jj.", "Kk. Ll. Mm. Nn. Oo.")
    result = review(lm, checks=[sentences(3)], rounds=5)(topic="x")
    assert (result.stop_reason, result.best.index, len(result.attempts)) == ("plateau", 0, 3)
    assert [a.reason for a in result.attempts[1:]] == ["score stays 0.33"] * 2


def test_no_change(script):
    lm = script(LONG, LONG + " ")
    result = review(lm, checks=CHECKS)(topic="x")
    assert (result.stop_reason, result.best.index) == ("no_change", 0)
    assert result.attempts[1].reason == "equals draft 1"


def test_cycle(script):
    worse = "Aa. Bb. Cc. Dd. Ee. Ff."
    lm = script(LONG, worse, worse)
    result = review(lm, checks=CHECKS)(topic="x")
    assert (result.stop_reason, result.best.index) == ("cycle", 0)
    assert [a.reason for a in result.attempts[1:]] == [
        '"La Maison" missing (draft 1 had that right)',
        "equals draft 2",
    ]


def test_rejected(script):
    lm = script(LONG, "La Maison. Bb. Cc. Dd. Ee.", "La Maison. Bb. Cc. Dd. Ee. Ff.")
    result = review(lm, checks=CHECKS, rounds=5)(topic="x")
    assert (result.stop_reason, result.best.index, len(result.attempts)) == ("rejected", 0, 3)


def test_rounds(script):
    lm = script("Aa. Bb. Cc. Dd. Ee. Ff.", "Aa. Bb. Cc. Dd. Ee.", "Aa. Bb. Cc. Dd.")
    result = review(lm, checks=[sentences(3)], rounds=2)(topic="x")
    assert (result.stop_reason, result.best.index, result.usage.calls) == ("rounds", 2, 3)


def test_no_rounds_is_the_draft_alone(script):
    lm = script(LONG)
    result = review(lm, checks=CHECKS, rounds=0)(topic="x")
    assert (result.stop_reason, result.review, result.passed) == ("rounds", LONG, False)


def test_budget(script):
    lm = script("Aa. Bb. Cc. Dd. Ee. Ff.", "Aa. Bb. Cc. Dd. Ee.", "never bought")
    result = review(lm, checks=[sentences(3)], budget=Budget(calls=2))(topic="x")
    assert (result.stop_reason, result.best.index, lm.left) == ("budget", 1, 1)
    assert isinstance(result.error, BudgetExceeded)
    assert (result.error.limit, result.error.allowed) == ("calls", 2)
    assert isinstance(result.attempts[2].error, BudgetExceeded)


def test_a_deadline_gives_the_best_so_far():
    async def answer(request):
        if "Issues" in request.messages[-1]["content"]:
            await asyncio.sleep(30)
        return LONG

    result = review(FunctionLM(answer), checks=CHECKS, budget=Budget(seconds=1))(topic="x")
    assert (result.stop_reason, result.review) == ("budget", LONG)
    assert result.error.limit == "seconds"


def test_a_budget_too_small_for_a_draft_raises(script):
    lm = script()
    with pytest.raises(BudgetExceeded) as caught:
        review(lm, checks=CHECKS, budget=Budget(tokens=3))(topic="x " * 50)
    assert (caught.value.limit, len(caught.value.attempts), lm.requests) == ("tokens", 1, [])


async def test_cancelled(script):
    run = Run()

    async def hang(request):
        run.cancel()
        await asyncio.sleep(30)

    result = await run.execute(review(script(LONG, hang), checks=CHECKS), {"topic": "x"})
    assert (result.stop_reason, result.review) == ("cancelled", LONG)
    assert result.usage.calls == 2, "the call in flight is charged"
    assert result.usage.uncertain_tokens > 0


async def test_a_cancelled_task_is_cancelled(script):
    started = asyncio.Event()

    async def hang(request):
        started.set()
        await asyncio.sleep(30)

    task = asyncio.create_task(review(script(LONG, hang), checks=CHECKS).acall(topic="x"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_error_of_the_critics_model_keeps_the_draft(script):
    lm = script(FLAT, AuthError("401: wrong key", status=401))
    result = review(lm, checks=CHECKS, critic="editor")(topic="x")
    assert (result.stop_reason, result.review) == ("error", FLAT)
    assert isinstance(result.error, AuthError)


def test_error_of_the_author_raises_with_its_attempts(script):
    with pytest.raises(LMError, match="wrong key") as caught:
        review(script(AuthError("401: wrong key")), checks=CHECKS)(topic="x")
    (attempt,) = caught.value.attempts
    assert attempt.error is caught.value
    assert caught.value.usage.calls == 1
    assert caught.value.run_id


def test_error_of_a_function_as_author_is_the_cause():
    def author(topic):
        raise ZeroDivisionError("oh")

    with pytest.raises(RunFailed, match="ZeroDivisionError: oh") as caught:
        SelfRefine(author, critic=lambda text: None)(topic="x")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(caught.value.attempts) == 1


# an unparseable critique


def test_an_unparseable_critique_keeps_the_best_so_far(script):
    lm = script(LONG, FLAT, "hm", "hm", "hm")
    result = review(lm, checks=CHECKS, critic="editor")(topic="x")
    assert (result.stop_reason, result.review, result.best.index) == ("error", FLAT, 1)
    assert isinstance(result.error, ParseError)
    assert [e.kind for e in result.events].count("parse_error") == 3


def test_a_critique_that_parses_at_the_second_try(script, say):
    result = review(script(FLAT, "hm", say.ok), critic="editor")(topic="x")
    assert (result.stop_reason, result.usage.calls) == ("critic_ok", 3)


@pytest.mark.parametrize("said", [5, False, [5], [None], [{"suggestion": "x"}]])
def test_a_critic_that_returns_nonsense_is_named(script, said):
    def picky(text):
        return said

    result = review(script(LONG), critic=picky)(topic="x")
    assert (result.stop_reason, result.review) == ("error", LONG)
    assert isinstance(result.error, ScoreError)
    assert "picky" in str(result.error)


def test_a_critic_that_raises_is_named(script):
    def picky(text):
        raise KeyError("salt")

    result = review(script(LONG), critic=picky)(topic="x")
    assert (result.stop_reason, result.review) == ("error", LONG)
    assert isinstance(result.error, ScoreError)
    assert "picky" in str(result.error)
    assert "salt" in str(result.error)


@pytest.mark.parametrize("critic", [None, "editor"])
def test_a_check_that_raises_ends_it_with_the_draft(script, critic):
    def broken(text):
        raise KeyError("boom")

    lm = script(LONG)
    result = review(lm, checks=[broken], critic=critic)(topic="x")
    assert (result.stop_reason, result.review) == ("error", LONG)
    assert isinstance(result.error, ScoreError)
    assert "broken" in str(result.error)
    assert not result.passed, "no verdict is no pass"


# the gate


def gate(script, say, first, second, checks, *more, **options):
    result = review(script(first, second, *more), checks=checks, rounds=1, **options)(topic="x")
    return result.attempts[1].accepted, result.attempts[1].reason


def test_the_score_must_rise(script, say):
    five, four, six = "Aa. Bb. Cc. Dd. Ee.", "Aa. Bb. Cc. Dd.", "Aa. Bb. Cc. Dd. Ee. Ff."
    assert gate(script, say, five, four, [sentences(3)]) == (True, "score 0.33 -> 0.67")
    assert gate(script, say, five, six, [sentences(3)]) == (False, "score 0.33 -> 0.00")
    assert gate(script, say, five, "Ff. Gg. Hh. Ii. Jj.", [sentences(3)]) == (False, "score stays 0.33")


def test_no_passed_hard_check_newly_fails(script, say):
    checks = [contains("salt"), sentences(2), words(4)]
    accepted, reason = gate(script, say, "Salt. Bb. Cc.", "Pepper it. Then rest.", checks)
    assert (accepted, reason) == (False, '"salt" missing (draft 1 had that right)')


def test_a_soft_check_may_newly_fail(script, say):
    checks = [contains("salt", hard=False), sentences(2), words(4)]
    assert gate(script, say, "Salt. Bb. Cc.", "Pepper it. Then rest.", checks)[0]


def test_checks_of_one_name_are_told_apart(script, say):
    checks = [sentences(2), contains("Alpha"), contains("Beta")]
    assert gate(script, say, "Alpha. Bb. Cc.", "Alpha. Bb.", checks)[0], "Beta was missing before, too"
    accepted, reason = gate(script, say, "Alpha. Bb. Cc.", "Beta. Bb.", checks)
    assert (accepted, reason) == (False, '"Alpha" missing (draft 1 had that right)')


def test_case_and_line_breaks_can_be_what_was_missing(script, say):
    assert gate(script, say, "visit la maison", "visit La Maison", [contains("La Maison", ignore_case=False)])[0]
    assert gate(script, say, "one two", "one\n\ntwo", [sentences(2)])[0]


def test_a_judge_decides_where_code_sees_no_difference(script, say):
    decided = gate(script, say, "one", "two", [], *say.wins, critic=lambda text: "meh")
    assert decided == (True, "the judge prefers it in both orders")


@pytest.mark.parametrize("verdicts", [("b",), ("tie",), ("a", "a"), ("a", "tie")], ids="-".join)
def test_the_judge_must_prefer_it_in_both_orders(script, say, verdicts):
    lm = script("one", "two", *(getattr(say, v) for v in verdicts))
    result = review(lm, critic=lambda text: "meh", rounds=1)(topic="x")
    assert (result.review, lm.left) == ("one", 0), "the second order is asked only if the first was won"
    assert result.attempts[1].reason == "the judge does not prefer it in both orders"


def test_a_judge_without_verdict_is_a_judge_error_and_no_pass(script):
    lm = script("one", "two", "dunno", "well")
    result = review(lm, critic=lambda text: "meh", rounds=1)(topic="x")
    assert (result.review, result.attempts[1].accepted, result.attempts[1].score) == ("one", False, None)
    assert result.attempts[1].reason == "the judge gave no verdict"
    assert [e.kind for e in result.events].count("judge_error") == 1


def test_the_judge_may_be_a_function_or_another_model(script, say):
    write = review(
        script("one", "two"),
        critic=lambda text: None if text == "two" else "meh",
        judge=lambda task, challenger, incumbent: challenger == "two",
    )
    assert write(topic="x").review == "two"
    judge = script(*say.wins)
    write = review(script("one", "two"), critic=lambda text: None if text == "two" else "meh", judge=judge)
    assert write(topic="x").review == "two"
    assert [r.temperature for r in judge.requests] == [0.0, 0.0]


@pytest.mark.parametrize("said", [{"wins": True}, Prediction(wins=True)], ids=["dict", "Prediction"])
def test_a_judge_function_may_return_what_a_module_returns(script, said):
    write = review(script("one", "two"), critic=lambda text: "meh", judge=lambda **_: said, rounds=1)
    assert write(topic="x").review == "two"


@pytest.mark.parametrize("said", [None, "dunno", {}, {"wins": None}])
def test_a_judge_function_without_verdict_is_a_judge_error(script, said):
    def solomon(task, challenger, incumbent):
        return said

    result = review(script("one", "two"), critic=lambda text: "meh", judge=solomon, rounds=1)(topic="x")
    assert (result.review, result.attempts[1].accepted) == ("one", False)
    assert result.attempts[1].reason == "the judge gave no verdict"
    (event,) = (e for e in result.events if e.kind == "judge_error")
    assert "solomon" in event.data["error"]


def test_a_failed_revision_is_refused_and_on_record(script):
    calls = []

    def reviser(draft, issues, keep, task):
        calls.append(draft)
        if len(calls) == 1:
            raise ValueError("paper jam")
        return FLAT

    result = review(script(LONG), checks=CHECKS, reviser=reviser)(topic="x")
    assert (result.text, result.stop_reason) == (FLAT, "passed")
    assert [a.reason for a in result.attempts[1:]] == ["failed: paper jam", "score 0.83 -> 1.00"]


def test_the_result_never_scores_below_the_first_attempt(script):
    lm = script("Aa. Bb. Cc. Dd.", "Aa.", "Aa. Bb. Cc. Dd. Ee. Ff.", "Aa. Bb. Cc. Dd. Ee. Ff. Gg.")
    result = review(lm, checks=[sentences(3)])(topic="x")
    assert result.score >= result.attempts[0].score.value


# critics


class Librarian(Module):
    """A critic with a tool: it looks things up and asks a model about them."""

    def __init__(self, lm):
        self.think = Predict("draft, facts -> complaint", lm=lm)
        self.shelf = {"La Maison": "French"}

    def look_up(self, text):
        return next((fact for name, fact in self.shelf.items() if name in text), "nothing")

    async def aforward(self, task, draft):
        said = await self.think.acall(draft=draft, facts=self.look_up(draft))
        return {"critique": said.complaint}


def dish(text):
    return None if "soup" in text else "no dish -> name a dish"


async def async_dish(text):
    await asyncio.sleep(0)
    return dish(text)


def two(inputs, prediction):
    assert inputs == {"topic": "La Maison"}
    return [] if "soup" in prediction.review else ["no dish -> name a dish"]


def as_critique_value(text):
    if "soup" in text:
        return Critique(verdict="ok")
    return Critique(verdict="revise", issues=(Issue(problem="no dish", suggestion="name a dish"),))


class Callable:
    def __call__(self, text):
        return dish(text)

    def method(self, inputs, prediction):
        return two(inputs, prediction)


@pytest.mark.parametrize(
    "critic",
    [dish, async_dish, two, as_critique_value, Callable(), Callable().method, lambda text, limit=9: dish(text)],
    ids=["text", "async", "inputs and prediction", "Critique", "object", "method", "lambda"],
)
def test_a_function_as_critic(script, say, critic):
    lm = script(FLAT, RICH, *say.wins)
    result = review(lm, critic=critic)(topic="La Maison")
    assert (result.stop_reason, result.review, result.usage.calls) == ("critic_ok", RICH, 4)
    (issue,) = result.attempts[0].critique.issues
    assert (issue.problem, issue.suggestion) == ("no dish", "name a dish")
    assert "- no dish -> name a dish" in say.asked(lm, 1)


def test_no_critic_and_no_checks_is_the_authors_own_model(script, say):
    lm = script(FLAT, say.ok)
    assert review(lm)(topic="x").stop_reason == "critic_ok"
    assert lm.requests[1].schema is not None


def test_no_critic_but_checks_is_checks_alone(script):
    lm = script(FLAT)
    assert review(lm, checks=CHECKS)(topic="x").stop_reason == "passed"
    assert lm.left == 0


def test_a_persona_is_the_critics_system_prompt(script, say):
    lm = script(FLAT, say.ok, FLAT, say.ok)
    review(lm, critic="strict copy editor")(topic="x")
    assert lm.requests[1].messages[0]["content"].startswith("You are a strict copy editor.\n\nRead the draft")
    review(lm, critic="You are Anton Ego.")(topic="x")
    assert lm.requests[3].messages[0]["content"].startswith("You are Anton Ego.\n\nRead the draft")


@pytest.fixture
def provider(monkeypatch):
    """A registered provider `acme/...`, whose models say `ok` to everything."""
    made = {}

    def lm(name, *, base_url=None):
        reply = json.dumps({"verdict": "ok", "issues": []})
        return made.setdefault(name, FunctionLM(lambda request: reply, name=f"acme/{name}"))

    monkeypatch.setitem(registry._KNOWN["models"], "acme", lm)
    return made


def test_a_model_as_critic_by_name_or_as_a_value(script, say, provider):
    lm, other = script(FLAT, FLAT, FLAT), script(say.ok)
    assert review(lm, critic=other)(topic="x").stop_reason == "critic_ok"
    assert review(lm, critic="acme/strict-1")(topic="x").stop_reason == "critic_ok"
    assert review(lm, critic="acme:strict-2")(topic="x").stop_reason == "critic_ok"
    assert sorted(provider) == ["strict-1", "strict-2"]
    assert (lm.left, other.left) == (0, 0)


def test_roles_bring_their_own_models_and_temperatures(script, say):
    author, critic, reviser = script(FLAT), script(say.found("vague"), *say.wins, say.ok), script(RICH)
    write = SelfRefine(
        Predict("topic -> review", lm=author, temperature=0.7),
        critic=Role(persona="food critic", lm=critic, temperature=0.3),
        reviser=Role(persona="line editor", lm=reviser, temperature=0.1),
    )
    result = write(topic="x")
    assert (result.review, result.stop_reason) == (RICH, "critic_ok")
    assert [r.temperature for r in author.requests] == [0.7]
    assert [r.temperature for r in critic.requests] == [0.3, 0.0, 0.0, 0.3], "the judge stays at 0"
    assert [r.temperature for r in reviser.requests] == [0.1]
    assert reviser.requests[0].messages[0]["content"].startswith("You are a line editor.")
    assert critic.requests[0].messages[0]["content"].startswith("You are a food critic.")


def test_a_role_without_a_model_uses_the_authors(script, say):
    lm = script(FLAT, say.ok)
    review(lm, critic=Role(persona="editor", temperature=0.5), reviser=Role(temperature=0.2))(topic="x")
    assert [r.temperature for r in lm.requests] == [None, 0.5]


def test_the_reviser_keeps_the_authors_voice_and_cap(script):
    lm = script(LONG, FLAT, LONG, FLAT)
    author = Predict("topic -> review", lm=lm, system="You are a pirate.", max_tokens=200)
    SelfRefine(author, checks=CHECKS)(topic="x")
    assert lm.requests[1].messages[0]["content"].startswith("You are a pirate.\n\nRevise the draft")
    assert [r.max_tokens for r in lm.requests] == [200, 200]
    SelfRefine(author, checks=CHECKS, reviser="line editor")(topic="x")
    assert lm.requests[3].messages[0]["content"].startswith("You are a line editor.\n\nRevise the draft")


def test_a_critic_with_criteria(script, say):
    lm = script(FLAT)
    own = script(say.ok)
    review(lm, critic=Critic("food critic", criteria=["sensory detail", "balanced tone"], lm=own))(topic="x")
    assert "Judge by: sensory detail; balanced tone." in own.requests[0].messages[0]["content"]


def test_a_module_with_tools_as_critic(script, say):
    own = script("no dish -> name a dish", "OK")
    lm = script(FLAT, RICH, *say.wins)
    result = review(lm, critic=Librarian(own), judge=None)(topic="x")
    assert (result.review, result.stop_reason) == (RICH, "critic_ok")
    assert "Facts: French" in say.asked(own, 0)
    assert result.attempts[0].critique.by == "Librarian"


def test_a_model_without_schema_is_asked_in_plain_words(script, say):
    own = script("- vague -> name a dish\n- flat", "OK.", capabilities=Capabilities())
    result = review(script(FLAT, RICH), critic=own, judge=lambda **_: True)(topic="x")
    assert result.stop_reason == "critic_ok"
    assert [(i.problem, i.suggestion) for i in result.attempts[0].critique.issues] == [
        ("vague", "name a dish"),
        ("flat", ""),
    ]
    assert own.requests[0].schema is None


@pytest.mark.parametrize("critic", [5, 1.5, {"a": 1}])
def test_no_critic_at_all_is_refused_at_the_door(critic):
    with pytest.raises(InputError, match="critic="):
        SelfRefine("topic -> review", critic=critic)


@pytest.mark.parametrize("options", [{"reviser": 5}, {"rounds": -1}, {"rounds": "3"}, {"revise": "rewrite"}])
def test_nonsense_is_refused_at_the_door(options):
    with pytest.raises(InputError):
        SelfRefine("topic -> review", **options)


# who is told what


def test_checks_come_before_the_critic_and_cost_no_call(script):
    lm = script(LONG, FLAT)
    asked = []

    def critic(text):
        asked.append(text)

    result = review(lm, checks=CHECKS, critic=critic)(topic="x")
    assert (result.stop_reason, result.usage.calls, asked) == ("critic_ok", 2, [FLAT])


def test_the_critic_is_never_told_that_an_error_exists(script, say):
    """Its prompt for a draft is the same whatever happened before."""
    lm = script(LONG, FLAT, say.found("vague"), "La Maison. Aa. Bb.", say.b, say.found("dull"), RICH, *say.wins, say.ok)
    write = review(lm, checks=CHECKS, critic="editor", rounds=5)
    write(topic="La Maison")
    at_last = lm.requests[-1]
    fresh = script(RICH, say.ok)
    review(fresh, checks=CHECKS, critic="editor")(topic="La Maison")
    assert at_last.messages == fresh.requests[-1].messages
    assert at_last.temperature == fresh.requests[-1].temperature
    told = " ".join(m["content"] for m in at_last.messages)
    assert "If nothing needs fixing, say so" in told
    assert not any(word in told.lower() for word in ("error", "wrong", "mistake", "failed", "vague", "dull"))


def test_the_reviser_sees_the_best_draft_and_only_its_open_issues(script, say):
    best, worse, better = "Salt. Aa. Bb. Cc. Dd.", "Pepper. Aa. Bb.", "Salt. Aa. Bb."
    lm = script(best, worse, better)
    result = review(lm, checks=[contains("salt"), sentences(3)])(topic="soup")
    assert result.review == better
    second = say.everything(lm, 2)
    assert best in second
    assert worse not in second, "a refused draft is forgotten"
    assert "5 sentences, want 3" in second
    assert "missing" not in second
    assert say.asked(lm, 2) == say.asked(lm, 1)


def test_the_task_is_restated_last(script, say):
    lm = script(LONG, FLAT)
    write = SelfRefine(
        Predict(Predict("topic -> review").signature.with_instructions("Review it in a warm voice."), lm=lm),
        checks=CHECKS,
    )
    write(topic="La Maison")
    system, user = lm.requests[1].messages
    assert system["content"].endswith("Review it in a warm voice.")
    places = [user["content"].index(part) for part in ("Draft:", "Issues", "Keep", "Topic: La Maison", "Requirements:")]
    assert places == sorted(places)


def test_a_reviser_of_the_users_gets_everything_by_name():
    given = []

    async def reviser(draft, issues, keep, task):
        given.append((draft, issues, keep, task))
        return FLAT

    SelfRefine(lambda topic: LONG, checks=CHECKS, reviser=reviser)(topic="La Maison")
    assert given == [
        (
            LONG,
            "- 4 sentences, want 3 -> Write exactly 3 sentences.",
            'Mention "La Maison".',
            'La Maison\n\nRequirements:\n- Write exactly 3 sentences.\n- Mention "La Maison".',
        )
    ]


@pytest.mark.parametrize("name", ["draft", "issues", "keep", "task"])
def test_the_authors_inputs_may_have_any_name(script, say, name):
    lm = script(LONG, FLAT)
    result = SelfRefine(Predict(f"{name} -> polished", lm=lm), checks=CHECKS)(**{name: "raw words"})
    assert (result.polished, result.stop_reason) == (FLAT, "passed")
    assert LONG in say.everything(lm, 1)
    assert "raw words" in say.everything(lm, 1)


def test_typed_outputs_are_revised_as_typed_outputs(script):
    lm = script('{"title": "Soup", "stars": 3}', '{"title": "Onion soup", "stars": 4}')
    write = SelfRefine(Predict("topic -> title, stars: int", lm=lm), checks=[words(2, field="title")])
    result = write(topic="x")
    assert (result.title, result.stars, result.stop_reason) == ("Onion soup", 4, "passed")


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 30}}


def test_images_pass_untouched_through_author_and_reviser(script, say):
    lm = script("A cat. It sits.", "A cat.")
    result = SelfRefine(Predict("image, question -> answer", lm=lm), checks=[sentences(1)])(
        image=IMAGE, question="what?"
    )
    assert result.answer == "A cat."
    for request in lm.requests:
        assert [p for p in request.messages[-1]["content"] if p["type"] != "text"] == [IMAGE]
        assert "base64" not in say.asked(lm, lm.requests.index(request))


def test_images_do_not_become_text_for_critic_and_judge(script, say):
    lm = script("A cat.", say.found("which?"), "A tabby cat.", *say.wins, say.ok)
    SelfRefine(Predict("image, question -> answer", lm=lm))(image=IMAGE, question="what?")
    for at in (1, 3, 4, 5):
        assert "base64" not in say.asked(lm, at), "a picture's bytes as text cost a fortune and say nothing"
        assert "what?" in say.asked(lm, at)


def test_tool_messages_pass_untouched_through_author_and_reviser(script):
    history = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "w"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "Rain."},
    ]
    lm = script("It rains. Stay in.", "It rains.")
    result = SelfRefine(Predict("history, question -> answer", lm=lm), checks=[sentences(1)])(
        history=history, question="So?"
    )
    assert result.answer == "It rains."
    for request in lm.requests:
        assert [m for m in request.messages if m["role"] != "system"][:3] == history


# fresh drafts for small models


def test_fresh_never_shows_the_bad_draft(script, say):
    lm = script(LONG, FLAT)
    result = review(lm, checks=CHECKS, revise="fresh")(topic="La Maison")
    assert (result.review, result.attempts[1].rung, result.attempts[1].parent) == (FLAT, "constrain", 0)
    assert say.asked(lm, 1) == say.asked(lm, 0), "the author was told already; only the temperature differs"
    assert [r.temperature for r in lm.requests] == [None, 0.8]


def test_fresh_with_a_critic_gives_its_issues_as_a_hint(script, say):
    lm = script(FLAT, say.found("no dish"), RICH, *say.wins, say.ok)
    review(lm, revise="fresh")(topic="x")
    assert "- no dish" in say.asked(lm, 2)
    assert FLAT not in say.everything(lm, 2)


@pytest.mark.parametrize(("name", "rung"), [("local/tiny-135m", "constrain"), ("openai/big", "edit")])
def test_auto_is_fresh_for_the_embedded_model_only(script, name, rung):
    lm = script(LONG, FLAT, name=name)
    assert review(lm, checks=CHECKS)(topic="x").attempts[1].rung == rung


# odds and ends of users


def test_the_task_as_text(script, say):
    lm = script("Autumn moon. Cold rain.", "Autumn moon.")
    write = SelfRefine("Write a haiku on autumn.", checks=[sentences(1)])
    with pytest.raises(InputError, match="unknown 'topic'"):
        write(topic="x")
    from redraft import context

    with context(model=lm):
        result = write()
    assert result.answer == "Autumn moon."
    assert say.asked(lm, 0).startswith("Write a haiku on autumn.\n\nRequirements:")


def test_wrong_inputs_cost_nothing(script):
    lm = script(LONG)
    with pytest.raises(InputError, match="missing 'topic'"):
        review(lm)()
    with pytest.raises(InputError, match="nothing to work on"):
        review(lm)(topic="  ")
    assert lm.requests == []


def test_an_empty_draft_is_asked_for_again_and_then_an_error(script):
    lm = script("", " ", "\n")
    with pytest.raises(ParseError, match="empty") as caught:
        review(lm, checks=CHECKS)(topic="x")
    assert caught.value.usage.calls == 3


def test_unicode_survives(script):
    lm = script("Ça va? Oui. 你好。", "Ça va? 你好。👋")
    result = review(lm, checks=[sentences(2, 3), forbids("Oui")])(topic="naïve 🦊")
    assert result.review == "Ça va? 你好。👋"


def test_a_reply_that_was_cut_is_a_draft_like_any_other(script):
    cut = Completion(choices=(Choice(text="La Maison is", finish_reason="length"),))
    result = review(script(cut, FLAT), checks=CHECKS)(topic="x")
    assert result.review == FLAT
    assert result.usage.estimated == 1, "it reported no usage"


def test_hidden_checks_are_not_told(script, say):
    lm = script(LONG, FLAT)
    review(lm, checks=[sentences(3, tell=False)])(topic="x")
    assert "sentences" not in say.asked(lm, 0)
    assert "Requirements" not in say.asked(lm, 1)


def test_a_prediction_as_draft_is_shown_field_by_field(script, say):
    lm = script('{"title": "Soup", "body": "Hot."}', say.ok)
    SelfRefine(Predict("topic -> title, body", lm=lm))(topic="x")
    assert "title: Soup\n\nbody: Hot." in say.asked(lm, 1)


def test_an_author_that_is_a_module_of_modules(script, say):
    class Two(Module):
        def __init__(self, lm):
            self.outline = Predict("topic -> outline", lm=lm)
            self.write = Predict("outline -> review", lm=lm)

        async def aforward(self, topic):
            plan = await self.outline.acall(topic=topic)
            return Prediction(review=(await self.write.acall(outline=plan.outline)).review)

    lm, editor = script("a plan", LONG), ScriptedLM([FLAT], name="editor")
    result = SelfRefine(Two(lm), checks=CHECKS, reviser=Role(lm=editor))(topic="x")
    assert result.text == FLAT
    assert result.usage.calls == 3


def test_words_of_the_form_are_no_finding():
    # SmolLM2 copied the schema: {"verdict": "revise", "issues": [{"problem": "(string) minor", "suggestion": "critical"}]}
    said = {"verdict": "revise", "issues": [{"problem": "(string) minor", "suggestion": "critical"}]}
    assert as_critique(said, "critic").verdict == "ok"
    said["issues"].append({"problem": "the string section plays out of tune"})
    assert [i.problem for i in as_critique(said, "critic").issues] == ["the string section plays out of tune"]
