"""Plain callables as modules: functions that call a model through a client of their own are the run's, too."""

import asyncio
import contextlib
import functools
from dataclasses import dataclass

import pytest
from openai import APIConnectionError, AsyncOpenAI, OpenAI, RateLimitError
from pydantic import BaseModel

from redraft import BestOfN, Budget, Refine, Run, SqliteStore, Usage, checks, context
from redraft.errors import BudgetExceeded, InputError, RunClosed, RunFailed
from redraft.integrations.openai import charge_reply, metered
from redraft.sync import run_sync
from redraft.testing import FaultServer, Reply, ScriptedLM

server = pytest.mark.server


def asks(client, **options):
    async def answer(question):
        said = await client.chat.completions.create(
            model="test", messages=[{"role": "user", "content": question}], **options
        )
        return said.choices[0].message.content

    return answer


def asks_in_a_thread(client, **options):
    def answer(question):
        said = client.chat.completions.create(model="test", messages=[{"role": "user", "content": question}], **options)
        return said.choices[0].message.content

    return answer


@contextlib.contextmanager
def an_async(upstream, **options):
    client = AsyncOpenAI(base_url=upstream.base_url, api_key="none", **options)
    yield client
    run_sync(client.close)  # it was used on the loop behind every sync call


@contextlib.contextmanager
def a_sync(upstream, **options):
    with OpenAI(base_url=upstream.base_url, api_key="none", **options) as client:
        yield client


both = pytest.mark.parametrize(
    ("a_client", "function_of"), [(an_async, asks), (a_sync, asks_in_a_thread)], ids=["async", "sync"]
)

# What may stand as a module


class Score(BaseModel):
    value: int


@dataclass
class Pair:
    left: str
    right: str


class Shout:
    def __call__(self, text):
        return text.upper()


class AsyncShout:
    async def __call__(self, text):
        return text.upper()

    async def method(self, text):
        return text.upper()


def returns(value):
    return lambda text: value


@pytest.mark.parametrize(
    ("thing", "fields"),
    [
        (returns("A"), {"answer": "A"}),
        (returns({"title": "A", "n": 1}), {"title": "A", "n": 1}),
        (returns(Score(value=3)), {"value": 3}),
        (returns(Pair("a", "b")), {"left": "a", "right": "b"}),
        (returns(("a", "b")), {"answer": ("a", "b")}),
        (returns(7), {"answer": 7}),
        (lambda **given: given, {"text": "a"}),
        (functools.partial(lambda prefix, text: prefix + text, "x"), {"answer": "xa"}),
        (Shout(), {"answer": "A"}),
        (AsyncShout(), {"answer": "A"}),
        (AsyncShout().method, {"answer": "A"}),
        (functools.partial(AsyncShout().method), {"answer": "A"}),
        (dict, {"text": "a"}),  # a C function that takes any name
    ],
)
def test_any_callable_is_a_module(thing, fields):
    assert Refine(thing, N=1)(text="a").to_dict() == fields


def test_inputs_that_a_function_does_not_take_are_said_before_anything_is_spent():
    with pytest.raises(InputError, match="does not take the inputs question"):
        Refine(Shout(), N=1)(question="a")


# Their clients, metered


def tells(text, given=10, written=5):
    return Reply(text=text, usage={"prompt_tokens": given, "completion_tokens": written})


@server
@both
def test_a_function_that_calls_its_own_client_is_refined_and_counted(a_client, function_of):
    with FaultServer([tells("no", 10, 1), tells("yes, it is", 12, 4)]) as upstream, a_client(upstream) as client:
        result = Refine(function_of(metered(client)), N=3, checks=[checks.contains("yes")])(question="Is it?")
    assert (result.answer, len(result.attempts)) == ("yes, it is", 2)
    assert (result.usage.calls, result.usage.input_tokens, result.usage.output_tokens) == (2, 22, 5)
    assert result.usage.exact
    assert result.usage.soft == 0


@server
@both
def test_what_the_checks_ask_for_reaches_the_function_s_prompt(a_client, function_of):
    with FaultServer(["no", "yes"]) as upstream, a_client(upstream) as client:
        Refine(function_of(metered(client)), checks=[checks.contains("yes")])(question="Is it?")
        first, second = (asked["messages"][-1]["content"] for asked in upstream.requests)
        assert first.startswith("Is it?\n\nRequirements:\n- ")
        assert "An earlier answer fell short" in second
        assert [asked.get("temperature") for asked in upstream.requests] == [None, 0.9]
        upstream.requests.clear()
    with FaultServer(["no", "yes"]) as upstream, a_client(upstream) as client:
        function = function_of(metered(client, advised=False), temperature=0.1)
        Refine(function, checks=[checks.contains("yes")])(question="Is it?")
        assert [asked["messages"][-1]["content"] for asked in upstream.requests] == ["Is it?", "Is it?"]
        assert [asked["temperature"] for asked in upstream.requests] == [0.1, 0.1]


