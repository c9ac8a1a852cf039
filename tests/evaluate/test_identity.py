"""What tells strategies apart: an option that changes what is done changes the fingerprint."""

from dataclasses import dataclass
from typing import Any

import pytest

from redraft import BestOfN, Budget, Module, Predict, Refine, Role, SelfRefine
from redraft.checks import check, words
from redraft.evaluate.identity import fingerprint
from redraft.testing import FunctionLM

A, B = FunctionLM(str, name="a"), FunctionLM(str, name="b")


class Reads(Module):
    def __init__(self, style):
        self.style = style

    def forward(self, **inputs):
        return {"advice": self.style}


@dataclass(frozen=True)
class Nested:
    lm: Any
    after: Any = None


def refine(**options):
    return Refine(Predict("q -> a", lm=A), **options)


def first(task, drafts):
    return 0


def last(task, drafts):
    return len(drafts) - 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"N": 2}),
        ({}, {"fail_count": 0}),
        ({}, {"threshold": 0.5}),
        ({"threshold": 0.5}, {"threshold": 0.6}),
        ({"reward_fn": first}, {"reward_fn": last}),
        ({"checks": [words(3)]}, {"checks": [words(4)]}),
        ({"checks": [check(len)]}, {"checks": [check(len, tell=False)]}),
        ({}, {"models": [A]}),
        ({"models": [A]}, {"models": [B]}),
        ({"models": ["openai/gpt-4.1"]}, {"models": ["openai/gpt-4.1", "openai/gpt-5"]}),
        ({}, {"revise": "fresh"}),
        ({}, {"advisor": False}),
        ({"advisor": A}, {"advisor": B}),
        ({"advisor": "a poet"}, {"advisor": "an editor"}),
        ({"advisor": Role(lm=A)}, {"advisor": Role("an editor", lm=A)}),
        ({"advisor": Reads("dull")}, {"advisor": Reads("vivid")}),
        ({}, {"judge": first}),
        ({"judge": first}, {"judge": last}),
        ({"judge": A}, {"judge": B}),
        ({"judge": "a poet"}, {"judge": "an editor"}),
        ({}, {"width": 2}),
        ({}, {"temperature": 0.5}),
        ({"temperature": [0.5, 0.7]}, {"temperature": [0.5, 0.8]}),
        ({}, {"fix": False}),
        ({}, {"clean": False}),
        ({}, {"budget": Budget(calls=3)}),
        ({"budget": Budget(calls=3)}, {"budget": Budget(calls=4)}),
    ],
    ids=lambda options: ",".join(f"{name}={type(value).__name__}" for name, value in options.items()) or "default",
)
def test_each_option_of_refine_counts(one, other):
    assert fingerprint(refine(**one)) != fingerprint(refine(**other))
    assert fingerprint(refine(**one)) == fingerprint(refine(**one)), "made again it is the same"


def test_classes_and_what_dataclasses_hold_count():
    samples = BestOfN(Predict("q -> a", lm=A), width=3)
    assert fingerprint(samples) != fingerprint(refine(width=3, fix=False, clean=False, advisor=False))
    assert fingerprint(Nested(A)) != fingerprint(Nested(B))
    assert fingerprint(Nested(A, Nested(first))) != fingerprint(Nested(A, Nested(last)))
    author = Predict("q -> a", lm=A)
    assert fingerprint(SelfRefine(author, reviser=Role(lm=A))) != fingerprint(SelfRefine(author, reviser=Role(lm=B)))


def test_functions_of_one_line_are_told_apart():
    assert len({fingerprint(f) for f in (lambda t: 1, lambda t: 2, lambda t: t * 2, lambda t: t in {1, 2})}) == 4


def test_an_advisor_without_a_model_of_its_own_needs_none(monkeypatch):
    """It asks whoever wrote the attempt: to name the configured model would fail, or praise the embedded one."""
    monkeypatch.setenv("REDRAFT_MODEL", "unknown")
    assert fingerprint(Refine(first)) != fingerprint(Refine(last))
