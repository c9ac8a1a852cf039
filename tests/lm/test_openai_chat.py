"""Chat completions from the server's side: what a client may send, and what it is answered."""

import pytest

from redraft.errors import BadRequestError
from redraft.lm.openai_chat import read_request, reply_body, reply_chunks
from redraft.lm.openai_wire import Reply, request_body
from redraft.types import Choice, Completion, Request, Usage

ASKED = ({"role": "user", "content": "q"},)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOKEN = {"token": "a", "logprob": -0.1, "top_logprobs": []}


def read(**fields):
    return read_request({"model": "m", "messages": [*ASKED], **fields})


@pytest.mark.parametrize("cap", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    "sent",
    [
        Request(messages=ASKED),
        Request(messages=ASKED, temperature=0, top_p=0.9, max_tokens=7, stop=("a", "b"), seed=0, n=2, logprobs=0),
        Request(messages=ASKED, schema={"type": "string"}, logprobs=3, effort="low", extra={"top_k": 4}),
        Request(messages=ASKED, tools=(TOOL,), tool_choice={"type": "function"}, grammar='start: "a"\n'),
    ],
)
def test_what_a_client_of_ours_writes_is_read_back(sent, cap):
    assert read_request(request_body(sent, "m", cap_name=cap)) == sent


@pytest.mark.parametrize(
    ("field", "value", "read_as"),
    [
        ("response_format", {"type": "text"}, {}),
        ("response_format", {"type": "json_object"}, {"schema": {"type": "object"}}),
        ("stop", "END", {"stop": ("END",)}),
        ("stop", None, {}),
        ("stream", True, {}),
        ("stream_options", {"include_usage": True}, {}),
        ("max_tokens", 5, {"max_tokens": 5}),
        ("parallel_tool_calls", False, {"extra": {"parallel_tool_calls": False}}),
        ("grammar", "root ::= [a-z]", {"extra": {"grammar": "root ::= [a-z]"}}),
    ],
)
def test_other_ways_to_say_it(field, value, read_as):
    assert read(**{field: value}) == Request(messages=ASKED, **read_as)


def test_two_caps_hold_both():
    assert read(max_tokens=9, max_completion_tokens=5).max_tokens == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", None),
        ("messages", []),
        ("messages", "q"),
        ("messages", [{"content": "q"}]),
        ("temperature", "hot"),
        ("max_tokens", 0),
        ("n", True),
        ("seed", 0.5),
        ("stop", [1]),
        ("tools", {"name": "look"}),
        ("tool_choice", 1),
        ("response_format", {"type": "regex", "pattern": "a"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a"}}),
        ("logprobs", 3),
        ("top_logprobs", 3),
        ("reasoning_effort", 1),
        ("functions", [{"name": "look"}]),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(field, value):
    with pytest.raises(BadRequestError, match=f"'{field}'") as refused:
        read(**{field: value})
    assert refused.value.status == 400


def test_reasoning_that_comes_back_is_left_out_but_for_the_provider_s_own_items():
    said = {"role": "assistant", "content": "a", "items": [{"provider": "p"}]}
    assert read(messages=[{**said, "reasoning_content": "hm"}]).messages == (said,)


WHOLE = Completion(
    choices=(
        Choice(text="a", reasoning="hm", finish_reason="length", logprobs=(TOKEN,)),
        Choice(tool_calls=(CALL,), items=({"provider": "p", "signature": "s"},)),
    ),
    model="m",
    usage=Usage(input_tokens=7, output_tokens=5, cached_tokens=3, reasoning_tokens=2),
)


def test_a_reply_says_all_that_a_completion_holds():
    reply = Reply("it")
    reply.add(reply_body(WHOLE))
    first, second = WHOLE.choices
    read_back = reply.completion()
    assert read_back.choices[0] == first
    assert (read_back.choices[1].tool_calls, read_back.choices[1].finish_reason) == ((CALL,), "tool_calls")
    assert (read_back.model, read_back.usage) == ("m", WHOLE.usage)
    told = reply_body(WHOLE)["choices"][1]["message"]
    assert read(messages=[told]).messages == ({"role": "assistant", "content": None, "tool_calls": [CALL], "items": [*second.items]},)  # fmt: skip


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_says_the_same(usage):
    reply = Reply("it")
    chunks = list(reply_chunks(WHOLE, usage=usage))
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        reply.add(chunk)
    assert [len(chunk["choices"]) for chunk in chunks] == [1, 1, 0][: 2 + usage]
    assert reply.completion().choices[0] == WHOLE.choices[0]
    assert reply.completion().usage == (WHOLE.usage if usage else None)


def test_an_unknown_usage_is_not_told_as_nothing():
    bare = Completion(choices=(Choice(text="a"),))
    assert "usage" not in reply_body(bare, "name")
    assert reply_body(bare, "name")["model"] == "name"
    assert len(list(reply_chunks(bare, usage=True))) == 1
