"""`metered` over each format that the official SDKs speak: exact, capped, resumed, streamed; and advice in each format."""

import pytest

pytest.importorskip("anthropic")

from anthropic import Anthropic, AsyncAnthropic
from anthropic import RateLimitError as TooMany
from openai import AsyncOpenAI, OpenAI

from redraft import Budget, Refine, Run, SqliteStore, checks
from redraft.errors import RunFailed
from redraft.integrations.openai import metered
from redraft.sync import run_sync
from redraft.testing import FaultServer, Reply
from redraft.testing.wire_anthropic import ANTHROPIC
from redraft.testing.wire_responses import RESPONSES

pytestmark = pytest.mark.doors

YES = checks.contains("yes")


def messages(client):
    async def answer(question):
        asked = [{"role": "user", "content": question}]
        said = await client.messages.create(model="claude-haiku-4-5", max_tokens=500, messages=asked)
        return said.content[0].text

    return answer


def messages_sync(client):
    def answer(question):
        asked = [{"role": "user", "content": [{"type": "text", "text": question}]}]
        said = client.messages.create(model="claude-haiku-4-5", max_tokens=500, messages=asked)
        return said.content[0].text

    return answer


def messages_streamed(client):
    async def answer(question):
        asked = [{"role": "user", "content": question}]
        async with client.messages.stream(model="claude-haiku-4-5", max_tokens=500, messages=asked) as stream:
            return "".join([piece async for piece in stream.text_stream])

    return answer


def responses(client):
    async def answer(question):
        return (await client.responses.create(model="gpt-4.1-mini", input=question)).output_text

    return answer


def responses_sync(client):
    def answer(question):
        return client.responses.create(model="gpt-4.1-mini", input=[{"role": "user", "content": question}]).output_text

    return answer


def responses_streamed(client):
    async def answer(question):
        stream = await client.responses.create(model="gpt-4.1-mini", input=question, stream=True)
        return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])

    return answer


each = pytest.mark.parametrize(
    ("wire", "kind", "function"),
    [
        (ANTHROPIC, AsyncAnthropic, messages),
        (ANTHROPIC, Anthropic, messages_sync),
        (ANTHROPIC, AsyncAnthropic, messages_streamed),
        (RESPONSES, AsyncOpenAI, responses),
        (RESPONSES, OpenAI, responses_sync),
        (RESPONSES, AsyncOpenAI, responses_streamed),
    ],
    ids=["anthropic", "anthropic-sync", "anthropic-stream", "responses", "responses-sync", "responses-stream"],
)


@pytest.fixture
def client_of():
    made = []

    def make(kind, upstream):
        made.append(kind(base_url=upstream.base_url, api_key="none"))
        return made[-1]

    yield make
    for client in made:
        if hasattr(client._client, "aclose"):
            run_sync(client.close)
        else:
            client.close()


@each
def test_it_is_refined_counted_exactly_and_advised(wire, kind, function, client_of):
    with FaultServer(["no", "yes indeed"], wire=wire) as upstream:
        result = Refine(function(metered(client_of(kind, upstream))), N=3, checks=[YES])(question="Is it?")
        second = str(upstream.requests[1])
    assert (result.answer, result.usage.calls, result.usage.soft) == ("yes indeed", 2, 0)
    assert result.usage.exact
    assert result.usage.input_tokens > 0
    assert result.cost > 0
    assert "Requirements:" in second
    assert "An earlier answer fell short" in second


@each
def test_a_token_limit_caps_it(wire, kind, function, client_of):
    with FaultServer(lambda asked: "no " * 20, wire=wire) as upstream:
        function = function(metered(client_of(kind, upstream)))
        result = Refine(function, N=40, checks=[YES], budget=Budget(tokens=800))(question="Is it?")
        name = "max_output_tokens" if wire is RESPONSES else "max_tokens"
        assert all(0 < asked[name] <= 800 for asked in upstream.requests)
    assert result.stop_reason == "budget"
    assert result.usage.tokens <= 800


@each
def test_a_resumed_run_sends_nothing_again(wire, kind, function, client_of, tmp_path):
    with FaultServer(["no", "yes"], wire=wire) as upstream:
        refined = Refine(function(metered(client_of(kind, upstream))), checks=[YES])
        for _ in range(2):
            store = SqliteStore(tmp_path / "runs.db")
            with Run(run_id="one", store=store):
                assert refined(question="Is it?").answer == "yes"
            store.close()
            assert upstream.calls == 2


@pytest.mark.parametrize("function", [messages, messages_sync])
def test_anthropic_s_own_error_comes_after_the_run_s_tries(function, client_of):
    kind = Anthropic if function is messages_sync else AsyncAnthropic
    with FaultServer(lambda asked: Reply.busy("0"), wire=ANTHROPIC) as upstream:
        with pytest.raises(RunFailed) as raised:
            Refine(function(metered(client_of(kind, upstream))), N=1)(question="Is it?")
        assert upstream.calls == 4
    assert isinstance(raised.value.__cause__, TooMany)


@pytest.mark.parametrize("function", [messages, messages_sync])
def test_an_ended_budget_passes_through_anthropic_s_sdk_as_it_is(function, client_of):
    kind = Anthropic if function is messages_sync else AsyncAnthropic
    with FaultServer(lambda asked: "no", wire=ANTHROPIC) as upstream:
        refined = Refine(function(metered(client_of(kind, upstream))), N=9, checks=[YES], budget=Budget(calls=2))
        result = refined(question="Is it?")
        assert (result.stop_reason, upstream.calls) == ("budget", 2)
