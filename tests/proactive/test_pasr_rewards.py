"""PASR's rewards: the sign table, what an answer is worth, and that each is judged once."""

from __future__ import annotations

import json

import pytest

from redraft import checks
from redraft.budget import Budget
from redraft.errors import BudgetExceeded, InputError, RedraftError, ScoreError
from redraft.proactive.pasr import (
    ColumnBaseline,
    PasrRewards,
    SampledBaseline,
    format_reward,
    refinement_reward,
)
from redraft.proactive.pasr.grading import Grader, judge_reward, reference_reward
from redraft.testing import FunctionLM
from redraft.types import Prediction


def reply(answer, *looks):
    spans = "".join(f"<refine>{look}</refine>" for look in looks)
    return f"<think>hm{spans}</think><answer>{answer}</answer>"


class State:
    global_step = 3


def called(rewards, completions, rows, *, log=None):
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    prompts = [row["question"] for row in rows]
    more = {"trainer_state": State(), "completion_ids": [[0]] * len(rows), "log_metric": log}
    return [function(prompts=prompts, completions=completions, **columns, **more) for function in rewards.functions]


@pytest.mark.parametrize(
    ("accuracy", "baseline", "zeta", "worth"),
    [
        (1.0, 0.5, 0.0, 1.0),
        (0.0, 0.5, 0.0, -1.0),
        (0.5, 0.5, 0.0, -0.5),
        (1.0, 1.0, 0.0, -0.5),
        (0.0, 0.0, 0.0, -0.5),
        (0.6, 0.5, 0.1, -0.5),
        (0.61, 0.5, 0.1, 1.0),
        (0.4, 0.5, 0.1, -0.5),
        (0.39, 0.5, 0.1, -1.0),
        (0.1, sum([0.1] * 3) / 3, 0.0, -0.5),
    ],
)
def test_the_sign_table_of_refinement(accuracy, baseline, zeta, worth):
    assert refinement_reward(accuracy, baseline, refined=True, zeta=zeta) == worth
    assert refinement_reward(accuracy, baseline, refined=False, zeta=zeta) == 0.0


def test_format_is_plus_or_minus_one():
    assert format_reward(reply("1", "x")) == format_reward(reply("1")) == 1.0
    assert format_reward("1") == format_reward("<think>a</think><answer>1") == -1.0


def test_the_three_rewards_of_a_group():
    rows = [{"question": "1+1?", "answer": "2", "baseline": 0.5}] * 4
    rewards = PasrRewards(Grader(reward=reference_reward), ColumnBaseline())
    texts = [reply("2", "look"), reply("3", "look"), reply("2"), "2"]
    logged = {}
    assert called(rewards, texts, rows, log=logged.__setitem__) == [
        [1.0, 1.0, 1.0, -1.0],
        [1.0, 0.0, 1.0, 0.0],
        [1.0, -1.0, 0.0, 0.0],
    ]
    assert logged == {
        "pasr/well_formed": 0.75,
        "pasr/refines": 0.5,
        "pasr/unjudged": 0.0,
        "pasr/baseline": 0.5,
        "pasr/baseline_age": 3.0,
    }


def test_chat_completions_are_read_too():
    rows = [{"question": "1+1?", "answer": "2", "baseline": 0.5}]
    rewards = PasrRewards(Grader(reward=reference_reward), ColumnBaseline())
    assert called(rewards, [[{"role": "assistant", "content": reply("2", "x")}]], rows) == [[1.0], [1.0], [1.0]]


def test_each_answer_is_judged_once():
    asked = []

    def reward(args, pred):
        asked.append((args["question"], pred.answer))
        return 1.0

    rows = [{"question": q, "answer": "x", "baseline": 0.5} for q in "aabb"]
    called(PasrRewards(Grader(reward=reward), ColumnBaseline()), [reply(a) for a in "1121"], rows)
    assert sorted(asked) == [("a", "1"), ("b", "1"), ("b", "2")]


