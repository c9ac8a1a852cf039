"""Predict and ChainOfThought: styles, re-asking, thought-only replies, tools, sampling, inputs."""

from __future__ import annotations

import itertools
import json
from typing import Literal

import pytest
from pydantic import BaseModel

from redraft import ChainOfThought, InputField, OutputField, Predict, Run, Signature, context
from redraft.budget import Budget
from redraft.errors import BudgetExceeded, InputError, ParseError, SignatureError, UnsupportedError, UsageError
from redraft.testing import FunctionLM, ScriptedLM
from redraft.testing.words import EVERYTHING
from redraft.types import Capabilities, Choice, Completion, Usage

number = itertools.count()
PLAIN = Capabilities()


def script(*replies, capabilities=EVERYTHING, **options):
    """A model of its own name: what a model refuses is remembered by name."""
    return ScriptedLM(replies, name=f"test/predict-{next(number)}", capabilities=capabilities, **options)


def asked(lm, at=-1):
    return lm.requests[at].messages[-1]["content"]


def thought(reasoning="hm", finish="length"):
    return Completion(choices=(Choice(reasoning=reasoning, finish_reason=finish),), usage=Usage(output_tokens=3))


def called(*names, text=""):
    calls = tuple(
        {"id": str(i), "type": "function", "function": {"name": n, "arguments": "{}"}} for i, n in enumerate(names)
    )
    choice = Choice(text=text, tool_calls=calls, finish_reason="tool_calls")
    return Completion(choices=(choice,), usage=Usage(output_tokens=3))


class Review(Signature):
    """Review the restaurant."""

    topic: str = InputField()
    tone: str = InputField(default="dry")
    review: str = OutputField(desc="two sentences")
    stars: int = OutputField()


# what is asked, and what is read


def test_one_text_is_the_reply_as_it_is():
    lm = script(" Paris.\n")
    assert Predict("question -> answer", lm=lm)(question="Capital?").answer == " Paris.\n"
    (request,) = lm.requests
    assert request.messages == ({"role": "user", "content": "Capital?"},)
    assert (request.schema, request.temperature, request.max_tokens) == (None, None, None)


def test_typed_outputs_use_the_schema():
    lm = script('{"answer": 42}')
    assert Predict("question -> answer: int", lm=lm)(question="6 x 7?").answer == 42
    assert lm.requests[0].schema["properties"] == {"answer": {"type": "integer"}}


def test_without_schema_the_form_is_asked_for():
    lm = script("42", capabilities=PLAIN)
    assert Predict("question -> answer: int", lm=lm)(question="6 x 7?").answer == 42
    assert lm.requests[0].schema is None
    lm = script('{"review": "Good. Warm.", "stars": "4"}', capabilities=PLAIN)
    said = Predict(Review, lm=lm)(topic="La Maison")
    assert (said.review, said.stars) == ("Good. Warm.", 4)
    assert lm.requests[0].messages[0] == {"role": "system", "content": "Review the restaurant."}
    assert "two sentences" in asked(lm)


@pytest.mark.parametrize(
    ("spec", "reply", "value"),
    [
        ("q -> a: float", '{"a": "0.5"}', 0.5),
        ("q -> a: bool", '{"a": "Yes"}', True),
        ("q -> a: list[str]", '{"a": ["x", "y"]}', ["x", "y"]),
        ("q -> a: dict[str, int]", '{"a": {"x": 1}}', {"x": 1}),
        ("q -> a: Literal['red', 'blue']", '{"a": "Blue"}', "blue"),
        ("q -> a: int | None", '{"a": null}', None),
    ],
)
def test_types(spec, reply, value):
    assert Predict(spec, lm=script(reply))(q="x").a == value


def test_a_pydantic_output():
    class Place(BaseModel):
        city: str
        mood: Literal["good", "bad"]

    spec = Signature.parse("q -> place: Place", types={"Place": Place})
    assert Predict(spec, lm=script('{"place": {"city": "Lyon", "mood": "good"}}'))(q="x").place == Place(
        city="Lyon", mood="good"
    )


