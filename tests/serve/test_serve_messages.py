"""The unmodified `anthropic` client against presets."""

import json

import pytest
from anthropic import APIStatusError, BadRequestError, NotFoundError
from serve_house import ASKED, BAD, GOOD, THREE, serving

from redraft.testing import FaultServer, Reply

pytestmark = pytest.mark.serve

WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}


def test_a_message_is_refined():
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        said = served.anthropic().messages.create(
            model="refine/three", max_tokens=100, system="Be kind.", messages=ASKED, stop_sequences=["END"]
        )
    assert [block.text for block in said.content] == [GOOD]
    assert (said.stop_reason, said.role, said.model) == ("end_turn", "assistant", "refine/three")
    assert said.usage.output_tokens == len(BAD.split()) + len(GOOD.split())
    sent = up.requests[0]
    assert sent["messages"][0] == {"role": "system", "content": "Be kind."}
    assert (sent["max_tokens"], sent["stop"]) == (100, ["END"])


def test_a_streamed_message_is_the_same():
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        streamed = served.anthropic().messages.stream(model="refine/three", max_tokens=100, messages=ASKED)
        with streamed as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
    assert text == GOOD
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == 5
    assert up.calls == 2


def test_progress_comes_in_pings():
    body = {"model": "refine/three", "max_tokens": 9, "messages": ASKED, "stream": True, "redraft": {"progress": True}}
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        text = served.post("/v1/messages", body).text
        pings = [line for line in text.splitlines() if line.startswith("data:") and '"ping"' in line]
    assert [json.loads(p.removeprefix("data:"))["redraft"]["event"] for p in pings] == [
        "draft",
        "accept",
        "draft",
        "accept",
    ]


def test_a_tool_turn_and_its_result():
    with FaultServer([Reply(text="", tool_calls=[CALL]), GOOD]) as up, serving(up, {"three": THREE}) as served:
        client = served.anthropic()
        said = client.messages.create(model="refine/three", max_tokens=99, messages=ASKED, tools=[WEATHER])
        use = said.content[0]
        result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "sunny"}]}
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        messages = [
            *ASKED,
            {"role": "assistant", "content": said.content},
            {"role": "user", "content": [result, image]},
        ]
        after = client.messages.create(model="refine/three", max_tokens=99, messages=messages, tools=[WEATHER])
    assert (said.stop_reason, use.type, use.name, use.input) == (
        "tool_use",
        "tool_use",
        "get_weather",
        {"city": "Paris"},
    )
    assert after.content[0].text == GOOD
    first, second = up.requests
    assert first["tools"][0]["function"]["parameters"] == WEATHER["input_schema"]
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool", "user"]
    assert second["messages"][1]["tool_calls"][0]["id"] == use.id
    assert second["messages"][2] == {"role": "tool", "tool_call_id": use.id, "content": "sunny"}
    assert second["messages"][3]["content"][0]["image_url"]["url"] == "data:image/png;base64,AAAA"


def test_a_streamed_tool_turn():
    with FaultServer([Reply(text="", tool_calls=[CALL])]) as up, serving(up, {"three": THREE}) as served:
        asked = {"model": "refine/three", "max_tokens": 99, "messages": ASKED, "tools": [WEATHER]}
        with served.anthropic().messages.stream(**asked, tool_choice={"type": "any"}) as stream:
            final = stream.get_final_message()
    assert final.content[0].input == {"city": "Paris"}
    assert up.requests[0]["tool_choice"] == "required"


def test_errors_are_in_anthropics_form():
    one = {**THREE, "attempts": 1}
    with FaultServer([Reply.error(400, "no luck"), Reply.busy("77")]) as up, serving(up, {"three": one}) as served:
        client, asked = served.anthropic(), {"max_tokens": 9, "messages": ASKED}
        with pytest.raises(NotFoundError) as unknown:
            client.messages.create(model="refine/none", **asked)
        stream = client.messages.create(model="refine/three", stream=True, **asked)
        with pytest.raises(APIStatusError, match="no luck"):
            list(stream)
        with pytest.raises(APIStatusError) as busy:
            client.messages.create(model="refine/three", **asked)
    assert unknown.value.body["error"]["type"] == "not_found_error"
    assert busy.value.status_code == 429
    assert busy.value.response.headers["retry-after"] == "77"
    assert busy.value.body["type"] == "error"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        ({"container": "c"}, "container"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "search_result"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(more, named):
    with FaultServer() as up, serving(up, {"three": THREE}) as served, pytest.raises(BadRequestError, match=named):
        served.anthropic().messages.create(model="refine/three", max_tokens=9, messages=ASKED, extra_body=more)
    assert up.calls == 0


def test_a_schema_and_an_effort_reach_the_model():
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    config = {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    with FaultServer(['{"n": 1}']) as up, serving(up, {"plain": {"strategy": "predict"}}) as served:
        said = served.anthropic().messages.create(
            model="refine/plain", max_tokens=99, messages=ASKED, extra_body={"output_config": config}
        )
    assert json.loads(said.content[0].text) == {"n": 1}
    assert up.requests[0]["response_format"]["json_schema"]["schema"] == schema
    assert up.requests[0]["reasoning_effort"] == "low"
