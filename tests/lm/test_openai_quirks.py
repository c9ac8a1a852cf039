"""What real servers refuse, in their own words: dropped once, remembered for the model, said, and the run goes on."""

import itertools
import json
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from redraft import InputField, OutputField, Predict, Run, Signature
from redraft.errors import BadRequestError, ParseError, UnsupportedError
from redraft.lm.openai import OpenAILM
from redraft.refusals import keywords, without
from redraft.testing import FaultServer, Reply
from redraft.types import Request

pytestmark = pytest.mark.server
number = itertools.count()


@pytest.fixture
def serve():
    """Starts a server and gives it and an LM of its own name: what a model refuses is remembered by name."""
    running = []

    def start(script, **options):
        server = FaultServer(script).__enter__()
        running.append(server)
        name = f"test/quirk-{next(number)}"
        return server, OpenAILM("test", base_url=server.base_url, name=name, **options)

    yield start
    for server in running:
        server.__exit__(None, None, None)


def refusing(test, error, answer="ok"):
    """A server that refuses the bodies of which `test` is true."""
    return lambda body: error if test(body) else Reply(text=answer)


def ask(text="hi", **fields):
    return Request(messages=({"role": "system", "content": "Be brief."}, {"role": "user", "content": text}), **fields)


def dropped(run):
    return [(e.data["parameter"], e.data.get("parts")) for e in run.journal.events if e.kind == "dropped"]


def openai(message, param, code="unsupported_parameter"):
    return Reply.error(400, message, param=param, code=code)


def bare(status, message, kind="BadRequestError"):
    """vLLM's form: no `error` around it."""
    return Reply(
        status=status, body={"object": "error", "message": message, "type": kind, "param": None, "code": status}
    )


# -- parameters

PARAMETERS = {
    "openai temperature": ("temperature", 0.2, openai(
        "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
        "temperature", "unsupported_value")),
    "openai top_p": ("top_p", 0.5, openai("Unsupported parameter: 'top_p' is not supported with this model.", "top_p")),
    "openai logprobs": ("logprobs", 2, openai(
        "Unsupported parameter: 'logprobs' is not supported with this model.", "logprobs")),
    "deepseek logprobs": ("logprobs", 2, Reply.error(
        400, "deepseek-reasoner does not support logprobs", code="invalid_request_error")),
    "openai effort": ("effort", "low", openai("Unrecognized request argument supplied: reasoning_effort", None, None)),
    "xai effort": ("effort", "low", Reply(status=400, body={
        "code": "invalid-argument", "error": "Model grok-4-1-fast does not support parameter reasoningEffort."})),
    "ollama effort": ("effort", "low", Reply.error(400, '"llama3.1:8b" does not support thinking')),
    "groq effort": ("effort", "low", Reply.error(400, "reasoning_effort is not supported with this model")),
}  # fmt: skip
WIRE = {"effort": "reasoning_effort"}


@pytest.mark.parametrize(("field", "value", "error"), PARAMETERS.values(), ids=PARAMETERS)
async def test_a_refused_parameter_is_dropped_once(serve, field, value, error):
    server, lm = serve(refusing(lambda body: WIRE.get(field, field) in body, error))
    async with Run() as run:
        for _ in range(2):
            assert (await run.complete(ask(**{field: value}), lm=lm)).text == "ok"
    assert [WIRE.get(field, field) in body for body in server.requests] == [True, False, False]
    assert dropped(run) == [(field, None)]
    assert run.usage.calls == 3


async def test_where_a_stop_is_not_taken_the_reply_is_cut_here(serve):
    error = openai("Unsupported parameter: 'stop' is not supported with this model.", "stop")
    server, lm = serve(refusing(lambda body: "stop" in body, error, answer="one two END three STOP four"))
    async with Run() as run:
        for _ in range(2):
            reply = await run.complete(ask(stop=("STOP", "END")), lm=lm)
            assert (reply.text, reply.finish_reason) == ("one two ", "stop")
    assert (server.calls, dropped(run)) == (3, [("stop", None)])


