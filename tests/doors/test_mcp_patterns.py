"""What clients write as patterns is matched in linear time, or refused: none can stop the server."""

import pytest

from redraft.checks import json_schema, matches
from redraft.errors import ConfigError, UsageError
from redraft.integrations.mcp.checking import checks_from
from redraft.integrations.mcp.terms import Terms
from redraft.linear import linear

pytestmark = pytest.mark.doors

EXPLODING = "^(a+)+$"
LONG = "a" * 200 + "!"
OWNER, STRANGER = Terms(trusted=True), Terms()


@pytest.mark.parametrize(
    "item",
    [
        f"matches:{EXPLODING}",
        {"type": "regex", "value": EXPLODING},
        {"check": "json_schema", "args": [{"type": "string", "pattern": EXPLODING}]},
        {"all_of": [f"matches:{EXPLODING}"]},
    ],
)
async def test_an_exploding_pattern_is_judged_at_once(item):
    (check,) = checks_from([item], STRANGER)
    from redraft.types import Prediction

    text = LONG if "json_schema" not in str(item) else f'"{LONG}"'
    verdict = await check.verdict({}, Prediction(answer=text))
    assert not verdict.passed


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1"])
def test_what_cannot_be_linear_is_refused_to_strangers_only(pattern):
    checks_from([f"matches:{pattern}"], OWNER)
    with pytest.raises(UsageError, match="linear time"):
        checks_from([f"matches:{pattern}"], STRANGER)


def test_property_patterns_are_refused_to_strangers():
    schema = {"type": "object", "patternProperties": {EXPLODING: {}}}
    json_schema(schema)
    with pytest.raises(ConfigError, match="patternProperties"):
        checks_from([{"check": "json_schema", "args": [schema]}], STRANGER)


@pytest.mark.parametrize(
    ("pattern", "text"), [(r"\d+ (?P<unit>kg|g)", "12 kg"), ("(?i)yes", "YES"), ("a.c", "a\nc"), ("ä+", "ää")]
)
def test_both_engines_say_the_same(pattern, text):
    plain = matches(pattern)
    with linear():
        safe = matches(pattern)
    assert plain.judge(text) == safe.judge(text)
