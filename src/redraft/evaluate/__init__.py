"""Evaluation: strategies on examples, with intervals, beside a single shot and blind samples of the same cost."""

from redraft.evaluate.calibrate import Calibrate, Calibration
from redraft.evaluate.evaluate import Evaluate
from redraft.evaluate.examples import Example, read_examples
from redraft.evaluate.item import Item
from redraft.evaluate.report import Report
from redraft.evaluate.sources import examples_from, examples_of
from redraft.evaluate.standing import Comparison, Standing

__all__ = [
    "Calibrate",
    "Calibration",
    "Comparison",
    "Evaluate",
    "Example",
    "Item",
    "Report",
    "Standing",
    "examples_from",
    "examples_of",
    "read_examples",
]
