"""A base install has no llguidance: a schema needs none where the model takes schemas; a grammar cannot be checked, and is not sent."""

import sys

import pytest

from redraft import Predict, Refine, checks
from redraft.checks.languages import together
from redraft.testing import ScriptedLM
from redraft.types import Capabilities

ANSWER = {
    "type": "object",
    "properties": {"without": {"type": "integer"}},
    "required": ["without"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def no_llguidance(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)


async def test_a_schema_is_held_where_the_model_takes_schemas():
    lm = ScriptedLM(["no idea", '{"without": 3}'], capabilities=Capabilities(json_schema=True))
    refine = Refine(Predict("q -> a", lm=lm), N=2, checks=[checks.json_schema(ANSWER)])
    result = await refine.acall(q="how many?")
    assert result.passed
    assert [attempt.rung for attempt in result.attempts] == ["tell", "constrain"]
    assert lm.requests[1].schema == ANSWER


def test_a_grammar_is_not():
    offers = [checks.json_schema(ANSWER).constraint(), checks.words(1, 4_321).constraint()]
    whole, held = together(offers)
    assert whole.schema == ANSWER
    assert held == [0]
    assert together(offers[1:]) == (None, [])
