import email.utils
import json
import time
from types import MappingProxyType

import pytest

from redraft.errors import (
    AuthError,
    BadRequestError,
    ContextOverflowError,
    LMError,
    TransientLMError,
    UnsupportedError,
)
from redraft.lm.openai_errors import Endpoint, Refusal, as_error, retry_after
from redraft.lm.openai_wire import Reply, as_json, is_strict, read_usage, request_body
from redraft.types import Request, Usage

AT = Endpoint("openai/m", "m", "http://x/v1", "OPENAI_API_KEY")
SENT = {
    "model", "messages", "temperature", "top_p", "stop", "seed", "n", "response_format", "tools", "tool_choice",
    "logprobs", "reasoning_effort", "max_tokens", "stream_options", "prefill",
}  # fmt: skip


def error(status, message, **fields):
    return as_error(Refusal.read(status, {"error": {"message": message, **fields}}), SENT, AT)


@pytest.mark.parametrize(
    ("message", "parameter"),
    [
        # words of OpenAI, Azure, Groq, Mistral, vLLM, Ollama, Anthropic's compatible endpoint
        ("Unsupported parameter: 'temperature' is not supported with this model.", "temperature"),
        ("Unsupported value: 'temperature' does not support 0.2 with this model. Only 1 is supported.", "temperature"),
        ("Unknown parameter: 'seed'.", "seed"),
        ("Unrecognized request argument supplied: reasoning_effort", "effort"),
        ("Unsupported parameter: top_p", "top_p"),
        ("`temperature` is deprecated for this model.", "temperature"),
        ("'logprobs' is not supported with this model", "logprobs"),
        ("This model does not support response_format", "schema"),
        ("This model does not support json_schema output", "schema"),
        ("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.", "schema"),
        ("registry.ollama.ai/library/gemma:2b does not support tools", "tools"),
        ("Unsupported parameter: 'n'", "n"),
        ("This model does not support assistant message prefill.", "prefill"),
        ("[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra inputs are not permitted'}]", "seed"),
    ],
)
def test_refused_parameters_are_named_by_text(message, parameter):
    found = error(400, message)
    assert isinstance(found, UnsupportedError)
    assert (found.parameter, found.status) == (parameter, 400)


@pytest.mark.parametrize(
    ("param", "code", "parameter"),
    [
        ("temperature", "unsupported_value", "temperature"),
        ("response_format.json_schema", "unsupported_parameter", "schema"),
        ("reasoning_effort", "unknown_parameter", "effort"),
        ("top_logprobs", None, "logprobs"),
    ],
)
def test_refused_parameters_are_named_by_param(param, code, parameter):
    sent = SENT | {"top_logprobs"}
    told = Refusal.read(400, {"error": {"message": "Unsupported parameter.", "param": param, "code": code}})
    assert as_error(told, sent, AT).parameter == parameter


def test_other_complaints_are_not_about_support():
    for message, fields in [
        ("max_tokens is too large: 9000", {"param": "max_tokens", "code": "invalid_value"}),
        ("Unsupported value: 'messages[0].role' does not support 'x'", {"param": "messages[0].role"}),
        ("Invalid 'temperature': must be at most 2", {"param": "temperature", "code": "decimal_above_max_value"}),
        ("tools may be a list only", {}),
    ]:
        found = error(400, message, **fields)
        assert type(found) is BadRequestError, message


def test_only_what_was_sent_can_be_refused():
    told = Refusal.read(400, {"error": {"message": "'seed' is not supported"}})
    assert type(as_error(told, {"model", "messages"}, AT)) is BadRequestError


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "no", "code": "context_length_exceeded"}}),
        (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, ..."}),
        (400, {"error": {"message": "the decoder prompt is longer than the maximum model length of 4096"}}),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "n_ctx"}}),
        (500, {"error": {"message": "Context size has been exceeded."}}),
        (400, {"error": "the input length exceeds the context length"}),
        (413, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
        (400, {"error": {"message": "The input token count (582632) exceeds the maximum number of tokens allowed"}}),
        (400, {"error": {"message": "request (53192 tokens) exceeds the available context size (50176 tokens)"}}),
        (None, {"error": {"code": 400, "message": "the request exceeds the available context size. try"}}),
    ],
)
def test_overflow_in_many_words(status, body):
    assert isinstance(as_error(Refusal.read(status, body), SENT, AT), ContextOverflowError)


