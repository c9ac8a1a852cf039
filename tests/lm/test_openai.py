"""OpenAILM with the real SDK against a real server that breaks on demand."""

import asyncio
import gc
import random
import socket
import subprocess
import sys
import threading

import pytest
from genai_prices.data import providers
from genai_prices.types import ModelPrice

from redraft import Run
from redraft.errors import (
    AuthError,
    BadRequestError,
    ConfigError,
    ContextOverflowError,
    TransientLMError,
    UnsupportedError,
)
from redraft.lm import clients
from redraft.lm.openai import OpenAILM
from redraft.protocols import LM
from redraft.testing import FaultServer, Reply
from redraft.types import Capabilities, Request, Usage

server_test = pytest.mark.server
both_ways = pytest.mark.parametrize("listen", [None, lambda delta: None], ids=["plain", "stream"])


def ask(text="hello you there", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


async def until(condition):
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen within 2 s")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve():
    """Starts a server and gives it and an LM on it."""
    running = []

    def start(script=None, **options):
        server = FaultServer(script).__enter__()
        running.append(server)
        return server, OpenAILM("test", base_url=server.base_url, **options)

    yield start
    for server in running:
        server.__exit__(None, None, None)


# -- construction


def test_a_key_is_needed_for_a_remote_url(monkeypatch):
    for base_url in (None, "https://gateway.example/v1"):
        with pytest.raises(ConfigError, match=r"set OPENAI_API_KEY, or give --base-url"):
            OpenAILM("m", base_url=base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert OpenAILM("m").name == "openai/m"


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "127.0.0.9:1", "[::1]:8000"])
def test_a_key_is_optional_on_this_machine(host):
    OpenAILM("m", base_url=f"http://{host}/v1")


def test_the_key_of_another_provider_is_its_own(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(ConfigError, match="GROQ_API_KEY"):
        OpenAILM("m", base_url="https://api.groq.com/openai/v1", provider="groq")
    with pytest.raises(ConfigError, match="base URL of groq"):
        OpenAILM("m", provider="groq")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:8000", r"got 'localhost:8000'; give --base-url"),
        ("http://a b/v1", "must begin with http"),
        ("http://h/v1?api-version=1", "end with its path"),
        ("http://h/v1#top", "end with its path"),
    ],
)
def test_a_base_url_is_checked(url, says):
    with pytest.raises(ConfigError, match=says):
        OpenAILM("m", base_url=url)


@server_test
async def test_a_password_in_the_url_is_told_to_nobody(serve):
    server, _ = serve([Reply.error(400, "no")])
    url = server.base_url.replace("//", "//me:secret@")
    lm = OpenAILM("test", base_url=url)
    async with Run() as run:
        with pytest.raises(BadRequestError) as caught:
            await run.complete(ask(), lm=lm)
    assert "Basic" in server.headers[0]["authorization"]
    assert "secret" not in f"{caught.value} {lm.address} {run.journal.events}"


