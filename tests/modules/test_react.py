"""ReAct: the model's own tool calls, JSON in words, what goes wrong on the way, and its place in a run."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft import BestOfN, Budget, Predict, ReAct, Refine, Run, SelfRefine, SqliteStore, Tool, checks
from redraft.errors import (
    BadRequestError,
    BudgetExceeded,
    ContextOverflowError,
    InputError,
    ParseError,
    UnsupportedError,
)
from redraft.lm.openai import OpenAILM
from redraft.testing import FaultServer, FunctionLM, Reply, ScriptedLM
from redraft.testing.words import EVERYTHING
from redraft.types import Capabilities, Choice, Completion, Usage

number = itertools.count()
WORDS = Capabilities()
ITEM = {"provider": "anthropic", "type": "thinking", "signature": "s"}


def script(*replies, capabilities=EVERYTHING, **options):
    """A model of its own name: what a model refuses is remembered by name."""
    return ScriptedLM(replies, name=f"test/react-{next(number)}", capabilities=capabilities, **options)


def call(name, arguments="{}", id_="c"):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": text}}


def calls(*made, finish="tool_calls", **parts):
    choice = Choice(tool_calls=made, finish_reason=finish, **parts)
    return Completion(choices=(choice,), usage=Usage(input_tokens=1, output_tokens=3))


def thought():
    return Completion(choices=(Choice(reasoning="hm", finish_reason="length"),), usage=Usage(output_tokens=3))


def acted(tool, arguments, thought="t"):
    return json.dumps({"thought": thought, "action": {"tool": tool, "arguments": arguments}})


def weather(city: str, days: int = 1) -> str:
    """The weather in a city."""
    if city == "Nowhere":
        raise ValueError("no such city")
    return f"{city}: rain for {days}"


def steps(prediction):
    return [(s["tool"], s["observation"], s["error"]) for s in prediction.trajectory]


def shown(lm, at=-1):
    """What a call showed as the tools' results."""
    return [m["content"] for m in lm.requests[at].messages if m["role"] == "tool"]


# the model's own calls


def test_calls_are_carried_out_and_shown_in_order_until_there_is_an_answer():
    first = calls(
        call("weather", {"city": "Paris"}, "a"), call("weather", {"city": "Lyon", "days": 2}, "b"), text="I look."
    )
    lm = script(first, "Rain in both.")
    said = ReAct("question -> answer", [weather], lm=lm)(question="Weather?")
    assert said.answer == "Rain in both."
    assert said.trajectory == [
        {
            "thought": "I look.",
            "tool": "weather",
            "arguments": {"city": "Paris"},
            "observation": "Paris: rain for 1",
            "error": None,
        },
        {
            "thought": "",
            "tool": "weather",
            "arguments": {"city": "Lyon", "days": 2},
            "observation": "Lyon: rain for 2",
            "error": None,
        },
    ]
    assert lm.requests[0].messages == ({"role": "user", "content": "Weather?"},)
    assert lm.requests[0].tools == (Tool(weather).wire,)
    assert lm.requests[1].messages[1:] == (
        {"role": "assistant", "content": "I look.", "tool_calls": [*first.tool_calls]},
        {"role": "tool", "tool_call_id": "a", "content": "Paris: rain for 1"},
        {"role": "tool", "tool_call_id": "b", "content": "Lyon: rain for 2"},
    )


def test_typed_outputs_come_by_finish_and_a_wrong_one_is_told():
    lm = script(calls(call("finish", {"n": "three"})), calls(call("finish", '{"n": "3", }')))
    said = ReAct("question -> n: int", [weather], lm=lm)(question="How many?")
    assert said.n == 3
    assert [t["function"]["name"] for t in lm.requests[0].tools] == ["weather", "finish"]
    assert lm.requests[0].tools[1]["function"]["parameters"]["properties"] == {"n": {"type": "integer"}}
    assert "'n' should be int, got 'three'" in shown(lm)[0]


def test_calls_beside_finish_are_carried_out_all_the_same():
    saved = []

    def save(note: str) -> None:
        saved.append(note)

    lm = script(calls(call("save", {"note": "x"}, "1"), call("finish", {"n": 1}, "2")))
    assert ReAct("q -> n: int", [save], lm=lm)(q="?").n == 1
    assert saved == ["x"]


