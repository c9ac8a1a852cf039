"""The unmodified `openai` client against presets: sync, async, streams, tools, images, schemas."""

import asyncio
import json

import pytest
from openai import BadRequestError, NotFoundError
from serve_house import ASKED, BAD, GOOD, THREE, serving, words

from redraft.testing import FaultServer, Reply

pytestmark = pytest.mark.serve

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def call(arguments, name="get_weather", id="call_1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_an_answer_is_refined_until_it_passes():
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        told = served.openai().chat.completions.with_raw_response.create(model="refine/three", messages=ASKED)
        reply = told.parse()
    assert reply.choices[0].message.content == GOOD
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == "refine/three"
    assert told.headers["x-redraft-stop-reason"] == "passed"
    assert told.headers["x-redraft-calls"] == "2"
    assert told.headers["x-redraft-usage"] == "exact"
    assert told.headers["x-redraft-run-id"] in reply.id


async def test_async_clients_are_answered_at_the_same_time():
    with FaultServer(lambda _: GOOD) as up, serving(up, {"three": THREE}) as served:
        async with served.async_openai() as client:
            asked = [client.chat.completions.create(model="refine/three", messages=ASKED) for _ in range(8)]
            replies = await asyncio.gather(*asked)
    assert {reply.choices[0].message.content for reply in replies} == {GOOD}
    assert len({reply.id for reply in replies}) == 8


def test_the_accepted_text_alone_is_streamed():
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(served.openai().chat.completions.create(model="refine/three", messages=ASKED, **options))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == GOOD
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == len(BAD.split()) + len(GOOD.split())


def test_a_stream_tells_of_drafts_where_that_is_asked_for():
    asked = {"redraft": {"progress": True, "include": ["drafts", "scores"]}}
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        stream = served.openai().chat.completions.create(
            model="refine/three", messages=ASKED, stream=True, extra_body=asked
        )
        told = [chunk.model_extra["redraft"] for chunk in stream if "redraft" in (chunk.model_extra or {})]
    drafts = [t for t in told if t.get("event") == "draft"]
    assert [(t["draft"], t["text"]) for t in drafts] == [(0, BAD), (1, GOOD)]
    assert told[-1]["stop_reason"] == "passed"
    assert told[-1]["usage"]["calls"] == 2


def test_the_conversation_reaches_the_model_as_it_is():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi", "tool_calls": [call("{}")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]},
    ]
    with FaultServer(lambda _: GOOD) as up, serving(up, {"three": THREE}) as served:
        served.openai().chat.completions.create(model="refine/three", messages=messages)
    sent = up.requests[0]["messages"]
    assert sent[:4] == messages[:4]
    assert sent[4]["content"][:2] == messages[4]["content"]
    assert "exactly 3 sentences" in sent[4]["content"][2]["text"]
    assert len(sent) == 5


def test_after_results_of_tools_what_is_required_is_a_message_of_its_own():
    messages = [*ASKED, {"role": "assistant", "content": "", "tool_calls": [call("{}")]}]
    messages.append({"role": "tool", "tool_call_id": "call_1", "content": "sunny"})
    with FaultServer(lambda _: GOOD) as up, serving(up, {"three": THREE}) as served:
        served.openai().chat.completions.create(model="refine/three", messages=messages)
    assert [m["role"] for m in up.requests[0]["messages"]] == ["user", "assistant", "tool", "user"]


def test_what_the_client_says_of_sampling_holds():
    asked = {"temperature": 0.2, "top_p": 0.5, "stop": ["END"], "max_tokens": 50, "seed": 7, "user": "u-1"}
    asked["presence_penalty"] = 0.1
    with FaultServer(lambda _: GOOD) as up, serving(up, {"three": THREE}) as served:
        one = served.chat("refine/three", **asked)
        two = served.chat("refine/three", **asked)
    sent = up.requests[0]
    assert {k: sent[k] for k in asked if k not in ("seed", "max_tokens")} == {
        k: v for k, v in asked.items() if k not in ("seed", "max_tokens")
    }
    assert sent["max_tokens"] == 50
    assert sent["seed"] == up.requests[1]["seed"]  # derived from the client's: the same seed gives the same run
    assert one.status_code == two.status_code == 200


