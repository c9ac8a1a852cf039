"""What native doors send and what they make of replies: messages, settings, thinking, tools, quirks."""

import json
from contextlib import ExitStack

import pytest

pytest.importorskip("pydantic_ai")

from native_doors import CASES, STACKS, Case, params, start

from redraft import Predict
from redraft.config import context
from redraft.errors import BadRequestError, UnsupportedError
from redraft.run import Run
from redraft.testing import Reply
from redraft.testing.wire_anthropic import ANTHROPIC
from redraft.testing.wire_bedrock import BEDROCK
from redraft.testing.wire_google import GOOGLE
from redraft.testing.wire_responses import RESPONSES
from redraft.types import Request, Usage

pytestmark = pytest.mark.doors
both_ways = pytest.mark.parametrize("listen", [None, lambda delta: None], ids=["plain", "stream"])
every_door = pytest.mark.parametrize("case", params(STACKS))

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CALL = {"id": "call12345", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


def ask(*messages, **fields):
    user = {"role": "user", "content": "hello you there"}
    return Request(messages=messages or (user,), **{"max_tokens": 64, **fields})


@pytest.fixture
def serve():
    with ExitStack() as running:
        yield lambda case, script=None, **options: start(running, case, script, **options)


@every_door
@both_ways
async def test_a_reply(serve, case, listen):
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 9,
        "total_tokens": 39,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    server, lm = serve(case, [Reply(text="Hello to you", reasoning="a greeting", usage=usage)], api_key="secret")
    completion = await lm.generate(ask(), listen)
    assert (completion.text, completion.reasoning) == ("Hello to you", "a greeting")
    assert completion.finish_reason == "stop"
    assert completion.model
    told = completion.usage
    assert (told.input_tokens, told.output_tokens) == (30, 9)
    if case.name != "cohere":
        assert told.cached_tokens == 20
    # the others' APIs do not count reasoning apart
    if case.name in ("google", "openai-responses", "groq", "openrouter"):
        assert told.reasoning_tokens == 4
    if case.name != "bedrock":  # no bearer without TLS
        assert "secret" in " ".join(server.headers[0].values())


@every_door
@both_ways
async def test_a_reply_that_only_thought_is_its_own_outcome(serve, case, listen):
    _, lm = serve(case, [Reply.thought_only("well let me see")])
    completion = await lm.generate(ask(), listen)
    assert (completion.text, completion.reasoning, completion.finish_reason) == ("", "well let me see", "length")


@every_door
async def test_pieces_are_exactly_the_reply(serve, case):
    deltas = []
    _, lm = serve(case, [Reply(text=("Un", "der", " the\n\n", " moon "), reasoning="so  be\nit")])
    completion = await lm.generate(ask(), deltas.append)
    assert completion.text == "".join(d.text for d in deltas) == "Under the\n\n moon "
    assert completion.reasoning == "".join(d.reasoning for d in deltas) == "so  be\nit"
    assert [d.text for d in deltas if d.text] == ["Un", "der", " the\n\n", " moon "]


@every_door
@both_ways
async def test_tools_are_called_and_their_results_go_back(serve, case, listen):
    server, lm = serve(case, [Reply(text="", tool_calls=[CALL], reasoning="look up"), "It is blue."])
    asked = ask(tools=(LOOK,))
    first = await lm.generate(asked, listen)
    assert first.finish_reason == "tool_calls" or case.name in ("google", "openai-responses")
    (call,) = first.tool_calls
    assert call["function"]["name"] == "look"
    assert json.loads(call["function"]["arguments"]) == {"at": "sky"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "blue, no clouds"}
    second = await lm.generate(asked.but(messages=(*asked.messages, first.choices[0].message(), result)), listen)
    assert second.text == "It is blue."
    sent = json.dumps(server.requests[1])
    assert "look" in sent
    assert "blue, no clouds" in sent
    if case.name != "google":  # it pairs results by name
        assert sent.count(call["id"]) == 2


@every_door
async def test_a_conversation_arrives_in_order(serve, case):
    server, lm = serve(case)
    await lm.generate(
        ask(
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": [{"type": "text", "text": "three"}, {"type": "text", "text": "four"}]},
        )
    )
    sent = json.dumps(server.requests[0])
    places = [sent.index(f'"{word}') for word in ("one", "two", "three", "four")]
    assert places == sorted(places)
    assert "Be brief." in sent


SEES = {
    "anthropic": "claude-haiku-4-5",
    "google": "gemini-2.5-flash",
    "openai-responses": "gpt-4.1-mini",
    "groq": "meta-llama/llama-4-scout-17b-16e-instruct",
    "mistral": "mistral-small-latest",
    "bedrock": "us.anthropic.claude-haiku-4-5-20251001-v1:0",
    "openrouter": "openai/gpt-4.1-mini",
}


@pytest.mark.parametrize("name", SEES)
async def test_images_arrive(serve, name):
    server, lm = serve(CASES[name])
    lm = CASES[name].make(server, SEES[name])
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]
    await lm.generate(ask({"role": "user", "content": parts}))
    assert PNG in json.dumps(server.requests[0]).replace("_", "/").replace("-", "+"), "Google's base64 is for URLs"


