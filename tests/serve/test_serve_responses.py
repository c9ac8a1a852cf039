"""The unmodified `openai` client's Responses against presets."""

import json

import pytest
from openai import APIError, BadRequestError
from serve_house import BAD, GOOD, THREE, serving

from redraft.testing import FaultServer, Reply

pytestmark = pytest.mark.serve

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
CALL = {"id": "call_7", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}


def test_a_response_is_refined():
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        said = served.openai().responses.create(
            model="refine/three", input="Write.", instructions="Be kind.", max_output_tokens=90, metadata={"a": "b"}
        )
    assert said.output_text == GOOD
    assert (said.status, said.metadata, said.instructions) == ("completed", {"a": "b"}, "Be kind.")
    assert said.usage.output_tokens == len(BAD.split()) + len(GOOD.split())
    assert [m["role"] for m in up.requests[0]["messages"]] == ["system", "user"]
    assert up.requests[0]["max_tokens"] == 90


def test_a_streamed_response_is_the_same():
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        streamed = served.openai().responses.stream(model="refine/three", input="Write.")
        with streamed as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
    assert final.output_text == GOOD
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert up.calls == 2


def test_a_tool_turn_and_its_result():
    with FaultServer([Reply(text="", tool_calls=[CALL]), GOOD]) as up, serving(up, {"three": THREE}) as served:
        client = served.openai()
        said = client.responses.create(model="refine/three", input="Write.", tools=[WEATHER])
        call = said.output[0]
        image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
        items = [
            {"role": "user", "content": [{"type": "input_text", "text": "Write."}, image]},
            call.to_dict(),
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
        ]
        after = client.responses.create(model="refine/three", input=items, tools=[WEATHER])
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "Paris"})
    assert after.output_text == GOOD
    first, second = up.requests
    assert first["tools"][0]["function"]["name"] == "get_weather"
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool", "user"]
    assert second["messages"][0]["content"][1]["image_url"] == {"url": image["image_url"], "detail": "low"}


def test_a_schema_logprobs_and_an_effort_reach_the_model():
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    with FaultServer(['{"n": 1}']) as up, serving(up, {"plain": {"strategy": "predict"}}) as served:
        said = served.openai().responses.create(
            model="refine/plain",
            input="Write.",
            text=form,
            reasoning={"effort": "low"},
            include=["message.output_text.logprobs"],
        )
    assert json.loads(said.output_text) == {"n": 1}
    assert "".join(t.token for t in said.output[0].content[0].logprobs) == '{"n": 1}'
    assert up.requests[0]["response_format"]["json_schema"]["schema"] == schema
    assert up.requests[0]["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(more, named):
    with FaultServer() as up, serving(up, {"three": THREE}) as served, pytest.raises(BadRequestError, match=named):
        served.openai().responses.create(**{"model": "refine/three", "input": "Write.", **more})
    assert up.calls == 0


def test_an_error_in_a_stream_is_raised():
    with FaultServer(lambda _: Reply.error(400, "no such luck")) as up, serving(up, {"three": THREE}) as served:
        stream = served.openai().responses.create(model="refine/three", input="Write.", stream=True)
        with pytest.raises(APIError, match="no such luck"):
            list(stream)


def test_what_was_cut_is_incomplete():
    with FaultServer(lambda _: GOOD) as up, serving(up, {"plain": {"strategy": "predict"}}) as served:
        said = served.openai().responses.create(model="refine/plain", input="Write.", max_output_tokens=2)
    assert (said.status, said.incomplete_details.reason) == ("incomplete", "max_output_tokens")
