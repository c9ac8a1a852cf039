"""The contract over every LM that needs no engine."""

import pytest

from redraft.lm.openai import OpenAILM
from redraft.testing import FaultServer, FaultyLM, FunctionLM, Reply, ScriptedLM, lm_contract
from redraft.types import Capabilities, Completion

COLOURS = "Red, green and blue."


def scripted():
    return ScriptedLM([COLOURS] * 50, latency=0.001)


def modest():
    """Nothing but text."""
    return ScriptedLM([COLOURS] * 50, capabilities=Capabilities(temperature=False), price=None)


def function():
    return FunctionLM(lambda request: COLOURS, price=1e-6)


def faultless():
    return FaultyLM(scripted(), [])


def cases(*makers):
    return [pytest.param(check, id=f"{make.__name__}-{name}") for make in makers for name, check in lm_contract(make)]


@pytest.mark.parametrize("promise", cases(scripted, modest, function, faultless))
async def test_it_keeps_its_promise(promise):
    await promise()


@pytest.fixture(scope="module")
def server():
    with FaultServer(lambda asked: Reply(text=COLOURS, reasoning="rgb", delay=0.002, usage=True)) as running:
        yield running


def openai_promises():
    # a server is known only when the tests run, so each promise is made anew there
    return [pytest.param(name, id=name) for name, _ in lm_contract(function)]


@pytest.mark.server
@pytest.mark.parametrize("capabilities", [None, Capabilities()], ids=["capable", "modest"])
@pytest.mark.parametrize("name", openai_promises())
async def test_openai_keeps_its_promise(name, capabilities, server):
    more = {} if capabilities is None else {"capabilities": capabilities}
    await dict(lm_contract(lambda: OpenAILM("gpt-4.1-mini", base_url=server.base_url, **more)))[name]()


def breaks(**members):
    lm = type("Broken", (FunctionLM,), members)
    return lambda: lm(lambda request: COLOURS)


async def wordless(self, request, on_delta=None):
    return Completion(choices=())


async def rude(self, request, on_delta=None):
    raise KeyError("choices")


async def rambling(self, request, on_delta=None):
    request = type(request)(messages=request.messages)
    return await FunctionLM.generate(self, request)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("it_has_the_shape_of_an_lm", breaks(parallel=0, __init__=lambda self, fn: None)),
        ("it_replies_with_text", breaks(generate=wordless)),
        ("its_count_is_an_upper_bound", breaks(count=lambda self, request: 0)),
        ("it_honours_max_tokens", breaks(generate=rambling)),
        ("it_gives_n_choices", breaks(generate=rambling)),
        ("it_streams_what_it_returns", breaks(generate=rambling)),
        ("its_cost_is_monotone", breaks(cost=lambda self, usage: float(-usage.tokens))),
    ],
)
async def test_a_broken_promise_is_found(name, make):
    with pytest.raises(AssertionError):
        await dict(lm_contract(make))[name]()


async def test_a_foreign_exception_is_found():
    with pytest.raises(KeyError):
        await dict(lm_contract(breaks(generate=rude)))["its_errors_are_lm_errors"]()