async def test_documents_and_audio_arrive(serve):
    server, lm = serve(CASES["google"])
    parts = [
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}},
    ]
    await lm.generate(ask({"role": "user", "content": parts}))
    inline = [part["inlineData"] for part in server.requests[0]["contents"][0]["parts"] if "inlineData" in part]
    assert [data.get("mimeType") or data["mime_type"] for data in inline] == ["audio/wav", "application/pdf"]


async def test_a_part_that_cannot_be_sent_is_said(serve):
    server, lm = serve(CASES["anthropic"])
    for part, why in (({"type": "video"}, "video"), ({"type": "file", "file": {"file_id": "f"}}, "file_data")):
        with pytest.raises(BadRequestError, match=why):
            await lm.generate(ask({"role": "user", "content": [part]}))
    assert server.calls == 0


SETTINGS = {
    "anthropic": ("temperature", "top_p", "stop_sequences", "max_tokens"),
    "google": ("temperature", "topP", "stopSequences", "maxOutputTokens", "seed"),
    "openai-responses": ("temperature", "top_p", "max_output_tokens"),
    "groq": ("temperature", "top_p", "stop", "max_tokens", "seed"),
    "mistral": ("temperature", "top_p", "stop", "max_tokens", "random_seed"),
    "bedrock": ("temperature", "topP", "stopSequences", "maxTokens"),
    "cohere": ("temperature", "p", "stop_sequences", "max_tokens", "seed"),
    "openrouter": ("temperature", "top_p", "stop", "seed"),
}


@every_door
async def test_settings_go_by_the_providers_names(serve, case):
    server, lm = serve(case)
    known = SETTINGS[case.name]
    fields = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 55}
    fields |= {"seed": 7} if lm.capabilities.seed else {}
    fields |= {"stop": ("END",)} if any("stop" in name for name in known) else {}
    await lm.generate(ask(**fields))
    body = server.requests[0]
    flat = {**body, **body.get("generationConfig", {}), **body.get("inferenceConfig", {})}
    values = {0.5, 0.9, 55, 7}
    for name in known:
        value = flat[name]
        assert value == ["END"] if isinstance(value, list) else value in values


@pytest.mark.parametrize("name", ["anthropic", "google", "openai-responses", "bedrock"])
async def test_a_schema_is_native_structured_output(serve, name):
    server, lm = serve(CASES[name], ['{"answer": "42"}'])
    assert lm.capabilities.json_schema
    await lm.generate(ask(schema=ANSWER))
    sent = json.dumps(server.requests[0])
    assert "additionalProperties" in sent
    where = {
        "anthropic": "output_config",
        "google": "generationConfig",
        "openai-responses": "text",
        "bedrock": "outputConfig",
    }
    assert "answer" in json.dumps(server.requests[0][where[name]])


async def test_logprobs_are_openais_form(serve):
    for name in ("google", "openai-responses"):
        _, lm = serve(CASES[name], lambda asked: "a b")
        for listen in (None, lambda delta: None):
            completion = await lm.generate(ask(logprobs=1), listen)
            assert [token["token"] for token in completion.logprobs] == ["a ", "b"]
            assert completion.logprobs[0]["logprob"] == -0.5


