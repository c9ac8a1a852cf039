"""JSON, JSON under a schema, one number: garbage never raises, and a repair invents and loses nothing."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from redraft import Predict, Prediction, Refine
from redraft.checks import json_schema, json_valid, number
from redraft.errors import UsageError
from redraft.grammar import problem

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


# what code repairs

SOUP = '{"title": "Soup", "stars": 4}'


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{SOUP}\n```",
        f"```\r\n{SOUP}\r\n```\r\n",
        f"~~~\n{SOUP}\n~~~",
        f"```json\n{SOUP}",
        f"Sure! Here you are:\n\n```json\n{SOUP}\n```\nEnjoy.",
        f"Here: {SOUP}",
        f"{SOUP}\n\nI hope that this helps.",
        f"Of [1] and [2], the second: {SOUP}",
        '{"title": "Soup", "stars": 4,}',
        "{'title': 'Soup', 'stars': 4}",
        "{title: 'Soup', stars: 4}",
        "{\u201ctitle\u201d: \u201cSoup\u201d, \u201cstars\u201d: 4}",
        '{"title": "Soup" "stars": 4}',
        '// a review\n{"title": "Soup", /* of 5 */ "stars": 4}',
    ],
)
def test_json_is_taken_out_of_what_stands_around_it_and_mended(text):
    check = json_schema(OBJECT)
    assert check.judge(text)[0] < 1.0
    assert json.loads(check.fix(text)) == json.loads(SOUP)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Soup, 4 stars",
        SOUP,  # nothing to mend
        '{"title": "So',  # cut: the rest is anybody's guess
        '{"title": "Soup", "stars": 4',
        '{"title": "Soup", "stars": ',
        '{"title": , "stars": 4}',
        '{"title" "stars": 4}',
        f"{SOUP}\n{SOUP.replace('4', '5')}",  # two answers
        "Use [brackets] (a lot)",
    ],
)
def test_nothing_is_invented_and_nothing_lost(text):
    assert json_schema(OBJECT).fix(text) is None


@pytest.mark.parametrize(
    "schema",
    [
        OBJECT,
        {"anyOf": [OBJECT, {"type": "null"}]},
        {"oneOf": [{"type": "integer"}, {"$ref": "#/$defs/soup"}], "$defs": {"soup": OBJECT}},
        {"anyOf": [{"anyOf": [OBJECT, {"const": 3}]}, {"enum": ["none", None]}]},
    ],
)
def test_a_fragment_of_an_echoed_schema_is_no_mend(schema):
    echoed = 'JSON that follows the schema: "type": "object", "required": ["title", "stars"]'
    assert json_schema(schema).fix(echoed) is None
    assert json.loads(json_schema(schema).fix('Here: {"title": "Soup",}')) == {"title": "Soup"}


def test_a_part_is_never_taken_for_the_whole():
    broken = '{"title": "Soup", "of": {"title": "Menu", "stars": 5}, "stars": 4,}'
    assert json.loads(json_schema(OBJECT).fix(broken))["title"] == "Soup"
    assert json_schema(OBJECT).fix(broken.replace("4,}", "")) is None
    assert json_valid().fix("Good [1]. Also see [2, 3] there.") is None


def test_a_missing_key_stays_missing():
    check = json_schema(OBJECT)
    fixed = check.fix('Here: {"title": "Soup",}')
    assert json.loads(fixed) == {"title": "Soup"}
    assert 0.0 < check.judge(fixed)[0] < 1.0


WORDS = st.text("abc d\"'{}[],:\u201d\\\n0", max_size=8)
LEAVES = st.none() | st.booleans() | st.integers(-99, 99) | WORDS
OBJECTS = st.dictionaries(WORDS.filter(bool), LEAVES | st.lists(LEAVES, max_size=3), min_size=1, max_size=3)


@given(OBJECTS, st.sampled_from(["```json\n{}\n```", "Here:\n{}\nDone.", "{}\n", "```\n{}"]))
def test_json_in_a_frame_comes_out_as_it_was(value, frame):
    text = json.dumps(value, indent=1)
    assert json.loads(json_valid().fix(frame.replace("{}", text)) or text) == value


@given(st.text('{}[]",:ab1 \n`', max_size=40))
def test_a_repair_only_ever_helps(text):
    for check in (json_valid(), json_schema(OBJECT)):
        fixed = check.fix(text)
        if fixed is not None:
            assert check.judge(fixed)[0] > check.judge(text)[0]
            assert check.fix(fixed) is None
            assert set(re.findall(r"\w", fixed.replace("\\n", ""))) <= set(re.findall(r"\w", text))


UNITS = [
    "1,",
    "1.",
    "1e",
    "[",
    "{",
    '["',
    '{"a":',
    '"',
    "```\n",
    "```a\n",
    "[]",
    "{}",
    "a",
    "1 ",
    '\\"',
    "{'a': 'b',} ",
    "[1",
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("check", [json_valid(), json_schema(OBJECT), number()], ids=lambda c: c.name)
def test_degenerate_drafts_take_no_time(check, unit):
    text = (unit * 100_000)[:100_000]
    start = time.process_time()  # a busy machine is no fault of the check
    check.judge(text)
    check.fix(text)
    check.guard(text)
    assert time.process_time() - start < 1.5


def test_json_valid_says_what_is_wrong():
    check = json_valid()
    assert check.tell() == "Answer with JSON alone."
    assert check.judge("[1, 2]") == (1.0, "")
    assert check.judge("4") == (1.0, "")
    assert check.judge("```\n[1]\n```") == (0.5, "not JSON: a code fence stands around it")
    assert check.judge("Here: [1]")[0] == 0.5
    assert check.judge("Hello")[0] == 0.0
    assert json_valid(field="x").judge({"a": 1}) == (1.0, "")


def test_the_constraints_compile():
    for check in (json_valid(), json_schema(OBJECT), json_schema(Review)):
        assert problem(check.constraint().grammar()) == ""


PROSE = "Certainly, here is what I think about this soup. " * 6


def test_only_what_nothing_can_save_is_stopped():
    for check in (json_valid(), json_schema(OBJECT)):
        assert check.guard("") == check.guard("Sure, here it is") == check.guard("```json\n") == "unknown"
        assert check.guard(f"{PROSE} {{") == check.guard('"' + PROSE) == "unknown"
        assert check.guard(PROSE) == "fail"


PIECES = st.lists(
    st.sampled_from(["{", "}", "[", '"a"', "1", ",", "-", ".5", "e", " ", "42", "x", "t", PROSE]), max_size=8
)


@given(PIECES.map("".join), PIECES.map("".join))
def test_a_guards_word_holds_for_whatever_follows(prefix, rest):
    for check in (json_valid(), json_schema({}), number(), number(0, 9, integer=True)):
        said = check.guard(prefix)
        if said != "unknown":
            assert (check.judge(prefix + rest)[0] == 1.0) == (said == "pass")


# numbers


@pytest.mark.parametrize(
    ("check", "value", "score"),
    [
        (number(), "42", 1.0),
        (number(), " -3.5\n", 1.0),
        (number(), "1e3", 1.0),
        (number(), 7, 1.0),
        (number(), 2.5, 1.0),
        (number(0, 10), "10", 1.0),
        (number(0, 10), "10.1", 0.5),
        (number(0, 10), -1, 0.5),
        (number(0.1), "0.1", 1.0),
        (number(integer=True), "42", 1.0),
        (number(integer=True), "42.0", 0.5),
        (number(integer=True), "4.2", 0.5),
        (number(), "The answer is 42.", 0.25),
        (number(), "42 or 43", 0.0),
        (number(), "forty-two", 0.0),
        (number(), "", 0.0),
        (number(), True, 0.0),
        (number(), None, 0.0),
        (number(), float("nan"), 0.0),
    ],
)
def test_numbers(check, value, score):
    judged, why = check.judge(value)
    assert judged == score
    assert (why == "") == (score == 1.0)


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("The answer is 42.", "42"),
        ("**42**", "42"),
        ("About \u22123.5 degrees", "-3.5"),
        ("$7", "7"),
        ("It is 42%.", "42"),
        ("42 or 43", None),
        ("3-5", None),
        ("On 2024-01-05", None),
        ("Python 3.11.2", None),
        ("H2O", None),
        ("1,234", None),  # a thousand, or a little more than one
        ("none", None),
        ("42", None),
    ],
)
def test_the_only_number_of_a_text_is_the_answer(text, fixed):
    assert number().fix(text) == fixed


def test_a_number_is_told_and_repaired_within_its_bounds():
    check = number(1, 5, integer=True)
    assert check.tell() == "Answer with one whole number from 1 to 5, in digits, and nothing else."
    assert (check.fix("4.0 stars"), check.fix("9 stars")) == ("4", "9")  # 9 is a number at least
    assert check.judge("9")[1] == "the number is above 5"


@pytest.mark.parametrize("bounds", [(5, 1), (float("nan"),), ("1",), (True,), (float("inf"), None)])
def test_bad_bounds_are_refused(bounds):
    with pytest.raises(UsageError, match="low <= high"):
        number(*bounds)


@given(st.integers(-50, 50), st.integers(0, 60), st.booleans())
def test_a_small_range_is_held_while_decoding(low, width, integer):
    check = number(low, low + width, integer=integer)
    pattern = re.compile(check.constraint().terminal.strip("/"))
    if integer or low >= 0:
        for n in range(low - 2, low + width + 3):
            assert bool(pattern.fullmatch(str(n))) == (check.judge(str(n))[0] == 1.0)


def test_nothing_that_a_schema_points_to_is_fetched(tmp_path):
    elsewhere = tmp_path / "title.json"
    elsewhere.write_text('{"type": "string"}')
    for place in (elsewhere.as_uri(), "#/$defs/missing"):
        with pytest.raises(UsageError, match="which is not in it, and nothing is fetched"):
            json_schema({"properties": {"title": {"$ref": place}}}).judge('{"title": 1}')
    inside = json_schema({"properties": {"title": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "string"}}})
    assert inside.judge('{"title": "x"}')[0] == 1.0