def test_n_choices_are_n_refinements_under_one_receipt():
    replies = iter([BAD, GOOD, GOOD, GOOD, GOOD])
    with FaultServer(lambda _: next(replies)) as up, serving(up, {"three": THREE}) as served:
        told = served.openai().chat.completions.with_raw_response.create(model="refine/three", messages=ASKED, n=3)
    reply = told.parse()
    assert [c.message.content for c in reply.choices] == [GOOD] * 3
    assert [c.index for c in reply.choices] == [0, 1, 2]
    assert told.headers["x-redraft-calls"] == str(up.calls) == "4"
    assert len({r["seed"] for r in up.requests}) == 4
    assert reply.usage.completion_tokens == 2 + 3 * 3


def test_a_schema_is_held_and_told_to_every_role():
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    preset = {"strategy": "self-refine", "rounds": 1}
    critic = json.dumps(
        {
            "issues": [{"problem": "n is 1", "suggestion": "2", "aspect": "", "severity": "major", "location": ""}],
            "keep": [],
            "verdict": "revise",
        }
    )
    replies = iter(['{"n": 1}', critic, '{"n": 2}', '{"wins": "A"}', '{"wins": "B"}'])
    with FaultServer(lambda _: next(replies, "A")) as up, serving(up, {"critic": preset}) as served:
        reply = served.openai().chat.completions.create(model="refine/critic", messages=ASKED, response_format=form)
    assert json.loads(reply.choices[0].message.content) in ({"n": 1}, {"n": 2})
    author, _, reviser = up.requests[:3]
    assert author["response_format"]["json_schema"]["schema"] == schema
    assert reviser["response_format"]["json_schema"]["schema"] == schema


def test_a_schema_that_no_draft_follows_is_no_answer():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with FaultServer(lambda _: "not JSON") as up, serving(up, {"three": THREE | {"attempts": 2}}) as served:
        reply = served.chat("refine/three", response_format=form)
    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "response_format_not_held"


def test_logprobs_are_those_of_the_text_that_comes():
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        reply = served.openai().chat.completions.create(
            model="refine/three", messages=ASKED, logprobs=True, top_logprobs=2
        )
    assert "".join(t.token for t in reply.choices[0].logprobs.content) == GOOD
    assert up.requests[0]["top_logprobs"] == 2


def test_a_tool_call_that_fits_is_passed_on():
    with (
        FaultServer([Reply(text="", tool_calls=[call('{"city": "Paris"}')])]) as up,
        serving(up, {"three": THREE}) as s,
    ):
        reply = s.openai().chat.completions.create(model="refine/three", messages=ASKED, tools=[WEATHER])
    said = reply.choices[0]
    assert said.finish_reason == "tool_calls"
    assert said.message.tool_calls[0].function.name == "get_weather"
    assert json.loads(said.message.tool_calls[0].function.arguments) == {"city": "Paris"}
    assert said.message.tool_calls[0].id == "call_1"
    assert said.message.content in (None, "")
    assert up.calls == 1


def test_a_tool_call_is_mended_by_code_where_code_can():
    crooked = call('{"city": "Paris",}', name="Get-Weather")
    with FaultServer([Reply(text="", tool_calls=[crooked])]) as up, serving(up, {"three": THREE}) as served:
        reply = served.openai().chat.completions.create(model="refine/three", messages=ASKED, tools=[WEATHER])
    function = reply.choices[0].message.tool_calls[0].function
    assert (function.name, json.loads(function.arguments)) == ("get_weather", {"city": "Paris"})
    assert up.calls == 1


def test_a_tool_call_that_code_cannot_mend_is_made_anew_with_what_was_wrong():
    replies = [Reply(text="", tool_calls=[call('{"town": 1}')]), Reply(text="", tool_calls=[call('{"city": "Rome"}')])]
    with FaultServer(replies) as up, serving(up, {"three": THREE}) as served:
        told = served.openai().chat.completions.with_raw_response.create(
            model="refine/three", messages=ASKED, tools=[WEATHER]
        )
    calls = told.parse().choices[0].message.tool_calls
    assert json.loads(calls[0].function.arguments) == {"city": "Rome"}
    assert "'city' is a required property" in words(up.requests[1]["messages"])
    assert told.headers["x-redraft-calls"] == "2"