@pytest.mark.parametrize("text", ['{"n": 4}', "n: 4"])
def test_typed_outputs_may_come_as_text_as_well(text):
    assert ReAct("q -> n: int", [weather], lm=script(text))(q="?").n == 4


def test_items_of_the_provider_are_carried_back():
    lm = script(calls(call("weather", {"city": "X"}), items=(ITEM,), reasoning="hm"), "done")
    said = ReAct("q -> answer", [weather], lm=lm)(q="?")
    assert lm.requests[1].messages[1]["items"] == [ITEM]
    assert said.trajectory[0]["thought"] == "hm"


def test_bad_calls_are_told_and_end_nothing():
    bad = calls(
        call("wether", {"city": "X"}, ""),
        call("weather", {"town": "X"}, ""),
        call("weather", '{"city": "cut he', "x"),
        call("weather", {"city": "Nowhere"}, "x"),
        {"function": {"name": "Weather", "arguments": {"city": "Rome"}}},
    )
    lm = script(bad, "ok")
    said = ReAct("q -> answer", [weather], lm=lm)(q="?")
    unknown, wrong, cut, failed, fine = steps(said)
    assert unknown == (
        "wether",
        "There is no tool 'wether' (did you mean 'weather'?); the tools are: weather",
        "unknown tool",
    )
    assert wrong[1].startswith("weather was not called: city: Field required; town: unknown argument")
    assert (cut[1][:25], cut[2]) == ("the arguments are no JSON", "arguments")
    assert failed == ("weather", "weather failed with ValueError: no such city", "ValueError")
    assert fine == ("weather", "Rome: rain for 1", None)
    sent = lm.requests[1].messages[1]["tool_calls"]
    ids = [m["tool_call_id"] for m in lm.requests[1].messages if m["role"] == "tool"]
    assert ids == [c["id"] for c in sent]
    assert len({*ids}) == 5
    assert all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in sent)  # servers read them


def test_ids_are_never_used_twice():
    lm = script(*[calls(call("weather", {"city": "X"}, "same"))] * 3, "ok")
    ReAct("q -> answer", [weather], lm=lm)(q="?")
    ids = [m["tool_call_id"] for m in lm.requests[-1].messages if m["role"] == "tool"]
    assert ids == ["same", "call_1_0", "call_2_0"]


def test_a_call_written_as_text_is_a_call():
    lm = script('<tool_call>{"name": "weather", "parameters": {"city": "X"}}</tool_call>', '{"name": "Ann", "n": 1}')
    said = ReAct("q -> answer", [weather], lm=lm)(q="?")
    assert steps(said) == [("weather", "X: rain for 1", None)]
    assert said.answer == '{"name": "Ann", "n": 1}'


def test_images_follow_in_a_message_of_their_own():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    look = Tool(lambda: image, name="look")
    lm = script(calls(call("look", "{}", "1"), call("weather", {"city": "X"}, "2")), "ok")
    ReAct("q -> answer", [look, weather], lm=lm)(q="?")
    assert [m["role"] for m in lm.requests[1].messages] == ["user", "assistant", "tool", "tool", "user"]
    assert image in lm.requests[1].messages[-1]["content"]
    lm = script(acted("look", {}), acted("finish", {"answer": "ok"}), capabilities=WORDS)
    ReAct("q -> answer", [look], lm=lm)(q="?")
    assert image in lm.requests[1].messages[-1]["content"]


def test_the_same_call_with_another_image_each_time_is_no_standstill():
    shots = (f"data:image/png;base64,{n:04}" for n in itertools.count())
    look = Tool(lambda: {"type": "image_url", "image_url": {"url": next(shots)}}, name="look")
    lm = script(*[calls(call("look", "{}", str(n))) for n in range(4)], "it moves")
    said = ReAct("q -> answer", [look], lm=lm)(q="?")
    assert (said.answer, len(said.trajectory)) == ("it moves", 4)


# JSON in words


def test_a_model_without_tools_is_asked_for_json():
    made_up = acted("weather", {"city": "X"}) + "\nResult: sun\n" + acted("finish", {"answer": "sun"})
    lm = script(made_up, acted("finish", {"answer": "rain"}), capabilities=WORDS)
    said = ReAct("q -> answer", [weather], lm=lm, system="You are brief.")(q="Weather?")
    assert said.answer == "rain"
    assert steps(said) == [("weather", "X: rain for 1", None)]
    assert said.trajectory[0]["thought"] == "t"
    system, task, acts, result = (m["content"] for m in lm.requests[1].messages)
    assert system.startswith(
        "You are brief.\n\nYou can use these tools, one at a time:\n- weather: The weather in a city."
    )
    assert task.startswith("Q: Weather?")
    assert json.loads(acts)["action"] == {"tool": "weather", "arguments": {"city": "X"}}
    assert result == "Result of weather: X: rain for 1"
    assert lm.requests[0].tools == ()


