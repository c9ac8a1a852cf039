"""Demos are earlier turns of the conversation, in the form that is asked for; what is shown is what parses."""

import datetime as dt
import pickle
from decimal import Decimal
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft import ChainOfThought, Predict, Prediction, Refine, Run, checks
from redraft.errors import InputError
from redraft.evaluate import Evaluate, Example
from redraft.journal import MemoryStore
from redraft.modules.demos import Demo, as_demos, reply
from redraft.modules.wire import parse, style_for
from redraft.signature import Field, Signature, SignatureSpec
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Capabilities, Choice, Completion


def asked(predict, **inputs):
    """The messages of one call."""
    predict(**inputs)
    return predict.lm.requests[-1].messages


def test_a_text_is_a_turn_as_it_is_and_instructions_stay_in_front():
    lm = ScriptedLM(["6"])
    predict = Predict(Signature.parse("question -> answer", "Be right."), lm=lm, system="You are terse.")
    predict.demos = [{"question": "1 + 1?", "answer": "2"}, Prediction(question="2 + 1?", answer="3")]
    assert asked(predict, question="3 + 3?") == (
        {"role": "system", "content": "You are terse.\n\nBe right."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2 + 1?"},
        {"role": "assistant", "content": "3"},
        {"role": "user", "content": "3 + 3?"},
    )


def test_what_the_checks_want_is_told_in_the_last_turn_only():
    lm = ScriptedLM(["three short words"])
    predict = Predict("topic -> line", lm=lm)
    predict.demos = [{"topic": "tea", "line": "Tea is hot."}]
    Refine(predict, N=1, checks=[checks.words(3)])(topic="milk")
    *before, last = lm.requests[0].messages
    assert before == [
        {"role": "user", "content": "Topic: tea\n\nWrite the line."},
        {"role": "assistant", "content": "Tea is hot."},
    ]
    assert "Requirements:" in last["content"] and last["content"].startswith("Topic: milk")


def test_typed_outputs_are_the_json_that_is_asked_for():
    lm = ScriptedLM(['{"price": 1.5, "day": "2024-02-03", "tags": ["b"]}'])
    predict = Predict("ad -> price: float, day: date, tags: set[str]", lm=lm)
    predict.demos = [{"ad": "Soap, $3", "price": "3", "day": dt.date(2024, 1, 2), "tags": set("zyxcba")}]
    assert asked(predict, ad="Tea, $1.50")[1] == {
        "role": "assistant",
        "content": '{"price": 3.0, "day": "2024-01-02", "tags": ["a", "b", "c", "x", "y", "z"]}',
    }


def test_one_typed_output_in_words_is_the_value_alone():
    lm = ScriptedLM(["7"], capabilities=Capabilities())
    predict = Predict("question -> answer: int", lm=lm)
    predict.demos = [{"question": "1 + 1?", "answer": 2}]
    assert asked(predict, question="3 + 4?")[1] == {"role": "assistant", "content": "2"}


def test_a_long_form_is_said_once_and_a_short_one_in_each_turn():
    lm = ScriptedLM(['{"a": 1, "b": 2}', '{"a": 1, "b": 2}'])
    short = Predict("q -> a: int, b: int", lm=lm)
    short.demos = [{"q": "x", "a": 1, "b": 2}]
    assert all("Reply with JSON only" in m["content"] for m in asked(short, q="y") if m["role"] == "user")
    fields = [Field(name, int, f"a number that says much about {name}, " * 3) for name in ("a", "b")]
    long = Predict(SignatureSpec([Field("q")], fields), lm=lm)
    long.demos = [{"q": "x", "a": 1, "b": 2}]
    first, _, last = asked(long, q="y")
    assert first["content"] == "x"
    assert "says much about b" in last["content"]


def test_images_and_histories_are_shown_as_they_are():
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    lm = ScriptedLM(["a dog", "Ann"])
    see = Predict("picture: list, question -> answer", lm=lm)
    see.demos = [{"picture": picture, "question": "What?", "answer": "a cat"}]
    content = asked(see, picture=picture, question="Who?")[0]["content"]
    assert picture[0] in content and {"type": "text", "text": "Question: What?"} in content
    chat = Predict("history: list, question -> answer", lm=lm)
    told = [{"role": "user", "content": "I am Bob."}, {"role": "assistant", "content": "Hi."}]
    chat.demos = [{"history": told, "question": "Who am I?", "answer": "Bob"}]
    now = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "I am Ann."}]
    assert [m["content"] for m in asked(chat, history=now, question="Who am I?")] == [
        "I am Bob.",
        "Hi.",
        "Who am I?",
        "Bob",
        "Be kind.",
        "I am Ann.",
        "Who am I?",
    ]


def test_inputs_of_every_kind_are_shown_as_a_call_shows_them():
    given = {"price": Decimal("3.50"), "day": dt.date(2024, 1, 2), "tags": ("a", "b"), "note": "as it is"}
    lm = ScriptedLM(["x"])
    predict = Predict("price, day, tags, note -> answer", lm=lm)
    predict.demos = [{**given, "answer": "y"}]
    first, _, last = asked(predict, **given)
    assert first == last


