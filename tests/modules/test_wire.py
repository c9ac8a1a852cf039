from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
import pathlib
import pickle
import string
import time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from redraft.errors import InputError, ParseError
from redraft.modules.wire import asked_of, compose, parse, style_for, to_text
from redraft.signature import as_signature
from redraft.types import Capabilities, Choice, Completion, Prediction, Usage


class Person(BaseModel):
    name: str
    age: int = 0


def reply(text="", **more):
    return Completion(choices=(Choice(text=text, **more),), usage=Usage(output_tokens=7))


def sent(spec, *, style="plain", **options):
    inputs = options.pop("inputs")
    spec = as_signature(spec)
    return compose(spec, spec.bind(inputs), style=style, **options)


def user(spec, **options):
    (message,) = sent(spec, **options)
    assert message["role"] == "user"
    return message["content"]


# styles


@pytest.mark.parametrize(
    ("spec", "with_schema", "without"),
    [
        ("q -> a", "plain", "plain"),
        ("q -> a: int", "schema", "json"),
        ("q -> a, b", "schema", "json"),
        ("q -> a, tool_calls: list[dict]", "plain", "plain"),
        ("q -> tool_calls: list[dict]", "plain", "plain"),
    ],
)
def test_style_for(spec, with_schema, without):
    assert style_for(as_signature(spec), Capabilities(json_schema=True)) == with_schema
    assert style_for(as_signature(spec), Capabilities()) == without


# what is sent


def test_one_text_goes_as_it_is():
    assert user("task -> answer", inputs={"task": " Say hi.\n"}) == " Say hi.\n"


def test_several_inputs_are_paragraphs_and_long_ones_blocks():
    text = user("short_context, question -> answer", inputs={"short_context": "a\nb", "question": "why?"})
    assert text == "Short context:\na\nb\n\nQuestion: why?"


def test_order_what_changes_comes_last():
    system, message = sent(
        as_signature("topic -> review, stars: int", "Review it."),
        inputs={"topic": "La Maison"},
        style="json",
        system="Be kind.",
        requirements=["three sentences", "name\nit"],
        hint="Shorter than before.",
        error="'stars' should be int, got 'x'",
    )
    assert system == {"role": "system", "content": "Be kind.\n\nReview it."}
    assert message["content"] == (
        "La Maison\n\nRequirements:\n- three sentences\n- name\n  it\n\nShorter than before.\n\n"
        'Reply with JSON only, an object with the keys "review" and "stars" (a whole number).\n\n'
        "Your last reply could not be used: 'stars' should be int, got 'x'"
    )


def test_the_outputs_name_is_said_where_nothing_else_says_it():
    assert user("topic -> review", inputs={"topic": "La Maison"}) == "Topic: La Maison\n\nWrite the review."
    _, message = sent(as_signature("topic -> review", "Review it."), inputs={"topic": "La Maison"})
    assert message["content"] == "La Maison"
    described = as_signature("topic -> review", descriptions={"review": "two lines"})
    assert user(described, inputs={"topic": "x"}).endswith("Reply with the review only: two lines")


def test_forms():
    spec = as_signature(
        "q -> reasoning, kind: Literal['a','b'], n: Optional[float], p: Person", types={"Person": Person}
    )
    assert user(spec, inputs={"q": "x"}, style="tags").startswith(
        "x\n\nReply in this form:\n<reasoning>...</reasoning>\n<kind>a or b</kind>\n<n>a number or null</n>\n"
        '<p>JSON that follows {"$ref"'
    )
    assert '"kind" (a or b), "n" (a number or null) and "p"' in user(spec, inputs={"q": "x"}, style="schema")
    assert user("q -> n: int", inputs={"q": "x"}, style="json").endswith("Reply with the n only: a whole number")


def test_content_parts_stay_untouched_and_in_place():
    image = {"type": "image_url", "image_url": {"url": "u"}}
    text = {"type": "text", "text": "hm"}
    assert user("prompt -> answer", inputs={"prompt": [text, image]}) == [text, image]
    assert user("image, question -> answer", inputs={"image": image, "question": "what?"}, hint="Look.") == [
        {"type": "text", "text": "Image:"},
        image,
        {"type": "text", "text": "Question: what?\n\nLook."},
    ]