def test_a_system_prompt_stands_before_the_instructions():
    lm = script('{"review": "x", "stars": 1}')
    Predict(Review, lm=lm, system="You are Anton Ego.")(topic="x")
    assert lm.requests[0].messages[0]["content"] == "You are Anton Ego.\n\nReview the restaurant."


def test_chain_of_thought_reasons_first():
    lm = script('{"reasoning": "6 times 7", "answer": 42}')
    said = ChainOfThought("question -> answer: int", lm=lm)(question="6 x 7?")
    assert (said.reasoning, said.answer) == ("6 times 7", 42)
    assert list(lm.requests[0].schema["properties"]) == ["reasoning", "answer"]
    lm = script("6 times 7 is known.\n\nAnswer: 42", capabilities=PLAIN)
    assert ChainOfThought("question -> answer: int", lm=lm)(question="6 x 7?").answer == 42


# asking again


def test_a_reply_that_does_not_parse_is_asked_for_again():
    lm = script("no idea", '{"answer": 42}')
    with Run() as run:
        assert Predict("question -> answer: int", lm=lm)(question="6 x 7?").answer == 42
    first, second = asked(lm, 0), asked(lm, 1)
    assert second.startswith(first), "a fresh prompt: the same, with the error at its end"
    assert "could not be used" in second
    assert "'answer'" in second
    assert len(lm.requests[1].messages) == len(lm.requests[0].messages), "the reply itself is not shown as a turn"
    assert run.usage.calls == 2
    (event,) = (e for e in run.journal.events if e.kind == "parse_error")
    assert "answer" in event.data["error"]


@pytest.mark.parametrize(("reasks", "calls"), [(0, 1), (1, 2), (2, 3), (5, 6)])
def test_asking_again_is_bounded_and_counted(reasks, calls):
    lm = script(*["no idea"] * 9)
    with Run() as run, pytest.raises(ParseError, match="answer") as caught:
        Predict("question -> answer: int", lm=lm, reasks=reasks)(question="x")
    assert (len(lm.requests), run.usage.calls) == (calls, calls)
    assert [e.kind for e in run.journal.events].count("parse_error") == calls
    assert caught.value.completion.text == "no idea"


def test_asking_again_is_within_the_budget():
    lm = script(*["no idea"] * 9)
    with Run(budget=Budget(calls=2)), pytest.raises(BudgetExceeded):
        Predict("question -> answer: int", lm=lm)(question="x")
    assert len(lm.requests) == 2


def test_only_the_last_error_is_named():
    lm = script("no idea", '{"answer": "many"}', '{"answer": 1}')
    Predict("question -> answer: int", lm=lm)(question="x")
    assert "'many'" in asked(lm, 2)
    assert "no idea" not in asked(lm, 2)


def test_missing_fields_are_all_named():
    lm = script("{}", '{"review": "x", "stars": 1}')
    Predict(Review, lm=lm)(topic="x")
    assert "review" in asked(lm, 1).rpartition("could not be used")[2]


def test_an_empty_reply_is_asked_for_again():
    lm = script("", "Paris")
    assert Predict("question -> answer", lm=lm)(question="x").answer == "Paris"
    assert "empty" in asked(lm, 1)


# a schema that is refused


def test_a_refused_schema_is_asked_for_in_words_and_remembered():
    sent = []

    def fussy(request):
        sent.append(request.schema is not None)
        if request.schema is not None:
            raise UnsupportedError("no schemas here", parameter="schema", status=400)
        return '{"review": "Good.", "stars": 4}'

    lm = FunctionLM(fussy, name=f"test/predict-{next(number)}")
    predict = Predict(Review, lm=lm)
    for _ in range(2):
        assert predict(topic="x").stars == 4
    assert sent == [True, False, False], "refused once, never sent again"
    assert "JSON" in asked(lm)
    other = FunctionLM(fussy, name=f"test/predict-{next(number)}")
    Predict(Review, lm=other)(topic="x")
    assert sent[3:] == [True, False], "another model is tried on its own"


