"""On the embedded model: what a constraint bought once, a plain call does afterwards, more often than before."""

import pytest

from redraft import BootstrapFewShot, Predict, Refine, checks
from redraft.evaluate import Evaluate, Example

pytestmark = pytest.mark.local

FORM = [checks.words(3, 8), checks.lowercase()]


def products(names):
    return [Example(product=name).with_inputs("product") for name in names]


def test_a_form_is_met_more_often_after_compiling():
    program = Predict("product -> slogan", lm="local/smollm2-135m", max_tokens=24)
    optimizer = BootstrapFewShot(max_bootstrapped_demos=3)
    teacher = Refine(program, N=3, checks=FORM, fix=False)
    compiled = optimizer.compile(program, products(["soap", "tea", "a bicycle", "a lamp", "bread"]), teacher=teacher)
    assert optimizer.report.learned == 3, str(optimizer.report)
    held_out = products(["pencils", "coffee", "a clock", "cheese", "candles", "a kite", "salt", "a scarf"])
    report = Evaluate(held_out, checks=FORM, baselines=False)({"before": program, "after": compiled})
    assert report["after"].passed > report["before"].passed
