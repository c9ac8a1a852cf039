"""Evaluate: what is judged and how, failures that are kept, baselines, the shared budget, cancellation."""

import asyncio
import math

import pytest

from redraft import BestOfN, Budget, Predict, Prediction, Refine, Run, Score, SelfRefine, context
from redraft.checks import check
from redraft.errors import BadRequestError, InputError, PriceUnknownError, ScoreError
from redraft.evaluate import Evaluate, Example
from redraft.testing import FunctionLM


def numbered(n):
    return [Example(q=f"question {i}", gold=i).with_inputs("q") for i in range(n)]


def echo(q):
    return f"answer to {q}"


def right(example, prediction):
    return prediction.answer.endswith(str(example.gold))


def scores(report, name):
    return [item.score for item in report.items if item.strategy == name]


def question(request):
    """The number of the question that a request asks."""
    text = "\n".join(str(m["content"]) for m in request.messages)
    return int(text.partition("question ")[2].split()[0].strip(".\"'#[]"))


short = check(lambda text: len(text) < 20, name="short", tell="Be short.")


# What is judged


def with_trace(example, pred, trace=None):
    return trace is None and right(example, pred)


def needs_trace(example, pred, trace):
    return trace is None and right(example, pred)


async def later(example, pred):
    await asyncio.sleep(0)
    return right(example, pred)


@pytest.mark.parametrize(
    ("metric", "score", "passed", "feedback"),
    [
        (right, 1.0, True, ""),
        (with_trace, 1.0, True, ""),
        (needs_trace, 1.0, True, ""),
        (later, 1.0, True, ""),
        (lambda e, p: False, 0.0, False, ""),
        (lambda e, p: 0.4, 0.4, False, ""),
        (lambda e, p: 7, 7.0, True, ""),
        (lambda e, p: (0.5, "half"), 0.5, False, "half"),
        (lambda e, p: Score(value=2.0, feedback="fine"), 2.0, True, "fine"),
        (lambda e, p: Prediction(score=0.25, feedback="poor"), 0.25, False, "poor"),
    ],
)
def test_a_metric_may_take_and_return_any_of_these(metric, score, passed, feedback):
    (item,) = Evaluate(numbered(1), metric)(echo).items
    assert (item.score, item.passed, item.feedback, item.status) == (score, passed, feedback, "done")


def test_checks_alone_pass_if_all_pass():
    report = Evaluate(numbered(2), checks=[short, check(lambda t: "0" in t, name="zero")])({"echo": echo})
    assert [(item.passed, item.score) for item in report.items] == [(False, 0.5), (False, 0.0)]
    report = Evaluate(numbered(2), checks=[check(lambda text: "0" in text, name="zero")])({"echo": echo})
    assert [item.passed for item in report.items] == [True, False]
    assert "zero failed" in report.items[1].feedback
    assert report["echo"].pass_rate == 0.5


@pytest.mark.parametrize(("given", "passed"), [(True, True), (False, False), (0.3, True)])
def test_with_checks_a_metric_ranks_and_a_bool_gates_too(given, passed):
    (item,) = Evaluate(numbered(1), lambda e, p: given, checks=[lambda text: True])(echo).items
    assert (item.score, item.passed) == (float(given), passed)
    (item,) = Evaluate(numbered(1), lambda e, p: given, checks=[lambda text: False])(echo).items
    assert (item.score, item.passed) == (float(given), False)


def test_the_metric_sees_fields_not_the_receipt():
    """A field that bears the name of a part of a Result is the field."""

    def module(q):
        return {"score": "8 of 10", "answer": q}

    assert Evaluate(numbered(1), lambda e, p: p.score == "8 of 10")(Refine(module, N=1)).items[0].passed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "nothing to judge by"),
        ({"metric": lambda one: 1}, "does not take"),
        ({"metric": right, "concurrency": 0}, "concurrency=0"),
        ({"metric": right, "seed": None}, "seed=None"),
    ],
)
def test_what_cannot_be_evaluated_is_said_at_the_door(options, said):
    with pytest.raises(InputError, match=said):
        Evaluate(numbered(1), **options)


def test_inputs_that_do_not_fit_are_said_before_anything_is_spent():
    lm = FunctionLM(lambda request: "x")
    examples = [*numbered(2), Example(p="?").with_inputs("p")]
    for strategy in (Predict("q -> answer", lm=lm), Refine(Predict("q -> answer", lm=lm), N=1)):
        with pytest.raises(InputError, match=r"example 2: .*p"):
            Evaluate(examples, right)(strategy)
    with pytest.raises(InputError, match="no strategy"):
        Evaluate(numbered(1), right)({})
    assert lm.requests == []


# Failures are kept