async def test_tool_choice(serve):
    server, lm = serve(CASES["anthropic"])
    named = {"type": "function", "function": {"name": "look"}}
    for choice in ("required", named, "none"):
        other = {"type": "function", "function": {"name": "wait"}}
        await lm.generate(ask(tools=(LOOK, other), tool_choice=choice))
    kinds = [request.get("tool_choice", {}).get("type") for request in server.requests]
    assert kinds == ["any", "tool", "none"]


async def test_extra_fields_and_the_librarys_settings(serve):
    server, lm = serve(CASES["anthropic"])
    await lm.generate(ask(extra={"top_k": 5, "metadata": {"user_id": "u"}, "anthropic_service_tier": "auto"}))
    body = server.requests[0]
    assert (body["top_k"], body["metadata"], body["service_tier"]) == (5, {"user_id": "u"}, "auto")
    server, lm = serve(CASES["bedrock"])
    await lm.generate(ask(extra={"top_k": 5}))
    assert server.requests[0]["additionalModelRequestFields"]["top_k"] == 5
    server, lm = serve(CASES["google"])
    with pytest.raises(UnsupportedError, match="labels") as caught:
        await lm.generate(ask(extra={"labels": {}}))
    assert (caught.value.parameter, server.calls) == ("extra", 0)


# -- thinking


@pytest.mark.parametrize("name", ["anthropic", "google", "openai-responses", "bedrock"])
@both_ways
async def test_what_the_provider_signed_goes_back_to_it_unchanged(serve, name, listen):
    model = {"openai-responses": "gpt-5-mini"}.get(name)
    server, lm = serve(CASES[name], [Reply(text="", tool_calls=[CALL], reasoning="hm so"), "done"])
    lm = CASES[name].make(server, model)
    first = await lm.generate(ask(tools=(LOOK,)), listen)
    message = json.loads(json.dumps(first.choices[0].message()))  # as the journal keeps it
    assert [item["provider"] for item in message["items"]] == [name]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "blue"}
    await lm.generate(ask({"role": "user", "content": "sky?"}, message, result, tools=(LOOK,)), listen)
    sent = json.dumps(server.requests[1])
    signed = {"openai-responses": "sealed", "google": "c2lnbmVk"}.get(name, "signed")
    assert signed in sent
    if name != "google":  # it wants the signature, not the thought
        assert "hm so" in sent


async def test_what_another_provider_signed_is_dropped(serve):
    server, claude = serve(CASES["anthropic"], [Reply(text="blue", reasoning="secret thought")])
    message = (await claude.generate(ask())).choices[0].message()
    assert message["items"]
    for name in ("google", "openai-responses", "groq"):
        server, other = serve(CASES[name])
        await other.generate(ask({"role": "user", "content": "sky?"}, message, {"role": "user", "content": "sure?"}))
        sent = json.dumps(server.requests[0])
        assert "blue" in sent
        assert "secret thought" not in sent


