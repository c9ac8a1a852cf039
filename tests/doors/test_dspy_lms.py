"""A redraft LM as a DSPy LM, and a DSPy LM as a redraft LM."""

from __future__ import annotations

import json
from dataclasses import replace

import dspy
import pytest
from dspy import lm15
from dspy_programs import DOOR, Model, Theirs

import redraft
from redraft import Budget, Predict, Run
from redraft.errors import (
    AuthError,
    BadRequestError,
    ContextOverflowError,
    LMError,
    TransientLMError,
    UnsupportedError,
)
from redraft.integrations.dspy import dspy_lm, from_dspy
from redraft.testing import FunctionLM, ScriptedLM, lm_contract
from redraft.testing.words import EVERYTHING
from redraft.types import Choice, Completion, Usage

pytestmark = DOOR


# A redraft LM as a DSPy LM


async def test_sync_and_async_calls_report_their_usage():
    inner = ScriptedLM(["one two", "three"])
    lm = dspy_lm(inner, temperature=0.2, max_tokens=50)
    with dspy.track_usage() as tracker:
        assert lm("hello there") == ["one two"]
        assert await lm.acall("hello") == ["three"]
    assert tracker.get_total_tokens()["scripted"]["completion_tokens"] == 3
    assert [(r.temperature, r.max_tokens) for r in inner.requests] == [(0.2, 50)] * 2
    assert [e["usage"]["prompt_tokens"] for e in lm.history] == [2, 1]


