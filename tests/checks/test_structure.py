"""json_schema: dicts, pydantic models, typed fields; garbage scores 0 and never raises."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from redraft import Predict, Prediction, Refine
from redraft.checks import json_schema
from redraft.errors import UsageError

OBJECT = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "stars": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["title", "stars"],
}


class Review(BaseModel):
    title: str
    stars: int = Field(ge=1, le=5)
    mood: Literal["good", "bad"] = "good"


@pytest.mark.parametrize("schema", [OBJECT, Review], ids=["dict", "pydantic"])
@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ('{"title": "Soup", "stars": 4}', True),
        (' {"stars": 4, "title": "Soup"}\n', True),
        ('{"title": "Soup", "stars": "4"}', False),
        ('{"title": "Soup", "stars": 9}', False),
        ('{"title": "Soup"}', False),
        ('["Soup", 4]', False),
        ("null", False),
        ("", False),
        ("Soup, 4 stars", False),
        ('```json\n{"title": "Soup", "stars": 4}\n```', False),  # a fence is not JSON
        ('Here: {"title": "Soup", "stars": 4}', False),
        ('{"title": "Soup", "stars": 4,}', False),
        ("{'title': 'Soup', 'stars': 4}", False),
        ('{"title": "Soup", "stars": 4', False),
        ('{"title": "Soup", "stars": NaN}', False),
        ('{"title": "Soup", "stars": 1e999}', False),
    ],
)
def test_texts(schema, text, passes):
    score, why = json_schema(schema).judge(text)
    assert (score == 1.0) == passes == (why == "")
    assert 0.0 <= score <= 1.0


def test_json_that_breaks_the_schema_beats_what_is_no_json():
    check = json_schema(OBJECT)
    texts = ["no", "{}", '{"title": "Soup"}', '{"title": "Soup", "stars": 4}']
    scores = [check.judge(text)[0] for text in texts]
    assert scores == sorted(set(scores)), "more right is worth more"


def test_explanations_name_the_place_and_stay_short():
    check = json_schema(
        {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"maxLength": 5}}}}}
    )
    _, why = check.judge(json.dumps({"a": {"b": "much too long " * 50}}))
    assert "$.a.b" in why
    assert len(why) < 300
    _, why = json_schema({"type": "array", "items": {"type": "integer"}}).judge('["a", "b", "c", "d", "e"]')
    assert why.endswith("and 2 more")
    _, why = json_schema(OBJECT).judge("Sure! Here it is")
    assert why.startswith("not JSON")


def test_typed_fields():
    check = json_schema(Review, field="review")
    review = Review(title="Soup", stars=4)

    def judged(value):
        return check.judge(check.value_of(Prediction(review=value, note="x")))[0]

    assert judged(review) == 1.0
    assert judged({"title": "Soup", "stars": 4}) == 1.0
    assert judged('{"title": "Soup", "stars": 4}') == 1.0
    assert judged({"title": "Soup", "stars": 9}) < 1.0
    assert judged(None) < 1.0
    assert judged(5) < 1.0
    assert json_schema({"type": "array"}, field="tags").judge(["a"])[0] == 1.0
    assert json_schema({"type": "boolean"}).judge(True)[0] == 1.0


@dataclasses.dataclass
class Place:
    city: str


@pytest.mark.parametrize("value", [{"city": "Paris"}, Place("Paris")], ids=["dict", "dataclass"])
def test_the_only_output_needs_no_field_name(value):
    check = json_schema({"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}})
    assert check.judge(check.value_of(Prediction(place=value)))[0] == 1.0


def test_in_a_run(script=None):
    from redraft.testing import ScriptedLM

    lm = ScriptedLM(['{"data": {"a": "x"}}', '{"data": {"a": 1}}'])
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    result = Refine(Predict("topic -> data: dict", lm=lm), N=2, checks=[json_schema(schema)])(topic="x")
    assert (result.data, result.stop_reason) == ({"a": 1}, "passed")


def test_tell_is_the_schema_on_one_line():
    told = json_schema(OBJECT).tell()
    assert told.startswith("Answer with JSON alone")
    assert "\n" not in told
    assert json.loads(told[told.index("{") :]) == OBJECT


@pytest.mark.parametrize("schema", [5, "{}", None, [1], {"type": "objekt"}, {"properties": 5}, {"pattern": "("}])
def test_bad_schemas_are_refused(schema):
    with pytest.raises(UsageError):
        json_schema(schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
SCHEMAS = [json_schema(s) for s in (OBJECT, Review, {"type": "number", "multipleOf": 0.01}, {"uniqueItems": True})]


@given(st.text() | JSON.map(json.dumps) | JSON)
def test_garbage_never_raises(value):
    for check in SCHEMAS:
        score, why = check.judge(value)
        assert 0.0 <= score <= 1.0
        assert (score == 1.0) == (why == "")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "1" * 10_000, '"' * 10_001, "\ud800", '"\\ud800"'])
def test_hostile_text_never_raises(text):
    assert json_schema(OBJECT).judge(text)[0] < 1.0


@pytest.mark.parametrize("text", ["NaN", "1e999", "-Infinity"])
def test_no_finite_number_is_no_json(text):
    assert json_schema({"type": "number", "multipleOf": 0.01}).judge(text)[0] < 1.0
    assert json_schema({"type": "number"}).judge(text)[0] < 1.0