@server
@both
def test_a_token_limit_caps_what_the_function_asks_for_and_keeps_the_best(a_client, function_of):
    with FaultServer(lambda asked: tells("no", 200, 50)) as upstream, a_client(upstream) as client:
        result = Refine(function_of(metered(client)), N=9, checks=[checks.contains("yes")], budget=Budget(tokens=900))(
            question="Is it?"
        )
        assert all(0 < asked["max_tokens"] <= 900 for asked in upstream.requests)
    assert result.stop_reason == "budget"
    assert isinstance(result.error, BudgetExceeded)
    assert result.answer == "no"
    assert result.usage.tokens <= 900
    assert 1 < result.usage.calls < 5


@server
@both
def test_a_killed_run_buys_nothing_twice(a_client, function_of, tmp_path):
    with FaultServer(["no", "yes"]) as upstream, a_client(upstream) as client:
        refined = Refine(function_of(metered(client)), N=3, checks=[checks.contains("yes")])
        answers = []
        for _ in range(2):
            store = SqliteStore(tmp_path / "runs.db")
            with Run(run_id="one", store=store) as run:
                answers.append(refined(question="Is it?").answer)
            assert (run.usage.calls, upstream.calls) == (2, 2)
            store.close()
    assert answers == ["yes", "yes"]


@server
@both
def test_the_run_retries_in_place_of_the_sdk_and_the_last_error_is_the_sdk_s(a_client, function_of):
    limits = Reply.error(429, "slow down", headers={"retry-after": "0"})
    with FaultServer([limits, limits, "yes"]) as upstream, a_client(upstream) as client:
        assert Refine(function_of(metered(client)), N=1)(question="Is it?").usage.calls == 3
    with FaultServer(lambda asked: limits) as upstream, a_client(upstream) as client:
        with pytest.raises(RunFailed) as raised:
            Refine(function_of(metered(client)), N=1)(question="Is it?")
        assert upstream.calls == raised.value.usage.calls == 4  # the run's tries
    assert isinstance(raised.value.__cause__, RateLimitError)


@both
@server
def test_a_lost_connection_is_the_sdk_s_error_too(a_client, function_of):
    with FaultServer(lambda asked: Reply(cut=0)) as upstream, a_client(upstream) as client, context(tries=1):
        with pytest.raises(RunFailed) as raised:
            Refine(function_of(metered(client)), N=1)(question="Is it?")
        assert upstream.calls == 1
    assert isinstance(raised.value.__cause__, APIConnectionError)
    assert raised.value.usage.calls == 1


@server
@both
def test_outside_a_run_the_client_is_what_it_was(a_client, function_of):
    with FaultServer([Reply.error(500, "no"), "yes"]) as upstream, a_client(upstream, max_retries=1) as client:
        said = function_of(metered(client))(question="Is it?")
        assert (run_sync(lambda: said) if asyncio.iscoroutine(said) else said) == "yes"
        assert upstream.calls == 2  # the SDK's own retry


@server
@both
def test_another_model_of_the_ladder_answers_in_place_of_the_client_s(a_client, function_of):
    big = ScriptedLM(["yes, big"], name="big")
    small = ScriptedLM(["no"], name="small")
    with FaultServer([]) as upstream, a_client(upstream) as client:
        refined = Refine(function_of(metered(client)), N=2, models=[small, big], checks=[checks.contains("yes")])
        result = refined(question="Is it?")
        assert upstream.calls == 0
    assert result.answer == "yes, big"
    assert big.requests[0].messages[-1]["content"].startswith("Is it?")


@server
def test_four_at_a_time_under_one_budget():
    with FaultServer(lambda asked: tells("no", 5, 5)) as upstream, an_async(upstream) as client:
        best = BestOfN(
            asks(metered(client)), N=9, concurrency=4, checks=[checks.contains("yes")], budget=Budget(calls=6)
        )
        result = best(question="Is it?")
        assert upstream.calls == result.usage.calls == 6
    assert result.stop_reason == "budget"


