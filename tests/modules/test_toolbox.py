"""Tools: what a function says of itself, and how a model's arguments reach it."""

from __future__ import annotations

import asyncio
import functools
import json
import math
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from redraft import Predict, Run, Tool
from redraft.errors import BudgetExceeded, InputError, RunClosed
from redraft.modules.calls import cut, observe
from redraft.modules.toolbox import as_tools, wire_tools
from redraft.modules.written import named, read_arguments
from redraft.testing import ScriptedLM


def seen(fn, arguments, most=10_000):
    tool = fn if isinstance(fn, Tool) else Tool(fn)
    return asyncio.run(observe(tool, arguments, most))


@dataclass
class Point:
    x: int
    y: int = 0


class Place(BaseModel):
    city: str
    tags: list[str] = []


def everything(
    place: Place,
    kind: Annotated[Literal["a", "b"], Field(description="which one")] = "a",
    *rest: float,
    schema: Point | None = None,
    _when: date | None = None,
    **more: Any,
) -> Any:
    """Take everything.

    Args:
        place: where.
    """
    return {"place": place, "kind": kind, "rest": rest, "schema": schema, "when": _when, "more": more}


def test_the_schema_comes_from_type_hints_and_the_description_is_the_docstring():
    function = Tool(everything).wire["function"]
    assert function["name"] == "everything"
    assert function["description"] == "Take everything.\n\nArgs:\n    place: where."
    properties = function["parameters"]["properties"]
    assert function["parameters"]["required"] == ["place"]
    assert properties["kind"] == {"default": "a", "description": "which one", "enum": ["a", "b"], "type": "string"}
    assert properties["rest"]["items"] == {"type": "number"}
    assert {"schema", "_when"} < properties.keys()
    assert "more" not in properties


def test_arguments_are_coerced_and_only_the_given_ones_are_passed():
    given = {"place": {"city": "Lyon"}, "rest": ["1", 2], "schema": {"x": "3"}, "_when": "2020-02-01", "extra": 1}
    assert json.loads(seen(everything, given)["text"]) == {
        "place": {"city": "Lyon", "tags": []},
        "kind": "a",
        "rest": [1.0, 2.0],
        "schema": {"x": 3, "y": 0},
        "when": "2020-02-01",
        "more": {"extra": 1},
    }


@pytest.mark.parametrize(
    ("fn", "arguments", "text"),
    [
        (lambda_ := Tool(lambda n: n + 1, name="inc"), {"n": 1}, "2"),
        (math.sqrt, {"x": 4}, "2.0"),
        (functools.partial(pow, 2), {"exp": 3}, "8"),
        ("abc".startswith, None, None),
        (lambda_, 5, "6"),  # a lone value is the lone argument
        (Tool(lambda items: items, name="l"), {"items": None}, "(no output)"),
        (Tool(lambda: b"caf\xc3\xa9", name="b"), {}, "café"),
        (Tool(lambda: {(1, 2): "odd key"}, name="d"), {}, "{(1, 2): 'odd key'}"),
        (Tool(lambda: float("nan"), name="n"), {}, "NaN"),
    ],
)
def test_any_callable_and_any_result(fn, arguments, text):
    if text is None:
        with pytest.raises(InputError, match="does not say what it takes"):
            Tool(fn)
        return
    assert seen(fn, arguments) == {"text": text}


def test_lists_and_numbers_written_as_text_are_read():
    def total(numbers: list[int], scale: float = 1) -> float:
        return sum(numbers) * scale

    assert seen(total, {"numbers": "- 1\n- 2", "scale": "2,000"})["text"] == "6000.0"
    assert seen(total, {"numbers": "[1, 2]"})["text"] == "3"


def test_methods_objects_async_functions_and_hidden_arguments():
    class Shop:
        """A shop."""

        def __init__(self, stock):
            self.stock = stock

        def buy(self, item: str, count: int = 1) -> int:
            """Buy."""
            self.stock[item] -= count
            return self.stock[item]

        async def __call__(self, item: str) -> int:
            return self.stock[item]

    shop = Shop({"tea": 5})
    assert Tool(shop.buy).name == "buy"
    assert [*Tool(shop.buy).parameters["properties"]] == ["item", "count"]
    assert seen(shop.buy, {"item": "tea", "count": "2"})["text"] == "3"
    assert (Tool(shop).name, Tool(shop).description) == ("Shop", "A shop.")
    assert seen(shop, {"item": "tea"})["text"] == "3"
    hidden = Tool(functools.partial(shop.buy, count=3))
    assert [*hidden.parameters["properties"]] == ["item"]
    assert seen(hidden, {"item": "tea"})["text"] == "0"


def test_types_that_live_in_the_surrounding_function_are_found():
    class Local(BaseModel):
        n: int

    def take(local: Local) -> int:
        return local.n

    assert seen(Tool(take), {"local": {"n": 4}})["text"] == "4"


def test_a_module_is_a_tool():
    summarise = Predict("text -> summary", lm=ScriptedLM(["Short."]))
    tool = Tool(summarise, name="summarise")
    assert tool.parameters["required"] == ["text"]
    assert seen(tool, {"text": "A long one."}) == {"text": "Short."}