async def test_parallel_tool_calls_are_left_out(serve):
    error = openai(
        "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", "parallel_tool_calls"
    )
    server, lm = serve(refusing(lambda body: "parallel_tool_calls" in body, error))
    async with Run() as run:
        await run.complete(ask(extra={"parallel_tool_calls": False, "user": "me"}), lm=lm)
    assert [sorted(body.keys() & {"parallel_tool_calls", "user"}) for body in server.requests] == [
        ["parallel_tool_calls", "user"], ["user"],
    ]  # fmt: skip
    assert dropped(run) == [("parallel_tool_calls", None)]


async def test_another_field_that_a_user_added_is_theirs_to_take_out(serve):
    server, lm = serve(refusing(lambda body: "top_k" in body, openai("Unknown parameter: 'top_k'.", "top_k")))
    async with Run() as run:
        with pytest.raises(BadRequestError, match="top_k"):
            await run.complete(ask(extra={"top_k": 5}), lm=lm)
    assert server.calls == 1


async def test_a_refused_prefill_is_named(serve):
    from redraft.types import Capabilities

    error = Reply(status=400, body={"error": {
        "code": 400, "message": "Assistant response prefill is incompatible with enable_thinking.",
        "type": "invalid_request_error"}})  # fmt: skip
    _, lm = serve(lambda body: error, capabilities=Capabilities(prefill=True))  # llama-server
    async with Run() as run:
        with pytest.raises(UnsupportedError) as caught:
            await run.complete(ask(prefill="So"), lm=lm)
    assert caught.value.parameter == "prefill", "what the reply continues is not left out in silence"


# -- an effort's level

LEVELS = {
    "openai": openai(
        "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'none', "
        "'low', 'medium', and 'high'.", "reasoning_effort", "unsupported_value"),
    "openai, of another form": openai(
        "Unsupported value: 'minimal' is not supported with the 'gpt-5.1' model. Supported values are: 'none', 'low', "
        "'medium', and 'high'.", "reasoning_effort", "unsupported_value"),
    "azure": openai("Invalid value: 'minimal'. Supported values are: 'low', 'medium', and 'high'.", "reasoning_effort",
                    "invalid_value"),
    "groq": Reply.error(400, "`reasoning_effort` must be one of `none` or `default`"),
    "groq, of another form": Reply.error(
        400, "'reasoning_effort' : value is not one of the allowed values ['none', 'default', 'low', 'medium', 'high']"),
    "deepseek": Reply.error(422, "Failed to deserialize the JSON body into the target type: reasoning_effort: unknown "
                                 "variant `minimal`, expected one of `high`, `low`, `medium`, `max` at line 1 column 68"),
    "sglang": bare(400, "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), 'msg': "
                        "\"Input should be 'low', 'medium' or 'high'\", 'input': 'minimal'}"),
    "ollama": Reply.error(500, 'invalid think value: "minimal" (must be "high", "medium", "low")', type="api_error"),
    "ollama, of another form": Reply.error(400, 'think value "minimal" is not supported for this model'),
}  # fmt: skip


@pytest.mark.parametrize("error", LEVELS.values(), ids=LEVELS)
async def test_a_refused_level_is_not_a_refused_parameter(serve, error):
    server, lm = serve(refusing(lambda body: body.get("reasoning_effort") == "minimal", error))
    async with Run() as run:
        for effort in ("minimal", "minimal", "high"):
            await run.complete(ask(effort=effort), lm=lm)
    assert [body.get("reasoning_effort") for body in server.requests] == ["minimal", None, None, "high"]
    assert dropped(run) == [("effort", ["minimal"])]


# -- roles

NO_SYSTEM = {
    "openai o1-mini": openai("Unsupported value: 'messages[0].role' does not support 'system' with this model.",
                             "messages[0].role", "unsupported_value"),
    "vllm gemma": bare(400, "System role not supported"),
}  # fmt: skip


@pytest.mark.parametrize("error", NO_SYSTEM.values(), ids=NO_SYSTEM)
async def test_without_a_system_role_its_text_begins_the_users_message(serve, error):
    server, lm = serve(refusing(lambda body: body["messages"][0]["role"] == "system", error))
    parts = ({"type": "text", "text": "hi"},)
    async with Run() as run:
        await run.complete(ask(), lm=lm)
        await run.complete(
            Request(messages=({"role": "system", "content": "Be brief."}, {"role": "user", "content": parts})), lm=lm
        )
    assert [m["content"] for m in server.requests[1]["messages"]] == ["Be brief.\n\nhi"]
    assert server.requests[2]["messages"][0]["content"] == [{"type": "text", "text": "Be brief."}, *parts]
    assert server.calls == 3