@server
def test_a_cancelled_function_s_call_gives_up_its_connection_and_is_charged():
    async def main(client, upstream):
        run = Run()

        async def stop():
            while not upstream.calls:
                await asyncio.sleep(0.01)
            run.cancel()

        stopper = asyncio.create_task(stop())
        with pytest.raises(RunClosed):
            await run.execute(Refine(asks(metered(client)), N=1), {"question": "Is it?"})
        await stopper
        while upstream.open_connections:
            await asyncio.sleep(0.01)
        assert run.usage.calls == 1
        assert not run.usage.exact
        await client.close()

    with FaultServer(lambda asked: Reply(delay=30)) as upstream:
        asyncio.run(main(AsyncOpenAI(base_url=upstream.base_url, api_key="none"), upstream))


@server
def test_a_streamed_reply_is_counted_and_replayed(tmp_path):
    async def answer(question):
        asked = [{"role": "user", "content": question}]
        stream = await streaming.chat.completions.create(
            model="test", messages=asked, stream=True, stream_options={"include_usage": True}
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    with FaultServer(["yes, it is"]) as upstream, an_async(upstream) as client:
        streaming = metered(client)
        for _ in range(2):
            store = SqliteStore(tmp_path / "runs.db")
            with Run(run_id="one", store=store) as run:
                assert Refine(answer, N=1)(question="Is it?").answer == "yes, it is"
            assert run.usage.exact
            assert (run.usage.calls, upstream.calls) == (1, 1)
            store.close()


@server
@both
def test_two_servers_and_a_stream_share_no_kept_reply(a_client, function_of, tmp_path):
    with context(cache=tmp_path / "cache.db"), FaultServer(["one"]) as first, FaultServer(["two", "three"]) as second:
        for upstream, kept in ((first, "one"), (second, "two"), (second, "two")):
            with a_client(upstream) as client:
                assert Refine(function_of(metered(client)), N=1)(question="Is it?").answer == kept
        assert (first.calls, second.calls) == (1, 1)
        with OpenAI(base_url=second.base_url, api_key="none") as client, Run():
            asked = [{"role": "user", "content": "Is it?"}]
            stream = metered(client).chat.completions.create(model="test", messages=asked, stream=True)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "three"


@server
def test_what_is_no_purchase_does_not_begin_once_a_limit_is_reached():
    async def lists(upstream):
        async with AsyncOpenAI(base_url=upstream.base_url, api_key="none") as client, Run(budget=Budget(calls=1)):
            assert (await metered(client).models.list()).data
            charge_reply({"model": "e", "usage": {"prompt_tokens": 3, "total_tokens": 3}})
            await metered(client).models.list()

    with FaultServer() as upstream:
        with pytest.raises(BudgetExceeded, match="limit of 1 call"):
            asyncio.run(lists(upstream))
        with a_sync(upstream) as client, Run(budget=Budget(calls=1)):
            assert metered(client).models.list().data
            charge_reply({"model": "e", "usage": {"prompt_tokens": 3, "total_tokens": 3}})
            with pytest.raises(BudgetExceeded, match="limit of 1 call"):
                metered(client).models.list()


@server
def test_a_sync_client_called_on_the_run_s_loop_is_counted_softly():
    with FaultServer([tells("yes", 10, 2)]) as upstream, a_sync(upstream) as client:
        counted = asks_in_a_thread(metered(client))

        async def blocks(question):
            return counted(question)

        result = Refine(blocks, N=1)(question="Is it?")
    assert (result.answer, result.usage.soft, result.usage.tokens) == ("yes", 1, 12)


def test_a_reply_that_a_function_got_by_itself_can_be_charged():
    reply = {"model": "gpt-4.1-mini", "usage": {"prompt_tokens": 1000, "completion_tokens": 100}}

    def answer(question):
        charge_reply(reply)
        return "yes"

    result = Refine(answer, N=1)(question="Is it?")
    assert (result.usage.soft, result.usage.tokens) == (1, 1100)
    assert 0 < result.cost < 0.01
    embedded = charge_reply({"model": "e", "usage": {"prompt_tokens": 5, "total_tokens": 5}})
    assert (embedded.input_tokens, embedded.output_tokens, embedded.unbounded) == (5, 0, 0)
    assert charge_reply({"usage": None}) == Usage(calls=1, unbounded=1, unpriced=1)


def test_what_is_no_client_is_said():
    with pytest.raises(InputError, match="client of the openai or anthropic SDK"):
        metered(object())