def test_a_schema_of_its_own_holds_the_arguments():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    tool = Tool(lambda **given: given["n"], name="f", description="d", parameters=schema, strict=True)
    assert tool.wire == {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": schema, "strict": True},
    }
    assert seen(tool, {"n": 2})["text"] == "2"
    assert seen(tool, {"n": 0}) == {
        "text": "f was not called: $.n: 0 is less than the minimum of 1. f takes n (required)",
        "error": "arguments",
    }
    again = Tool(lambda n: n, **tool.wire["function"])
    assert again.wire == tool.wire
    assert wire_tools([tool.wire, again, everything])[:2] == (tool.wire, tool.wire)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "city: Field required. weather takes city (required), days"),
        ({"city": "x", "day": 2}, "day: unknown argument (did you mean 'days'?)"),
        ({"city": "x", "days": "many"}, "days: Input should be a valid integer"),
        (["x"], "the arguments must be a JSON object, got ['x']"),
    ],
)
def test_wrong_arguments_are_told_and_nothing_is_called(arguments, says):
    called = []

    def weather(city: str, days: int = 1) -> None:
        called.append((city, days))

    told = seen(weather, arguments)
    assert told["error"] == "arguments"
    assert says in told["text"]
    assert not called


def test_a_tools_own_failure_is_told_whatever_it_raises():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no")

    def fails(how: str) -> None:
        raise {"value": ValueError("no such city"), "exit": SystemExit(3), "odd": Odd()}[how]

    assert seen(fails, {"how": "value"}) == {
        "text": "fails failed with ValueError: no such city",
        "error": "ValueError",
    }
    assert "sys.exit(3)" in seen(fails, {"how": "exit"})["text"]
    assert seen(fails, {"how": "odd"}) == {"text": "fails failed with Odd", "error": "Odd"}


@pytest.mark.parametrize("error", [BudgetExceeded("x", limit="calls", allowed=1, spent=1), RunClosed("x")])
def test_what_ends_a_run_is_no_observation(error):
    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        seen(fails, {})


def test_long_results_are_cut_in_the_middle_and_say_so():
    text = "a" * 600 + "b" * 600
    shown = cut(text, 200)
    assert shown == f"{'a' * 100}\n[... 1,000 of 1,200 characters cut ...]\n{'b' * 100}"
    assert cut("short", 200) == "short"


def test_images_are_passed_on_as_they_are():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert seen(Tool(lambda: image, name="look"), {}) == {"text": "", "parts": [image]}
    broken = {"type": "image_url", "image_url": b"raw"}  # cannot be sent
    assert "parts" not in seen(Tool(lambda: broken, name="look"), {})


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (None, {}),
        (" ", {}),
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("{'a': 'b',}", {"a": "b"}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": NaN, "b": 1e999}', {"a": None, "b": None}),
    ],
)
def test_arguments_that_are_nearly_json_are_read(raw, read):
    assert read_arguments(raw) == (read, "")


@pytest.mark.parametrize("raw", ['{"text": "half of a', '{"a": ', "Paris please"])
def test_arguments_that_were_cut_are_never_completed(raw):
    arguments, why = read_arguments(raw)
    assert (arguments, why[:25]) == (raw, "the arguments are no JSON")


def test_a_name_is_found_where_only_one_can_be_meant():
    tools = {"get_weather": 1, "getTime": 2, "a_b": 3, "ab": 4}
    assert named(tools, "Get-Weather") == named(tools, "functions.get_weather") == "get_weather"
    assert named(tools, "get_time") == "getTime"
    assert (named(tools, "A B"), named(tools, "ab"), named(tools, "x")) == ("", "ab", "")


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ([lambda x: x], "a lambda has no name"),
        ([3], "is no tool"),
        ([Tool(math.sqrt), math.sqrt], "two tools are called 'sqrt'"),
        ([{"type": "function", "function": {"name": "f"}}], r"Tool\(fn, \*\*definition"),
        ([max], "does not say what it takes"),
    ],
)
def test_what_cannot_be_a_tool_is_named(tools, says):
    with pytest.raises(InputError, match=says):
        as_tools(tools)


def test_what_cannot_be_described_to_a_model_is_named():
    class Connection:
        pass

    def query(connection: Connection, sql: str) -> None:
        del connection, sql

    with pytest.raises(InputError, match=r"query.*no JSON schema.*functools\.partial"):
        Tool(query)
    assert [*Tool(functools.partial(query, connection=Connection())).parameters["properties"]] == ["sql"]
    with pytest.raises(InputError, match="no valid JSON schema"):
        Tool(query, parameters={"type": "objekt"})
    with pytest.raises(InputError, match="cannot name a tool"):
        Tool(query, name="two words", parameters={})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON | st.text())
def test_any_arguments_give_an_observation_that_can_be_recorded(value):
    arguments, _ = read_arguments(value)
    json.dumps(arguments, allow_nan=False)
    for tool in (everything, Tool(lambda **given: given, name="f", parameters={"type": "object"})):
        told = seen(tool, arguments)
        assert told["text"]
        json.dumps(told, allow_nan=False)


def test_a_run_step_keeps_what_a_tool_said():
    async def main():
        async with Run() as run:
            return await run.step("x", lambda: observe(Tool(math.sqrt), {"x": 9}, 100))

    assert asyncio.run(main()) == {"text": "3.0"}