# -- schemas


class Tagged(BaseModel):
    name: Annotated[str, Field(pattern="[a-z]+", min_length=2)]
    format: Literal["long", "short"]


class Entry(Signature):
    """Describe it."""

    topic: str = InputField()
    entry: Tagged = OutputField()
    pattern: Annotated[int, Field(ge=1, le=5)] = OutputField()


SAID = json.dumps({"entry": {"name": "tea", "format": "long"}, "pattern": 3})


def schema_of(body):
    return body.get("response_format", {}).get("json_schema", {}).get("schema")


def used(body):
    return keywords(schema_of(body))


NAMED = {
    "openai": ({"minimum"}, lambda _: openai(
        "Invalid schema for response_format 'answer': In context=('properties', 'pattern'), 'minimum' is not permitted.",
        "response_format", None)),
    "openai, beside a reference": ({"$ref"}, lambda _: openai(
        "Invalid schema for response_format 'answer': In context=('properties', 'entry'), $ref cannot have keywords "
        "{'description'}.", "response_format", "invalid_json_schema")),
    "groq": ({"minLength"}, lambda _: Reply.error(
        400, "invalid schema for response format: response_format/json_schema/entry: minLength is not supported")),
    "llama-server": ({"pattern"}, lambda _: Reply(status=400, body={"error": {
        "code": 400, "message": "JSON schema conversion failed:\nPattern must start with '^' and end with '$'",
        "type": "invalid_request_error"}})),
    "llama-server, older": ({"pattern"}, lambda _: Reply(status=500, body={"error": {
        "code": 500, "message": "JSON schema conversion failed:\nPattern must start with '^' and end with '$'",
        "type": "server_error"}})),
    "google": ({"minLength"}, lambda _: Reply.error(
        400, "Unable to submit request because one or more response schemas specified unsupported field min_length.")),
    "several": ({"minLength", "pattern"}, lambda body: Reply.error(
        400, f"invalid schema for response format: {min(used(body) & {'minLength', 'pattern'})} is not supported")),
}  # fmt: skip


@pytest.mark.parametrize(("words", "error"), NAMED.values(), ids=NAMED)
async def test_a_refused_keyword_is_left_out_of_the_schema(serve, words, error):
    server, lm = serve(lambda body: error(body) if used(body) & words else Reply(text=SAID))
    async with Run() as run:
        for _ in range(2):
            said = await Predict(Entry, lm=lm).acall(topic="tea")
            assert (said.entry, said.pattern) == (Tagged(name="tea", format="long"), 3)
    before, *tries, after = map(schema_of, server.requests)
    assert keywords(after) == keywords(before) - words
    assert len(tries) == len(words), "refused once a keyword, never sent again"
    assert {*after["properties"]} == {"entry", "pattern"}, "a property of a keyword's name stays"
    assert [parameter for parameter, _ in dropped(run)] == ["schema"] * len(words)


UNNAMED = {
    "vllm": bare(400, "The provided JSON schema contains features not supported by xgrammar."),
    "ollama": Reply.error(500, "invalid JSON schema in format", type="api_error"),
}


@pytest.mark.parametrize("error", UNNAMED.values(), ids=UNNAMED)
async def test_where_no_keyword_is_named_all_that_only_narrow_are_left_out(serve, error):
    server, lm = serve(refusing(used, error, answer=SAID))
    async with Run() as run:
        said = await Predict(Entry, lm=lm).acall(topic="tea")
    assert said.pattern == 3
    inlined = schema_of(server.requests[-1])["properties"]["entry"]["properties"]
    assert inlined["format"]["enum"] == ["long", "short"], "what is asked is still said"
    assert server.calls == 2
    assert len(dropped(run)) == 1


async def test_a_schema_that_is_too_much_is_asked_for_in_words_and_others_are_still_sent(serve):
    error = bare(400, "The provided JSON schema contains features not supported by xgrammar.")
    server, lm = serve(refusing(
        lambda body: "entry" in json.dumps(schema_of(body)), error, answer='{"entry": {"name": "tea", "format": "long"}, '
        '"pattern": 3, "a": 1}'))  # fmt: skip
    for _ in range(2):
        assert (await Predict(Entry, lm=lm).acall(topic="tea")).pattern == 3
    assert (await Predict("q -> a: int", lm=lm).acall(q="x")).a == 1
    assert [schema_of(body) is not None for body in server.requests] == [True, True, False, False, True]