def test_openai_base_url_is_honoured(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    OpenAILM("m")


def test_it_is_an_lm():
    lm = OpenAILM("m", base_url="http://localhost/v1", name="house/m", parallel=3, max_output=99)
    assert isinstance(lm, LM)
    assert (lm.name, lm.parallel, lm.max_output, lm.count(ask())) == ("house/m", 3, 99, None)


def test_importing_it_imports_no_sdk():
    script = "import sys, redraft.lm.openai; sys.exit(bool({'openai', 'httpx2', 'genai_prices'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_prices():
    usage = Usage(input_tokens=1000, cached_tokens=800, output_tokens=100)
    known = OpenAILM("gpt-4.1-mini", base_url="http://localhost/v1")
    assert known.cost(usage) == pytest.approx(0.00032)
    assert known.cost(Usage(input_tokens=10, cached_tokens=99)) > 0
    assert OpenAILM("no-such-model", base_url="http://localhost/v1").cost(usage) is None
    groq = OpenAILM("llama-3.3-70b-versatile", base_url="https://api.groq.com/openai/v1", api_key="k", provider="acme")
    assert groq.cost(usage) > 0


def test_a_listed_model_without_prices_is_not_free():
    listed = ((p.id, m) for p in providers for m in p.models if isinstance(m.prices, ModelPrice))
    provider, model = next((p, m.id) for p, m in listed if m.prices == ModelPrice())
    lm = OpenAILM(model, base_url="http://localhost/v1", provider=provider)
    assert lm.cost(Usage(input_tokens=1)) is None


# -- requests and replies


@server_test
@both_ways
async def test_a_reply(serve, listen):
    server, lm = serve([Reply(text="Hello to you", reasoning="a greeting")], api_key="secret")
    completion = await lm.generate(ask(n=2), listen)
    assert [choice.text for choice in completion.choices] == ["Hello to you"] * 2
    assert completion.reasoning == "a greeting"
    assert completion.finish_reason == "stop"
    assert completion.model == "test"
    assert completion.usage == Usage(input_tokens=3, output_tokens=10, reasoning_tokens=2)
    assert server.headers[0]["authorization"] == "Bearer secret"
    assert server.headers[0]["content-type"] == "application/json"
    assert server.requests[0].get("stream_options") == ({"include_usage": True} if listen else None)


@server_test
@both_ways
async def test_missing_usage_is_none(serve, listen):
    _, lm = serve([Reply(usage=False)])
    assert (await lm.generate(ask(), listen)).usage is None


@server_test
async def test_a_thought_cut_over_chunks_is_reasoning(serve):
    deltas = []
    _, lm = serve([Reply(text=("<th", "ink>h", "m</thi", "nk>\n", "\nyes", " sir"))])
    completion = await lm.generate(ask(), deltas.append)
    assert (completion.reasoning, completion.text) == ("hm", "yes sir")
    assert [d.text for d in deltas if d.text] == ["yes", " sir"]
    assert "".join(d.reasoning for d in deltas) == "hm"


@server_test
@both_ways
async def test_only_thought(serve, listen):
    _, lm = serve([Reply.thought_only("well let me see")])
    completion = await lm.generate(ask(), listen)
    assert (completion.text, completion.reasoning, completion.finish_reason) == ("", "well let me see", "length")
    assert completion.usage.reasoning_tokens == 4


@server_test
@both_ways
async def test_tools_and_logprobs(serve, listen):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    server, lm = serve([Reply(text="a b", tool_calls=[call])])
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    completion = await lm.generate(ask(tools=(tool,), tool_choice="auto", logprobs=0), listen)
    assert completion.tool_calls == (call,)
    assert completion.finish_reason == "tool_calls"
    assert [token["token"] for token in completion.logprobs] == ["a ", "b"]
    assert server.requests[0]["tools"] == [tool]


@server_test
async def test_without_the_capability_nothing_is_streamed(serve):
    deltas = []
    server, lm = serve(["one two"], capabilities=Capabilities())
    await lm.generate(ask(), deltas.append)
    assert [delta.text for delta in deltas] == ["one two"]
    assert "stream" not in server.requests[0]


@server_test
async def test_what_it_cannot_do_is_not_sent(serve):
    server, lm = serve()
    for field in ("grammar", "prefill"):
        with pytest.raises(UnsupportedError) as caught:
            await lm.generate(ask(**{field: "x"}))
        assert caught.value.parameter == field
    assert server.calls == 0


@server_test
async def test_json_of_another_content_type_is_read(serve):
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
    _, lm = serve([Reply(body=body, headers={"content-type": "text/plain"})])
    assert (await lm.generate(ask())).text == "x"


# -- failures


@server_test
@both_ways
@pytest.mark.parametrize(
    ("reply", "kind", "sent"),
    [
        (Reply.busy(), TransientLMError, False),
        (Reply.error(408, "late"), TransientLMError, False),
        (Reply.error(409, "conflict"), TransientLMError, False),
        (Reply.error(500, "oops"), TransientLMError, True),
        (Reply(status=502, body=b"<html>bad gateway</html>"), TransientLMError, True),
        (Reply.error(401, "Incorrect API key"), AuthError, False),
        (Reply.error(403, "no access"), AuthError, False),
        (Reply.error(404, "model not found"), BadRequestError, False),
        (Reply.error(429, "quota", code="insufficient_quota"), BadRequestError, False),
        (Reply.overflow(), ContextOverflowError, False),
        (Reply.error(400, "bad"), BadRequestError, False),
        (
            Reply(body=b'{"error": {"code": 400, "message": "exceeds the available context size"}}'),
            ContextOverflowError,
            False,
        ),
        (Reply(body=b"<html>hello</html>"), TransientLMError, True),
        (Reply(body=b"<html>hello</html>", headers={"content-type": "text/html"}), TransientLMError, True),
        (Reply(body=b"\xff\xfe{"), TransientLMError, True),
        (Reply(body=b"[1]"), TransientLMError, True),
        (Reply(body=b"null"), TransientLMError, True),
        (Reply(body={"choices": []}), TransientLMError, True),
        (Reply(body={"choices": "many"}), TransientLMError, True),
        (Reply(cut=0), TransientLMError, True),
        (Reply(text="a b c", cut=1), TransientLMError, True),
        (Reply(status=500, body=b"x" * 100, cut=1), TransientLMError, True),
    ],
)
async def test_failures(serve, reply, kind, sent, listen):
    _, lm = serve([reply])
    with pytest.raises(kind) as caught:
        await lm.generate(ask(), listen)
    assert type(caught.value) is kind
    assert caught.value.sent is sent


@server_test
@pytest.mark.parametrize(
    "body",
    [
        b"data: {not json}\n\n",
        b"data: 5\n\n",
        b"data: \xff\xff\n\n",
        b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n',
        b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n',
        b'data: {"error": {"message": "the engine died"}}\n\n',
        b"data: [DONE]\n\n",
        b"",
    ],
)
async def test_broken_streams(serve, body):
    _, lm = serve([Reply(body=body, headers={"content-type": "text/event-stream"})])
    with pytest.raises(TransientLMError) as caught:
        await lm.generate(ask(), lambda delta: None)
    assert caught.value.sent


@server_test
async def test_an_error_within_a_stream_is_told_by_its_code(serve):
    body = b'data: {"error": {"message": "slow down", "code": 429}}\n\n'
    _, lm = serve([Reply(body=body, headers={"content-type": "text/event-stream"})])
    with pytest.raises(TransientLMError, match="too many requests") as caught:
        await lm.generate(ask(), lambda delta: None)
    assert caught.value.status == 429


@server_test
async def test_a_stream_that_ends_without_its_finish_is_cut(serve):
    _, lm = serve([Reply(text="a b c", finish_reason=None)])
    with pytest.raises(TransientLMError, match="broke off before its finish reason"):
        await lm.generate(ask(), lambda delta: None)


@server_test
async def test_retry_after_is_passed_on(serve):
    _, lm = serve(
        [Reply.busy("7"), Reply.busy("7", milliseconds=250), Reply.error(503, "x", headers={"retry-after": "2"})]
    )
    for seconds in (7, 0.25, 2):
        with pytest.raises(TransientLMError) as caught:
            await lm.generate(ask())
        assert caught.value.retry_after == seconds


@server_test
async def test_messages_name_what_to_mend(serve):
    server, lm = serve([Reply.error(401, "Incorrect key"), Reply.error(404, "not found")])
    with pytest.raises(AuthError, match="OPENAI_API_KEY"):
        await lm.generate(ask())
    with pytest.raises(BadRequestError, match=f"no model 'test'.*{server.base_url}|{server.base_url}.*no model 'test'"):
        await lm.generate(ask())


@server_test
async def test_nobody_listens_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        lm = OpenAILM("m", base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        with pytest.raises(TransientLMError, match="no connection") as caught:
            await lm.generate(ask())
    assert not caught.value.sent


@server_test
@both_ways
@pytest.mark.parametrize(
    ("name", "parameter", "fields"),
    [
        ("temperature", "temperature", {"temperature": 0.5}),
        ("seed", "seed", {"seed": 1}),
        ("response_format", "schema", {"schema": {"type": "object"}}),
        ("reasoning_effort", "effort", {"effort": "low"}),
        ("top_logprobs", "logprobs", {"logprobs": 2}),
    ],
)
async def test_a_refused_parameter_is_named(serve, name, parameter, fields, listen):
    _, lm = serve([Reply.unsupported(name)])
    with pytest.raises(UnsupportedError) as caught:
        await lm.generate(ask(**fields), listen)
    assert (caught.value.parameter, caught.value.status) == (parameter, 400)


@server_test
async def test_the_cap_is_sent_under_the_name_that_the_server_takes(serve):
    def script(asked):
        return Reply.unsupported("max_tokens") if "max_tokens" in asked else "one two three"

    server, lm = serve(script)
    with pytest.raises(TransientLMError, match="sent as max_completion_tokens") as caught:
        await lm.generate(ask(max_tokens=2))
    assert (caught.value.retry_after, caught.value.sent) == (0, False)
    for _ in range(2):
        assert (await lm.generate(ask(max_tokens=2))).text == "one two"
    assert server.calls == 3


@server_test
async def test_calls_in_flight_learn_the_same_name_once(serve):
    def script(asked):
        return Reply.unsupported("max_tokens") if "max_tokens" in asked else "fine"

    _, lm = serve(script)
    first = await asyncio.gather(*(lm.generate(ask(max_tokens=2)) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(error, TransientLMError) for error in first)
    assert (await lm.generate(ask(max_tokens=2))).text == "fine"


@server_test
async def test_a_server_that_takes_no_cap_is_refused_for_good(serve):
    _, lm = serve(lambda asked: Reply.unsupported(next(name for name in asked if name.startswith("max_"))))
    with pytest.raises(TransientLMError):
        await lm.generate(ask(max_tokens=2))
    for _ in range(2):
        with pytest.raises(BadRequestError, match="neither max_completion_tokens nor max_tokens"):
            await lm.generate(ask(max_tokens=2))


@server_test
async def test_a_cap_that_is_too_large_is_not_a_refused_name(serve):
    _, lm = serve(
        [Reply.error(400, "max_tokens is too large: 9. At most 5.", param="max_tokens", code="invalid_value")]
    )
    with pytest.raises(BadRequestError, match="too large"):
        await lm.generate(ask(max_tokens=9))


@server_test
async def test_stream_options_are_left_out_for_a_server_that_refuses_them(serve):
    def script(asked):
        return Reply.unsupported("stream_options") if "stream_options" in asked else "fine"

    _, lm = serve(script)
    with pytest.raises(TransientLMError, match=r"stream_options.*left out"):
        await lm.generate(ask(), lambda delta: None)
    completion = await lm.generate(ask(), lambda delta: None)
    assert (completion.text, completion.usage) == ("fine", None)


# -- connections


@server_test
@both_ways
async def test_cancelling_closes_the_connection(serve, listen):
    server, lm = serve(lambda asked: Reply(text="a b c", delay=0 if listen else 30, pause=30))
    call = asyncio.create_task(lm.generate(ask(), listen))
    await until(lambda: server.calls == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 1)
    await until(lambda: server.aborted == 1)
    assert server.open_connections == 0


@server_test
async def test_cancelling_from_the_listener_closes_the_connection(serve):
    class Enough(Exception):
        pass

    def stop(delta):
        raise Enough

    server, lm = serve([Reply(text="a b c d", pause=0.05), "fine"], parallel=1)
    with pytest.raises(Enough):
        await lm.generate(ask(), stop)
    await until(lambda: server.aborted == 1)
    assert (await asyncio.wait_for(lm.generate(ask()), 2)).text == "fine"


@server_test
@both_ways
async def test_no_slot_is_lost_under_contention(serve, listen):
    luck = random.Random(7)
    server, lm = serve(lambda asked: Reply(text="a b c", delay=luck.uniform(0, 0.01), pause=0.002), parallel=4)
    for _ in range(40):
        calls = [asyncio.create_task(lm.generate(ask(), listen)) for _ in range(4)]
        for call in calls[1:]:
            await asyncio.sleep(luck.uniform(0, 0.006))
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert ended[0].text == "a b c"
        assert all(isinstance(end, asyncio.CancelledError) or end.text == "a b c" for end in ended[1:])
    ready = asyncio.gather(*(lm.generate(ask(), listen) for _ in range(4)))
    assert [completion.text for completion in await asyncio.wait_for(ready, 3)] == ["a b c"] * 4
    assert server.most_connections >= 4
    await until(lambda: server.open_connections <= 4)


@server_test
async def test_as_many_connections_as_parallel_calls(serve):
    server, lm = serve(lambda asked: Reply(delay=0.05), parallel=20)
    await asyncio.gather(*(lm.generate(ask()) for _ in range(20)))
    assert server.most_connections == 20
    await asyncio.gather(*(lm.generate(ask()) for _ in range(20)))
    assert server.most_connections == 20, "connections are kept"


@server_test
def test_one_lm_on_many_loops_closes_what_it_opened(serve):
    server, lm = serve(lambda asked: Reply(delay=0.005))

    async def use():
        await asyncio.gather(*(lm.generate(ask()) for _ in range(3)))

    for _ in range(3):
        asyncio.run(use())
        gc.collect()  # an unclosed connection would warn here, and a warning is an error
        assert not [loop for loop in clients._loops if loop.is_closed()]
    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(until(lambda: server.open_connections == 0))
    assert (server.calls, server.aborted) == (21, 0)


@server_test
async def test_lms_of_one_upstream_share_a_client(serve):
    server, lm = serve()
    other = OpenAILM("other", base_url=server.base_url)
    await lm.generate(ask())
    await other.generate(ask())
    assert server.most_connections == 1


@server_test
async def test_a_server_that_does_not_stream_is_read_as_a_whole(serve):
    seen = []
    whole = {"choices": [{"index": 0, "message": {"content": "all at once"}, "finish_reason": "stop"}]}
    _, lm = serve([Reply(body=whole)])
    completion = await lm.generate(ask(), seen.append)
    assert completion.text == "all at once"
    assert "".join(d.text for d in seen) == "all at once"


@server_test
async def test_a_redirect_is_not_followed(serve):
    server, lm = serve([Reply(status=307, body=b"", headers={"location": "/v1/chat/completions"})] * 3)
    with pytest.raises(BadRequestError, match="redirect, which is not followed"):
        await lm.generate(ask())
    assert server.calls == 1
