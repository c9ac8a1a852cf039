"""A run beside single shots of equal cost: win, tie, loss, or why there is no verdict."""

import dataclasses

import pytest
from page_runs import BRIEF, CHECKS, FULL, LONGER

from redraft import Predict, Refine
from redraft.report.page.standing import Shot, shot_of, standing, totals
from redraft.testing import ScriptedLM


def shot(run_id="r", score=0.8, tokens=100, **more):
    return Shot(
        **{
            "run_id": run_id,
            "begun": 0.0,
            "like": "x",
            "score": score,
            "tokens": tokens,
            "cost": 0.0,
            "single": True,
            "strategy": "",
            **more,
        }
    )


@pytest.mark.parametrize(("score", "outcome"), [(0.7, "win"), (0.8, "tie"), (0.9, "loss")])
def test_the_best_of_as_many_single_shots_as_it_cost(score, outcome):
    singles = [shot("a", 0.1, 50), shot("b", score, 50), shot("c", 1.0, 50)]
    found = standing(shot(single=False), singles)
    assert found.outcome == outcome
    assert found.text == f"0.80 against {score:.2f}, the best of 2 single shots (equal tokens)"


def test_a_part_of_a_single_shot_is_a_whole_one():
    singles = [shot("a", 0.1, 60), shot("b", 0.9, 60), shot("c", 1.0, 60)]
    assert standing(shot(), singles).text.endswith("the best of 2 single shots (equal tokens)")


def test_money_is_what_is_equal_where_all_have_some():
    singles = [shot("a", 0.1, 1, cost=0.5), shot("b", 0.2, 1, cost=0.5)]
    assert standing(shot(cost=0.5), singles).text == "0.80 against 0.10, 1 single shot (equal money)"


@pytest.mark.parametrize(
    ("singles", "why"),
    [
        ([], "no single shot of this task is kept"),
        ([shot("a", like="other task")], "no single shot of this task is kept"),
        ([shot("a", 0.1, 50)], "1 kept, fewer single shots than its tokens would have bought"),
        ([shot("a", None, 100)], "the single shots have no score"),
    ],
)
def test_no_verdict_where_they_cannot_be_compared(singles, why):
    found = standing(shot(), singles)
    assert (found.outcome, found.text) == (None, why)


def test_the_older_ones_are_taken_first():
    singles = [shot("late", 1.0, begun=2.0), shot("early", 0.1, begun=1.0)]
    assert standing(shot(), singles).outcome == "win"


def test_how_often_by_strategy():
    wins = standing(shot(), [shot("a", 0.1)])
    none = standing(shot(), [])
    assert totals([("Refine", wins), ("Refine", none), ("", wins)]) == [
        ("Refine", {"win": 1, "none": 1}),
        ("unnamed", {"win": 1}),
    ]


def test_runs_of_one_task_with_one_model_and_the_same_checks_are_alike(ran):
    def run(run_id, replies, N=3, checks=CHECKS, task="Review La Maison"):
        strategy = Refine(Predict("task -> review"), N=N, checks=checks)
        return shot_of(run_id, ran(strategy, ScriptedLM(replies), run_id, task=task))

    refined = run("a", [BRIEF, LONGER, FULL])
    single = run("single-shot-0001-x", [BRIEF], N=1)
    assert (refined.single, single.single) == (False, True)
    assert refined.like == single.like
    assert refined.score == 1.0 > single.score
    assert refined.tokens > single.tokens > 0
    assert run("b", [BRIEF], N=1, task="Another one").like != single.like
    assert run("c", [BRIEF], N=1, checks=CHECKS[:1]).like != single.like
    lucky = run("d", [FULL])
    assert not lucky.single, "it stopped after one draft because that was good: no yardstick"
    assert standing(refined, [dataclasses.replace(single, tokens=refined.tokens)]).outcome == "win"
