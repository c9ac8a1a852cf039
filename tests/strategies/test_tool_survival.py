"""Tool calls, their results and images survive refinement; a draft that is a tool call is refined like a text."""

from __future__ import annotations

import json

import pytest

from redraft import BestOfN, Predict, Refine, Reflect, SelfRefine, Tool
from redraft.checks import tool_call, words
from redraft.lm.openai import OpenAILM
from redraft.testing import FaultServer, FunctionLM, Reply, ScriptedLM
from redraft.types import Capabilities, Choice, Completion

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
CALLS = [
    {"id": "a", "type": "function", "function": {"name": "look_up", "arguments": '{"place": "La Maison"}'}},
    {"id": "b", "type": "function", "function": {"name": "menu", "arguments": "{}"}},
]
HISTORY = [
    {"role": "user", "content": [{"type": "text", "text": "What is this place?"}, IMAGE]},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "a", "content": "a French restaurant"},
    {"role": "tool", "tool_call_id": "b", "content": "soup, fish"},
    {"role": "assistant", "content": "It is La Maison."},
    {"role": "user", "content": [AUDIO]},
]
TOLD = [
    "What is this place?",
    IMAGE,
    "look_up",
    '{\\"place\\"',
    "a French restaurant",
    "soup, fish",
    "It is La Maison.",
    AUDIO,
]
"""What a judge is told of it, in this order."""

ASKS = "history, photo, topic -> review"
PLAIN = Capabilities(tools=True)


def write(lm):
    return Predict(ASKS, lm=lm, tools=[look_up])


def look_up(place: str) -> str:
    """Look a place up."""
    return place


def inputs():
    return {"history": HISTORY, "photo": IMAGE, "topic": "La Maison"}


def flat(request):
    """All that a request shows, in order: texts, and parts that are none."""
    shown = []
    for message in request.messages:
        content = message["content"]
        shown += [content] if isinstance(content, str) else content or []
        shown += [json.dumps(message["tool_calls"])] if message.get("tool_calls") else []
    return [part["text"] if isinstance(part, dict) and part["type"] == "text" else part for part in shown]


def in_order(request, wanted):
    """The wanted texts and parts that a request shows, in the order in which it shows them."""
    shown = iter(flat(request))
    text = next(shown)
    for want in wanted:
        while not (want in text if isinstance(text, str) and isinstance(want, str) else want == text):
            text = next(shown, None)
            if text is None:
                return False
        if isinstance(want, str):
            text = text[text.index(want) + len(want) :]
    return True


def keeps_history(request):
    """The very messages, in a row."""
    messages = list(request.messages)
    return any(messages[i : i + len(HISTORY)] == HISTORY for i in range(len(messages)))


def asked_of(lm, role):
    marks = {"critic": "Read the draft and compare", "reviser": "Revise the draft", "judge": "prefer"}
    return [r for r in lm.requests if marks[role].lower() in json.dumps([dict(m) for m in r.messages]).lower()]


def test_every_draft_of_refine_and_best_of_n_sees_all_of_it(script):
    lm = script("one", "one", "two words", capabilities=PLAIN)
    assert Refine(write(lm), N=3, checks=[words(2)])(**inputs()).review == "two words"
    more = script("one", "one", capabilities=PLAIN)
    BestOfN(write(more), N=2, checks=[words(2)])(**inputs())
    for request in (*lm.requests, *more.requests):
        assert keeps_history(request)
        assert request.messages[-1]["content"].count(IMAGE) == 1  # the photo, beside the topic
        assert [t["function"]["name"] for t in request.tools] == ["look_up"]


def test_an_edit_sees_all_of_it_and_the_tools(script):
    lm = script("one", "two words", capabilities=PLAIN)
    result = Refine(write(lm), N=2, checks=[words(2)], revise="edit")(**inputs())
    assert [a.rung for a in result.attempts] == ["tell", "edit"]
    (edit,) = asked_of(lm, "reviser")
    assert keeps_history(edit)
    assert IMAGE in edit.messages[-1]["content"]
    assert edit.tools == lm.requests[0].tools