def test_a_strategy_that_fails_scores_0_and_is_on_record():
    def module(q):
        if "1" in q:
            raise ValueError("boom")
        return echo(q)

    report = Evaluate(numbered(3), right)({"mine": module})
    assert scores(report, "mine") == [1.0, 0.0, 1.0]
    assert (report["mine"].n, report["mine"].failed, report["mine"].score) == (3, 1, pytest.approx(2 / 3))
    assert report.items[1].status == "failed"
    assert "mine: 1 of 3 items failed and score 0; first: example 1, ValueError: boom" in str(report)


def test_no_number_of_failures_loses_the_rest():
    lm = FunctionLM(lambda request: "yes 5" if question(request) == 5 else refuse(), price=0.1)

    def refuse():
        raise BadRequestError("refused")

    report = Evaluate(numbered(20), right)({"refine": Refine(Predict("q -> answer", lm=lm), N=2, checks=[short])})
    assert scores(report, "refine") == [float(i == 5) for i in range(20)]
    assert report["refine"].usage.calls == 39
    assert {item.attempts for item in report.items if item.strategy == "refine"} == {1, 2}


def test_a_metric_that_fails_is_no_zero():
    def exact(example, prediction):
        if example.gold == 1:
            raise KeyError("gold")
        return True if example.gold else None

    report = Evaluate(numbered(3), exact)({"echo": echo})
    assert scores(report, "echo") == [None, None, 1.0]
    assert (report["echo"].n, report["echo"].judge_errors, report["echo"].score) == (1, 2, 1.0)
    first, second, _ = (str(item.error) for item in report.items)
    assert first.startswith("example 0: metric 'exact' returned None")
    assert second.startswith("example 1: KeyError in metric 'exact': 'gold'")
    assert "echo: 2 judge errors, left out of the mean; first: example 0" in str(report)


@pytest.mark.parametrize("huge", [1e308, -1e308, 10**400, float("inf")])
def test_a_score_that_no_mean_can_hold_is_a_judge_error(huge):
    report = Evaluate(numbered(4), lambda example, prediction: huge if example.gold else 1.0)({"echo": echo})
    judged = report["echo"]
    assert judged.judge_errors in (1, 2, 3)
    assert judged.score == 1.0
    assert "judge error" in str(report)


def test_a_metric_that_has_judged_none_of_ten_buys_nothing_more():
    lm = FunctionLM(lambda request: "x")

    def typo(example, prediction):
        return prediction.anwser

    with pytest.raises(ScoreError, match=r"failed on all of the first 1\d items, so nothing more was bought: .*anwser"):
        Evaluate(numbered(50), typo, concurrency=2)({"ask": Predict("q -> answer", lm=lm)})
    assert 10 <= len(lm.requests) <= 12


def test_what_an_array_says_is_a_bool():
    class Numpy:
        __module__ = "numpy"

        def item(self):
            return True

    report = Evaluate(numbered(2), lambda example, prediction: Numpy())({"echo": echo})
    assert (report["echo"].score, report["echo"].passed) == (1.0, 2)


def test_a_mistake_in_every_item_is_raised():
    lm = FunctionLM(lambda request: "x", price=None)
    with pytest.raises(PriceUnknownError):
        Evaluate(numbered(2), right, budget=Budget(cost=1.0))(Predict("q -> answer", lm=lm))


def test_a_wrong_call_inside_one_item_ends_only_that():
    inner = Predict("word -> answer", lm=FunctionLM(lambda request: "x"))

    async def module(q):
        return await inner.acall(**({"wrong": q} if "1" in q else {"word": q}))

    report = Evaluate(numbered(3), lambda e, p: True)({"mine": module})
    assert [item.status for item in report.items] == ["done", "failed", "done"]
    assert isinstance(report.items[1].error, InputError)


def test_what_a_metric_spends_is_not_the_strategys():
    judge = Predict("answer -> verdict", lm=FunctionLM(lambda request: "good"))

    async def metric(example, prediction):
        return (await judge.acall(answer=prediction.answer)).verdict == "good"

    lm = FunctionLM(lambda request: "an answer")
    report = Evaluate(numbered(2), metric)({"ask": Predict("q -> answer", lm=lm)})
    assert (report["ask"].usage.calls, report["ask"].judging.calls, report["ask"].score) == (2, 2, 1.0)
    assert "judging took 2 calls" in str(report)


# Baselines


def retry_lm():
    """Right on the first try of even questions, else on the third try of a prompt."""
    seen = {}

    def reply(request):
        n = question(request)
        seen[n] = seen.get(n, 0) + 1
        return f"ok {n}" if n % 2 == 0 or seen[n] % 3 == 0 else "far too long an answer"

    return FunctionLM(reply)