def test_another_refusal_is_not_the_schemas():
    lm = script(UnsupportedError("no tools", parameter="tools", status=400))
    with pytest.raises(UnsupportedError, match="no tools"):
        Predict(Review, lm=lm, tools=({"type": "function"},))(topic="x")


# replies that only think


def test_a_thought_only_reply_is_retried_once_and_differently():
    lm = script(thought(), "Paris")
    predict = Predict("question -> answer", lm=lm, max_tokens=100)
    assert predict(question="x").answer == "Paris"
    first, second = lm.requests
    assert (first.max_tokens, second.max_tokens) == (100, 200)
    assert (first.effort, second.effort) == (None, "low")
    assert "only thought" in asked(lm, 1)


def test_a_thought_only_reply_is_retried_at_most_once():
    lm = script(*[thought()] * 9)
    with Run() as run, pytest.raises(ParseError, match="only thought"):
        Predict("question -> answer", lm=lm, reasks=5)(question="x")
    assert (len(lm.requests), run.usage.calls) == (2, 2)


def test_reasoning_is_never_the_answer():
    lm = script(thought("the answer is Lyon"), thought("the answer is Lyon"))
    with pytest.raises(ParseError):
        Predict("question -> answer", lm=lm)(question="x")
    both = Completion(choices=(Choice(text="Paris", reasoning="Lyon?"),))
    assert Predict("question -> answer", lm=script(both))(question="x").answer == "Paris"


def test_a_model_that_sent_its_thoughts_has_an_effort_to_lower_whatever_was_declared():
    lm = script(thought(), "Paris", capabilities=PLAIN)
    Predict("question -> answer", lm=lm)(question="x")
    assert [request.effort for request in lm.requests] == [None, "low"]


@pytest.mark.parametrize("effort", ["none", "minimal", "low"])
def test_a_low_effort_is_not_raised(effort):
    lm = script(thought(), "Paris")
    Predict("question -> answer", lm=lm, effort=effort)(question="x")
    assert [request.effort for request in lm.requests] == [effort, effort]


def test_a_thought_that_was_cut_without_a_cap_gets_twice_what_it_used():
    lm = script(thought(), "Paris", thought(finish="stop"), "Paris")
    predict = Predict("question -> answer", lm=lm)
    assert (predict(question="x").answer, predict(question="x").answer) == ("Paris", "Paris")
    assert [request.max_tokens for request in lm.requests] == [None, 6, None, None]
    lm = script(thought(), "Paris")
    lm.max_output = 120
    Predict("question -> answer", lm=lm, max_tokens=100)(question="x")
    assert lm.requests[1].max_tokens == 120, "not more than the model can"


def test_a_thought_is_not_retried_once_more_after_another_failure():
    lm = script(thought(), "nothing to read", thought(), '{"a": 1}')
    with pytest.raises(ParseError, match="only thought"):
        Predict("q -> a: int", lm=lm, reasks=5)(q="x")
    assert lm.left == 1


# tools


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def test_tool_calls_are_an_output():
    lm = script(called("weather"))
    said = Predict("question -> answer, tool_calls: list[dict]", lm=lm, tools=(TOOL,))(question="Rain?")
    assert said.tool_calls[0]["function"]["name"] == "weather"
    assert said.answer == ""
    assert lm.requests[0].tools == (TOOL,)
    assert lm.requests[0].schema is None


def test_no_tool_calls_is_an_empty_list():
    said = Predict("question -> answer, tool_calls: list[dict]", lm=script("No rain."))(question="Rain?")
    assert (said.answer, said.tool_calls) == ("No rain.", [])


def test_unexpected_tool_calls_are_named():
    lm = script(*[called("weather")] * 3)
    with pytest.raises(ParseError, match=r"called tools \('weather'\)"):
        Predict("question -> answer", lm=lm, tools=(TOOL,))(question="Rain?")