@pytest.mark.parametrize(
    "reply",
    [
        '{"tool": "weather", "arguments": {"city": "X"}}',
        '{"next_thought": "t", "next_tool_name": "weather", "next_tool_args": {"city": "X"}}',
        '{"action": "weather", "action_input": {"city": "X"}}',
        "```json\n{'tool': 'Weather', 'args': '{\"city\": \"X\"}',}\n```",
        '{"function": {"name": "weather", "parameters": {"city": "X"}}}',
    ],
)
def test_calls_in_other_models_forms_are_read(reply):
    lm = script(reply, "The answer.", capabilities=WORDS)
    said = ReAct("q -> answer", [weather], lm=lm)(q="?")
    assert (steps(said), said.answer) == ([("weather", "X: rain for 1", None)], "The answer.")


def test_the_form_is_held_by_a_grammar_or_a_schema_where_the_model_takes_one():
    replies = [acted("weather", {"city": "X"}), acted("finish", {"n": 3})]
    lm = script(*replies, capabilities=Capabilities(grammar=True, json_schema=True))
    assert ReAct("q -> n: int", [weather], lm=lm)(q="?").n == 3
    assert lm.requests[0].grammar.startswith("start: %json {")
    lm = script(*replies, capabilities=Capabilities(json_schema=True))
    ReAct("q -> n: int", [weather], lm=lm)(q="?")
    action = lm.requests[0].schema["properties"]["action"]
    assert [a["properties"]["tool"]["const"] for a in action["anyOf"]] == ["weather", "finish"]
    lm = script(BadRequestError("too complex", status=400), *replies, capabilities=Capabilities(json_schema=True))
    assert ReAct("q -> n: int", [weather], lm=lm)(q="?").n == 3
    assert [r.schema is None for r in lm.requests] == [False, True, True]


def test_a_model_that_refuses_tools_goes_on_in_words():
    refused = UnsupportedError("no tools", parameter="tools", status=400)
    lm = script(refused, acted("weather", {"city": "X"}), acted("finish", {"answer": "rain"}))
    react = ReAct("q -> answer", [weather], lm=lm)
    assert react(q="?").answer == "rain"
    assert [bool(r.tools) for r in lm.requests] == [True, False, False]


# replies that say nothing, turns that run out


def test_an_empty_reply_is_told_and_asked_for_again():
    lm = script(calls(call("weather", {"city": "X"})), "", "ok")
    assert ReAct("q -> answer", [weather], lm=lm)(q="?").answer == "ok"
    assert "Your last reply could not be used: the reply is empty" in lm.requests[2].messages[-1]["content"]
    with pytest.raises(ParseError, match="empty"):
        ReAct("q -> answer", [weather], lm=script("", "", "", "ok"))(q="?")


def test_a_reply_that_was_all_thought_is_asked_for_again_once_and_differently():
    lm = script(thought(), "ok")
    assert ReAct("q -> answer", [weather], lm=lm, max_tokens=10)(q="?").answer == "ok"
    assert [(r.max_tokens, r.effort) for r in lm.requests] == [(10, None), (20, "low")]
    with pytest.raises(ParseError, match="only thought"):
        ReAct("q -> answer", [weather], lm=script(thought(), thought(), "ok"))(q="?")


@pytest.mark.parametrize("capabilities", [EVERYTHING, WORDS])
@pytest.mark.parametrize(("signature", "end"), [("q -> answer", "It rains."), ("q -> answer: int", '{"answer": 7}')])
def test_the_last_turn_has_to_answer_without_tools(capabilities, signature, end):
    again = calls(call("weather", {"city": "X"})) if capabilities is EVERYTHING else acted("weather", {"city": "X"})
    lm = script(again, again, again, end, capabilities=capabilities)
    said = ReAct(signature, [weather], max_iters=2, lm=lm)(q="?")
    assert said.answer == (7 if "int" in signature else "It rains.")
    assert len(said.trajectory) == 2  # the call at the last turn is not made
    assert "No more tools can be used" in lm.requests[2].messages[-1]["content"]
    assert lm.requests[2].tool_choice == ("none" if capabilities is EVERYTHING else None)
    assert "tools were called (weather)" in lm.requests[3].messages[-1]["content"]
    assert bool(lm.requests[3].tools) == (capabilities is EVERYTHING)


