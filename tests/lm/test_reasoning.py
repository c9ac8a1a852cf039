"""Reasoning on the chat-completions door: kept apart, counted, carried back in tool loops only, never the answer."""

import json

import pytest

from redraft import Budget, Predict, Run
from redraft.errors import ParseError
from redraft.lm.openai import OpenAILM
from redraft.lm.openai_wire import Reply as Wire
from redraft.lm.openai_wire import read_usage, request_body
from redraft.lm.thoughts import split_lone
from redraft.testing import FaultServer, Reply
from redraft.types import Capabilities, Choice, Request, Usage

server_test = pytest.mark.server
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def wire(*chunks, **options):
    reply = Wire("m", **options)
    deltas = [delta for chunk in chunks for delta in reply.add(chunk)]
    return reply.completion(), deltas, reply


def plain(finish="stop", **message):
    return {"choices": [{"message": message, "finish_reason": finish}]}


def streamed(*deltas, finish="stop"):
    return [
        *({"choices": [{"index": 0, "delta": delta}]} for delta in deltas),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
    ]


def user(text="hi"):
    return {"role": "user", "content": text}


# -- apart


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Paris", "reasoning_content": "hm"},  # DeepSeek, Kimi, Qwen, llama-server
        {"content": "Paris", "reasoning": "hm"},  # Groq, Ollama, vLLM
        {"content": "Paris", "reasoning": "hm", "reasoning_content": "hm"},  # gateways that send it twice
        {"content": "Paris", "reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"content": "Paris", "reasoning": None, "reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "Paris"},
            ]
        },
        {"content": "<think>hm</think>Paris"},
        {"content": "hm</think>Paris"},  # DeepSeek's template opens the thought in the prompt
        {"content": "hm\n</think>\n\nParis"},  # so do Qwen's and Nemotron's
    ],
)
def test_reasoning_is_apart_however_it_comes(message):
    for completion, _, _ in (wire(plain(**message)), wire(*streamed(message))):
        assert (completion.reasoning.strip(), completion.text) == ("hm", "Paris")


@pytest.mark.parametrize(
    "answer",
    [
        "Close it with `</think>`.",
        'The tag "</think>" ends it.',
        "The tag </think> ends it.",
        "Never forget </think>, dear.",
        "<think> begins what </think> ends",
        '{"html": "a</think>b"}',
        '["a</think>b"]',
        "```html\n<p>\n</think>\n```\nThat is it.",
        "~~~html\n<p>\n</think>\n~~~\nThat is it.",
        "The closing tag is </think>",
        "The closing tag is **</think>**, dear.",
        "re.sub(r'^.*</think>', '', text)",
        "Do not forget </think>!",
        "one</think>two</think>three",
        "no tag at all",
    ],
)
def test_an_answer_that_speaks_of_the_tag_is_not_eaten(answer):
    assert split_lone(answer) == ("", None)
    text = answer.replace("<think> begins", "It: <think> begins")  # a leading tag is one
    assert wire(plain(content=text))[0].text == text


def test_an_empty_thought_and_a_thought_without_an_answer():
    assert split_lone("</think>\n\nParis") == ("", "Paris")
    completion, _, _ = wire(plain(content="so it is Lyon\n</think>\n"))
    assert (completion.reasoning, completion.text) == ("so it is Lyon\n", "")


def test_a_cut_thought_without_any_mark_is_one_where_the_template_is_known_to_open_it():
    assert wire(plain(content="hm</think>Paris"))[2].lone
    cut = plain(content="well, let me see", finish="length")
    assert wire(cut)[0].text == "well, let me see"
    assert wire(cut, in_thought=True)[0].reasoning == "well, let me see"
    assert wire(plain(content="Paris"), in_thought=True)[0].text == "Paris"