def test_messages_are_spliced_untouched_before_the_last():
    history = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]
    spec = as_signature("history, question -> answer", "Be brief.")
    system, *past, last = sent(spec, inputs={"history": history, "question": "b"})
    assert system["content"] == "Be brief."
    assert past == history
    assert last == {"role": "user", "content": "b"}
    assert list(sent("messages -> answer", inputs={"messages": history})) == history
    assert sent("history, question -> answer", inputs={"history": [], "question": "b"}) == (last,)


@dataclasses.dataclass
class Place:
    city: str
    tags: set[str]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (True, "true"),
        (dt.date(2024, 2, 3), "2024-02-03"),
        ({"at": [decimal.Decimal("1.50")]}, '{"at": ["1.50"]}'),
        (pathlib.Path("a/b"), "a/b"),
        (None, "null"),
        (["é", 1], '["é", 1]'),
        ({"type": "other"}, '{"type": "other"}'),
        (Person(name="A"), '{"name": "A", "age": 0}'),
        ([Place("Oslo", {"b", "a"})], '[{"city": "Oslo", "tags": ["a", "b"]}]'),
        (Prediction(reasoning="r", answer="x"), "x"),
    ],
)
def test_values_as_text(value, text):
    assert user("thing -> answer", inputs={"thing": value}) == text


def test_a_value_without_a_text_is_an_input_error():
    with pytest.raises(InputError, match="'thing' of type object"):
        to_text(object(), "thing")


# what comes back

QA = as_signature("q -> reasoning, answer: int")


@pytest.mark.parametrize(
    "text",
    [
        "<reasoning>think</reasoning>\n<answer>4</answer>",
        "Sure!\n```\n<Reasoning>think\n<ANSWER> 4\n```",
        "<reasoning>think</reasoning><answer>4",
        "think</reasoning>\n<answer>4</answer>",
        "think\n<answer>4</answer> There you go.",
        "Reasoning: think\nAnswer: 4",
        "**Reasoning:** think\n**Answer:** 4.",
        "- **reasoning**: think\n- **answer**: 4",
        "think\n\nAnswer: 4",
        "## Reasoning\nthink\n\n## Answer\n4",
        "[[ ## reasoning ## ]]\nthink\n\n[[ ## answer ## ]]\n4",
        '{"reasoning": "think", "answer": 4}',
        'Sure {x}:\n```json\n{"Reasoning": "think", "answer": "4", "more": {}}\n```\nBye {}',
        '{"reasoning": "think", "answer": 4}\n\n{"reasoning": "again", "answer": 5}',
    ],
)
@pytest.mark.parametrize("style", ["schema", "json", "tags"])
def test_many_ways_to_say_the_same(text, style):
    assert parse(QA, reply(text), style).to_dict() == {"reasoning": "think", "answer": 4}


def test_quotes_inside_json_text():
    spec = as_signature("q -> a, b")
    text = '{"a": "he said "no", twice",\n "b": "x\\ny"}'
    assert parse(spec, reply(text), "schema").to_dict() == {"a": 'he said "no", twice', "b": "x\ny"}


def test_one_output_needs_no_mark():
    assert parse(as_signature("q -> n: int"), reply("42."), "json").n == 42
    assert parse(as_signature("q -> tags: list[str]"), reply("1. a\n2. b"), "tags").tags == ["a", "b"]
    spec = as_signature("q -> p: Person", types={"Person": Person})
    for text in ('{"name": "A"}', '{"p": {"name": "A"}}'):
        assert parse(spec, reply(text), "json").p == Person(name="A")


def test_plain_is_verbatim():
    assert parse(as_signature("q -> a"), reply(" x\n"), "plain") == Prediction(a=" x\n")
    assert parse(as_signature("q -> a"), reply("cut of", finish_reason="length"), "plain").a == "cut of"


def test_every_choice_can_be_read():
    both = Completion(choices=(Choice(text="x"), Choice(text="y")))
    assert parse(as_signature("q -> a"), both, "plain", choice=1).a == "y"


