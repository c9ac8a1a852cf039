"""tool_call: names, arguments, what is required and what is forbidden."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic import BaseModel

from redraft import Predict, Prediction, Refine
from redraft.checks import tool_call
from redraft.errors import ScoreError, UsageError
from redraft.testing import ScriptedLM
from redraft.types import Choice, Completion


def call(name, arguments="{}"):
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


class Where(BaseModel):
    city: str
    days: int = 1


WEATHER = tool_call("get_weather", Where)
PARIS = call("get_weather", '{"city": "Paris"}')


@pytest.mark.parametrize(
    ("check", "calls", "score", "why"),
    [
        (WEATHER, [PARIS], 1.0, ""),
        (WEATHER, [PARIS, call("get_time")], 1.0, ""),
        (WEATHER, [], 0.0, "get_weather is not called"),
        (WEATHER, None, 0.0, "get_weather is not called"),
        (WEATHER, [call("get_time")], 0.5, "get_weather is not called"),
        (WEATHER, [call("get_weather")], 0.87, "the arguments of get_weather: $: 'city' is a required property"),
        (WEATHER, [call("get_weather", '{"city": 5}')], 0.87, "the arguments of get_weather: $.city: "),
        (WEATHER, [call("get_weather", "Paris")], 0.5, "the arguments of get_weather: not JSON"),
        (WEATHER, [call("get_weather", {"city": "Paris"})], 1.0, ""),  # some servers send an object
        (WEATHER, [{"name": "get_weather", "arguments": '{"city": "Paris"}'}], 1.0, ""),
        (tool_call(), [call("any", "")], 1.0, ""),
        (tool_call(), [], 0.0, "no tool is called"),
        (tool_call(required=["a", "b"]), [call("a")], 2 / 3, "b is not called"),
        (tool_call(forbidden=["rm"]), [call("rm")], 0.5, "rm is called, which is forbidden"),
        (tool_call(none=True), [], 1.0, ""),
        (tool_call(none=True), [call("a")], 0.5, "a called, want no tool call"),
    ],
)
def test_calls(check, calls, score, why):
    judged, said = check.judge(calls)
    assert judged == pytest.approx(score, abs=0.01)
    assert (judged == 1.0) == (score == 1.0)
    assert said.startswith(why) if score < 1 else True


def test_what_is_told():
    assert tool_call("a", required=["b"], forbidden="c").tell() == "Call the tools a, b. Do not call c."
    assert tool_call(none=True).tell() == "Call no tool."
    assert "The arguments of get_weather follow this schema: {" in WEATHER.tell()


def test_nearly_json_is_repaired():
    fixed = WEATHER.fix([call("get_weather", "{'city': 'Paris',}"), call("get_time")])
    assert WEATHER.judge(fixed)[0] == 1.0
    assert fixed[1] == call("get_time")
    assert WEATHER.fix([PARIS]) is None
    assert WEATHER.fix([call("get_weather", '{"city": ')]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"none": True, "required": ["a"]},
        {"required": ["a"], "forbidden": ["a"]},
        {"required": [5]},
        {"forbidden": 3},
        {"required": None},
        {"name": 3},
        {"none": "yes"},
        {"arguments": {"type": "objekt"}},
    ],
)
def test_what_contradicts_itself_is_refused(wrong):
    with pytest.raises(UsageError):
        tool_call(**wrong)


def test_what_holds_no_calls_is_named():
    with pytest.raises(ScoreError, match=r"tool_calls: list"):
        tool_call().judge("I would call get_weather")
    with pytest.raises(ScoreError, match=r"'tool_calls'.*answer"):
        asyncio.run(tool_call().verdict({}, Prediction(answer="x")))


def test_in_a_run():
    replies = [
        Completion(
            choices=(Choice(text="", tool_calls=(call("get_weather", json.dumps(a)),), finish_reason="tool_calls"),)
        )
        for a in ({"town": "Paris"}, {"city": "Paris"})
    ]
    lm = ScriptedLM(replies)
    result = Refine(Predict("q -> tool_calls: list[dict]", lm=lm), N=2, checks=[WEATHER])(q="Weather in Paris?")
    assert result.stop_reason == "passed"
    assert json.loads(result.tool_calls[0]["function"]["arguments"]) == {"city": "Paris"}