async def test_an_edited_message_keeps_the_callers_words(serve):
    server, lm = serve(CASES["anthropic"], [Reply(text="blue", reasoning="hm"), "ok"])
    message = (await lm.generate(ask())).choices[0].message()
    again = {"role": "user", "content": "sure?"}
    await lm.generate(ask({"role": "user", "content": "sky?"}, {**message, "content": "green"}, again))
    blocks = server.requests[1]["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    assert blocks[1]["text"] == "green"


async def test_a_plain_reply_carries_no_items(serve):
    for name in ("anthropic", "openai-responses", "groq"):
        _, lm = serve(CASES[name], ["plain"])
        assert (await lm.generate(ask())).choices[0].items == ()


async def test_effort_is_a_budget_an_effort_or_a_level(serve):
    server, lm = serve(CASES["anthropic"])
    await lm.generate(ask(effort="low", max_tokens=8000))
    await lm.generate(ask(effort="high", max_tokens=4000))
    budgets = [request["thinking"]["budget_tokens"] for request in server.requests]
    assert budgets == [2048, 3000], "the cap covers the thinking and leaves room for the answer"
    adaptive = CASES["anthropic"].make(server, "claude-opus-4-8")
    await adaptive.generate(ask(effort="low"))
    assert server.requests[2]["output_config"]["effort"] == "low"
    server, lm = serve(CASES["bedrock"])
    await lm.generate(ask(effort="medium", max_tokens=4000))
    assert server.requests[0]["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 3000
    server, lm = serve(CASES["google"])
    await lm.generate(ask(effort="low"))
    assert server.requests[0]["generationConfig"]["thinkingConfig"]["thinking_budget"] == 2048
    server, _ = serve(CASES["openai-responses"])
    await CASES["openai-responses"].make(server, "gpt-5-mini").generate(ask(effort="low"))
    assert server.requests[0]["reasoning"]["effort"] == "low"


async def test_effort_can_be_switched_off(serve):
    server, lm = serve(CASES["google"])
    await lm.generate(ask(effort="none"))
    assert server.requests[0]["generationConfig"]["thinkingConfig"]["thinking_budget"] == 0


# -- what models are known to refuse: nothing is sent

REFUSED = [
    ("anthropic", "claude-opus-4-8", ANTHROPIC, {"temperature": 0.5}, "temperature"),
    ("anthropic", "claude-opus-4-8", ANTHROPIC, {"top_p": 0.5}, "top_p"),
    ("anthropic", "claude-opus-4-8", ANTHROPIC, {"prefill": "{"}, "prefill"),
    ("anthropic", "claude-sonnet-4-6", ANTHROPIC, {"prefill": "{"}, "prefill"),
    ("anthropic", "claude-haiku-4-5", ANTHROPIC, {"seed": 1}, "seed"),
    ("anthropic", "claude-haiku-4-5", ANTHROPIC, {"logprobs": 1}, "logprobs"),
    ("anthropic", "claude-haiku-4-5", ANTHROPIC, {"prefill": "{", "effort": "low", "max_tokens": 9000}, "prefill"),
    ("anthropic", "claude-haiku-4-5", ANTHROPIC, {"effort": "low", "max_tokens": 500}, "effort"),
    ("anthropic", "claude-3-haiku-20240307", ANTHROPIC, {"effort": "low"}, "effort"),
    ("openai-responses", "o3", RESPONSES, {"temperature": 0.5}, "temperature"),
    ("openai-responses", "gpt-5-mini", RESPONSES, {"top_p": 0.5}, "top_p"),
    ("openai-responses", "gpt-5.1", RESPONSES, {"temperature": 0.5, "effort": "low"}, "temperature"),
    ("openai-responses", "gpt-4.1-mini", RESPONSES, {"stop": ("END",)}, "stop"),
    ("openai-responses", "gpt-4.1-mini", RESPONSES, {"effort": "low"}, "effort"),
    ("openai-responses", "gpt-4.1-mini", RESPONSES, {"seed": 1}, "seed"),
    ("google", "gemini-2.5-flash", GOOGLE, {"schema": ANSWER, "tools": (LOOK,)}, "schema"),
    ("google", "gemini-2.5-flash", GOOGLE, {"prefill": "{"}, "prefill"),
    ("bedrock", "us.anthropic.claude-opus-4-8", BEDROCK, {"temperature": 0.5}, "temperature"),
    ("bedrock", "us.amazon.nova-lite-v1:0", BEDROCK, {"prefill": "{"}, "prefill"),
    ("bedrock", "us.amazon.nova-lite-v1:0", BEDROCK, {"seed": 1}, "seed"),
]


@pytest.mark.parametrize(("name", "model", "wire", "fields", "parameter"), REFUSED)
async def test_what_a_model_is_known_to_refuse_is_not_sent(serve, name, model, wire, fields, parameter):
    case = Case(name, model, wire, CASES[name].needs)
    server, lm = serve(case)
    with pytest.raises(UnsupportedError) as caught:
        await lm.generate(ask(**fields))
    assert (caught.value.parameter, server.calls) == (parameter, 0)


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("claude-3-5-haiku-20241022", True),
        ("claude-sonnet-4-20250514", True),
        ("claude-opus-4-1", True),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-haiku-4-5", True),
        ("claude-opus-4-6", False),
        ("claude-sonnet-4-6", False),
        ("claude-opus-4-8", False),
        ("claude-haiku-5-5", False),
        ("claude-opus-5", False),
    ],
)
def test_which_claude_continues_a_prefill(model, taken):
    class Nowhere:
        base_url = "http://127.0.0.1:1"

    pytest.importorskip("anthropic")
    assert CASES["anthropic"].make(Nowhere, model).capabilities.prefill is taken