@pytest.mark.parametrize(
    ("completion", "says"),
    [
        (reply("<reasoning>x</reasoning>"), "'answer' (int) is missing"),
        (reply("<answer>x</answer>"), "'reasoning' (str) is missing; 'answer' should be int, got 'x'"),
        (reply("I do not know."), "has none of the fields 'reasoning', 'answer'"),
        (reply('{"x": 1}'), "has none of the fields"),
        (reply("I do", finish_reason="length"), "was cut at 7 tokens and has none of the fields"),
        (reply('{"reasoning": "abc', finish_reason="length"), "cut at 7 tokens"),
        (reply("<reasoning>abc", finish_reason="length"), "cut at 7 tokens, 1 of 2 fields"),
        (reply("<reasoning>abc</reasoning><answer>1", finish_reason="length"), "cut at 7 tokens inside 'answer'"),
        (reply('{"reasoning": "abc'), "broken JSON"),
        (reply("", reasoning="hm", finish_reason="length"), "only thought until its limit of 7 tokens"),
        (reply(" ", reasoning="hm", finish_reason="stop"), "only thought (2 characters)"),
        (reply("", finish_reason="length"), "empty at its limit"),
        (reply("\n", finish_reason="content_filter"), "finish reason: content_filter"),
        (reply("", tool_calls=({"function": {"name": "find"}},)), "called tools ('find')"),
    ],
)
def test_what_cannot_be_used_is_named(completion, says):
    with pytest.raises(ParseError) as caught:
        parse(QA, completion, "schema")
    assert says in str(caught.value)
    assert caught.value.completion is completion


@pytest.mark.parametrize("style", ["plain", "schema", "json", "tags"])
def test_an_empty_reply_is_never_an_answer(style):
    with pytest.raises(ParseError, match="is empty"):
        parse(as_signature("q -> a"), reply(" \n"), style)


@pytest.mark.parametrize(
    "text",
    [
        'I look. {"name": "find", "arguments": {"at": 1}}',
        '{"type": "function", "function": {"name": "find", "parameters": {"at": 1}}}',
        '{"action": {"tool": "find", "args": "{\\"at\\": 1}"}}',
        "```json\n{'tool_name': 'find', 'tool_args': {'at': 1},}\n```",
    ],
)
def test_calls_that_a_model_wrote_as_text_are_read_in_all_forms(text):
    spec = as_signature("q -> tool_calls: list[dict[str, Any]]")
    (call,) = parse(spec, reply(text), "plain").tool_calls
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("find", {"at": 1})


@pytest.mark.parametrize(
    "how", [{"text": "Nothing to do."}, {"text": "{'name': 'find', 'args': {'at': 1}}", "finish_reason": "length"}]
)
def test_a_text_without_a_call_or_with_half_a_one_calls_nothing(how):
    assert parse(as_signature("q -> tool_calls: list[dict[str, Any]]"), reply(**how), "plain").tool_calls == []


def test_tool_calls_have_their_own_output():
    spec = as_signature("q -> answer, tool_calls: list[dict[str, Any]]")
    call = {"id": "1", "function": {"name": "find", "arguments": "{}"}}
    assert parse(spec, reply("", tool_calls=(call,)), "plain") == Prediction(answer="", tool_calls=[call])
    assert parse(spec, reply("x", tool_calls=(call,)), "plain") == Prediction(answer="x", tool_calls=[call])
    assert parse(spec, reply("x"), "plain") == Prediction(answer="x", tool_calls=[])
    assert user(spec, inputs={"q": "hi"}) == "hi"
    assert asked_of(spec) is asked_of(spec)
    only = as_signature("q -> tool_calls: list[dict[str, Any]]")
    assert parse(only, reply("", tool_calls=(call,)), "plain").tool_calls == [call]
    with pytest.raises(ParseError, match="is empty"):
        parse(spec, reply(""), "plain")
    typed = as_signature("q -> n: int, tool_calls: list[dict[str, Any]]")
    with pytest.raises(ParseError, match="only called tools: 'n' missing"):
        parse(typed, reply("", tool_calls=(call,)), "json")


# properties

ROUND = as_signature(
    "q -> a, n: int, x: float, ok: bool, tags: list[str], kind: Literal['red', 'Blue green'], maybe: Optional[int],"
    " note: Optional[str], counts: dict[str, int]"
)
NONE_WORDS = {"none", "null", "n/a", "nil"}
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\"'{}<>:,- \\"))
VALUES = st.fixed_dictionaries(
    {
        "a": TEXT,
        "n": st.integers(),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "ok": st.booleans(),
        "tags": st.lists(TEXT),
        "kind": st.sampled_from(["red", "Blue green"]),
        "maybe": st.none() | st.integers(),
        "note": st.none() | TEXT,
        "counts": st.dictionaries(TEXT, st.integers()),
    }
)