def test_a_model_that_goes_in_circles_has_to_answer():
    lm = script(*[calls(call("weather", {"city": "X"}))] * 3, "It rains.")
    said = ReAct("q -> answer", [weather], lm=lm)(q="?")
    assert (said.answer, len(said.trajectory), lm.requests[3].tool_choice) == ("It rains.", 3, "none")
    ticks = iter(range(9))
    clock = Tool(lambda: next(ticks), name="clock")  # the same call with another result is no circle
    said = ReAct("q -> answer", [clock], lm=script(*[calls(call("clock"))] * 5, "done"))(q="?")
    assert [s["observation"] for s in said.trajectory] == ["0", "1", "2", "3", "4"]


def test_a_refused_tool_choice_is_left_out():
    refused = UnsupportedError("no tool_choice", parameter="tool_choice", status=400)
    lm = script(calls(call("weather", {"city": "X"})), refused, "ok")
    assert ReAct("q -> answer", [weather], 1, lm=lm)(q="?").answer == "ok"
    assert [r.tool_choice for r in lm.requests] == [None, "none", None]


@pytest.mark.parametrize("capabilities", [EVERYTHING, WORDS])
def test_the_oldest_results_go_first_when_the_context_overflows(capabilities):
    def page(n: int) -> str:
        return f"page {n} " + "x" * 3000

    def answer(request):
        size = sum(len(str(m["content"])) for m in request.messages)
        if size > 9000:
            raise ContextOverflowError("too long", status=400)
        done = sum(m["role"] == "assistant" for m in request.messages)
        if done == 5:
            return "done" if capabilities is EVERYTHING else acted("finish", {"answer": "done"})
        return calls(call("page", {"n": done})) if capabilities is EVERYTHING else acted("page", {"n": done})

    lm = FunctionLM(answer, capabilities=capabilities)
    with Run() as run:
        said = ReAct("q -> answer", [page], lm=lm)(q="?")
    assert said.answer == "done"
    assert [s["observation"][:6] for s in said.trajectory] == [f"page {n}" for n in range(5)]
    results = [str(m["content"]) for m in lm.requests[-1].messages if "page" in str(m) or "dropped" in str(m)]
    kept = ["dropped to make room: 3,007 characters" not in r for r in results if "x" * 100 in r or "dropped" in r]
    assert kept == sorted(kept)
    assert kept[-1]
    assert not kept[0]
    assert any(e.kind == "observation_dropped" for e in run.journal.events)
    with pytest.raises(ContextOverflowError):  # nothing can be dropped
        ReAct("q -> answer", [page], lm=script(ContextOverflowError("too long", status=400)))(q="?")


def test_one_result_that_does_not_fit_alone_loses_its_middle():
    def big() -> str:
        return "a" * 4000

    lm = script(calls(call("big")), ContextOverflowError("too long", status=400), "ok")
    assert ReAct("q -> answer", [big], lm=lm)(q="?").answer == "ok"
    assert "3,000 of 4,000 characters cut" in shown(lm)[0]


# in a run


def test_calls_of_one_reply_run_at_the_same_time():
    meet = threading.Barrier(2, timeout=10)

    def wait(name: str) -> str:
        meet.wait()
        return name

    async def later(name: str) -> str:
        await asyncio.sleep(0)
        return name

    made = [call("wait", {"name": n}, n) for n in "ab"] + [call("later", {"name": "c"}, "c")]
    said = ReAct("q -> answer", [wait, later], lm=script(calls(*made), "ok"))(q="?")
    assert [s["observation"] for s in said.trajectory] == ["a", "b", "c"]


def test_hints_and_requirements_reach_the_model_and_the_trajectory_is_not_judged():
    react = ReAct(
        "topic -> line", [weather], lm=(lm := script(calls(call("weather", {"city": "X"})), "one", "rain today"))
    )
    result = Refine(react, N=2, checks=[checks.words(2, 3)])(topic="rain")
    assert (result.line, result.stop_reason, result.text) == ("rain today", "passed", "rain today")
    assert result.attempts[0].text == "one"
    assert result.attempts[0].prediction.trajectory[0]["tool"] == "weather"
    task = lm.requests[1].messages[0]["content"]
    assert "Requirements:\n- " in task
    assert "An earlier answer fell short" in lm.requests[2].messages[0]["content"]