@pytest.mark.parametrize(
    ("raw", "output", "reasoned"),
    [
        # OpenAI, DeepSeek: reasoning is part of the completion
        ({"prompt_tokens": 5, "completion_tokens": 30, "total_tokens": 35,
          "completion_tokens_details": {"reasoning_tokens": 20}}, 30, 20),
        # xAI: it is not, but the total holds it
        ({"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 35,
          "completion_tokens_details": {"reasoning_tokens": 20}}, 30, 20),
        # it is not, and there is no total to tell
        ({"prompt_tokens": 5, "completion_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 20}}, 30, 20),
        # Perplexity: on the top
        ({"prompt_tokens": 5, "completion_tokens": 30, "total_tokens": 35, "reasoning_tokens": 20}, 30, 20),
    ],
)  # fmt: skip
def test_reasoning_is_counted_once(raw, output, reasoned):
    assert read_usage(raw) == Usage(input_tokens=5, output_tokens=output, reasoning_tokens=reasoned)


def test_reasoning_is_priced():
    def dollars(model, provider, reasoning):
        lm = OpenAILM(model, base_url="http://localhost/v1", provider=provider)
        return lm.cost(Usage(output_tokens=1_000_000, reasoning_tokens=reasoning))

    assert dollars("gpt-5", "openai", 400_000) == dollars("gpt-5", "openai", 0) == 10, "as output"
    assert dollars("sonar-deep-research", "perplexity", 400_000) == pytest.approx(0.6 * 8 + 0.4 * 3), "at its own price"


# -- carried back


def test_the_field_that_a_tool_call_came_with_goes_back_to_its_own_upstream_only():
    completion, _, _ = wire(plain(content="", reasoning_content="hm", tool_calls=[CALL]), upstream="api.deepseek.com")
    said = completion.choices[0].message()
    assert said["items"] == [{"provider": "api.deepseek.com", "reasoning_content": "hm"}]
    talk = (user(), said, {"role": "tool", "tool_call_id": "c1", "content": "42"})
    request = Request(messages=talk, tools=(TOOL,))
    for upstream, wanted in (("api.deepseek.com", "hm"), ("api.groq.com", None), ("", None)):
        sent = request_body(request, "m", cap_name="max_tokens", upstream=upstream)["messages"][1]
        assert "items" not in sent
        assert sent.get("reasoning_content") == wanted
        assert sent["tool_calls"] == [CALL]
    assert request.messages[1] is said, "what was given is not changed"


def test_it_goes_back_in_the_turns_that_call_tools_and_in_no_others():
    def said(text, **more):
        return {**Choice(text=text, items=({"provider": "u", "reasoning_content": f"about {text}"},), **more).message()}

    talk = (
        user(), said("no tools here"),
        user(), said("one", tool_calls=(CALL,)), {"role": "tool", "content": "1"}, said("two"),
        user(), said("three"),
    )  # fmt: skip
    sent = request_body(Request(messages=talk), "m", cap_name="max_tokens", upstream="u")["messages"]
    kept = [m["reasoning_content"] for m in sent if "reasoning_content" in m]
    assert kept == ["about one", "about two"]
    assert not any("items" in m for m in sent)


def test_an_empty_thought_goes_back_as_one():
    # DeepSeek and Kimi: "reasoning_content is missing in assistant tool call message"
    completion, _, _ = wire(plain(content="", reasoning_content="", tool_calls=[CALL]), upstream="u")
    assert completion.choices[0].items == ({"provider": "u", "reasoning_content": ""},)
    none, _, _ = wire(plain(content="", reasoning_content=None, tool_calls=[CALL]), upstream="u")
    assert none.choices[0].items == ()


def test_reasoning_details_go_back_unchanged_also_when_they_were_streamed():
    # OpenRouter: a signed text, and what only its provider can read
    whole = [
        {
            "type": "reasoning.text",
            "text": "let me see",
            "signature": "sig",
            "format": "anthropic-claude-v1",
            "index": 0,
        },
        {"type": "reasoning.encrypted", "data": "opaque", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
    ]
    completion, _, _ = wire(
        plain(content="", reasoning="let me see", reasoning_details=whole), upstream="openrouter.ai"
    )
    assert completion.choices[0].items == ({"provider": "openrouter.ai", "reasoning_details": whole},)
    first, second = whole
    deltas = [
        {"reasoning": "let ", "reasoning_details": [{**first, "text": "let ", "signature": None}]},
        {"reasoning": "me see", "reasoning_details": [{**first, "text": "me see", "signature": None}]},
        {"reasoning_details": [{"type": "reasoning.text", "signature": "sig", "index": 0}]},
        {"reasoning_details": [second]},
        {"tool_calls": [{"index": 0, **CALL}]},
    ]
    pieces, shown, _ = wire(*streamed(*deltas), upstream="openrouter.ai")
    assert pieces.choices[0].items == completion.choices[0].items
    assert (pieces.reasoning, [d.reasoning for d in shown if d.reasoning]) == ("let me see", ["let ", "me see"])


@pytest.fixture
def serve():
    running = []

    def start(script, **options):
        server = FaultServer(script).__enter__()
        running.append(server)
        return server, OpenAILM("test", base_url=server.base_url, name=f"test/{server.base_url}", **options)

    yield start
    for server in running:
        server.__exit__(None, None, None)


@server_test
@pytest.mark.parametrize("listen", [None, lambda delta: None], ids=["plain", "stream"])
async def test_a_tool_loop_over_the_wire(serve, listen):
    server, lm = serve([Reply(text="", reasoning="look first", tool_calls=[CALL]), "42"])
    first = await lm.generate(Request(messages=(user(),), tools=(TOOL,)), listen)
    talk = (user(), first.choices[0].message(), {"role": "tool", "tool_call_id": "c1", "content": "42"})
    assert (await lm.generate(Request(messages=talk, tools=(TOOL,)), listen)).text == "42"
    assert server.requests[1]["messages"][1]["reasoning_content"] == "look first"


@server_test
@pytest.mark.parametrize(
    "complaint",
    [
        (  # Groq
            "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property "
            "'reasoning_content' is unsupported)]"
        ),
        "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported",
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'messages', 1, 'reasoning_content'), 'msg': 'Extra inputs are "
            "not permitted'}]"
        ),
    ],
)
async def test_an_upstream_that_does_not_want_it_back_is_spared_it(serve, complaint):
    def strict(body):
        back = any("reasoning_content" in message for message in body["messages"])
        return Reply.error(400, complaint) if back else Reply(text="", reasoning="hm", tool_calls=[CALL])

    server, lm = serve(strict)
    async with Run() as run:
        said = (await run.complete(Request(messages=(user(),), tools=(TOOL,)), lm=lm)).choices[0].message()
        talk = (user(), said, {"role": "tool", "tool_call_id": "c1", "content": "42"})
        for _ in range(2):
            await run.complete(Request(messages=talk, tools=(TOOL,)), lm=lm)
    assert server.calls == 4, "refused once"


@server_test
@pytest.mark.parametrize(
    "complaint",
    [
        "Missing `reasoning_content` field in the assistant message at message index 1. For more information, see",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",  # DeepSeek V4
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",  # Kimi
    ],
    ids=["deepseek", "deepseek v4", "kimi"],
)
async def test_a_tool_loop_of_another_model_goes_on_where_thoughts_are_wanted(serve, complaint):
    def wants(body):
        bare = any(m["role"] == "assistant" and "reasoning_content" not in m for m in body["messages"])
        return Reply.error(400, complaint, code="invalid_request_error") if bare else Reply(text="42")

    server, lm = serve(wants)
    other = Choice(tool_calls=(CALL,), items=({"provider": "anthropic", "signature": "s"},)).message()
    talk = (user(), other, {"role": "tool", "tool_call_id": "c1", "content": "42"})
    async with Run() as run:
        for _ in range(2):
            assert (await run.complete(Request(messages=talk, tools=(TOOL,)), lm=lm)).text == "42"
    assert server.calls == 3
    assert server.requests[-1]["messages"][1] == {
        "role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "",
    }  # fmt: skip


# -- never the answer


@server_test
@pytest.mark.parametrize("typed", [False, True], ids=["text", "schema"])
@pytest.mark.parametrize("budget", [None, Budget(tokens=50_000)], ids=["free", "limited"])
@pytest.mark.parametrize("tags", [False, True], ids=["field", "tags"])
async def test_a_reply_that_only_thought_is_asked_for_once_more_and_differently(serve, typed, budget, tags):
    thought = "Paris? " * 40
    cut = Reply(text=f"<think>{thought}", finish_reason="length") if tags else Reply.thought_only(thought)
    server, lm = serve([cut, '{"answer": 42}' if typed else "Paris"])
    ask = Predict("question -> answer: int" if typed else "question -> answer", lm=lm)
    async with Run(budget=budget) as run:
        said = await ask.acall(question="x")
    assert said.answer == (42 if typed else "Paris")
    first, second = server.requests
    assert "reasoning_effort" not in first
    assert second["reasoning_effort"] == "low"
    assert ("response_format" in first, "response_format" in second) == (typed, typed)
    used = run.journal.events[[e.kind for e in run.journal.events].index("call")].data["usage"]["output_tokens"]
    assert second["max_tokens"] == 2 * used, "no cap was asked for, and it was cut all the same"
    (error,) = [e.data["error"] for e in run.journal.events if e.kind == "parse_error"]
    assert "only thought until its limit" in error
    assert run.usage.calls == 2


@server_test
@pytest.mark.parametrize("typed", [False, True], ids=["text", "schema"])
async def test_it_is_asked_for_once_more_only_and_what_was_thought_is_no_answer(serve, typed):
    server, lm = serve(lambda body: Reply(text='<think>{"answer": 41}', finish_reason="length"))
    ask = Predict("question -> answer: int" if typed else "question -> answer", lm=lm, reasks=9)
    async with Run() as run:
        with pytest.raises(ParseError, match="only thought") as caught:
            await ask.acall(question="x")
    assert (server.calls, run.usage.calls) == (2, 2)
    assert (caught.value.completion.text, caught.value.completion.reasoning) == ("", '{"answer": 41}')


@server_test
async def test_a_template_that_opens_the_thought_is_learned(serve):
    server, lm = serve(["hm</think>Paris", Reply(text="well, Lyon is", finish_reason="length"), "hm</think>Lyon"])
    ask = Predict("question -> answer", lm=lm)
    assert (await ask.acall(question="x")).answer == "Paris"
    assert (await ask.acall(question="y")).answer == "Lyon"
    assert server.calls == 3


@server_test
async def test_a_whole_answer_without_a_thought_ends_the_belief_that_the_template_opens_one(serve):
    cut = Reply(text="well, Lyon is", finish_reason="length")
    server, lm = serve(["Write\n</think>\nat the end.", "Paris", cut])
    ask = Predict("question -> answer", lm=lm)
    said = [(await ask.acall(question=question)).answer for question in "xyz"]
    assert said[1:] == ["Paris", "well, Lyon is"], "one answer that looked like a thought spoils no later one"
    assert server.calls == 3


def test_the_embedded_door_and_the_journal_see_plain_messages():
    items = ({"provider": "u", "reasoning_content": "hm"},)
    body = request_body(Request(messages=(user(), Choice(text="a", items=items).message())), "m", cap_name="max_tokens")
    assert json.loads(json.dumps(body))["messages"][1] == {"role": "assistant", "content": "a"}
    assert not Capabilities().reasoning, "declared, never assumed from a name"