@given(VALUES, st.sampled_from(["{}", "```json\n{}\n```", "Here:\n{}\nDone."]), st.booleans())
def test_json_round_trip(values, around, ascii_only):
    text = around.replace("{}", json.dumps(values, ensure_ascii=ascii_only))
    got = parse(ROUND, reply(text), "schema").to_dict()
    assert got == values
    assert {k: type(v) for k, v in got.items()} == {k: type(v) for k, v in values.items()}


def written(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@given(VALUES, st.sampled_from(["", "Sure!\n", "```\n"]))
def test_tags_round_trip(values, before):
    for name in ("a", "note"):  # tags cannot keep space at the ends, a text that is a tag, or a text "null"
        if isinstance(values[name], str):
            values[name] = values[name].strip()
            assume("<" not in values[name] or ">" not in values[name])
    note = values["note"]
    assume(note is None or note.strip(" \t\r\n\"'`*.").casefold() not in NONE_WORDS)
    assume(not any("<" in t and ">" in t for t in [*values["tags"], *values["counts"]]))
    text = before + "\n".join(f"<{name}>{written(value)}</{name}>" for name, value in values.items())
    got = parse(ROUND, reply(text), "tags").to_dict()
    assert got == values
    assert {k: type(v) for k, v in got.items()} == {k: type(v) for k, v in values.items()}


PIECES = st.sampled_from(
    [
        *"{}[]<>/\"':,\n #*`-\\",
        *["<a>", "</a>", "<n>", '"a":', '{"n":', "a:", "n:", "## a", "```", "null", "12", "red", "\ud800", "\x00"],
        "[[ ##",
        "tags: ",
    ]
)


@given(
    st.lists(PIECES, max_size=30).map("".join) | st.text(),
    st.sampled_from(["plain", "schema", "json", "tags"]),
    st.sampled_from([ROUND, QA, *map(as_signature, ["q -> a", "q -> n: int", "q -> tags: list[str]", "q -> d: dict"])]),
    st.sampled_from([None, "stop", "length"]),
)
def test_garbage_is_a_parse_error_at_worst(text, style, spec, finish):
    try:
        got = parse(spec, reply(text, finish_reason=finish), style)
    except ParseError as error:
        assert error.completion is not None
        return
    assert list(got) == list(spec.outputs)


PIECE = [
    "{",
    '{"a":',
    "[",
    "<a>",
    "</a>",
    "< ",
    "<a ",
    "a:",
    "```\n",
    "- x\n",
    '"a":"',
    "(",
    "\n",
    "** ",
    "# ",
    "a ",
    "- ",
    "1,",
]


@pytest.mark.parametrize("piece", PIECE)
@pytest.mark.parametrize("before", ["x", "```\n", "<tags>"])
def test_long_garbage_is_quick(piece, before):
    start = time.process_time()
    for style in ("schema", "tags"):
        for spec in (ROUND, as_signature("q -> tags: list[int]")):
            with pytest.raises(ParseError):
                parse(spec, reply(before + piece * 20_000 + "x"), style)
    assert time.process_time() - start < 4


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(max_size=40) | st.integers() | st.none(), min_size=1),
    st.sampled_from(["plain", "json", "tags"]),
)
def test_the_same_inputs_make_the_same_messages(values: dict[str, Any], style):
    assume(any(not isinstance(v, str) or v.strip() for v in values.values()))
    spec = as_signature(f"{', '.join(values)} -> answer")
    bound = spec.bind(values)
    once = compose(spec, bound, style=style)
    assert compose(pickle.loads(pickle.dumps(spec)), dict(bound), style=style) == once
    for value in values.values():
        assert to_text(value) in once[-1]["content"]


def test_field_names_of_many_words_are_found_however_written():
    spec = as_signature("q -> final_answer, why")
    for name in ("Final answer", "final-answer", "FINAL_ANSWER", string.capwords("final answer")):
        assert parse(spec, reply(f"**{name}:** x\nWhy: y"), "tags").final_answer == "x"
        assert parse(spec, reply(f"<{name}>x</{name}><why>y</why>"), "tags").final_answer == "x"