def test_a_demo_that_does_not_fit_is_refused_and_the_old_ones_stay():
    predict = Predict("question -> answer: int")
    predict.demos = [{"question": "1 + 1?", "answer": 2}]
    for wrong, why in [
        ([{"question": "x"}], "demo 0: .*'answer' .int. is missing"),
        ([{"question": "x", "answer": 1}, {"answer": 2}], "demo 1: .*missing 'question'"),
        ([{"question": "x", "answer": "many"}], "'answer' should be int, got 'many'"),
        (["question"], "demo 0 is 'question'; give a mapping"),
        ([{"question": float("nan"), "answer": 1}], "demo 0: 'question' of type float has no JSON form"),
    ]:
        with pytest.raises(InputError, match=why):
            predict.demos = wrong
    with pytest.raises(InputError, match=r"'reasoning' .str. is missing"):
        ChainOfThought("question -> answer").demos = [{"question": "x", "answer": "y"}]
    with pytest.raises(InputError, match="the output 'answer' is empty"):
        Predict("question -> answer").demos = [{"question": "x", "answer": " "}]
    with pytest.raises(InputError, match="calls of tools"):
        Predict("question -> tool_calls: list[dict]").demos = [{"question": "x", "tool_calls": []}]
    assert [demo.answer for demo in predict.demos] == [2]


def test_a_signature_that_changed_after_its_demos_is_said():
    predict = Predict("question -> answer", lm=ScriptedLM([]))
    predict.demos = [{"question": "x", "answer": "y"}]
    predict.signature = predict.signature.with_output("why")
    with pytest.raises(InputError, match="no field 'why': the signature was changed after it"):
        predict(question="z")


def test_a_demo_keeps_where_it_came_from():
    (demo,) = as_demos(Predict("q -> a").signature, [Demo(q="x", a="y", came_from="abc")])
    assert pickle.loads(pickle.dumps(demo)) == demo == Prediction(q="x", a="y")
    assert pickle.loads(pickle.dumps(demo)).came_from == "abc"


def test_changed_demos_are_another_request_and_no_record_answers_it():
    store = MemoryStore()
    lm = ScriptedLM(["first", "second"])

    def ask(demos):
        predict = Predict("q -> a", lm=lm)
        predict.demos = demos
        with Run(run_id="one", store=store):
            return predict(q="x").a

    assert [ask([]), ask([]), ask([{"q": "1", "a": "2"}]), ask([{"q": "1", "a": "2"}])] == [
        "first",
        "first",
        "second",
        "second",
    ]


def test_an_evaluation_tells_programs_apart_by_their_demos():
    plain, taught = Predict("q -> a", lm=FunctionLM(lambda r: "x")), Predict("q -> a", lm=FunctionLM(lambda r: "x"))
    taught.demos = [{"q": "1", "a": "2"}]
    bare = Predict("q -> a", lm=FunctionLM(lambda r: "x"))
    bare.demos = []
    example = [Example(q="x", a="x").with_inputs("q")]
    arms = {"same": plain}, {"same": bare}, {"same": taught}
    ids = [Evaluate(example, lambda e, p: True, baselines=False)(arm).items[0].run_id for arm in arms]
    assert ids[0] == ids[1] != ids[2]
    assert plain.identity() == bare.identity() != taught.identity()


TYPES = {
    str: st.text(min_size=1).filter(str.strip),
    int: st.integers(-(10**9), 10**9),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    list[str]: st.lists(st.text(max_size=9), max_size=3),
    dict[str, int]: st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=3),
    Literal["red", "green"]: st.sampled_from(["red", "green"]),
    int | None: st.none() | st.integers(0, 99),
    dt.date: st.dates(),
    dt.timedelta: st.timedeltas(dt.timedelta(0), dt.timedelta(days=99)),
}


@st.composite
def signatures_with_outputs(draw):
    types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3))
    outputs = [Field(f"out_{i}", type_) for i, type_ in enumerate(types)]
    values = {field.name: draw(TYPES[field.type]) for field in outputs}
    return SignatureSpec([Field("question")], outputs), values


@settings(max_examples=60, deadline=None)
@given(made=signatures_with_outputs(), enforced=st.booleans())
def test_a_shown_reply_parses_to_the_outputs_that_it_stands_for(made, enforced):
    spec, values = made
    style = style_for(spec, Capabilities(json_schema=enforced))
    (demo,) = as_demos(spec, [{"question": "why?", **values}])
    text = reply(spec, demo, style)
    if not text.strip() or (style == "json" and len(values) == 1):
        return  # a value alone in words: what it means is the reader's to find out, as with any model
    completion = Completion(choices=(Choice(text=text, finish_reason="stop"),))
    assert parse(spec, completion, style).to_dict() == spec.coerce(values)