async def test_a_complaint_that_names_no_keyword_is_held_against_no_other_schema(serve):
    error = bare(400, "Invalid schema: it exceeds what can be compiled.")
    server, lm = serve(refusing(
        lambda body: "entry" in json.dumps(schema_of(body)), error, answer='{"entry": {"name": "tea", "format": "long"}, '
        '"pattern": 3, "a": 1}'))  # fmt: skip
    await Predict(Entry, lm=lm).acall(topic="tea")
    ask_ = Predict("q -> a: int, b: int | None", lm=lm)
    with pytest.raises(ParseError):
        await ask_.acall(q="x")
    form = server.requests[-1]["response_format"]["json_schema"]
    assert form["schema"] == ask_.signature.json_schema()
    assert form["strict"], "it lost nothing"


async def test_what_one_server_refuses_another_of_the_same_model_is_still_sent(serve):
    first, _ = serve(refusing(lambda body: "temperature" in body, PARAMETERS["openai temperature"][2]))
    second, _ = serve(["ok"])
    for server in (first, second):
        lm = OpenAILM("test", base_url=server.base_url, name="test/quirk-of-two-servers")
        async with Run() as run:
            await run.complete(ask(temperature=0.2), lm=lm)
    assert ["temperature" in body for body in first.requests] == [True, False]
    assert "temperature" in second.requests[0]


MODE = {
    "deepseek": Reply.error(400, "This response_format type is unavailable now", code="invalid_request_error"),
    "deepseek, older": Reply.error(
        422, "Failed to deserialize the JSON body into the target type: response_format: response_format.type "
             "`json_schema` is unavailable now at line 1 column 1193"),
    "azure": Reply.error(
        400, "response_format value as json_schema is enabled only for api versions 2024-08-01-preview and later"),
    "groq": Reply.error(400, "This model does not support response format `json_schema`. See supported models at "
                             "https://console.groq.com/docs/structured-outputs#supported-models",
                        param="response_format"),
    "openai": openai("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
                     "response_format", None),
}  # fmt: skip


@pytest.mark.parametrize("error", MODE.values(), ids=MODE)
async def test_without_a_schema_mode_json_is_asked_for_in_words(serve, error):
    server, lm = serve(
        refusing(schema_of, error, answer='{"entry": {"name": "tea", "format": "long"}, "pattern": 3, "a": 1}')
    )
    assert (await Predict(Entry, lm=lm).acall(topic="tea")).pattern == 3
    assert (await Predict("q -> a: int", lm=lm).acall(q="x")).a == 1
    assert [schema_of(body) is not None for body in server.requests] == [True, False, False], "no schema is sent again"


async def test_a_resumed_run_goes_by_the_refusals_on_record(serve, tmp_path):
    from redraft.store import SqliteStore

    server, lm = serve(lambda body: NAMED["groq"][1](body) if "minLength" in used(body) else Reply(text=SAID))
    store = SqliteStore(tmp_path / "runs.db")
    for _ in range(2):
        async with Run(store=store, run_id="again") as run:
            assert (await Predict(Entry, lm=lm).acall(topic="tea")).pattern == 3
    assert (server.calls, run.usage.calls) == (2, 2)
    store.close()


def test_a_schema_loses_its_keywords_and_not_its_properties():
    tree = {
        "type": "object",
        "properties": {"pattern": {"type": "string", "pattern": "x"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}},
        "required": ["pattern"],
        "$defs": {"T": {"type": "object", "properties": {"format": {"$ref": "#/$defs/T"}}, "minProperties": 1}},
    }  # fmt: skip
    assert keywords(tree) == {"pattern", "$ref", "minProperties"}
    plain = without(tree, {"pattern", "$ref"})
    assert plain["properties"]["pattern"] == {"type": "string"}
    assert plain["properties"]["kids"]["items"]["properties"] == {"format": {}}, "where it recurs, anything goes"
    assert "$defs" not in plain
    assert tree["properties"]["pattern"]["pattern"] == "x"
