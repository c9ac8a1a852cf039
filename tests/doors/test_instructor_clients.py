"""instructor clients as modules: the run retries, counts and resumes."""

import contextlib
import json

import pytest

pytest.importorskip("instructor")

import instructor
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, field_validator

from redraft import BestOfN, Budget, Refine, Run, SqliteStore, checks
from redraft.errors import AuthError, InputError, ParseError, RunFailed
from redraft.integrations.instructor import wrap
from redraft.integrations.openai import served_by
from redraft.sync import run_sync
from redraft.testing import FaultServer, Reply, ScriptedLM
from redraft.types import Choice, Completion, Usage

pytestmark = [pytest.mark.doors, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Review(BaseModel):
    text: str
    stars: int

    @field_validator("stars")
    @classmethod
    def in_range(cls, value):
        if not 0 < value < 6:
            raise ValueError("stars go from 1 to 5")
        return value


YES = checks.contains("yes", field="text")


def tells(text="yes", stars=3):
    call = {"name": "Review", "arguments": json.dumps({"text": text, "stars": stars})}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return Reply(text="", tool_calls=[{"id": "1", "type": "function", "function": call}], usage=usage)


@contextlib.contextmanager
def an_async(upstream):
    client = AsyncOpenAI(base_url=upstream.base_url, api_key="none")
    yield instructor.from_openai(client)
    run_sync(client.close)


@contextlib.contextmanager
def a_sync(upstream):
    with OpenAI(base_url=upstream.base_url, api_key="none") as client:
        yield instructor.from_openai(client)


both = pytest.mark.parametrize("a_client", [an_async, a_sync], ids=["async", "sync"])


@both
def test_a_failing_extraction_is_lifted_told_why_and_counted(a_client):
    with FaultServer([tells("no"), tells("yes, good")]) as upstream, a_client(upstream) as client:
        module = wrap(client, Review, model="test", instructions="Be fair.")
        result = Refine(module, N=3, checks=[YES])(topic="soup", tone="kind")
        first, second = (asked["messages"] for asked in upstream.requests)
        assert [asked.get("temperature") for asked in upstream.requests] == [None, 0.9]
    assert (result["text"], result.stars, result.usage.calls, result.usage.tokens) == ("yes, good", 3, 2, 30)
    assert result.usage.exact
    assert result.usage.soft == 0
    assert first[0]["content"].startswith("Be fair.")
    assert first[-1]["content"].startswith("Topic: soup\n\nTone: kind\n\nRequirements:\n- ")
    assert "An earlier answer fell short" in second[-1]["content"]


@both
def test_a_lone_value_has_the_name_of_the_signature_s_output(a_client):
    call = {"name": "Response", "arguments": '{"content": 4}'}
    said = Reply(text="", tool_calls=[{"id": "1", "type": "function", "function": call}])
    with FaultServer([said, said]) as upstream, a_client(upstream) as client:
        assert Refine(wrap(client, int, model="test"), N=1)(topic="soup").answer == 4
        assert Refine(wrap(client, int, model="test", signature="topic -> stars"), N=1)(topic="soup").stars == 4


@both
def test_a_reply_that_does_not_validate_is_the_attempt_s_error_and_the_run_tries_again(a_client):
    with FaultServer([tells(stars=9), tells(stars=5)]) as upstream, a_client(upstream) as client:
        result = Refine(wrap(client, Review, model="test"), N=2, checks=[YES])(topic="soup")
        assert upstream.calls == 2
        assert "stars go from 1 to 5" in upstream.requests[1]["messages"][-1]["content"]
    assert isinstance(result.attempts[0].error, ParseError)
    assert (result.stars, result.usage.calls) == (5, 2)


@both
def test_instructor_s_own_retries_are_calls_of_the_run_where_they_are_asked_for(a_client):
    with FaultServer([tells(stars=9), tells(stars=5)]) as upstream, a_client(upstream) as client:
        result = Refine(wrap(client, Review, model="test", max_retries=2), N=1)(topic="soup")
    assert (result.stars, result.usage.calls, len(result.attempts)) == (5, 2, 1)


@both
def test_a_budget_ends_it_with_the_best_so_far(a_client):
    with FaultServer(lambda asked: tells("no")) as upstream, a_client(upstream) as client:
        result = Refine(wrap(client, Review, model="test"), N=9, checks=[YES], budget=Budget(calls=3))(topic="soup")
        assert upstream.calls == 3
    assert (result.stop_reason, result["text"]) == ("budget", "no")


@both
def test_a_resumed_run_buys_nothing_again(a_client, tmp_path):
    with FaultServer([tells("no"), tells()]) as upstream, a_client(upstream) as client:
        for _ in range(2):
            store = SqliteStore(tmp_path / "runs.db")
            with Run(run_id="one", store=store):
                assert Refine(wrap(client, Review, model="test"), checks=[YES])(topic="soup").stars == 3
            store.close()
            assert upstream.calls == 2


@both
def test_a_refused_key_is_redraft_s_error(a_client):
    with FaultServer(lambda asked: Reply.error(401, "who?")) as upstream, a_client(upstream) as client:
        with pytest.raises(AuthError):
            Refine(wrap(client, Review, model="test"), N=1)(topic="soup")
        assert upstream.calls == 1


def test_four_at_a_time_under_one_budget():
    with FaultServer(lambda asked: tells("no")) as upstream, an_async(upstream) as client:
        module = wrap(client, Review, model="test")
        result = BestOfN(module, N=9, concurrency=4, checks=[YES], budget=Budget(calls=6))(topic="soup")
        assert (result.stop_reason, result.usage.calls, upstream.calls) == ("budget", 6, 6)


def test_a_model_that_the_client_was_made_with_is_kept():
    with FaultServer([tells()]) as upstream:
        client = AsyncOpenAI(base_url=upstream.base_url, api_key="none")
        module = wrap(instructor.from_openai(client, model="test"), Review)
        assert Refine(module, N=1)(topic="soup").stars == 3
        assert upstream.requests[0]["model"] == "test"
        run_sync(client.close)


def test_the_ladder_s_models_answer_in_place_of_the_client_s():
    arguments = json.dumps({"text": "yes", "stars": 4})
    call = {"id": "1", "type": "function", "function": {"name": "Review", "arguments": arguments}}
    reply = Completion(choices=(Choice(tool_calls=(call,), finish_reason="tool_calls"),), usage=Usage(input_tokens=1))
    with FaultServer([]) as upstream, an_async(upstream) as client:
        module = wrap(client, Review, model="test")
        result = Refine(module, N=1, models=[ScriptedLM([reply], name="big")])(topic="soup")
        assert upstream.calls == 0
    assert result.stars == 4


def test_a_redraft_model_behind_the_client_is_one_call():
    arguments = json.dumps({"text": "yes", "stars": 4})
    call = {"id": "1", "type": "function", "function": {"name": "Review", "arguments": arguments}}
    reply = Completion(choices=(Choice(tool_calls=(call,), finish_reason="tool_calls"),), usage=Usage(input_tokens=1))
    module = wrap(instructor.from_openai(served_by(ScriptedLM([reply]))), Review, model="m")
    result = Refine(module, N=1, budget=Budget(calls=1, seconds=20))(topic="soup")
    assert (result.stars, result.usage.calls) == (4, 1)


def test_a_client_over_something_else_is_counted_softly_and_resumed(tmp_path):
    replies = ['{"text": "no", "stars": 1}', '{"text": "yes", "stars": 2}']
    asked = []

    def create(*, messages, **options):
        asked.append(messages)
        return chat(replies[len(asked) - 1])

    client = instructor.from_litellm(create, mode=instructor.Mode.JSON)
    for _ in range(2):
        store = SqliteStore(tmp_path / "runs.db")
        with Run(run_id="one", store=store) as run:
            result = Refine(wrap(client, Review, model="gpt-4.1-mini"), checks=[YES])(topic="soup")
        assert (result.stars, run.usage.calls, run.usage.soft, run.usage.tokens) == (2, 2, 2, 30)
        store.close()
    assert len(asked) == 2


def chat(text):
    from openai.types.chat import ChatCompletion

    message = {"role": "assistant", "content": text}
    return ChatCompletion.model_validate(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "gpt-4.1-mini",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    )


def test_what_cannot_be_wrapped_is_said():
    with pytest.raises(InputError, match="give the response model"):
        wrap(object())
    with pytest.raises(InputError, match="give a client of instructor"):
        wrap(object(), Review)
    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        Refine(wrap(instructor.from_litellm(lambda **_: 1 / 0), Review), N=1)(topic="soup")