@pytest.mark.parametrize(
    ("status", "kind", "sent"),
    [
        (400, BadRequestError, False),
        (401, AuthError, False),
        (402, BadRequestError, False),
        (403, AuthError, False),
        (404, BadRequestError, False),
        (408, TransientLMError, False),
        (409, TransientLMError, False),
        (422, BadRequestError, False),
        (429, TransientLMError, False),
        (500, TransientLMError, True),
        (503, TransientLMError, True),
        (529, TransientLMError, True),
        (None, TransientLMError, True),
    ],
)
@pytest.mark.parametrize(
    "body", [{"error": {"message": "no"}}, "<html>no</html>", None, {"detail": ["no"]}, {"error": "no"}]
)
def test_status_decides(status, kind, sent, body):
    found = as_error(Refusal.read(status, body), SENT, AT)
    assert type(found) is kind
    assert (found.status, found.sent) == (status, sent)


def test_messages_help():
    assert "OPENAI_API_KEY" in str(error(401, "Incorrect API key"))
    assert "'m'" in str(error(404, "not found"))
    assert "http://x/v1" in str(error(404, "not found"))
    assert "lower max_tokens" in str(error(400, "no", code="context_length_exceeded"))
    assert len(str(error(400, "x" * 100_000))) < 1000


def test_an_empty_quota_is_permanent():
    assert type(error(429, "You exceeded your current quota", code="insufficient_quota")) is BadRequestError
    assert type(error(429, "You exceeded your current quota", type="insufficient_quota")) is BadRequestError


def test_a_code_stands_in_for_the_status():
    assert error(None, "slow down", code=429).status == 429
    assert isinstance(error(None, "overloaded", code="502"), TransientLMError)
    assert isinstance(error(None, "server had an error", code="server_error"), LMError)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "9", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after(headers) == seconds


def test_retry_after_as_a_date():
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert 27 < retry_after({"retry-after": later}) <= 30


def test_unset_fields_are_not_sent():
    body = request_body(Request(messages=({"role": "user", "content": "x"},)), "m", cap_name="max_tokens")
    assert body == {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def test_every_field_is_sent():
    messages = (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
        {"role": "tool", "tool_call_id": "c", "content": "4"},
    )
    tool = {"type": "function", "function": {"name": "look"}}
    request = Request(
        messages=messages, temperature=0.0, top_p=0.9, max_tokens=7, stop=("a", "b"), seed=0, n=2, schema={"type": "string"},
        tools=(tool,), tool_choice="required", logprobs=3, effort="low", extra={"top_k": 4}, prefill="So", grammar="g",
    )  # fmt: skip
    schema = {"name": "answer", "schema": {"type": "string"}, "strict": True}
    assert request_body(request, "m", cap_name="cap") == {
        "model": "m", "messages": [*messages, {"role": "assistant", "content": "So"}], "temperature": 0.0, "top_p": 0.9,
        "cap": 7, "stop": ["a", "b"], "seed": 0, "n": 2, "tools": [tool], "tool_choice": "required", "logprobs": True,
        "top_logprobs": 3, "reasoning_effort": "low", "top_k": 4, "grammar": "%llguidance {}\ng",
        "response_format": {"type": "json_schema", "json_schema": schema},
    }  # fmt: skip


def test_json_of_frozen_values_and_broken_text():
    assert json.loads(as_json({"a": MappingProxyType({"b": "é\ud83d"})})) == {"a": {"b": "é?"}}
    for value in (object(), float("nan")):
        with pytest.raises(BadRequestError, match="JSON"):
            as_json({"a": value})


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "additionalProperties": True}, False),
        ({k: v for k, v in CLOSED.items() if k != "additionalProperties"}, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": CLOSED}}}, True),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object"}}}}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": ["object", "null"]}}}, False),
        ({**CLOSED, "properties": {"a": {"allOf": [CLOSED]}}}, False),
        ({**CLOSED, "properties": {"type": {"type": "string"}}, "required": ["type"]}, True),
    ],
)
def test_strict_only_if_it_qualifies(schema, strict):
    assert is_strict(schema) is strict


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": None, "completion_tokens": 3}, None),
        ({"prompt_tokens": 5, "completion_tokens": -1}, None),
        ({"prompt_tokens": 5, "completion_tokens": 3}, Usage(input_tokens=5, output_tokens=3)),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(input_tokens=5, output_tokens=3, cached_tokens=4, reasoning_tokens=2),
        ),
        # reasoning left out of completion_tokens
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 3,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            Usage(input_tokens=5, output_tokens=13, reasoning_tokens=10),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 3, "prompt_cache_hit_tokens": 4, "prompt_tokens_details": None},
            Usage(input_tokens=5, output_tokens=3, cached_tokens=4),
        ),
        # an embedding
        ({"prompt_tokens": 5, "total_tokens": 5}, Usage(input_tokens=5)),
        # Responses
        (
            {
                "input_tokens": 5,
                "output_tokens": 3,
                "total_tokens": 8,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(input_tokens=5, output_tokens=3, cached_tokens=4, reasoning_tokens=2),
        ),
        # Anthropic: cached tokens beside the input; a gateway that tells them within it, in its words
        (
            {
                "input_tokens": 5,
                "output_tokens": 3,
                "cache_read_input_tokens": 10,
                "cache_creation_input_tokens": 1,
            },
            Usage(input_tokens=16, output_tokens=3, cached_tokens=10),
        ),
        (
            {
                "prompt_tokens": 16,
                "completion_tokens": 3,
                "cache_read_input_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 10},
            },
            Usage(input_tokens=16, output_tokens=3, cached_tokens=10),
        ),
        # LangChain
        (
            {
                "input_tokens": 5,
                "output_tokens": 3,
                "total_tokens": 8,
                "input_token_details": {"cache_read": 4},
                "output_token_details": {"reasoning": 2},
            },
            Usage(input_tokens=5, output_tokens=3, cached_tokens=4, reasoning_tokens=2),
        ),
    ],
)
def test_usage(raw, usage):
    assert read_usage(raw) == usage