def test_streamed_tool_calls():
    with (
        FaultServer([Reply(text="", tool_calls=[call('{"city": "Paris"}')])]) as up,
        serving(up, {"three": THREE}) as s,
    ):
        stream = s.openai().chat.completions.create(model="refine/three", messages=ASKED, tools=[WEATHER], stream=True)
        chunks = [c for c in stream if c.choices]
    calls = [c.choices[0].delta.tool_calls[0] for c in chunks if c.choices[0].delta.tool_calls]
    assert calls[0].function.name == "get_weather"
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_text_of_a_turn_with_tools_is_refined_and_bought_once():
    with FaultServer([BAD, GOOD]) as up, serving(up, {"three": THREE}) as served:
        told = served.openai().chat.completions.with_raw_response.create(
            model="refine/three", messages=ASKED, tools=[WEATHER]
        )
    assert told.parse().choices[0].message.content == GOOD
    assert told.headers["x-redraft-calls"] == "2" == str(up.calls)
    assert up.requests[0].get("tool_choice") is None
    assert up.requests[1]["tool_choice"] == "none"
    assert up.requests[1]["tools"] == [WEATHER]


def test_a_forbidden_tool_is_not_offered_and_a_required_one_is_called():
    rules = {"required": ["get_weather"], "forbidden": ["rm"], "attempts": 2}
    rm = {"type": "function", "function": {"name": "rm", "parameters": {"type": "object"}}}
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    replies = [
        Reply(text="", tool_calls=[call("{}", name="other")]),
        Reply(text="", tool_calls=[call("{}", name="other"), call('{"city": "Rome"}', id="call_2")]),
    ]
    with FaultServer(replies) as up, serving(up, {"three": THREE | {"tools": rules}}) as served:
        reply = served.openai().chat.completions.create(
            model="refine/three", messages=ASKED, tools=[rm, WEATHER, other]
        )
    assert [c.function.name for c in reply.choices[0].message.tool_calls] == ["other", "get_weather"]
    assert [t["function"]["name"] for t in up.requests[0]["tools"]] == ["get_weather", "other"]


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"rounds": -1}, "redraft.rounds"),
        ({"attempts": "many"}, "redraft.attempts"),
        ({"colour": 1}, "redraft.colour"),
        ({"budget": {"calls": 0}}, "redraft.budget.calls"),
        ({"include": ["everything"]}, "redraft.include"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused_by_name(option, named):
    with FaultServer() as up, serving(up, {"three": THREE}) as served, pytest.raises(BadRequestError, match=named):
        served.openai().chat.completions.create(model="refine/three", messages=ASKED, extra_body={"redraft": option})
    assert up.calls == 0


def test_options_come_in_headers_too_and_only_narrow_the_preset():
    with FaultServer(lambda _: BAD) as up, serving(up, {"three": THREE | {"limits": {"calls": 2}}}) as served:
        one = served.chat("refine/three", headers={"x-redraft-attempts": "1"})
        most = served.chat("refine/three", headers={"x-redraft-budget-calls": "50"})
        metrics = served.get("/metrics").text
    assert one.headers["x-redraft-calls"] == "1"
    assert most.headers["x-redraft-calls"] == "2"
    assert most.headers["x-redraft-stop-reason"] == "budget"
    assert up.calls == 3
    drafts = [line.partition("{")[2] for line in metrics.splitlines() if line.startswith("redraft_drafts_total")]
    of_them = {line.partition('decision="')[2].partition('"')[0]: float(line.split()[-1]) for line in drafts}
    assert of_them == {"accepted": 2, "rejected": 1, "cut_off": 1}, "what the limit ended has not lost"


def test_what_the_model_refuses_of_the_clients_own_is_refused_by_name():
    def script(asked):
        return Reply.unsupported("top_p") if "top_p" in asked else GOOD

    with FaultServer(script) as up, serving(up, {"three": THREE}) as served:
        with pytest.raises(BadRequestError, match="top_p"):
            served.openai().chat.completions.create(model="refine/three", messages=ASKED, top_p=0.5)
        again = served.chat("refine/three", top_p=0.5)
    assert again.status_code == 400
    assert again.json()["error"]["param"] == "top_p"


def test_an_unknown_preset_is_none():
    with FaultServer() as up, serving(up, {"three": THREE}) as served, pytest.raises(NotFoundError) as caught:
        served.openai().chat.completions.create(model="refine/four", messages=ASKED)
    assert caught.value.code == "model_not_found"
    assert "refine/three" in str(caught.value)
    assert up.calls == 0


def test_models_are_listed_virtual_ones_first():
    with FaultServer(models=["a", "b"]) as up, serving(up, {"three": THREE}) as served:
        assert [m.id for m in served.openai().models.list()] == ["refine/three", "a", "b"]
        assert [m.id for m in served.anthropic().models.list()] == ["refine/three", "a", "b"]