async def test_a_prefill_is_a_trailing_assistant_message(serve):
    server, lm = serve(CASES["anthropic"], ['"blue"}'])
    completion = await lm.generate(ask(prefill='{"sky": '))
    assert completion.text == '"blue"}'
    assert server.requests[0]["messages"][-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": '{"sky": '}],
    }


# -- what models refuse only when they are asked, in the providers' own words

TOLD = [
    ("anthropic", "`temperature` may only be set to 1 when thinking is enabled.", {"temperature": 0.5}, "temperature"),
    (
        "anthropic",
        "`temperature` and `top_p` cannot both be specified",
        {"temperature": 0.5, "top_p": 0.5},
        "temperature",
    ),
    ("anthropic", "`top_p` is deprecated for this model.", {"top_p": 0.5}, "top_p"),
    (
        "anthropic",
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        {"prefill": "x"},
        "prefill",
    ),
    ("anthropic", "This model does not support the effort parameter.", {"effort": "low", "max_tokens": 9000}, "effort"),
    ("google", "Logprobs is not enabled for models/gemini-2.5-flash", {"logprobs": 1}, None),
    ("google", "Thinking is not enabled for this model: thinking_budget is not supported", {"effort": "low"}, "effort"),
    ("google", "Function calling is not enabled for this model", {"tools": (LOOK,)}, "tools"),
    (
        "openai-responses",
        "Unsupported parameter: 'temperature' is not supported with this model.",
        {"temperature": 0.5},
        "temperature",
    ),
    ("groq", "`logit_bias` and `seed` is not supported with this model", {"seed": 1}, "seed"),
    ("mistral", "Extra inputs are not permitted: random_seed, seed", {"seed": 1}, "seed"),
    (
        "bedrock",
        "The model doesn't support the temperature field. Remove it and try again.",
        {"temperature": 0.5},
        "temperature",
    ),
    ("bedrock", "This model doesn't support tool use.", {"tools": (LOOK,)}, "tools"),
]


@pytest.mark.parametrize(("name", "said", "fields", "parameter"), TOLD)
@both_ways
async def test_a_refused_parameter_is_named(serve, name, said, fields, parameter, listen):
    _, lm = serve(CASES[name], [Reply.error(400, said)])
    kind = UnsupportedError if parameter else BadRequestError
    with pytest.raises(kind) as caught:
        await lm.generate(ask(**fields), listen)
    if parameter:
        assert (caught.value.parameter, caught.value.status) == (parameter, 400)


async def test_a_refused_schema_keyword_is_named(serve):
    _, lm = serve(CASES["google"], [Reply.error(400, "response_json_schema: the keyword 'minLength' is not supported")])
    schema = {**ANSWER, "properties": {"answer": {"type": "string", "minLength": 3}}}
    with pytest.raises(UnsupportedError) as caught:
        await lm.generate(ask(schema=schema))
    assert (caught.value.parameter, caught.value.parts) == ("schema", ("minLength",))


async def test_a_run_drops_what_is_refused_once_and_goes_on(serve):
    def script(asked):
        return Reply.error(400, "`temperature` is deprecated for this model.") if "temperature" in asked else "fine"

    server, lm = serve(CASES["anthropic"], script)
    with context(model=lm):
        async with Run():
            for _ in range(2):
                assert (await Predict("question -> answer", temperature=0.7).acall(question="?")).answer == "fine"
    assert server.calls == 3


async def test_half_an_emoji_is_a_question_mark(serve):
    server, lm = serve(CASES["anthropic"])
    await lm.generate(ask({"role": "user", "content": "half: \ud83d"}))
    assert server.requests[0]["messages"][0]["content"][0]["text"] == "half: ?"


async def test_prices_are_the_providers(serve):
    usage = Usage(input_tokens=1_000_000, cached_tokens=500_000, output_tokens=0)
    _, lm = serve(CASES["anthropic"])
    assert 0 < lm.cost(usage) < lm.cost(Usage(input_tokens=1_000_000))
    assert CASES["anthropic"].make(_, "claude-unheard-of").cost(usage) is None
    assert lm.count(ask()) is None