def test_n_by_repetition_and_logprobs_and_thoughts_and_tools():
    token = {"token": "a", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    choice = Choice(text="a", reasoning="hm", logprobs=(token,), finish_reason="stop")
    whole = Completion(choices=(choice,), usage=Usage(input_tokens=3, output_tokens=2, reasoning_tokens=1))
    calls = Completion(
        choices=(Choice(tool_calls=(call,), finish_reason="tool_calls"),), usage=Usage(input_tokens=1, output_tokens=1)
    )
    inner = ScriptedLM(["a", "b", whole, calls])
    lm = dspy_lm(inner)
    assert lm("hi", n=2) == ["a", "b"]
    (output,) = lm("hi", logprobs=True)
    assert (output["text"], output["reasoning_content"], output["logprobs"].content[0].logprob) == ("a", "hm", -0.1)
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    (output,) = lm("hi", tools=tools, tool_choice="required")
    assert json.loads(output["tool_calls"][0].function.arguments) == {"at": 1}
    assert inner.requests[2].logprobs == 0
    assert (inner.requests[3].tools[0]["function"]["name"], inner.requests[3].tool_choice) == ("look", "required")


def test_typed_outputs_use_the_models_schema_mode():
    model = Model(['{"answer": 7}'])
    with dspy.context(lm=model.lm, adapter=dspy.JSONAdapter()):
        assert dspy.Predict("question -> answer: int")(question="q").answer == 7
    assert model.requests[0].schema["properties"]["answer"]["type"] == "integer"
    plain = FunctionLM(lambda r: '{"answer": 7}', capabilities=replace(EVERYTHING, json_schema=False))
    with dspy.context(lm=dspy_lm(plain), adapter=dspy.JSONAdapter()):
        assert dspy.Predict("question -> answer: int")(question="q").answer == 7
    assert plain.requests[0].schema is None


def test_inside_a_run_it_spends_from_the_runs_budget_and_says_so_in_dspys_words():
    model = Model(lambda request: "a")
    with Run(budget=Budget(calls=2)) as run:
        for _ in range(2):
            assert model.lm("hi") == ["a"]
        with pytest.raises(dspy.LMError, match="limit of 2 calls"):
            model.lm("hi")
    assert (run.usage.calls, len(model.requests)) == (2, 2)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ContextOverflowError("too long", status=400), dspy.ContextWindowExceededError),
        (AuthError("no key", status=401), dspy.utils.exceptions.LMAuthError),
        (UnsupportedError("no", parameter="schema"), dspy.utils.exceptions.LMUnsupportedFeatureError),
        (BadRequestError("bad", status=400), dspy.utils.exceptions.LMInvalidRequestError),
        (TransientLMError("slow down", status=429), dspy.utils.exceptions.LMRateLimitError),
        (TransientLMError("down", status=503), dspy.utils.exceptions.LMServerError),
        (LMError("odd"), dspy.utils.exceptions.LMProviderError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_errors_are_dspys_inside_dspy_and_are_not_tried_twice(error, wanted):
    inner = ScriptedLM([error] * 9)
    with redraft.context(tries=1), pytest.raises(wanted):
        dspy_lm(inner)("hi")
    assert len(inner.requests) == 1


@pytest.mark.local
def test_the_embedded_model_answers_dspy():
    with dspy.context(lm=dspy_lm("local/smollm2-135m", max_tokens=40)):
        assert dspy.Predict("question -> answer").signature
        assert dspy.settings.lm("Say hello.")[0].strip()


# A DSPy LM as a redraft LM


@pytest.mark.parametrize(
    ("name", "check"),
    lm_contract(lambda: from_dspy(Theirs(obedient).lm)),
    ids=lambda v: v if isinstance(v, str) else "",
)
async def test_a_dspy_lm_keeps_the_contract(name, check):
    await check()


@pytest.mark.parametrize(
    ("name", "check"),
    lm_contract(lambda: from_dspy(Theirs(obedient, awaits=False).lm)),
    ids=lambda v: v if isinstance(v, str) else "",
)
async def test_so_does_one_that_cannot_be_awaited(name, check):
    await check()


def obedient(request):
    return "one two"


def test_redraft_modules_run_on_it_and_each_way_back_is_the_same_object():
    model = Theirs(["Brussels"])
    assert Predict("question -> answer", lm=from_dspy(model.lm))(question="q").answer == "Brussels"
    assert model.lm.history[0]["outputs"] == ["Brussels"]
    assert from_dspy(model.lm) is from_dspy(model.lm)
    assert dspy_lm(from_dspy(model.lm)) is model.lm
    ours = ScriptedLM([])
    assert from_dspy(dspy_lm(ours)) is ours


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [
        (lm15.ContextLengthError("long"), ContextOverflowError),
        (lm15.AuthError("no"), AuthError),
        (lm15.UnsupportedFeatureError("no", feature="config.temperature"), UnsupportedError),
        (lm15.InvalidRequestError("bad", status=400), BadRequestError),
        (lm15.RateLimitError("slow", retry_after=0), TransientLMError),
        (lm15.ServerError("down", status=503), TransientLMError),
        (lm15.TransportError("gone"), TransientLMError),
        (lm15.TimeoutError("late"), TransientLMError),
        (ValueError("a bug in the engine"), LMError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_its_errors_are_ours_and_dspy_does_not_retry_behind_our_back(raised, wanted):
    model = Theirs(lambda request: raised, num_retries=5)
    with pytest.raises(wanted) as caught:
        async with Run():
            with redraft.context(tries=1):
                async with Run() as run:
                    await run.complete(request("hi"), lm=from_dspy(model.lm))
    assert type(caught.value) is wanted
    assert len(model.requests) == 1
    assert model.lm.num_retries == 5


async def test_dspys_cache_answers_a_first_draft_and_never_a_retry():
    model = Theirs(lambda request: "a")
    lm = from_dspy(model.lm)
    async with Run() as run:
        first, second = [await run.complete(request("hi"), lm=lm) for _ in range(2)]
    assert (len(model.requests), first.text, second.text) == (1, "a", "a")
    assert (run.usage.calls, run.usage.tokens, run.usage.exact) == (2, 11, True)  # the cached one cost nothing


def test_a_model_by_subclassing_is_called_as_it_is():
    class Counting(dspy.BaseLM):
        def __init__(self):
            super().__init__("old/model")
            self.calls = 0

        def forward(self, prompt=None, messages=None, **options):
            self.calls += 1
            return Reply(str(self.calls))

    old = Counting()
    lm = from_dspy(old)
    assert [Predict("question -> answer", lm=lm)(question="q").answer for _ in range(2)] == ["1", "2"]
    assert old.calls == 2


class Reply(dict):
    """What a provider returns, in OpenAI's shape."""

    def __init__(self, text):
        message = {"content": text}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        super().__init__(choices=[{"message": message, "finish_reason": "stop"}], usage=usage, model="old")
        self.__dict__.update(self)


def request(text):
    return redraft.types.Request(messages=({"role": "user", "content": text},))
