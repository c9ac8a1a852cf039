"""The report: figures by hand, words for what they mean, three forms."""

import json
import random

import pytest

from redraft import Predict, Refine
from redraft.checks import check
from redraft.evaluate import Evaluate, Example
from redraft.testing import FaultyLM, FunctionLM

EXAMPLES = [Example(q=f"q{i}").with_inputs("q") for i in range(40)]


def improving():
    """A first try is right one time in four, a second one always."""
    tried = {}

    def module(q):
        tried[q] = tried.get(q, 0) + 1
        return "right" if tried[q] == 2 or int(q[1:]) % 4 == 0 else "wrong"

    return module


def report():
    told = check(lambda text: text == "right", name="right", tell="Say right.")
    strategy = Refine(improving(), N=2, checks=[told])
    return Evaluate(EXAMPLES, lambda e, p: p.answer == "right", concurrency=1)({"refine": strategy})


def test_figures_by_hand():
    ours = report()["refine"]
    assert (ours.n, ours.score, ours.pass_rate) == (40, 1.0, 1.0)
    once = ours.single_shot
    assert (once.pairs, once.wrong_to_right, once.right_to_wrong, once.outcome) == (40, 30, 0, "better")
    assert once.difference.mean == 0.75
    assert once.difference.low == 0.6
    assert once.p == 2 / 2**30
    assert ours.p50 <= ours.p95 <= ours.seconds


def test_no_difference_is_said_in_words():
    rng = random.Random(5)
    lm = FunctionLM(lambda request: rng.choice(["right", "wrong"]))
    strategy = Refine(Predict("q -> answer", lm=lm), N=3, checks=[lambda text: True])
    found = Evaluate(EXAMPLES, lambda e, p: p.answer == "right")({"refine": strategy})
    comparison = found["refine"].best_of
    assert comparison.outcome == "no difference"
    assert comparison.difference.spans_zero
    assert str(comparison) in str(found)
    assert "refine against best of 1: no difference" in str(found)


def test_one_example_gives_no_interval_and_no_claim():
    found = Evaluate(EXAMPLES[:1], lambda e, p: True)({"refine": Refine(improving(), N=2, checks=[lambda t: True])})
    assert (found["refine"].interval, found["refine"].single_shot.outcome) == (None, "too few pairs")
    assert "too few pairs on 1 pair" in str(found)


def test_the_table_is_aligned():
    lines = str(report()).splitlines()
    table = lines[2 : lines.index("", 2)]
    assert [line.split()[0] for line in table] == ["strategy", "refine", "-", "-"]
    assert len({len(line) for line in table}) == 1


def test_the_same_as_markdown_and_json():
    found = report()
    assert found.markdown().count("\n| ") == 5
    data = json.loads(json.dumps(found.to_dict()))
    assert [s["name"] for s in data["strategies"]] == ["refine", "single shot", "best of 2"]
    assert data["strategies"][0]["single_shot"]["outcome"] == "better"
    assert len(data["items"]) == 120
    assert data["notes"] == found.notes()
    with pytest.raises(KeyError, match="there are: refine, single shot"):
        found["nobody"]


@pytest.mark.parametrize(
    ("price", "faults", "cost", "tokens"),
    [
        (None, [], "price unknown", "2"),
        (0.5, [], "$2.0000", "2"),
        (0.5, ["no_usage"], "$2.0000 to ", "~2 to "),
    ],
)
def test_costs_are_exact_or_a_range_or_unknown(price, faults, cost, tokens):
    lm = FaultyLM(FunctionLM(lambda request: "x", price=price), faults)
    lm.count = lambda request: None
    found = Evaluate(EXAMPLES[:2], lambda e, p: True, concurrency=1)({"ask": Predict("q -> answer", lm=lm)})["ask"]
    assert found.cost.startswith(cost)
    assert found.tokens_an_item.startswith(tokens)
