"""User modules: forward and aforward, sub-modules by their path, one run around them all."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from redraft import Module, Predict, Prediction, Refine, Run, context
from redraft.budget import Budget
from redraft.errors import BudgetExceeded, RunClosed
from redraft.testing import FunctionLM, ScriptedLM


def echo():
    return FunctionLM(lambda request: request.messages[-1]["content"].upper())


class Shout(Module):
    def __init__(self, lm):
        self.say = Predict("text -> answer", lm=lm)

    def forward(self, text):
        return self.say(text=text)


class ShoutAsync(Shout):
    async def aforward(self, text):
        return await self.say.acall(text=text)


@pytest.mark.parametrize("kind", [Shout, ShoutAsync])
async def test_sync_and_async_callers(kind):
    module = kind(echo())
    assert (await module.acall(text="hi")).answer == "HI"
    assert module(text="hi").answer == "HI"
    assert (await asyncio.to_thread(lambda: module(text="hi"))).answer == "HI"


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ("text", {"answer": "text"}),
        (5, {"answer": 5}),
        (["a"], {"answer": ["a"]}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (Prediction(a=1), {"a": 1}),
        ({}, {}),
    ],
)
def test_what_forward_may_return(value, fields):
    class Constant(Module):
        def forward(self):
            return value

    assert Constant()().to_dict() == fields


def test_none_is_no_answer():
    class Forgetful(Module):
        def forward(self):
            pass

    with pytest.raises(ValueError, match="returned None"):
        Forgetful()()


def test_a_module_without_forward_says_what_to_define():
    class Empty(Module):
        pass

    with pytest.raises(TypeError, match="Empty defines neither forward nor aforward"):
        Empty()()


def test_errors_of_forward_come_out_as_they_are():
    class Broken(Module):
        def forward(self):
            raise ZeroDivisionError("oh")

    with pytest.raises(ZeroDivisionError, match="oh"):
        Broken()()


class Tree(Module):
    def __init__(self, lm):
        self.root = Predict("text -> answer", lm=lm)
        self.steps = [Predict("text -> answer", lm=lm), (Predict("text -> answer", lm=lm),)]
        self.named = {"end": Shout(lm)}
        self.twice = self.root
        self.note = "no module"

    def forward(self, text):
        for module in (self.root, self.steps[0], self.steps[1][0], self.named["end"]):
            text = module(text=text).answer
        return text


def test_named_modules():
    tree = Tree(echo())
    assert [path for path, _ in tree.named_modules()] == [
        "root",
        "steps[0]",
        "steps[1][0]",
        "named['end']",
        "named['end'].say",
    ]
    assert dict(tree.named_modules())["steps[0]"] is tree.steps[0]


def test_modules_that_know_each_other():
    tree = Tree(echo())
    tree.parent = tree
    tree.named["end"].parent = tree
    tree.steps.append(tree.steps)
    assert [path for path, _ in tree.named_modules()][:2] == ["root", "steps[0]"]
    assert tree(text="hi").answer == "HI"


def test_calls_are_scoped_by_attribute_path():
    tree = Tree(echo())
    with Run() as run:
        tree(text="hi")
    scopes = [e.scope for e in run.journal.events if e.kind == "call"]
    for path, scope in zip(["/root:", "/steps[0]:", "/steps[1][0]:", "/say:"], scopes, strict=True):
        assert path in scope
    assert scopes[0].startswith("/Tree")


def test_one_run_around_several_calls():
    lm = echo()
    with Run(budget=Budget(calls=5)) as run:
        Tree(lm)(text="hi")
        Shout(lm)(text="hi")
        with pytest.raises(BudgetExceeded):
            Shout(lm)(text="hi")
    assert run.usage.calls == 5
    Shout(lm)(text="hi")  # outside again


async def test_one_run_around_async_calls():
    lm = echo()
    async with Run(budget=Budget(calls=8)) as run:
        await asyncio.gather(*(ShoutAsync(lm).acall(text=f"t{i}") for i in range(8)))
    assert run.usage.calls == 8


def test_a_run_that_has_ended_sells_nothing():
    """A thread cannot be stopped; it is left behind, and its calls are refused."""
    lm, go, done, caught = echo(), threading.Event(), threading.Event(), []
    inner = Shout(lm)

    def late(q):
        go.wait(5)
        try:
            inner(text="hi")
        except RunClosed as error:
            caught.append(error)
        done.set()

    with pytest.raises(BudgetExceeded):
        Refine(late, N=1, budget=Budget(seconds=0.05))(q="x")
    go.set()
    assert done.wait(5)
    assert len(caught) == 1
    assert lm.requests == []


def test_deep_nesting_needs_no_pool():
    class Down(Module):
        def __init__(self, depth):
            self.below = Down(depth - 1) if depth else None

        def forward(self):
            return self.below().answer + 1 if self.below else 0

    assert Down(40)().answer == 40


def test_threads_inside_a_module_join_the_run_by_context():
    lm = echo()

    class Fan(Module):
        def __init__(self):
            self.say = Predict("text -> answer", lm=lm)

        def forward(self, texts):
            with ThreadPoolExecutor(4) as pool:
                futures = [pool.submit(contextvars.copy_context().run, lambda t=t: self.say(text=t)) for t in texts]
            return [f.result().answer for f in futures]

    with Run() as run:
        assert Fan()(texts=["a", "b", "c"]).answer == ["A", "B", "C"]
    assert run.usage.calls == 3


def test_settings_reach_the_worker_thread():
    class Ask(Module):
        def forward(self):
            return Predict("q -> a")(q="x").a

    with context(model=ScriptedLM(["from the context"])):
        assert Ask()().answer == "from the context"