@pytest.mark.parametrize("capabilities", [PLAIN, Capabilities(tools=True, json_schema=True)])
def test_critics_and_judges_are_told_all_of_it_in_order(capabilities, say, script):
    found = say.found("dull") if capabilities.json_schema else "- dull -> colour"
    ok = say.ok if capabilities.json_schema else "OK"
    lm = script("A draft.", found, "A red draft.", *say.wins, ok, capabilities=capabilities)
    for strategy in (SelfRefine(write(lm), critic="editor", rounds=2), Reflect(write(lm), "poet", "editor", rounds=2)):
        lm._given = 0
        lm.requests.clear()
        assert strategy(**inputs()).review == "A red draft."
        (first, *_), (reviser,) = asked_of(lm, "critic"), asked_of(lm, "reviser")
        assert keeps_history(lm.requests[0])
        assert keeps_history(reviser)
        assert IMAGE in reviser.messages[-1]["content"]
        for judged in (first, *lm.requests[3:5]):
            assert not judged.tools
            assert all(m["role"] in ("system", "user") for m in judged.messages)
            assert in_order(judged, [*TOLD, IMAGE])


def test_a_judge_of_many_is_told_all_of_it(script):
    lm = script("One.", "Two.", capabilities=PLAIN)
    heard = []

    def judge(task, drafts):
        heard.append(task)
        return 1

    assert BestOfN(write(lm), N=2, judge=judge)(**inputs()).review == "Two."
    assert [p for p in heard[0] if p["type"] != "text"] == [IMAGE, AUDIO, IMAGE]


@pytest.mark.server
def test_over_a_real_wire():
    replies = [Reply(text=t) for t in ("A draft.", "- dull -> colour", "A red draft.", "A", "B", "OK")]
    with FaultServer(replies) as server:
        lm = OpenAILM("m", base_url=server.base_url, name="test/survival", capabilities=PLAIN)
        assert Reflect(write(lm), editor="editor", rounds=2)(**inputs()).review == "A red draft."
    author, critic, reviser, *_ = server.requests
    for body in (author, reviser):
        at = body["messages"].index(HISTORY[0])
        assert body["messages"][at : at + len(HISTORY)] == HISTORY
        assert body["tools"] == [Tool(look_up).wire]
    assert [p for p in critic["messages"][-1]["content"] if p["type"] != "text"] == [IMAGE, AUDIO, IMAGE]


# drafts that are tool calls


def get_weather(city: str, days: int = 1) -> str:
    """The weather."""
    return city


def called(name, arguments):
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return Completion(choices=(Choice(tool_calls=(call,), finish_reason="tool_calls"),))


CHECK = tool_call("get_weather", Tool(get_weather))


def calling(*replies, **options):
    lm = ScriptedLM(replies, name="test/calling", capabilities=PLAIN)
    return Predict("request -> tool_calls: list[dict]", lm=lm, tools=[get_weather], **options), lm


def test_a_call_is_told_and_judged():
    predict, lm = calling(called("get_weather", '{"city": "Paris"}'))
    result = Refine(predict, N=3, checks=[CHECK])(request="Weather in Paris?")
    assert (result.stop_reason, len(result.attempts), result.score) == ("passed", 1, 1.0)
    asked = lm.requests[0].messages[-1]["content"]
    assert "Requirements:\n- Call the tool get_weather. The arguments of get_weather follow this schema" in asked
    assert lm.requests[0].tools == (Tool(get_weather).wire,)


