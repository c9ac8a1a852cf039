"""What lint says of a set-up, and what it keeps quiet about."""

from __future__ import annotations

import pytest

from redraft import Budget, Module, Predict, Refine
from redraft.checks import Check, all_of, any_of, check, not_, rubric, words
from redraft.strategies.lint import findings
from redraft.testing import FunctionLM

GPT = FunctionLM(str, name="openai/gpt-4.1-mini")
CLAUDE = FunctionLM(str, name="anthropic/claude-sonnet")


def found(**options):
    return list(findings(Refine(Predict("topic -> review", lm=GPT), **options)))


def never(text):
    return False


# checks that nobody is told


@pytest.mark.parametrize(
    "hidden",
    [
        check(never, tell=False),
        words(3, tell=False),
        all_of(words(3, tell=False)),
        all_of(words(3), check(never, tell=False)),
        any_of(never, words(3), tell=False),
        not_(check(never, tell="Be so.")),
    ],
)
def test_what_is_hidden_on_purpose_or_told_is_fine(hidden):
    assert found(checks=[hidden]) == []


@pytest.mark.parametrize("made", [check(never), never, all_of(never), not_(any_of(words(3), check(never)))])
def test_what_was_forgotten_is_named(made):
    (said,) = found(checks=[made])
    assert "'never' is never told" in said


def test_a_check_that_is_not_told_tells_nothing():
    for made in (check(never), check(never, tell=False)):
        assert (made.tell(), made.tell_text()) == ("", "")


# judges and authors


class Secretive(Check):
    asks = True

    def tell_text(self):
        return "Be good."


class Judge(Module):
    def __init__(self, lm):
        self.ask = Predict("task, drafts -> best: int", lm=lm)


def test_the_judges_inside_a_composed_check_count():
    told = rubric(["It is short."], lm=CLAUDE)
    assert found(checks=[all_of(words(3), told)]) == []
    (said,) = found(checks=[all_of(words(3), any_of(words(2), rubric(["It is short."], lm=GPT)))])
    assert "the author's own model, openai/gpt-4.1-mini," in said


def test_whom_a_check_asks_may_be_unknown():
    assert found(checks=[Secretive()]) == []


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (["anthropic/claude-haiku"], ["the judge anthropic/claude-sonnet is of the family of the author anthropic"]),
        ([GPT, CLAUDE], ["the author's own model, anthropic/claude-sonnet,"]),
        ([GPT, GPT, GPT, CLAUDE], []),
        ([GPT], []),
    ],
)
def test_each_model_that_may_write_is_an_author(models, said):
    for judged in ({"checks": [rubric(["It is short."], lm=CLAUDE)]}, {"judge": CLAUDE}, {"judge": Judge(CLAUDE)}):
        texts = found(models=models, **judged)
        assert len(texts) == len(said)
        assert all(part in text for part, text in zip(said, texts, strict=True))


def test_a_model_that_models_replace_is_no_author():
    assert found(models=[CLAUDE], checks=[rubric(["It is short."], lm=GPT)]) == []


# rewards that only say yes or no


def chosen(args, pred):
    return bool(pred.review)


def digits(args, pred):
    if not pred.review:
        return False
    return pred.review.isdigit() and pred.review.startswith("1")


def every(args, pred):
    return float(all(word in pred.review for word in ("a", "b")))


def kind(args, pred):
    return isinstance(pred.review, str) or any(args)


short = lambda args, pred: len(pred.review) < 9
chain = lambda args, pred: 1.0 if "a" in pred.review else 0.0


def partial(args, pred):
    return sum(word in pred.review for word in ("a", "b")) / 2


def measured(args, pred):
    return float(len(pred.review)) if any(args) else 0


same = lambda args, pred: 1.0
length = lambda args, pred: len(pred.review)


@pytest.mark.parametrize("reward", [chosen, digits, every, kind, short, chain])
def test_yes_or_no_is_seen(reward):
    (said,) = found(reward_fn=reward)
    assert "only says yes or no" in said
    assert found(reward_fn=reward, N=1) == []


@pytest.mark.parametrize("reward", [partial, measured, same, length])
def test_partial_credit_is_seen(reward):
    assert found(reward_fn=reward) == []


def test_findings_come_in_one_order():
    options = {"checks": [check(never, name=f"check {i}") for i in range(9)], "reward_fn": chosen, "judge": GPT}
    texts = found(**options)
    assert [text.split("'")[1] for text in texts[:9]] == [f"check {i}" for i in range(9)]
    assert "yes or no" in texts[9]
    assert "own model" in texts[10]


# functions with clients of their own


@pytest.mark.parametrize(("limits", "said"), [({"calls": 2}, 1), ({"cost": 0.1}, 1), ({"seconds": 60}, 0), ({}, 0)])
def test_a_function_that_spends_nothing_under_a_limit_is_said(limits, said):
    result = Refine(lambda q: "no", N=2, checks=[words(3)], budget=Budget(**limits))(q="x")
    told = [e.data["text"] for e in result.events if e.kind == "lint" and "no call" in e.data["text"]]
    assert len(told) == said
    assert all("metered" in text for text in told)
