"""The report: figures by hand, words for what they mean, three forms."""

import json
import random

import pytest

from redraft import BestOfN, Predict, Refine
from redraft.checks import check
from redraft.errors import UnsupportedError
from redraft.evaluate import Evaluate, Example
from redraft.evaluate.peers import more_thinking
from redraft.evaluate.standing import Comparison
from redraft.evaluate.stats import Estimate
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
    assert once.difference.low == pytest.approx(0.5626, abs=1e-4)  # Bonett and Price 2012 by hand: 30 of 40 changed
    assert once.p == once.p_passes == 2 / 2**30
    assert ours.p50 <= ours.p95 <= ours.seconds


def test_no_difference_is_said_in_words():
    rng = random.Random(5)
    lm = FunctionLM(lambda request: rng.choice(["right", "wrong"]))
    strategy = Refine(Predict("q -> answer", lm=lm), N=3, checks=[lambda text: True])
    found = Evaluate(EXAMPLES, lambda e, p: p.answer == "right")({"refine": strategy})
    comparison = found["refine"].single_shot
    assert comparison.outcome == "no difference"
    assert comparison.difference.spans_zero
    assert str(comparison) in str(found)
    assert "refine against single shot: no difference" in str(found)
    assert "refine: no equal-cost best of N: its calls pay for one sample" in str(found)


def test_strategies_are_compared_with_each_other():
    given = {"better": lambda q: "right", "worse": lambda q: "wrong", "other": lambda q: "right"}
    found = Evaluate(EXAMPLES[:8], lambda e, p: p.answer == "right")(given)
    assert [(c.ours, c.theirs, c.outcome) for c in found.between] == [
        ("better", "worse", "better"), ("better", "other", "no difference"), ("worse", "other", "worse")
    ]  # fmt: skip
    assert "better against worse: better +1.000" in str(found)
    assert [c["theirs"] for c in found.to_dict()["comparisons"]] == ["worse", "other", "other"]


def test_a_note_is_one_line_and_no_tag():
    def fails(q):
        raise ValueError("a\nb <i>c</i>")

    found = Evaluate(EXAMPLES[:1], lambda e, p: True)({"<b>": fails})
    assert "<b>: 1 of 1 item failed and score 0; first: example 0, ValueError: a b <i>c</i>" in found.notes()
    assert "<b>" not in found.markdown()
    assert "ValueError: a b &lt;i>c" in found.markdown()


def test_an_effort_that_the_model_refuses_is_said():
    def reply(request):
        if request.effort:
            raise UnsupportedError("no such thing", parameter="effort")
        return "right"

    module = Predict("q -> answer", lm=FunctionLM(reply))
    peer = more_thinking(module, [], "warp")
    found = Evaluate(EXAMPLES[:3], lambda e, p: True)({"ask": module, peer.name: peer})
    assert (
        "effort warp: the model has refused the effort, so nothing thought more than it does by itself" in found.notes()
    )
    assert not any(note.startswith("ask: the model") for note in found.notes())


def test_one_example_gives_no_interval_and_no_claim():
    found = Evaluate(EXAMPLES[:1], lambda e, p: True)({"refine": Refine(improving(), N=2, checks=[lambda t: True])})
    assert (found["refine"].interval, found["refine"].single_shot.outcome) == (None, "too few pairs")
    assert "refine against single shot: too few pairs (1)" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["strategies"][0]["single_shot"]["difference"] is None


def test_a_few_examples_are_no_proof_however_alike_they_are():
    told = check(lambda text: text == "right", name="right", tell="Say right.")
    asked = [Example(q=f"q{4 * i + 1}").with_inputs("q") for i in range(3)]
    found = Evaluate(asked, lambda e, p: p.answer == "right", concurrency=1)(
        {"refine": Refine(improving(), N=2, checks=[told])}
    )
    once = found["refine"].single_shot
    assert (once.difference.mean, once.wrong_to_right, once.p) == (1.0, 3, 0.25)
    assert once.outcome == "no difference"
    assert found["refine"].interval.low == pytest.approx(0.4385, abs=1e-4)  # Wilson, 3 of 3


def test_an_interval_without_0_is_no_verdict_where_luck_does_as_much():
    told = check(lambda text: text == "right", name="right", tell="Say right.")
    asked = [Example(q=f"q{4 * i + 1}").with_inputs("q") for i in range(5)]
    found = Evaluate(asked, lambda e, p: p.answer == "right", concurrency=1)(
        {"refine": Refine(improving(), N=2, checks=[told])}
    )
    once = found["refine"].single_shot
    assert (once.outcome, once.p, once.difference.spans_zero) == ("not told from luck", 0.0625, False)
    by = "+1.000 (+0.196 to +1.000) on 5 pairs; wrong->right 5, right->wrong 0"
    assert str(once) == f"refine against single shot: not told from luck (p = 0.062): {by}"
    assert once.to_dict()["outcome"] == "not told from luck"


def test_nor_is_a_small_p_beside_an_interval_with_0():
    parts = {"wrong_to_right": 0, "right_to_wrong": 0, "p_passes": 1.0}
    found = Comparison(ours="a", theirs="b", pairs=9, difference=Estimate(0.2, -0.01, 0.4, 9), p=0.04, **parts)
    assert found.outcome == "not told from luck"
    assert "not told from luck (the interval spans 0): +0.200 (-0.010 to +0.400), p = 0.04, on 9 pairs" in str(found)


def test_a_baseline_that_was_given_as_a_strategy_is_bought_once():
    lm = FunctionLM(lambda request: "wrong")
    told = check(lambda text: text == "right", name="right", tell="Say right.")
    module = Predict("q -> answer", lm=lm)
    given = {"samples": BestOfN(module, N=2, checks=[told]), "refine": Refine(module, N=2, checks=[told], fix=False)}
    found = Evaluate(EXAMPLES[:4], lambda e, p: False)(given)
    assert [s.name for s in found.standings] == ["samples", "refine", "single shot"]
    assert len(lm.requests) == 4 * (2 + 2 + 1)
    assert (found["refine"].best_of.theirs, found["samples"].baseline) == ("samples", False)
    said = "its best of 2 is samples, configured alike and bought once (matched by calls: refine took 2.00 an item, rounded up)"
    assert f"refine: {said}" in found.notes()
    assert found.between == (), "they are compared once"
    other = Evaluate(EXAMPLES[:4], lambda e, p: False)({**given, "samples": BestOfN(module, N=3, checks=[told])})
    assert [s.name for s in other.standings] == ["samples", "refine", "single shot", "best of 2"]
    assert len(other.between) == 1


def test_means_of_different_examples_are_not_set_against_each_other():
    told = check(lambda text: text == "right", name="right", tell="Say right.")

    def metric(example, prediction):
        if prediction.answer == "wrong":
            raise ValueError("odd")
        return True

    found = Evaluate(EXAMPLES[:8], metric, concurrency=1)({"refine": Refine(improving(), N=2, checks=[told])})
    assert (found["refine"].n, found["single shot"].n) == (8, 2)
    assert "UNEQUAL: the scores of the table are means over different examples" in str(found)
    assert "UNEQUAL" not in str(report())


def test_an_evaluation_in_which_nothing_came_to_a_score_says_what_went_wrong():
    def boom(example, prediction):
        raise ValueError("a typo")

    found = Evaluate(EXAMPLES[:2], boom)({"ask": lambda q: "x"})
    assert "a typo" in str(found.failure)
    assert report().failure is None


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