@pytest.mark.parametrize(
    ("name", "arguments", "mended"),
    [
        ("get_weather", "{'city': 'Paris',}", {"city": "Paris"}),
        ("Get-Weather", '{"city": "Paris"}', {"city": "Paris"}),
        ("functions.get_weather", '```json\n{"city": "Paris"}\n```', {"city": "Paris"}),
    ],
)
def test_a_call_that_is_nearly_right_is_repaired_without_a_call(name, arguments, mended):
    predict, lm = calling(called(name, arguments))
    result = Refine(predict, N=3, checks=[CHECK])(request="Weather in Paris?")
    assert [a.rung for a in result.attempts] == ["tell", "fix"]
    assert (result.usage.calls, len(lm.requests)) == (1, 1)
    (call,) = result.tool_calls
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == mended
    assert call["id"] == "1"


def test_a_wrong_call_is_retried_with_what_was_wrong():
    predict, lm = calling(
        called("get_time", "{}"), called("get_weather", '{"town": "Paris"}'), called("get_weather", '{"city": "Paris"}')
    )
    result = Refine(predict, N=3, checks=[CHECK])(request="Weather in Paris?")
    assert (result.stop_reason, len(result.attempts)) == ("passed", 3)
    assert "get_weather is not called" in lm.requests[1].messages[-1]["content"]
    assert "'city' is a required property" in lm.requests[2].messages[-1]["content"]


def test_a_text_instead_of_a_call_is_a_draft_that_calls_nothing():
    predict, lm = calling("I would look.", called("get_weather", '{"city": "Paris"}'))
    result = Refine(predict, N=2, checks=[CHECK])(request="Weather in Paris?")
    assert result.attempts[0].prediction.tool_calls == []
    assert (result.stop_reason, len(lm.requests)) == ("passed", 2)
    predict, _ = calling("It is sunny, as you said.")
    assert Refine(predict, N=2, checks=[tool_call(none=True)])(request="Was it sunny?").stop_reason == "passed"


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "get_weather", "arguments": {"city": "Paris"}}',
        '<tool_call>\n{"name": "get_weather", "parameters": {"city": "Paris"}}\n</tool_call>',
        '[{"function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}}]',
    ],
)
def test_a_call_that_is_written_as_text_is_a_call(text):
    predict, _ = calling(text)
    result = Refine(predict, N=1, checks=[CHECK])(request="Weather in Paris?")
    assert result.passed, result.verdict


def test_an_edit_of_a_call_calls_anew():
    predict, lm = calling(called("get_weather", '{"town": "Paris"}'), called("get_weather", '{"city": "Paris"}'))
    result = Refine(predict, N=2, checks=[CHECK], revise="edit")(request="Weather in Paris?")
    assert [(a.rung, a.score.passed) for a in result.attempts] == [("tell", False), ("edit", True)]
    edit = lm.requests[1]
    assert edit.tools == lm.requests[0].tools
    assert "Make all of its calls anew." in edit.messages[0]["content"]
    assert "town" in edit.messages[-1]["content"]


def test_a_critic_reads_the_calls():
    heard = []

    def critic(inputs, prediction):
        heard.append(prediction.tool_calls[0]["function"]["name"])
        return "call get_weather" if heard[-1] == "get_time" else None

    predict, lm = calling(called("get_time", "{}"), called("get_weather", '{"city": "Paris"}'))
    result = SelfRefine(predict, critic=critic, judge=lambda task, challenger, incumbent: True)(request="Weather?")
    assert (heard, result.stop_reason) == (["get_time", "get_weather"], "critic_ok")
    assert result.tool_calls[0]["function"]["name"] == "get_weather"
    assert len(lm.requests) == 2


def test_text_and_calls_come_together():
    both = Completion(choices=(Choice(text="I look.", tool_calls=tuple(CALLS[:1]), finish_reason="tool_calls"),))
    lm = FunctionLM(lambda _: both, capabilities=PLAIN)
    said = Predict("request -> answer, tool_calls: list[dict]", lm=lm, tools=[look_up])(request="?")
    assert (said.answer, said.tool_calls) == ("I look.", CALLS[:1])
