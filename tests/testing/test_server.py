"""The official client against the test server: it must be a server that real clients understand."""

import asyncio
import urllib.error
import urllib.request

import httpx2
import openai
import pytest

from redraft.testing import FaultServer, Reply

pytestmark = pytest.mark.server
HELLO = [{"role": "user", "content": "hello you there"}]


def client_of(server):
    return openai.AsyncOpenAI(base_url=server.base_url, api_key="secret", max_retries=0)


async def until(condition):
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen within 2 s")


async def chunks_of(stream):
    return [chunk async for chunk in stream]


async def test_a_healthy_reply():
    with FaultServer(["Hello to you"]) as server:
        async with client_of(server) as client:
            reply = await client.chat.completions.create(model="m", messages=HELLO, n=2)
    assert [choice.message.content for choice in reply.choices] == ["Hello to you"] * 2
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 6)
    assert reply.choices[0].finish_reason == "stop"
    assert server.calls == 1
    assert server.requests[0]["messages"] == HELLO
    assert server.headers[0]["authorization"] == "Bearer secret"


async def test_a_cap_is_honoured_unless_told_otherwise():
    with FaultServer([Reply(text="a b c"), Reply(text="a b c", honour_cap=False)]) as server:
        async with client_of(server) as client:
            ask = lambda: client.chat.completions.create(model="m", messages=HELLO, max_tokens=2)
            short, long = await ask(), await ask()
    assert (short.choices[0].message.content, short.choices[0].finish_reason) == ("a b", "length")
    assert (long.choices[0].message.content, long.usage.completion_tokens) == ("a b c", 3)


async def test_a_stream():
    with FaultServer([Reply(text="one two", reasoning="hm")]) as server:
        async with client_of(server) as client:
            chunks = await chunks_of(
                await client.chat.completions.create(
                    model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}, logprobs=True
                )
            )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "one two"
    assert "".join(getattr(c.choices[0].delta, "reasoning_content", "") for c in chunks if c.choices) == "hm"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == 3
    assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == 1
    assert all(c.usage is None for c in chunks[:-1])
    assert [t.token for c in chunks if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content] == [
        "one ",
        "two",
    ]


async def test_usage_is_streamed_only_when_asked_for():
    with FaultServer() as server:
        async with client_of(server) as client:
            chunks = await chunks_of(await client.chat.completions.create(model="m", messages=HELLO, stream=True))
    assert all(c.usage is None and c.choices for c in chunks)


async def test_tool_calls():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    with FaultServer(lambda asked: Reply(text="", tool_calls=[call])) as server:
        async with client_of(server) as client:
            reply = await client.chat.completions.create(model="m", messages=HELLO)
    assert reply.choices[0].message.tool_calls[0].function.name == "look"
    assert reply.choices[0].finish_reason == "tool_calls"


async def test_models():
    with FaultServer(models=["a", "b"]) as server:
        async with client_of(server) as client:
            assert [model.id async for model in client.models.list()] == ["a", "b"]


async def test_an_unknown_path_is_404():
    with FaultServer() as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            await asyncio.to_thread(urllib.request.urlopen, server.base_url + "/nothing")
        caught.value.close()
    assert caught.value.code == 404


@pytest.mark.parametrize(
    ("reply", "kind", "status"),
    [
        (Reply.busy("3"), openai.RateLimitError, 429),
        (Reply.error(503, "overloaded"), openai.InternalServerError, 503),
        (Reply.unsupported("seed"), openai.BadRequestError, 400),
        (Reply.overflow(), openai.BadRequestError, 400),
    ],
)
async def test_errors(reply, kind, status):
    with FaultServer([reply]) as server:
        async with client_of(server) as client:
            with pytest.raises(kind) as caught:
                await client.chat.completions.create(model="m", messages=HELLO)
    assert caught.value.status_code == status


async def test_retry_after_headers():
    with FaultServer([Reply.busy("3", milliseconds=40)]) as server:
        async with client_of(server) as client:
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(model="m", messages=HELLO)
    headers = caught.value.response.headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("3", "40")


async def test_a_script_that_ran_out():
    with FaultServer([]) as server:
        async with client_of(server) as client:
            with pytest.raises(openai.BadRequestError, match="no reply for call 1"):
                await client.chat.completions.create(model="m", messages=HELLO)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cut", [0, 1])
async def test_a_cut_connection(cut, stream):
    with FaultServer([Reply(text="a b c", cut=cut)]) as server:
        async with client_of(server) as client:
            with pytest.raises((openai.APIConnectionError, httpx2.RemoteProtocolError)):  # the latter up to openai 3.3
                reply = await client.chat.completions.create(model="m", messages=HELLO, stream=stream)
                await chunks_of(reply)


@pytest.mark.parametrize("fault", [Reply(delay=30), Reply(text="a b c d", pause=30)])
async def test_a_caller_that_leaves_is_seen_at_once(fault):
    with FaultServer([fault]) as server:
        async with client_of(server) as client:

            async def call():
                return await chunks_of(await client.chat.completions.create(model="m", messages=HELLO, stream=True))

            task = asyncio.create_task(call())
            await until(lambda: server.calls == 1)
            assert (server.open_connections, server.aborted) == (1, 0)
            task.cancel()
            await asyncio.wait([task])
            await until(lambda: server.aborted == 1)
            assert server.open_connections == 0


async def test_connections_are_kept_and_counted():
    with FaultServer(lambda asked: Reply(delay=0.02)) as server:
        async with client_of(server) as client:
            for _ in range(2):
                ask = lambda: client.chat.completions.create(model="m", messages=HELLO)
                await asyncio.gather(*(ask() for _ in range(5)))
            assert server.most_connections == server.open_connections == 5
        await until(lambda: server.open_connections == 0)
    assert (server.calls, server.aborted) == (10, 0)


def test_it_stops_with_calls_under_way():
    with FaultServer(lambda asked: Reply(delay=30)) as server:

        async def leave():
            async with client_of(server) as client:
                task = asyncio.create_task(client.chat.completions.create(model="m", messages=HELLO))
                await until(lambda: server.calls == 1)
                return task

        asyncio.run(leave())
    assert server.open_connections == 0