def whole(message, **more):
    return {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}


def read(*chunks):
    reply = Reply("lm")
    for chunk in chunks:
        reply.add(chunk)
    return reply.completion()


def test_reasoning_is_kept_apart():
    for message in (
        {"content": "yes", "reasoning_content": "hm"},
        {"content": "yes", "reasoning": "hm"},
        {"content": "<think>hm</think>yes"},
        {"content": [{"type": "text", "text": "yes"}], "reasoning": "hm"},
    ):
        completion = read(whole(message))
        assert (completion.text, completion.reasoning) == ("yes", "hm")


def test_a_refusal_is_text():
    assert read(whole({"content": None, "refusal": "I cannot"})).text == "I cannot"


def test_a_plain_reply_without_finish_reason_is_one():
    assert read({"choices": [{"message": {"content": "x"}}]}).finish_reason is None


def test_streamed_tool_calls_are_put_together():
    def delta(**call):
        return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}

    completion = read(
        delta(index=0, id="a", type="function", function={"name": "look", "arguments": ""}),
        delta(index=0, function={"arguments": '{"at"'}),
        delta(index=1, id="b", type="function", function={"name": "ask", "arguments": "{}"}, extra_content={"sign": 1}),
        delta(index=0, function={"arguments": ": 1}"}),
        delta(id="c", type="function", function={"name": "end", "arguments": "{"}),
        delta(function={"arguments": "}"}),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    )
    assert completion.tool_calls == (
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "ask", "arguments": "{}"}, "extra_content": {"sign": 1}},
        {"id": "c", "type": "function", "function": {"name": "end", "arguments": "{}"}},
    )


@pytest.mark.parametrize(
    "chunk",
    [
        None,
        "text",
        [],
        {},
        {"choices": "x"},
        {"choices": ["x"]},
        {"choices": [{"message": "x"}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"content": [5]}}]},
        {"choices": [{"message": {"tool_calls": "x"}}]},
        {"choices": [{"message": {"tool_calls": 5}}]},
        {"choices": [{"message": {"tool_calls": [{"function": "x"}]}}]},
        {"choices": [{"message": {"content": "x"}, "logprobs": "x"}]},
        {"choices": [{"message": {"content": "x"}, "logprobs": {"content": 5}}]},
        {"choices": [{"index": "x", "message": {"content": "x"}}]},
        {"choices": [{"delta": {"content": "x"}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": [], "id": "x"}]}, "finish_reason": "stop"}]},
    ],
)
def test_garbage_is_a_transient_error(chunk):
    with pytest.raises(TransientLMError, match="unreadable") as caught:
        read(chunk)
    assert caught.value.sent


def test_usage_survives_an_empty_reply():
    with pytest.raises(TransientLMError, match="no choices") as caught:
        read({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 0}})
    assert caught.value.reported == Usage(input_tokens=4)