def test_single_shot_and_equal_cost_samples_stand_beside_it():
    lm = retry_lm()
    report = Evaluate(numbered(4), right, concurrency=1)(
        {"refine": Refine(Predict("q -> answer", lm=lm), N=3, checks=[short])}
    )
    names = [s.name for s in report.standings]
    calls = report["refine"].usage.calls / 4
    assert names == ["refine", "single shot", f"best of {math.ceil(calls)}"]
    assert report["single shot"].usage.calls == 4
    assert report["refine"].single_shot.theirs == "single shot"
    assert report["refine"].best_of.theirs == names[2]
    assert f"refine took {calls:.2f} an item, rounded up" in str(report)
    told = [r for r in lm.requests if "Be short." in str(r.messages)]
    assert len(told) == len(lm.requests), "everybody is told the same requirements"


def test_baselines_ask_the_strategys_first_model_at_the_retries_temperature():
    own, small, big = (FunctionLM(lambda request: "never short enough, ever", name=n) for n in ("own", "small", "big"))
    strategy = Refine(Predict("q -> answer", lm=own), N=3, models=[small, small, big], temperature=0.4, checks=[short])
    report = Evaluate(numbered(2), right)({"refine": strategy})
    assert (len(own.requests), len(big.requests)) == (0, 2)
    assert report["single shot"].usage.calls == 2
    assert report["best of 3"].usage.calls == 6
    assert sorted(r.temperature or 0.0 for r in small.requests) == [0.0] * 6 + [0.4] * 6
    assert "calls are not equal cost: refine asks small, big, the samples small alone" in str(report)


def test_one_model_for_all_attempts_is_equal_cost():
    own, other = (FunctionLM(lambda request: "never short enough, ever", name=n) for n in ("own", "other"))
    strategy = Refine(Predict("q -> answer", lm=own), N=2, models=[other, other, own], checks=[short])
    report = Evaluate(numbered(1), right)({"refine": strategy})
    assert own.requests == []
    assert "not equal cost" not in str(report)


def test_several_calls_an_attempt_are_one_sample():
    ask = Predict("q -> answer", lm=FunctionLM(lambda request: "a long answer that never passes"))

    async def twice(q):
        await ask.acall(q=q)
        return await ask.acall(q=q)

    report = Evaluate(numbered(2), right)({"refine": Refine(twice, N=3, checks=[short])})
    assert [s.name for s in report.standings] == ["refine", "single shot", "best of 3"]
    assert "refine took 6.00 an item at 2 a sample, rounded up" in str(report)


def test_without_calls_attempts_are_matched():
    report = Evaluate(numbered(2), right)({"refine": Refine(echo, N=2, checks=[lambda text: False])})
    assert "best of 2: matched by attempts: refine took 2.00 an item" in str(report)


def test_equal_baselines_are_evaluated_once_and_others_told_apart():
    lm = FunctionLM(lambda request: f"ok {question(request)}")
    ask = Predict("q -> answer", lm=lm)
    a, b = Refine(ask, N=2, checks=[short]), Refine(ask, N=5, checks=[short])
    other = Refine(ask, N=2, reward_fn=lambda args, pred: 1.0, threshold=1.0)
    report = Evaluate(numbered(2), right)({"a": a, "b": b, "c": other})
    baselines = [s.name for s in report.standings if s.baseline]
    assert baselines == ["single shot", "single shot (c)"]
    assert "a: no equal-cost best of N: its calls pay for one sample, which is the single shot" in str(report)
    assert report["b"].single_shot.theirs == "single shot"
    assert report["c"].single_shot.theirs == "single shot (c)"


def test_a_baseline_is_compared_with_whatever_its_name_is():
    ask = Predict("q -> answer", lm=FunctionLM(lambda request: "wrong"))
    b = Refine(ask, N=2, checks=[lambda text: text == "right"], fix=False)
    names = ["single shot", "single shot (b)", "best of 2", "best of 2 (b)"]
    taken = dict.fromkeys(names, lambda q: "right")
    report = Evaluate(numbered(3), lambda e, p: p.answer == "right")({**taken, "b": b})
    assert [s.name for s in report.standings if s.baseline] == ["single shot (b) 2", "best of 2 (b) 2"]
    assert report["b"].single_shot.theirs == "single shot (b) 2"
    assert (report["b"].single_shot.difference.mean, report["b"].best_of.difference.mean) == (0, 0)
    assert (scores(report, "single shot (b)"), scores(report, "single shot (b) 2")) == ([1, 1, 1], [0, 0, 0])


def test_what_has_no_baseline_says_so():
    ask = Predict("q -> answer", lm=FunctionLM(lambda request: "x"))
    strategies = [ask, BestOfN(ask, N=2, checks=[short]), SelfRefine(ask, critic=lambda text: "", rounds=1)]
    said = str(Evaluate(numbered(2), right)(strategies))
    assert "Predict: it is a single shot itself, and has no baselines" in said
    assert "BestOfN: no equal-cost best of N: it samples blindly itself" in said
    assert "SelfRefine: no equal-cost best of N: it has neither checks nor reward" in said


