"""A metered client below an LM that a run asks: one call is one purchase, and none waits for room that it holds itself."""

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("anthropic")

from openai import AsyncOpenAI, OpenAI
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