# sampling


def test_sampling_parameters_are_sent():
    lm = script("x")
    Predict("q -> a", lm=lm, temperature=0.2, max_tokens=9, top_p=0.5, stop=("END",), seed=7, extra={"k": 1})(q="x")
    (request,) = lm.requests
    assert (request.temperature, request.max_tokens, request.top_p) == (0.2, 9, 0.5)
    assert (request.stop, request.seed, dict(request.extra)) == (("END",), 7, {"k": 1})


def test_a_stop_may_be_one_text():
    """As in every provider's API."""
    lm = script("x")
    Predict("q -> a", lm=lm, stop="END")(q="x")
    assert lm.requests[0].stop == ("END",)


def test_a_model_without_temperature_is_sent_none():
    lm = script("x", capabilities=Capabilities(temperature=False))
    Predict("q -> a", lm=lm, temperature=0.2)(q="x")
    assert lm.requests[0].temperature is None


@pytest.mark.parametrize("name", ["temprature", "messages", "schema", "top"])
def test_unknown_sampling_parameters_are_refused_at_the_door(name):
    with pytest.raises(InputError, match=rf"unknown sampling parameter '{name}'.*top_p"):
        Predict("q -> a", **{name: 1})


@pytest.mark.parametrize("options", [{"reasks": -1}, {"reasks": "2"}, {"n": 3}, {"lm": 5}])
def test_nonsense_is_refused_at_the_door(options):
    with pytest.raises(UsageError):
        Predict("q -> a", **options)


# inputs


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({}, "missing 'question'"),
        ({"question": "x", "topic": "y"}, "unknown 'topic'"),
        ({"questoin": "x"}, "did you mean 'question'"),
        ({"question": " \n"}, "nothing to work on"),
    ],
)
def test_wrong_inputs_cost_nothing(inputs, says):
    lm = script("x")
    with pytest.raises(InputError, match=says):
        Predict("question -> answer", lm=lm)(**inputs)
    assert lm.requests == []


def test_defaults():
    lm = script('{"review": "x", "stars": 1}')
    Predict(Review, lm=lm)(topic="soup")
    assert "Topic: soup" in asked(lm)
    assert "Tone: dry" in asked(lm)


def test_values_that_are_no_text():
    lm = script("x")
    Predict("a, b, c -> d", lm=lm)(a=5, b=["x", {"y": None}], c=True)
    assert asked(lm).startswith('A: 5\n\nB: ["x", {"y": null}]\n\nC: true')
    with pytest.raises(InputError, match="'b'"):
        Predict("a, b -> d", lm=script("x"))(a="x", b=object())


@pytest.mark.parametrize("signature", ["question", "-> answer", "question ->", "", 5, None, "a b -> c"])
def test_bad_signatures_are_refused_at_the_door(signature):
    with pytest.raises(SignatureError):
        Predict(signature)


# models


def test_the_model_is_resolved_at_the_call():
    predict = Predict("q -> a")
    for reply in ("one", "two"):
        with context(model=script(reply)):
            assert predict(q="x").a == reply


def test_a_predict_never_changes():
    lm = script("no idea", '{"a": 1}', thought(), '{"a": 1}')
    predict = Predict("q -> a: int", lm=lm, max_tokens=5)
    before = dict(vars(predict))
    predict(q="x")
    predict(q="x")
    assert vars(predict) == before
    assert repr(predict) == "Predict('q -> a: int')"


def test_unicode_to_and_fro():
    lm = script(json.dumps({"title": "Ça va 👋", "body": "你好\u2028"}))
    said = Predict("q -> title, body", lm=lm)(q="naïve \ud83e\udd8a".encode("utf-16", "surrogatepass").decode("utf-16"))
    assert (said.title, said.body) == ("Ça va 👋", "你好\u2028")
    assert "naïve 🦊" in asked(lm)
