"""Refine and BestOfN: DSPy's call form, hints, rewards, failures, nesting, any callable as a module."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from functools import partial

import pytest

from redraft import BestOfN, Module, Predict, Prediction, Refine, Run, Score, SelfRefine, StopReason, checks, context
from redraft.budget import Budget
from redraft.checks import check, contains, json_schema, sentences, words
from redraft.errors import (
    AuthError,
    BudgetExceeded,
    InputError,
    LMError,
    RunFailed,
    ScoreError,
    SyncOnLoopError,
    UsageError,
)
from redraft.strategies.base import is_small
from redraft.testing import FunctionLM, ScriptedLM
from redraft.testing.words import EVERYTHING

ALONE = partial(Refine, advisor=False)
"""Refine with the hints that cost nothing."""


def write(lm, **options):
    return Predict("topic -> review", lm=lm, **options)


def length(args, pred):
    return len(pred.review.split())


# DSPy's call form


def test_as_in_dspy(script):
    def one_word(args, pred):
        assert args == {"question": "Capital of France?"}
        return 1.0 if len(pred.answer.split()) == 1 else 0.0

    lm = script("It is Paris", "Paris", "never asked")
    best = ALONE(module=Predict("question -> answer", lm=lm), N=3, reward_fn=one_word, threshold=1.0, fail_count=1)
    result = best(question="Capital of France?")
    assert (result.answer, result.score, result.stop_reason, lm.left) == ("Paris", 1.0, "threshold", 1)


@pytest.mark.parametrize("method", [ALONE, BestOfN])
def test_stops_at_the_first_that_reaches_the_threshold(script, method):
    lm = script("one", "one two", "one two three")
    result = method(write(lm), N=3, reward_fn=length, threshold=2)(topic="x")
    assert (result.review, result.score, result.stop_reason, lm.left) == ("one two", 2.0, "threshold", 1)


@pytest.mark.parametrize("method", [ALONE, BestOfN])
def test_keeps_the_best_never_the_last(script, say, method):
    result = method(write(script("one two", "one two three", "one")), N=3, reward_fn=length)(topic="x")
    assert say.trail(result) == [
        ("one two", "tell", None, True, "the first draft"),
        ("one two three", "resample", None, True, "scores above the best so far"),
        ("one", "resample", None, False, "does not score above draft 2"),
    ]
    assert (result.review, result.stop_reason, result.usage.calls) == ("one two three", "rounds", 3)


def test_ties_keep_the_earlier(script):
    result = Refine(write(script("one two", "two one")), N=2, reward_fn=length)(topic="x")
    assert result.review == "one two"


def test_checks_alone(script):
    lm = script("Aa. Bb. Cc.", "Aa. Bb.")
    result = Refine(write(lm), N=3, checks=[sentences(2)])(topic="x")
    assert (result.review, result.stop_reason, result.score) == ("Aa. Bb.", StopReason.PASSED, 1.0)


def test_checks_gate_and_the_reward_ranks(script):
    lm = script("long but without it", "salt", "salt and pepper")
    result = Refine(write(lm), N=3, checks=[contains("salt")], reward_fn=length)(topic="x")
    assert (result.review, result.score, result.stop_reason) == ("salt", 1.0, "passed")
    lm = script("long but without it", "salt", "salt and pepper", "very long and again without it")
    result = ALONE(write(lm), N=4, checks=[contains("salt")], reward_fn=length, threshold=10)(topic="x")
    assert (result.review, result.score, result.stop_reason) == ("salt and pepper", 3.0, "rounds")


def test_neither_checks_nor_reward_is_the_first_of_n(script):
    lm = script("a", "b")
    result = Refine(write(lm), N=2)(topic="x")
    assert (result.review, result.score, result.passed) == ("a", None, True)


@pytest.mark.parametrize("n", [0, -1, 2.5, "3", None])
def test_n_is_a_count(n):
    with pytest.raises(InputError, match="N="):
        Refine("topic -> review", N=n)


def test_a_call_changes_nothing(script):
    """DSPy counts fail_count down on the object: the second call then fails earlier."""
    refine = Refine(write(script(AuthError("no"), "a", AuthError("no"), "b")), N=2, fail_count=1)
    before = dict(vars(refine))
    assert [refine(topic="x").review for _ in range(2)] == ["a", "b"]
    assert vars(refine) == before


# what a retry is shown


def test_a_hint_in_a_fresh_prompt(script, say):
    lm = script("Aa.", "Aa. Bb.")
    Refine(write(lm), N=2, checks=[sentences(2)], revise="fresh")(topic="x")
    first, second = say.asked(lm, 0), say.asked(lm, 1)
    assert first == "Topic: x\n\nRequirements:\n- Write exactly 2 sentences.\n\nWrite the review."
    assert "1 sentence, want 2" in second
    assert "Aa." not in say.everything(lm, 1), "the bad draft is never shown"
    assert second.replace(second.split("\n\n")[2] + "\n\n", "") == first, "the hint is one paragraph, the rest stays"
    assert [r.temperature for r in lm.requests] == [None, 0.9]


def test_a_hint_gives_a_place_but_not_the_draft(script, say):
    bad = '{"summary": "' + "many words " * 40 + '"}'
    lm = script(bad, '{"summary": "few"}')
    few = json_schema({"type": "object", "properties": {"summary": {"maxLength": 10}}})
    Refine(write(lm), N=2, checks=[few], revise="fresh")(topic="x")
    assert "$.summary" in say.asked(lm, 1)
    assert "many words many words many words many words" not in say.asked(lm, 1)


def test_best_of_n_learns_nothing(script, say):
    lm = script("Aa. Bb. Cc.", "Aa. Bb. Cc. Dd.")
    BestOfN(write(lm), N=2, checks=[sentences(2)])(topic="x")
    assert say.asked(lm, 0) == say.asked(lm, 1)
    assert lm.requests[0].seed != lm.requests[1].seed, "the same prompt again needs another seed"


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("local/smollm2-135m", True),
        ("openai/qwen2.5-coder-0.5b-instruct-q4", True),
        ("gemma3:270m", True),
        ("Qwen/Qwen2.5-1.5B", True),
        ("llama-3.1-8b", False),
        ("Qwen2.5-7B-Instruct-1M", False),
        ("openai/gpt-4.1-mini", False),
        ("claude-sonnet-4-1m", False),
        ("o3", False),
    ],
)
def test_small_is_what_says_so_in_its_name(name, small):
    assert is_small(ScriptedLM([], name=name)) is small


def test_no_hint_for_a_small_model(script, say):
    lm = script("Aa.", "Bb.", name="local/tiny-135m")
    Refine(write(lm), N=2, checks=[sentences(2)])(topic="x")
    assert say.asked(lm, 0) == say.asked(lm, 1)


def test_the_feedback_of_a_reward_is_the_hint(script, say):
    lm = script("one", "two")
    Refine(write(lm), N=2, reward_fn=lambda args, pred: (0.1, "It lacks salt."))(topic="x")
    assert "It lacks salt." in say.asked(lm, 1)


def test_a_plain_function_needs_no_model(monkeypatch, capsys):
    for name in ("REDRAFT_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    result = Refine(lambda q: "x", N=2, reward_fn=lambda args, pred: (0.1, "bad"))(q="1")
    assert (result.answer, result.usage.calls) == ("x", 0)
    assert capsys.readouterr().err == ""


# rewards


@dataclass
class Scored:
    score: float
    feedback: str = ""


async def slow_reward(args, pred):
    await asyncio.sleep(0)
    return 0.5, "slow"


class Grader:
    def __call__(self, args, pred):
        return 0.5, "graded"


@pytest.mark.parametrize(
    ("reward", "score", "feedback"),
    [
        (lambda args, pred: 0.5, 0.5, ""),
        (lambda args, pred: 3, 3.0, ""),
        (lambda args, pred: -2.5, -2.5, ""),
        (lambda args, pred: True, 1.0, ""),
        (lambda args, pred: False, 0.0, ""),
        (lambda args, pred: (0.5, "meh"), 0.5, "meh"),
        (lambda args, pred: (True, None), 1.0, ""),
        (lambda args, pred: Score(value=0.5, feedback="meh"), 0.5, "meh"),
        (lambda args, pred: Scored(0.5, "meh"), 0.5, "meh"),
        (lambda args, pred: Scored(0.5), 0.5, ""),
        (lambda args, pred: Prediction(score=0.5, feedback="meh"), 0.5, "meh"),
        (slow_reward, 0.5, "slow"),
        (Grader(), 0.5, "graded"),
        (partial(lambda bonus, args, pred: bonus, 0.5), 0.5, ""),
    ],
)
def test_forms_of_a_reward(reward, score, feedback):
    result = Refine(lambda q: "x", N=1, reward_fn=reward)(q="1")
    assert (result.score, result.verdict.feedback) == (score, feedback)


def nothing(args, pred):
    return None


def not_a_number(args, pred):
    return float("nan")


def endless(args, pred):
    return (float("inf"), "great")


def text(args, pred):
    return "0.5"


def raising(args, pred):
    return pred.no_such_field


def bad_score(args, pred):
    return Score(value=float("nan"))


def enormous(args, pred):
    return 10**400


def leaving(args, pred):
    raise SystemExit(2)


def stopping(args, pred):
    return next(iter(()))


@pytest.mark.parametrize(
    "reward",
    [nothing, not_a_number, endless, text, raising, bad_score, enormous, leaving, stopping],
    ids=lambda f: f.__name__,
)
def test_a_reward_without_a_finite_number_is_an_error_that_names_it(reward):
    result = Refine(lambda q: "x", N=1, reward_fn=reward)(q="1")
    assert (result.stop_reason, result.score, result.passed, result.answer) == ("error", None, False, "x")
    assert isinstance(result.error, ScoreError)
    assert reward.__name__ in str(result.error)
    assert any(e.kind == "judge_error" for e in result.events)


def test_a_reward_that_fails_once_costs_one_attempt(script):
    calls = []

    def moody(args, pred):
        calls.append(pred.review)
        if len(calls) == 1:
            raise OSError("no disk")
        return 1.0

    result = Refine(write(script("a", "b")), N=2, reward_fn=moody, threshold=1.0)(topic="x")
    assert (result.review, result.stop_reason) == ("b", "threshold")
    assert isinstance(result.attempts[0].error, ScoreError)
    assert "moody" in result.attempts[0].reason


# failures


def flaky(fail):
    calls = []

    def module(q):
        calls.append(q)
        if len(calls) <= fail:
            raise ValueError(f"try {len(calls)}")
        return f"answer {len(calls)}"

    return module


def test_fail_count_is_how_many_may_fail():
    assert Refine(flaky(2), N=3)(q="x").answer == "answer 3"
    assert Refine(flaky(1), N=3, fail_count=1)(q="x").answer == "answer 2"
    with pytest.raises(RunFailed) as caught:
        Refine(flaky(2), N=3, fail_count=1)(q="x")
    assert len(caught.value.attempts) == 2
    with pytest.raises(RunFailed) as caught:
        Refine(flaky(1), N=3, fail_count=0)(q="x")
    assert len(caught.value.attempts) == 1


@pytest.mark.parametrize("fail_count", [None, 2, 3, 10])
def test_if_all_fail_the_error_carries_the_attempts(fail_count):
    with pytest.raises(RunFailed, match="ValueError: try 2") as caught:
        Refine(flaky(9), N=2, fail_count=fail_count)(q="x")
    assert [str(a.error) for a in caught.value.attempts] == ["try 1", "try 2"]
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.usage.calls == 0
    assert caught.value.run_id


def test_a_models_error_is_raised_as_itself(script):
    with pytest.raises(AuthError) as caught:
        Refine(write(script(AuthError("1"), AuthError("2"))), N=2)(topic="x")
    assert len(caught.value.attempts) == 2
    assert caught.value.usage.calls == 2


def test_too_many_failures_after_a_success_keep_it():
    def module(q, seen=[]):  # noqa: B006 - a counter
        seen.append(q)
        if len(seen) > 1:
            raise ValueError("worn out")
        return "once"

    result = Refine(module, N=3, fail_count=0, reward_fn=lambda args, pred: 0.1)(q="x")
    assert (result.answer, result.stop_reason, str(result.error)) == ("once", "error", "worn out")


def test_none_is_no_answer():
    with pytest.raises(RunFailed, match="returned None"):
        Refine(lambda q: None, N=1)(q="x")


def test_a_wrong_call_is_no_attempt(script):
    lm = script("a")
    with pytest.raises(InputError, match="unknown 'subject'"):
        Refine(write(lm), N=3)(subject="x")
    assert lm.requests == []


def test_a_module_that_calls_another_wrongly_is_told_at_once(script):
    inner = write(script("a"))
    with pytest.raises(InputError, match="unknown 'subject'"):
        Refine(lambda q: inner(subject=q), N=3)(q="x")


def test_budget_ends_it_with_the_best_so_far(script):
    lm = script("one", "one two", "never bought")
    result = ALONE(write(lm), N=5, reward_fn=length, threshold=9, budget=Budget(calls=2))(topic="x")
    assert (result.review, result.stop_reason, lm.left) == ("one two", "budget", 1)
    assert isinstance(result.error, BudgetExceeded)


def test_a_module_that_leaves_the_program_does_not_take_it_along():
    def quits(q):
        raise SystemExit(3)

    with pytest.raises(RunFailed, match=r"sys\.exit"):
        Refine(quits, N=1)(q="x")
    assert Refine(lambda q: "alive", N=1)(q="x").answer == "alive"


# nesting


def test_refine_of_self_refine_of_predict(script, say):
    lm = script(
        *("Aa. Bb. Cc.", "Aa. Bb."),  # the first inner run: a draft and a revision
        *("Salt. Bb. Cc.", "Salt. Bb."),  # the second
    )
    inner = SelfRefine(write(lm), checks=[sentences(2)])
    result = Refine(inner, N=2, checks=[contains("salt")])(topic="x")
    assert (result.review, result.stop_reason, result.usage.calls) == ("Salt. Bb.", "passed", 4)
    assert [a.text for a in result.attempts] == ["Aa. Bb.", "Salt. Bb."]
    assert [a.usage.calls for a in result.attempts] == [2, 2]
    assert 'Mention "salt".' in say.asked(lm, 0), "the outer requirements are told inside"
    assert "exactly 2 sentences" in say.asked(lm, 0)
    assert '"salt" missing' in say.asked(lm, 2), "and so is the outer hint"


def test_the_inner_critic_is_not_told_of_the_outer_failure(script, say):
    lm, editor = script("one", "two"), script(say.ok, say.ok)
    inner = SelfRefine(write(lm), critic=editor)
    Refine(inner, N=2, reward_fn=lambda args, pred: (0.1, "It lacks salt."))(topic="x")
    assert "It lacks salt." in say.asked(lm, 1)
    assert "salt" not in say.everything(editor, 1)
    assert [r.temperature for r in editor.requests] == [None, None]


def test_an_inner_budget_is_within_the_outer(script):
    lm = script(*["one"] * 9)
    inner = Refine(write(lm), N=4, reward_fn=lambda args, pred: (0.1, "more"), budget=Budget(calls=3))
    result = Refine(inner, N=3, reward_fn=lambda args, pred: (0.1, "more"), budget=Budget(calls=5))(topic="x")
    assert (result.stop_reason, result.usage.calls, lm.left) == ("budget", 5, 4)
    assert [a.usage.calls for a in result.attempts] == [3, 2, 0]


def test_the_result_of_an_inner_run_is_a_result(script):
    lm = script("one")
    seen = []

    def outer(topic):
        inner = Refine(write(lm), N=1, checks=[words(1)])(topic=topic)
        seen.append(inner)
        return inner.review + "!"

    result = Refine(outer, N=1)(topic="x")
    assert result.answer == "one!"
    assert (seen[0].stop_reason, seen[0].usage.calls, seen[0].run_id) == ("passed", 1, result.run_id)
    assert result.usage.calls == 1


def test_best_of_n_of_refine(script):
    lm = script("one", "one two", "one", "one two three")
    inner = Refine(write(lm), N=2, reward_fn=length, threshold=9)
    assert BestOfN(inner, N=2, reward_fn=length)(topic="x").review == "one two three"


# any callable is a module


class Parts(Module):
    """Sub-modules in an attribute, a list and a dict."""

    def __init__(self, lm):
        self.plan = Predict("topic -> plan", lm=lm)
        self.steps = [Predict("plan -> part", lm=lm), Predict("plan -> part", lm=lm)]
        self.ends = {"close": Predict("text -> closing", lm=lm)}

    def forward(self, topic):
        plan = self.plan(topic=topic).plan
        parts = [step(plan=plan).part for step in self.steps]
        return {"review": " ".join([*parts, self.ends["close"](text=" ".join(parts)).closing])}


class AsyncParts(Parts):
    async def aforward(self, topic):
        plan = (await self.plan.acall(topic=topic)).plan
        parts = await asyncio.gather(*(step.acall(plan=plan) for step in self.steps))
        closing = await self.ends["close"].acall(text="x")
        return {"review": " ".join([*(p.part for p in parts), closing.closing])}


@pytest.mark.parametrize("kind", [Parts, AsyncParts])
def test_user_modules_with_modules_inside(script, kind):
    lm = script("plan", "one", "two", "end", "plan", "one", "two", "three end")
    result = Refine(kind(lm), N=2, checks=[words(4)])(topic="x")
    assert (result.review, result.usage.calls, result.stop_reason) == ("one two three end", 8, "passed")
    scopes = {e.scope for e in result.events if e.kind == "call"}
    for path in ("plan", "steps[0]", "steps[1]", "ends['close']"):
        assert any(path in scope for scope in scopes)


def test_the_requirements_reach_the_modules_inside(script, say):
    lm = script("plan", "one", "two", "end")
    Refine(Parts(lm), N=1, checks=[words(3)])(topic="x")
    assert all("Write exactly 3 words." in say.asked(lm, i) for i in range(4))


def test_a_plain_function(script):
    lm = script("one", "one two")
    inner = write(lm)

    def module(topic):
        return inner(topic=topic).review.upper()

    result = Refine(module, N=2, checks=[words(2)])(topic="x")
    assert (result.answer, result.usage.calls) == ("ONE TWO", 2)


async def test_an_async_function(script):
    inner = write(script("one", "one two"))

    async def module(topic):
        return {"review": (await inner.acall(topic=topic)).review}

    result = await Refine(module, N=2, checks=[words(2)]).acall(topic="x")
    assert (result.review, result.usage.calls) == ("one two", 2)


def test_a_lambda_a_method_an_object_a_partial(script):
    inner = write(script(*["one"] * 4))

    class Holder:
        def method(self, topic):
            return inner(topic=topic).review

        async def __call__(self, topic):
            return (await inner.acall(topic=topic)).review

    def with_style(style, topic):
        return inner(topic=topic).review + style

    for module, said in [
        (lambda topic: inner(topic=topic), "one"),
        (Holder().method, "one"),
        (Holder(), "one"),
        (partial(with_style, "!"), "one!"),
    ]:
        result = Refine(module, N=1, checks=[words(1)])(topic="x")
        assert (result.text, result.usage.calls, result.passed) == (said, 1, True)


def test_in_a_repl_without_source(script):
    """DSPy reads sources with inspect.getsource, which fails there."""
    namespace = {"Refine": Refine, "inner": write(script("one", "one two"))}
    exec(
        "def reward(args, pred): return len(pred.answer.split()) / 2, 'too short'\n"
        "result = Refine(lambda topic: inner(topic=topic).review, N=2, reward_fn=reward, threshold=1.0)(topic='x')\n",
        namespace,
    )
    assert namespace["result"].answer == "one two"


async def test_a_sync_call_inside_a_coroutine_works_from_another_loop(script):
    result = Refine(write(script("one")), N=1)(topic="x")  # as in Jupyter
    assert result.review == "one"


async def test_a_sync_call_on_the_runs_own_loop_says_what_to_write(script):
    inner = write(script("one"))

    async def module(topic):
        return inner(topic=topic)

    with pytest.raises(SyncOnLoopError, match="acall"):
        await Refine(module, N=1).acall(topic="x")


def test_many_threads_share_one_strategy():
    refine = Refine(write(FunctionLM(lambda request: "one two")), N=2, checks=[words(2)])
    results = []
    threads = [threading.Thread(target=lambda i=i: results.append(refine(topic=f"t{i}"))) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({r.run_id for r in results}) == 16
    assert {r.usage.calls for r in results} == {1}


def test_several_calls_under_one_budget(script):
    refine = Refine(write(script("one", "two", "three")), N=1)
    with Run(budget=Budget(calls=2)) as run:
        assert refine(topic="x").review == "one"
        assert refine(topic="x").review == "two"
        with pytest.raises(BudgetExceeded):
            refine(topic="x")
    assert run.usage.calls == 2


def test_the_model_of_the_context(script):
    with context(model=script("one")):
        assert Refine("topic -> review", N=1)(topic="x").review == "one"


@pytest.mark.parametrize("module", [5, None, "", "  ", {"a": 1}])
def test_what_is_no_module_is_refused_at_the_door(module):
    with pytest.raises(InputError):
        Refine(module)


def test_functions_as_checks(script):
    @check(tell="Mention the topic.")
    def on_topic(inputs, prediction):
        return inputs["topic"] in prediction.review or (0.5, "it is off the topic")

    lm = script("pepper", "salt")
    result = Refine(write(lm), N=2, checks=[on_topic, lambda text: len(text) < 9])(topic="salt")
    assert (result.review, result.passed) == ("salt", True)
    assert [v.check for v in result.verdict.verdicts] == ["on_topic", "<lambda>"]
    assert result.attempts[0].score.feedback == "it is off the topic."


def test_a_name_in_the_script_of_an_lm_error():
    with pytest.raises(LMError, match="script"):
        Refine(write(ScriptedLM([])), N=1)(topic="x")


def test_a_reward_of_one_argument_is_refused_at_the_door(script):
    with pytest.raises(InputError, match="a function of two arguments"):
        Refine(Predict("q -> a", lm=script("x")), reward_fn=lambda pred: 1.0)


def test_a_check_that_was_not_called_is_refused_at_the_door(script):
    with pytest.raises(UsageError, match=r"words is not called yet: write words\(\.\.\.\)"):
        Refine(Predict("q -> a", lm=script("x")), checks=[checks.words])


def test_wrong_inputs_of_a_function_cost_nothing(script):
    def ad(product):
        raise AssertionError("never called")

    with pytest.raises(InputError, match="ad does not take the inputs prodct"):
        Refine(ad, N=3)(prodct="soap")


def test_thinking_hard_is_kept_for_where_little_thought_did_not_do():
    lm = ScriptedLM(["bad", "bad", "good"], capabilities=EVERYTHING)
    reward = lambda args, pred: float(pred.review == "good")
    result = Refine(Predict("topic -> review", lm=lm), 3, reward, 1.0, effort=("low", "high"), advisor=False)(topic="x")
    assert [r.effort for r in lm.requests] == ["low", "high", "high"]
    whys = [e.data["why"] for e in result.events if e.kind == "propose"]
    assert ["effort high" in why for why in whys] == [False, True, False]


@pytest.mark.parametrize("effort", [("low", ""), (1,), 3])
def test_an_effort_is_a_word(effort):
    with pytest.raises(InputError, match="effort"):
        Refine(Predict("topic -> review"), effort=effort)


def test_a_check_may_be_written_as_on_the_command_line():
    result = Refine(Predict("topic -> review", lm=ScriptedLM(["one two three"])), checks="words:3")(topic="x")
    assert result.passed
    with pytest.raises(UsageError, match="wrds"):
        Refine(Predict("topic -> review"), checks=["wrds:3"])
