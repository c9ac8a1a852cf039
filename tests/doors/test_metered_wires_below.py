"""A metered client below an LM that a run asks: one call is one purchase, and none waits for room that it holds itself."""

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("anthropic")

from openai import AsyncOpenAI, BadRequestError, OpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from redraft import BestOfN, Budget, Refine, Run
from redraft.config import context
from redraft.errors import InputError
from redraft.integrations.openai import metered, served_by
from redraft.integrations.pydantic_ai import wrap
from redraft.sync import run_sync
from redraft.testing import FaultServer, Reply, ScriptedLM
from redraft.testing.words import EVERYTHING
from redraft.types import Capabilities, Choice, Completion, Usage

pytestmark = pytest.mark.doors

BUDGETS = pytest.mark.parametrize("limits", [{"calls": 1}, {"tokens": 5_000}], ids=["calls", "tokens"])


def asking(client):
    async def answer(question):
        asked = [{"role": "user", "content": question}]
        return (await client.chat.completions.create(model="m", messages=asked)).choices[0].message.content

    return answer


@BUDGETS
def test_a_client_that_is_metered_twice_is_counted_once(limits):
    with FaultServer(["yes"]) as upstream:
        client = metered(metered(AsyncOpenAI(base_url=upstream.base_url, api_key="none")))
        result = Refine(asking(client), N=1, budget=Budget(**limits, seconds=20))(question="Is it?")
        run_sync(client.close)
    assert (result.answer, result.usage.calls, upstream.calls) == ("yes", 1, 1)


@BUDGETS
def test_so_is_an_agent_over_one(limits):
    with FaultServer(["yes"]) as upstream:
        client = metered(AsyncOpenAI(base_url=upstream.base_url, api_key="none"))
        agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)))
        result = Refine(wrap(agent), N=1, budget=Budget(**limits, seconds=20))(question="Is it?")
        run_sync(client.close)
    assert (result.answer, result.usage.calls, upstream.calls) == ("yes", 1, 1)


@BUDGETS
def test_so_is_a_redraft_model_behind_a_client(limits):
    lm = ScriptedLM(["yes"])
    result = Refine(asking(metered(served_by(lm))), N=1, budget=Budget(**limits, seconds=20))(question="Is it?")
    assert (result.answer, result.usage.calls, len(lm.requests)) == ("yes", 1, 1)


def test_closing_a_metered_client_closes_its_connections():
    with FaultServer(["yes", "yes"]) as upstream:
        with metered(OpenAI(base_url=upstream.base_url, api_key="none")) as client:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        inner = AsyncOpenAI(base_url=upstream.base_url, api_key="none")

        async def session():
            async with metered(inner) as client:
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])

        run_sync(session)
        assert inner.is_closed()


def test_its_failures_are_retried_by_the_run_and_its_samples_differ():
    with FaultServer([Reply.busy(milliseconds=1), "a", "b"]) as upstream:
        client = metered(metered(OpenAI(base_url=upstream.base_url, api_key="none")))

        def answer(question):
            asked = [{"role": "user", "content": question}]
            return client.chat.completions.create(model="m", messages=asked).choices[0].message.content

        with Run() as run:
            result = BestOfN(answer, 2, lambda args, pred: 0.0)(question="Is it?")
        client.close()
    assert ([a.text for a in result.attempts], run.usage.calls, upstream.calls) == (["a", "b"], 3, 3)


@pytest.mark.parametrize("door", [lambda: metered(OpenAI), lambda: wrap(Agent)], ids=["client", "agent"])
def test_a_class_is_no_client_and_no_agent(door):
    with pytest.raises(InputError, match="give a"):
        door()


def test_a_cache_of_replies_answers_no_second_sample(tmp_path):
    client = metered(served_by(ScriptedLM(["a", "b"])))
    with context(cache=tmp_path / "replies.db"):
        result = BestOfN(asking(client), 2, lambda args, pred: 0.0)(question="Is it?")
    assert [a.text for a in result.attempts] == ["a", "b"]


def served(reply, capabilities=EVERYTHING):
    lm = ScriptedLM([reply])
    lm.capabilities = capabilities

    async def create(**options):
        asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], **options}
        async with served_by(lm) as client:
            return await client.chat.completions.create(**asked)

    return lm, create


async def test_a_served_model_is_asked_all_and_tells_all():
    token = {"token": "yes", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    choice = Choice(text="yes", reasoning="hm", logprobs=(token,), finish_reason="stop")
    usage = Usage(input_tokens=9, output_tokens=4, cached_tokens=8, reasoning_tokens=2)
    lm, create = served(Completion(choices=(choice,), usage=usage))
    reply = await create(response_format={"type": "json_object"}, logprobs=True, top_logprobs=2, seed=3)
    (asked,) = lm.requests
    assert (asked.schema, asked.logprobs, asked.seed) == ({"type": "object"}, 2, 3)
    (said,) = reply.choices
    assert (said.message.content, said.message.reasoning_content, said.logprobs.content[0].token) == (
        "yes",
        "hm",
        "yes",
    )
    told = reply.usage
    assert (told.prompt_tokens_details.cached_tokens, told.completion_tokens_details.reasoning_tokens) == (8, 2)


async def test_a_stream_tells_its_usage_where_it_is_asked_for():
    for options, used in (({}, [None]), ({"stream_options": {"include_usage": True}}, [None, 5])):
        _, create = served(Completion(choices=(Choice(text="yes"),), usage=Usage(input_tokens=4, output_tokens=1)))
        chunks = [chunk async for chunk in await create(stream=True, **options)]
        assert [chunk.usage and chunk.usage.total_tokens for chunk in chunks] == used
        assert chunks[0].choices[0].delta.content == "yes"


async def test_an_unknown_usage_is_not_told_as_nothing():
    _, create = served(Completion(choices=(Choice(text="yes"),)))
    assert (await create()).usage is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tools": [{"type": "function", "function": {"name": "look"}}]}, "'tools'"),
        ({"response_format": {"type": "json_object"}}, "'schema'"),
        ({"response_format": {"type": "grammar"}}, "'response_format'"),
        ({"top_logprobs": 3}, "'top_logprobs'"),
    ],
)
async def test_what_a_served_model_does_not_take_is_the_sdks_own_error(options, why):
    lm, create = served("yes", Capabilities())
    with pytest.raises(BadRequestError, match=why):
        await create(**options)
    assert lm.requests == []