def test_baselines_can_be_switched_off_and_that_is_said():
    report = Evaluate(numbered(2), right, baselines=False)(Refine(echo, N=1))
    assert [s.name for s in report.standings] == ["Refine"]
    assert "baselines were switched off" in str(report)


def test_two_strategies_of_one_kind_get_names_of_their_own():
    report = Evaluate(numbered(1), right, baselines=False)([Refine(echo, N=1), Refine(echo, N=2), echo])
    assert [s.name for s in report.standings] == ["Refine 1", "Refine 2", "echo"]


def test_a_signature_is_a_strategy():
    with context(model=FunctionLM(lambda request: f"it is {question(request)}")):
        assert Evaluate(numbered(3), right)("q -> answer")["q -> answer"].score == 1.0


# Many at once, one budget, an end at any moment


async def test_no_more_items_at_once_than_was_said():
    now = most = 0

    async def module(q):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        return q

    await Evaluate(numbered(12), right, concurrency=3).acall(module)
    assert most == 3


def test_one_budget_over_all_gives_a_partial_report():
    lm = FunctionLM(lambda request: f"ok {question(request)}")
    evaluation = Evaluate(numbered(30), right, budget=Budget(calls=25))
    report = evaluation({"refine": Refine(Predict("q -> answer", lm=lm), N=3, checks=[short])})
    assert len(lm.requests) == 25
    done = [item for item in report.items if item.status == "done"]
    assert len(done) == 25
    assert (report.complete, report["refine"].score) == (False, 1.0)
    assert report["refine"].single_shot.pairs == 12, "example by example: what is left can be compared"
    assert "PARTIAL: the limit of 25 calls is reached" in str(report)
    assert "25 items done" in str(report)
    assert "refine: no equal-cost best of N: the budget ended first" in str(report)
    assert sum(item.usage.calls for item in report.items) == 25


def test_a_strategys_own_budget_ends_one_item_only():
    lm = FunctionLM(lambda request: f"a long long answer {question(request)}")
    strategy = Refine(Predict("q -> answer", lm=lm), N=5, checks=[short], budget=Budget(calls=2))
    report = Evaluate(numbered(3), right, budget=Budget(calls=500))({"refine": strategy})
    assert [i.stop_reason for i in report.items if i.strategy == "refine"] == ["budget"] * 3
    assert (report.complete, report["refine"].score, report["refine"].usage.calls) == (True, 1.0, 6)


async def test_a_deadline_ends_it_with_what_was_done():
    async def module(q):
        await asyncio.sleep(0 if int(q.split()[1]) < 3 else 60)
        return q

    strategies = {"mine": Refine(module, N=1)}
    report = await asyncio.wait_for(Evaluate(numbered(9), right, budget=Budget(seconds=1.5)).acall(strategies), 60)
    assert not report.complete
    assert report["mine"].n == 3


async def test_inside_a_run_it_spends_from_that_runs_budget():
    lm = FunctionLM(lambda request: f"ok {question(request)}")
    async with Run(budget=Budget(calls=4)) as run:
        report = await Evaluate(numbered(9), right).acall(Predict("q -> answer", lm=lm))
    assert (len(lm.requests), run.usage.calls, report.complete) == (4, 4, False)


async def test_cancelled_it_ends_at_once_and_buys_nothing_more():
    async def slow(request):
        await asyncio.sleep(0.02)
        return f"ok {question(request)}"

    lm = FunctionLM(slow)
    task = asyncio.ensure_future(Evaluate(numbered(50), right, concurrency=4).acall(Predict("q -> answer", lm=lm)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bought = len(lm.requests)
    assert 4 <= bought < 50
    await asyncio.sleep(0.05)
    assert len(lm.requests) == bought
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


def test_progress_is_told_of_every_item_and_cannot_hurt(caplog):
    heard = []
    evaluation = Evaluate(numbered(3), right)
    evaluation({"echo": echo}, progress=lambda item, done, planned: heard.append((item.strategy, done, planned)))
    assert heard == [("echo", 1, 3), ("echo", 2, 3), ("echo", 3, 3)]
    assert evaluation(echo, progress=lambda item: None)["echo"].n == 3
    assert "a listener failed" in caplog.text


def test_an_evaluation_changes_neither_itself_nor_a_strategy():
    strategy = Refine(echo, N=2, checks=[short])
    evaluation = Evaluate(numbered(3), right)
    before = [dict(vars(thing)) for thing in (strategy, evaluation)]
    first, second = evaluation(strategy), evaluation(strategy)
    assert [dict(vars(thing)) for thing in (strategy, evaluation)] == before
    assert [s.score for s in first.standings] == [s.score for s in second.standings]