def test_a_draft_is_repaired_by_code_as_any_other():
    react = ReAct("topic -> line", [weather], lm=script("```json\n[1]\n```"))
    result = Refine(react, N=2, checks=[checks.json_valid()])(topic="x")
    assert (result.line, result.attempts[-1].rung) == ("[1]", "fix")


def test_best_of_n_and_self_refine_share_one_budget():
    def answer(request):
        if any(m["role"] == "tool" for m in request.messages):
            return "a fine line"
        return calls(call("weather", {"city": "X"}))

    react = ReAct("topic -> line", [weather], lm=FunctionLM(answer))
    result = BestOfN(react, N=3, reward_fn=lambda _, p: len(p.line), concurrency=3)(topic="x")
    assert (result.usage.calls, len(result.attempts)) == (6, 3)
    with pytest.raises(BudgetExceeded):
        Refine(react, N=3, checks=[checks.words(3)], budget=Budget(calls=1))(topic="x")
    draft = script(
        calls(call("weather", {"city": "X"})), "a draft", "- dull -> more colour", "a red draft", "A", "B", "OK"
    )
    draft.capabilities = Capabilities(tools=True)
    refined = SelfRefine(ReAct("topic -> line", [weather], lm=draft), critic="editor", rounds=1)(topic="x")
    assert refined.attempts[1].text == "a red draft"


def test_a_resumed_run_calls_no_tool_twice(tmp_path):
    called = []
    inner = Predict("text -> summary", lm=script("short"))

    def note(text: str) -> str:
        called.append(text)
        return inner(text=text).summary

    first = calls(call("note", {"text": "a"}, "1"), call("note", {"text": "b"}, "2"))
    for limit, replies, inside in ((3, [first], ["short"] * 2), (9, ["done"], [])):  # cut off, then resumed
        inner.lm = ScriptedLM(inside, name="test/react-inner")
        lm = ScriptedLM(replies, name="test/react-resumed", capabilities=EVERYTHING)
        react = ReAct("q -> answer", [note], lm=lm)
        store = SqliteStore(tmp_path / "runs.db")
        try:
            with Run(run_id="r", store=store, strict=True, budget=Budget(calls=limit)) as run:
                said = react(q="?")
        except BudgetExceeded:
            assert len(called) == 2
            continue
        finally:
            store.close()
    assert (said.answer, [s["observation"] for s in said.trajectory]) == ("done", ["short", "short"])
    assert sorted(called) == ["a", "b"]
    assert run.usage.calls == 4  # two of the model, two inside the tools
    assert not [e for e in run.journal.events if e.kind == "diverged"]


def test_scopes_are_those_of_the_calls_whatever_order_they_end_in():
    inner = FunctionLM(lambda request: request.messages[-1]["content"])
    ask = Predict("text -> answer", lm=inner)

    async def slow(text: str) -> str:
        for _ in range(5 if text == "a" else 0):
            await asyncio.sleep(0)
        return (await ask.acall(text=text)).answer

    lm = script(calls(call("slow", {"text": "a"}, "1"), call("slow", {"text": "b"}, "2")), "ok")
    with Run(seed=1) as run:
        said = ReAct("q -> answer", [slow], lm=lm)(q="?")
    assert [s["observation"] for s in said.trajectory] == ["a", "b"]
    scopes = {e.scope for e in run.journal.events if e.kind == "call" and "tool[" in e.scope}
    assert {s.partition("/tool[")[2][:8] for s in scopes} == {"0.0]:slo", "0.1]:slo"}


def test_a_cancelled_run_ends_its_tools():
    ended = threading.Event()
    begun = threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def main():
        lm = script(calls(call("forever")), "never")
        strategy = Refine(ReAct("q -> answer", [forever], lm=lm), N=2)
        task = asyncio.ensure_future(strategy.acall(q="?"))
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return lm

    lm = asyncio.run(main())
    assert ended.is_set()
    assert lm.left == 1


