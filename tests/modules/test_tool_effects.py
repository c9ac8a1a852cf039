"""What a tool does to what it is given, and modules as tools: neither changes what a run has on record."""

from __future__ import annotations

import asyncio
import json

import pytest

from redraft import BestOfN, Module, Predict, ReAct, Refine, Run, SqliteStore, Tool, checks
from redraft.errors import InputError
from redraft.modules.calls import observe
from redraft.testing import ScriptedLM
from redraft.types import Capabilities


def seen(fn, arguments):
    return asyncio.run(observe(Tool(fn), arguments, 1_000))


def acted(tool, arguments):
    return json.dumps({"thought": "t", "action": {"tool": tool, "arguments": arguments}})


def test_a_tool_that_changes_its_arguments_buys_no_reply_twice(tmp_path):
    done = []

    def total(numbers):
        done.append([*numbers])
        numbers.append(100)
        return sum(numbers)

    def ask(*replies):
        lm = ScriptedLM(replies, capabilities=Capabilities())
        with SqliteStore(tmp_path / "runs.db") as store, Run(run_id="r", store=store) as run:
            said = ReAct("question -> answer", tools=[total], lm=lm)(question="q")
            return said.trajectory[0]["arguments"], said.answer, run.usage.calls

    once = ask(acted("total", {"numbers": [1, 2]}), acted("finish", {"answer": "103"}))
    assert once == ({"numbers": [1, 2]}, "103", 2)
    assert ask() == once
    assert done == [[1, 2]]


@pytest.mark.parametrize("sync", [True, False])
def test_a_tool_whose_own_work_was_cancelled_is_told(sync):
    async def fetch() -> str:
        task = asyncio.ensure_future(asyncio.sleep(30))
        task.cancel()
        await task
        return "never"

    def fetch_sync() -> str:
        raise asyncio.CancelledError

    told = seen(fetch_sync if sync else fetch, {})
    assert told["error"] == "CancelledError"
    assert "cancelled from inside" in told["text"]


class Ad(Module):
    """Write an ad."""

    def forward(self, product: str, lines: int = 2):
        return product * lines


@pytest.mark.parametrize("tool", [Ad(), Refine(Ad(), N=1), BestOfN(Ad(), N=1, checks=[checks.words(1)])])
def test_a_module_of_ones_own_and_a_strategy_around_it_say_what_they_take(tool):
    made = Tool(tool)
    assert [*made.parameters["properties"]] == ["product", "lines"]
    assert made.parameters["required"] == ["product"]
    assert (made.name, made.description) == (type(tool).__name__, "Write an ad.")
    assert seen(tool, {"product": "x"}) == {"text": "xx"}


def test_a_strategy_around_a_signature_and_around_a_function():
    lm = ScriptedLM(["one two", "one"])
    short = Refine(Predict("topic -> line", lm=lm), N=2, checks=[checks.words(1)], fix=False)
    assert [*Tool(short).parameters["properties"]] == ["topic"]
    assert seen(short, {"topic": "x"}) == {"text": "one"}

    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    made = Tool(Refine(double, N=1))
    assert (made.description, [*made.parameters["properties"]]) == ("Twice.", ["x"])


def test_a_module_whose_inputs_have_no_names_is_refused():
    class Anything(Module):
        def forward(self, **inputs):
            return "x"

    with pytest.raises(InputError, match="does not say what it takes"):
        Tool(Anything())
    assert Tool(Anything(), parameters={"type": "object"}).parameters == {"type": "object"}