def test_what_a_judge_cannot_tell_pushes_neither_way_and_is_counted():
    def reward(args, pred):
        if pred.answer == "?":
            raise ScoreError("no verdict")
        return float(pred.answer)

    rows = [{"question": "q", "answer": "x", "baseline": 0.4}] * 3
    logged = {}
    rewards = PasrRewards(Grader(reward=reward), ColumnBaseline())
    _, accuracy, refinement = called(rewards, [reply("1"), reply("?", "x"), reply("0")], rows, log=logged.__setitem__)
    assert accuracy == [1.0, 0.5, 0.0]
    assert refinement == [0.0, 0.0, 0.0]
    assert logged["pasr/unjudged"] == pytest.approx(1 / 3)
    with pytest.raises(ScoreError, match="no verdict on any completion"):
        called(rewards, [reply("?")] * 3, rows)


def test_an_accuracy_outside_its_range_is_an_error():
    grader = Grader(reward=lambda args, pred: 7.0)
    with pytest.raises(RedraftError, match="within 0 and 1"):
        grader.grade([({"question": "q"}, "x")])


def test_checks_judge_as_well():
    grader = Grader([checks.words(2, 3)])
    assert grader.grade([({}, "two words"), ({}, "one"), ({}, None), ({}, "")]) == [
        1.0,
        pytest.approx(0.0, abs=0.99),
        0.0,
        0.0,
    ]
    with pytest.raises(InputError, match="nothing to judge"):
        Grader()


@pytest.mark.parametrize(
    ("gold", "said", "worth"),
    [
        ("42", "42", 1),
        ("42", "It is 42.", 1),
        ("1,200", "$1200.00", 1),
        ("42", "41 or 43", 0),
        ("4", "3-4", 1),
        ("-4", "it is -4", 1),
        ("4", "-4", 0),
        ("Paris", "paris.", 1),
        ("Paris", "London", 0),
        ("42", "none", 0),
    ],
)
def test_the_reference_is_a_number_or_a_text(gold, said, worth):
    assert reference_reward({"answer": gold}, Prediction(answer=said)) == worth


def test_an_lm_judge_sees_question_reference_and_answer():
    asked = []

    def judge(request):
        asked.append(str(request.messages))
        return json.dumps({"verdict": "5" if "forty-two" in asked[-1] else "1", "hint": ""})

    grader = Grader(reward=judge_reward(FunctionLM(judge)))
    row = {"question": "6 x 7?", "answer": "42"}
    assert grader.grade([(row, "forty-two"), (row, "41"), (row, "41")]) == [1.0, 0.0, 0.0]
    assert len(asked) == 2
    assert all("6 x 7?" in text and "Reference answer: 42" in text for text in asked)


def test_the_judge_keeps_to_its_budget():
    lm = FunctionLM(lambda request: '{"verdict": "5", "hint": ""}')
    grader = Grader(reward=judge_reward(lm), budget=Budget(calls=3))
    row = {"question": "6 x 7?", "answer": "42"}
    assert grader.grade([(row, "42"), (row, "43"), (row, "44")]) == [1.0] * 3
    assert grader.meter.calls == 3
    assert grader.grade([(row, "42")]) == [1.0], "what is known costs nothing"
    with pytest.raises(BudgetExceeded):
        grader.grade([(row, "45")])
    assert grader.meter.calls == 3


def test_a_live_baseline_asks_each_question_once_and_ages():
    asked = []

    def write(questions, n):
        asked.append((list(questions), n))
        return [["2", "3", "2", ""] for _ in questions]

    grader = Grader(reward=reference_reward)
    baseline = SampledBaseline(write, n=4, fresh=1)
    rows = [{"question": q, "answer": "2"} for q in "aaab"]
    assert baseline.means(rows, grader, 5) == [0.5] * 4
    assert (asked, baseline.age(5)) == ([(["a", "b"], 4)], 0)
    assert baseline.means(rows[:1], grader, 6) == [0.5]
    assert (len(asked), baseline.age(6)) == (1, 1)
    baseline.means(rows, grader, 7)
    assert (len(asked), baseline.age(7)) == (2, 0)


def test_a_column_without_a_mean_is_an_error():
    grader = Grader(reward=reference_reward)
    for row in ({"question": "q"}, {"question": "q", "baseline": None}, {"question": "q", "baseline": 3}):
        with pytest.raises(InputError, match="no number from 0 to 1 in 'baseline'"):
            ColumnBaseline().means([row], grader, 0)


def test_zeta_has_to_be_a_tolerance():
    with pytest.raises(InputError, match="zeta"):
        PasrRewards(Grader(reward=reference_reward), ColumnBaseline(), zeta=1.0)