def test_a_deadline_ends_a_tool():
    async def forever() -> None:
        await asyncio.Event().wait()

    with Run(budget=Budget(seconds=0.2)), pytest.raises(BudgetExceeded, match="the tool forever was at work"):
        ReAct("q -> answer", [forever], lm=script(calls(call("forever")), "never"))(q="?")


def test_a_budget_that_ends_inside_a_tool_ends_the_run():
    inner = Predict("text -> summary", lm=script("short"))
    react = ReAct("q -> answer", [Tool(inner, name="sum")], lm=script(calls(call("sum", {"text": "a"})), "never"))
    with Run(budget=Budget(calls=1)), pytest.raises(BudgetExceeded):
        react(q="?")


def test_what_the_author_is_told_is_not_told_to_a_tools_own_modules():
    inner = script("short")
    react = ReAct("q -> answer", [Tool(Predict("text -> summary", lm=inner), name="sum")])
    react.lm = script(calls(call("sum", {"text": "a"})), "two words")
    Refine(react, N=1, checks=[checks.words(2)])(q="?")
    assert "Requirements" in react.lm.requests[0].messages[-1]["content"]
    assert "Requirements" not in inner.requests[0].messages[-1]["content"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_iters": 0}, "max_iters=0"),
        ({"max_output_chars": -1}, "max_output_chars=-1"),
        ({"tool_choice": "required"}, "takes no tool_choice"),
        ({"temprature": 1}, "unknown sampling parameter 'temprature'"),
        ({"tools": [Tool(weather, name="finish")]}, "'finish', which is how the model answers"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(options, says):
    with pytest.raises(InputError, match=says):
        ReAct(**{"signature": "q -> answer", "tools": [weather], **options})
    with pytest.raises(InputError, match="ReAct's own"):
        ReAct("q -> trajectory", [weather])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["odd", "Odd", "finish", "", "x/y", None, 3]) | st.text(max_size=5)
RAW = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.text(max_size=3) | st.integers(),
        "function": st.fixed_dictionaries({}, optional={"name": NAMES, "arguments": JSON | JSON.map(json.dumps)}),
    },
)
RESULTS = (
    JSON
    | st.binary()
    | st.just(object())
    | st.sets(st.integers())
    | st.sampled_from([ValueError("\ud800"), {1: {(2,): 3}}])
)


@given(st.lists(RAW, min_size=1, max_size=3), RESULTS, st.text(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_arguments_and_no_result_of_a_tool_raise(made, result, text, native):
    def odd(**given: object) -> object:
        if isinstance(result, Exception):
            raise result
        return result

    reply = calls(*made, text=text) if native else json.dumps(made[0]) + text
    lm = FunctionLM(
        lambda _: reply if len(lm.requests) < 2 else "done" if native else acted("finish", {"answer": "done"}),
        name=f"test/odd-{native}",
        capabilities=EVERYTHING if native else WORDS,
    )
    said = ReAct("q -> answer", [odd], 3, lm=lm)(q="?")
    assert isinstance(said.answer, str)
    json.dumps(said.trajectory, allow_nan=False)
    for request in lm.requests:
        json.dumps([dict(m) for m in request.messages], allow_nan=False)


# over the wire


@pytest.mark.server
def test_native_calls_over_a_real_wire():
    made = [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}]
    replies = [Reply(text="", tool_calls=made), Reply(text="", tool_calls=[call("finish", {"n": 1}, "b")])]
    with FaultServer(replies) as server:
        lm = OpenAILM("m", base_url=server.base_url, name="test/react-wire")
        said = ReAct("question -> n: int", [weather], lm=lm)(question="How many?")
    assert (said.n, steps(said)) == (1, [("weather", "Paris: rain for 1", None)])
    first, second = server.requests
    assert [t["function"]["name"] for t in first["tools"]] == ["weather", "finish"]
    assert second["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": made},
        {"role": "tool", "tool_call_id": "a", "content": "Paris: rain for 1"},
    ]


@pytest.mark.server
def test_a_server_that_refuses_tools_is_asked_in_words():
    replies = [Reply.unsupported("tools"), acted("weather", {"city": "Paris"}), acted("finish", {"answer": "rain"})]
    with FaultServer(replies) as server:
        lm = OpenAILM("m", base_url=server.base_url, name="test/react-refused")
        assert ReAct("q -> answer", [weather], lm=lm)(q="?").answer == "rain"
    assert ["tools" in r for r in server.requests] == [True, False, False]
