from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import pickle
import subprocess
import sys
from typing import Any, ClassVar, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from redraft.errors import InputError, ParseError, SignatureError
from redraft.signature import Field, InputField, OutputField, Signature, SignatureSpec, as_signature


class Person(BaseModel):
    name: str
    age: int = 0


@dataclasses.dataclass
class Place:
    city: str


class Mood(enum.Enum):
    HAPPY = "happy"
    SAD = "sad"


class Review(Signature):
    """Write a short review.

    Be kind.
    """

    topic: str = InputField(desc="what is reviewed")
    tone: str = InputField(default="dry")
    review: str = OutputField(desc="two sentences")
    stars: int = OutputField()


def types_of(spec: SignatureSpec) -> dict[str, Any]:
    return {f.name: f.type for f in (*spec.inputs.values(), *spec.outputs.values())}


# strings


def test_string_types_default_to_str():
    spec = as_signature("context, question -> answer: str, score: float, tags: list[str]")
    assert list(spec.inputs) == ["context", "question"]
    assert types_of(spec) == {"context": str, "question": str, "answer": str, "score": float, "tags": list[str]}
    assert spec.inputs["context"] == Field("context", str, "", ...)
    assert str(spec) == spec.name == "context, question -> answer, score: float, tags: list[str]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Literal['a', 'b']", Literal["a", "b"]),
        ("Literal[1, -1, True]", Literal[1, -1, True]),
        ("Optional[int]", Optional[int]),  # noqa: UP045  # the form under test
        ("int | None", Optional[int]),  # noqa: UP045
        ("typing.Optional[int]", Optional[int]),  # noqa: UP045
        ("dict[str, int]", dict[str, int]),
        ("List[Dict[str, int]]", list[dict[str, int]]),
        ("tuple", tuple),
        ("tuple[int, ...]", tuple[int, ...]),
        ("tuple[int, str]", tuple[int, str]),
        ("bool", bool),
        ("Any", Any),
        ("datetime.date", dt.date),
        ("date", dt.date),
        ("datetime", dt.datetime),
        ("list[Person]", list[Person]),
        ("Union[int, str]", int | str),
    ],
)
def test_string_types(text, expected):
    spec = as_signature(f"q -> a: {text}", types={"Person": Person})
    assert spec.outputs["a"].type == expected


def test_defaults_may_hold_arrows_and_commas():
    spec = as_signature("tone: str = 'a, b -> c', n: int = 3, task -> answer")
    assert spec.inputs["tone"].default == "a, b -> c"
    assert spec.inputs["n"].default == 3
    assert spec.inputs["task"].required


def test_a_signature_may_span_lines():
    assert as_signature("\n  question\n  -> answer:\n int\n") == as_signature("question -> answer: int")


def test_the_same_string_is_read_once():
    assert as_signature("q -> a") is as_signature("q -> a")


@pytest.mark.parametrize(
    ("text", "says", "at"),
    [
        ("question answer", "no '->'", "q"),
        ("question => answer", "no '->'", "=>"),
        ("", "no '->'", ""),
        ("-> a", "no input", "->"),
        ("q -> ", "no output", ""),
        ("q -> a -> b", "second '->'", "-> b"),
        ("q, q -> a", "there twice", "q -> a"),
        ("q -> q", "there twice", "q"),
        ("q -> A, a", "differ only in case", "a"),
        ("1q -> a", "cannot name a field", "1q"),
        ("q -> class", "cannot name a field", "class"),
        ("q -> _a", "cannot name a field", "_a"),
        ("q,, r -> a", "without a name", ", r"),
        ("q -> a: strng", "did you mean 'str'", "strng"),
        ("q -> a: Person", 'types={"Person": Person}', "Person"),
        ("q -> a: list[", "is not closed", "["),
        ("q -> a: int]", "closes nothing", "]"),
        ("q = 'x -> a", "quote that is not closed", "'x"),
        ("q -> a: ", "no type after", ""),
        ("q -> a: int int", "cannot be read", "int int"),
        ("q -> a: Literal[b]", "quote text", "b]"),
        ("q -> a: Literal", "needs its choices", "Literal"),
        ("q -> a: dict[int]", "takes 2", "dict[int]"),
        ("q -> a: int[str]", "no type that is known", "int[str]"),
        ("q -> a: __import__('os')", "is no type", "__import__"),
        ("q -> a = 'x'", "an output has no default", "= 'x'"),
        ("q: str = 3 -> a", "write q: int = 3", "3 -> a"),
        ("q = foo -> a", "no literal", "foo"),
        ("q = 'x': str -> a", "the type goes before", "= 'x'"),
        ("ü: flot -> a", "did you mean 'float'", "flot"),
    ],
)
def test_errors_point_at_the_place_and_show_what_is_right(text, says, at):
    with pytest.raises(SignatureError) as caught:
        as_signature(text)
    message = str(caught.value)
    assert says in message
    _, shown, marker, advice = message.split("\n")
    assert "->" in advice or "Known types: str, int" in advice
    assert shown[marker.index("^") :].startswith(at)


def test_unknown_type_lists_the_callers_own():
    with pytest.raises(SignatureError, match="your own: Person"):
        as_signature("q -> a: Persn", types={"Person": Person})


ALPHABET = st.sampled_from(
    [
        *"abq ,:=|[]()'\"\\.\n-",
        " -> ",
        "->",
        "str",
        "int",
        "list[",
        "Literal[",
        "Optional[",
        "'x'",
        "=3",
        "ü",
        "\x00",
        "\ud800",
    ]
)


@given(st.lists(ALPHABET, max_size=30).map("".join) | st.text())
def test_any_string_is_a_signature_or_a_signature_error(text):
    try:
        spec = as_signature(text)
    except SignatureError:
        return
    assert spec.inputs
    assert spec.outputs


@pytest.mark.parametrize("text", ["q -> a: " + "list[" * 3000 + "]" * 3000, "q -> a: int" + " | int" * 3000])
def test_deep_types_are_a_signature_error(text):
    with pytest.raises(SignatureError):
        as_signature(text)


# classes


def test_class_form():
    spec = as_signature(Review)
    assert spec.name == "Review"
    assert spec.instructions == "Write a short review.\n\nBe kind."
    assert spec.inputs["topic"] == Field("topic", str, "what is reviewed")
    assert spec.inputs["tone"].default == "dry"
    assert spec.outputs["stars"].type is int
    assert as_signature(spec) is spec


def test_fields_may_have_the_names_of_the_value():
    class Card(Signature):
        instructions: str = InputField()
        name: list[str] = OutputField()
        inputs: int = OutputField()

    spec = as_signature(Card)
    assert spec.name == "Card"
    assert spec.instructions == ""
    assert list(spec.outputs) == ["name", "inputs"]


def test_local_types_and_inheritance():
    class Local(BaseModel):
        x: int

    class Base(Signature):
        """Base task."""

        q: str = InputField()
        a: Local = OutputField()

    class More(Base):
        b: list[Local] = OutputField()
        untyped = InputField(default=1)
        note: ClassVar[str] = "kept out"

    spec = as_signature(More)
    assert types_of(spec) == {"q": str, "untyped": str, "a": Local, "b": list[Local]}
    assert spec.instructions == "Base task."


def test_class_errors():
    with pytest.raises(SignatureError, match="NoOutput has no OutputField"):

        class NoOutput(Signature):
            q: str = InputField()

    with pytest.raises(SignatureError, match=r"Bare\.q must be = InputField"):

        class Bare(Signature):
            q: str
            a: str = OutputField()

    with pytest.raises(SignatureError, match="'Missing' is not defined"):

        class Unknown(Signature):
            q: str = InputField()
            a: Missing = OutputField()  # noqa: F821

    with pytest.raises(SignatureError, match="declares fields"):
        Review()
    with pytest.raises(SignatureError, match="is no signature"):
        as_signature(3)  # type: ignore[arg-type]
    with pytest.raises(SignatureError, match="is no signature"):
        as_signature(Signature)


def test_parse_with_descriptions_and_instructions():
    spec = Signature.parse("q -> a", instructions="Be brief.", descriptions={"a": "one word"})
    assert spec.instructions == "Be brief."
    assert spec.outputs["a"].desc == "one word"
    with pytest.raises(SignatureError, match="did you mean 'answer'"):
        Signature.parse("q -> answer", descriptions={"anser": "x"})


# the value


def test_a_value_does_not_change_and_survives_pickle():
    spec = as_signature(Review)
    with pytest.raises(AttributeError):
        spec.name = "x"  # type: ignore[misc]
    for twin in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert twin == spec
        assert hash(twin) == hash(spec)
    assert spec != as_signature("topic -> review")


def test_with_methods_return_new_values():
    spec = as_signature("q -> a")
    cot = spec.with_output("reasoning", desc="step by step")
    assert list(cot.outputs) == ["reasoning", "a"]
    assert list(spec.with_output("b", int, first=False).outputs) == ["a", "b"]
    assert spec.with_input("hint", default="").inputs["hint"].default == ""
    assert spec.with_instructions("x").instructions == "x"
    assert spec.plain
    assert not cot.plain
    assert cot.without_output("reasoning") == spec
    assert list(spec.outputs) == ["a"]
    assert as_signature(Review).with_output("reasoning").name == "Review"
    with pytest.raises(SignatureError, match="there twice"):
        spec.with_output("q")
    with pytest.raises(SignatureError, match="at least one output"):
        spec.without_output("a")


@pytest.mark.parametrize(("text", "plain"), [("q -> a", True), ("q -> a: int", False), ("q -> a, b", False)])
def test_plain(text, plain):
    assert as_signature(text).plain is plain


def test_bind_orders_and_fills_in():
    spec = as_signature("a, b = 'x', c: list = [] -> d")
    bound = spec.bind({"c": [1], "a": "1"})
    assert list(bound.items()) == [("a", "1"), ("b", "x"), ("c", [1])]
    spec.bind({"a": "1"})["c"].append(2)
    assert spec.bind({"a": "1"})["c"] == []


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({}, "missing 'question', 'context'. Expected: question, context, tone (optional)"),
        ({"qestion": "x", "context": "y"}, "missing 'question'; unknown 'qestion' (did you mean 'question'?)"),
        ({"question": "x", "context": "y", "zzz": 1}, "unknown 'zzz'. Expected"),
        ({"question": " \n", "context": ""}, "'question' and 'context' are all empty"),
    ],
)
def test_bind_errors(inputs, says):
    with pytest.raises(InputError) as caught:
        as_signature("question, context, tone = 'dry' -> answer").bind(inputs)
    assert says in str(caught.value)


def test_one_filled_input_is_a_task():
    assert as_signature("q, context -> a").bind({"q": "x", "context": ""})
    assert as_signature("n: int -> a").bind({"n": 0})


# schema


def test_json_schema_is_strict_and_cached():
    spec = as_signature(
        "q -> who: Person, more: list[Person], note", types={"Person": Person}, descriptions={"who": "the writer"}
    )
    schema = spec.json_schema()
    assert schema is spec.json_schema()
    assert schema["required"] == ["who", "more", "note"]
    assert schema["additionalProperties"] is False
    person = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    assert schema["$defs"] == {"Person": person}
    assert schema["properties"] == {
        "who": {**person, "description": "the writer"},
        "more": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
        "note": {"type": "string"},
    }


def test_a_field_called_title_or_default_stays_in_the_schema():
    @dataclasses.dataclass
    class Odd:
        title: str
        default: int = 1

    schema = as_signature("q -> title, o: Odd", types={"Odd": Odd}).json_schema()
    assert schema["required"] == ["title", "o"]
    assert list(schema["$defs"]["Odd"]["properties"]) == ["title", "default"]


def test_a_type_without_a_schema_is_a_signature_error():
    class Opaque: ...

    spec = as_signature("q -> a: Opaque", types={"Opaque": Opaque})
    with pytest.raises(SignatureError, match="'a' cannot have the type Opaque"):
        spec.json_schema()


def test_str_only_never_imports_pydantic():
    code = (
        "import sys; from redraft.signature import as_signature as s; x = s('q -> a, b'); x.json_schema();"
        "x.coerce({'a': '1', 'b': '2'}); assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# coerce

TYPES = {"Person": Person, "Place": Place, "Mood": Mood}


@pytest.mark.parametrize(
    ("type_", "raw", "value"),
    [
        ("float", "0.8", 0.8),
        ("float", " **0.8**. ", 0.8),
        ("float", 1, 1.0),
        ("int", "1,234", 1234),
        ("int", "7.", 7),
        ("int", 7.0, 7),
        ("bool", "yes", True),
        ("bool", "True.", True),
        ("bool", "No", False),
        ("str", 4, "4"),
        ("str", True, "true"),
        ("list[str]", "a, b", ["a", "b"]),
        ("list[str]", "- a\n- b", ["a", "b"]),
        ("list[str]", "Here they are:\n1. a\n   more\n2) b", ["a\nmore", "b"]),
        ("list[str]", "a\nb, c", ["a", "b, c"]),
        ("list[str]", '["a", "b"]', ["a", "b"]),
        ("list[str]", "['a', 'b']", ["a", "b"]),
        ("list[str]", "[a, b]", ["a", "b"]),
        ("list[str]", '```json\n["a"]\n```', ["a"]),
        ("list[str]", "only", ["only"]),
        ("list[str]", [1, 2], ["1", "2"]),
        ("list[int]", "1, 2", [1, 2]),
        ("set[str]", "a, b", {"a", "b"}),
        ("tuple[int, str]", "1, x", (1, "x")),
        ("tuple[int, ...]", [1, 2], (1, 2)),
        ("Literal['Yes', 'No']", '"yes".', "Yes"),
        ("Literal[1, 2]", "2", 2),
        ("Optional[int]", "None", None),
        ("Optional[int]", "3", 3),
        ("Optional[str]", "null", "null"),
        ("int | str", "x", "x"),
        ("bool | list[int]", "1, 2", [1, 2]),
        ("dict[str, int]", '{"a": "1"}', {"a": 1}),
        ("date", "2024-02-03.", dt.date(2024, 2, 3)),
        ("Person", '{"name": "A", "age": "3"}', Person(name="A", age=3)),
        ("Person", "{'name': 'A'}", Person(name="A")),
        ("Place", {"city": "Oslo"}, Place("Oslo")),
        ("Mood", "Happy.", Mood.HAPPY),
        ("Mood", "SAD", Mood.SAD),
        ("Any", "x", "x"),
    ],
)
def test_coerce_is_lenient(type_, raw, value):
    got = as_signature(f"q -> a: {type_}", types=TYPES).coerce({"a": raw})["a"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("type_", "raw"),
    [
        ("float", "very high"),
        ("float", "85%"),
        ("int", "3.7"),
        ("int", "7/10"),
        ("int", "42 years"),
        ("bool", "maybe"),
        ("str", None),
        ("str", ["a"]),
        ("list[str]", ""),
        ("list[str]", '["a", "b'),
        ("list[str]", "no list\n- a"),
        ("list[int]", "1, two"),
        ("Literal['a', 'A']", "'a'"),
        ("Literal['a', 'b']", "c"),
        ("Literal['a', 'b']", "a and b"),
        ("dict[str, int]", "a: 1"),
        ("date", "tomorrow"),
        ("Person", '{"age": 3}'),
        ("int", "9" * 5000),
    ],
)
def test_coerce_never_replaces(type_, raw):
    with pytest.raises(ParseError) as caught:
        as_signature(f"q -> a: {type_}", types=TYPES).coerce({"a": raw})
    message = str(caught.value)
    assert "'a' should be" in message
    assert len(message) < 400


def test_coerce_names_every_bad_field():
    spec = as_signature("q -> a: int, b, c: float, d: Person", types=TYPES)
    with pytest.raises(ParseError) as caught:
        spec.coerce({"a": "x", "c": 1.0, "d": {"name": 3}})
    assert str(caught.value) == (
        "3 of 4 fields cannot be used: 'a' should be int, got 'x'; 'b' (str) is missing; "
        "'d' should be Person, got {'name': 3} (name: Input should be a valid string)"
    )


def test_coerce_leaves_other_keys_out():
    assert as_signature("q -> a").coerce({"a": "x", "why": "y"}) == {"a": "x"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
SPEC = as_signature(
    "q -> a: int, b: list[str], c: Literal['x', 'y'], d: Optional[float], e: dict[str, list[int]], f: Person,"
    " g: date, h: int | list[bool] | None, i: Mood, j: tuple[int, str], k: Decimal, l: str",
    types=TYPES,
)


@given(st.fixed_dictionaries(dict.fromkeys(SPEC.outputs, JSON)))
def test_coerce_of_anything_is_a_value_or_a_parse_error(raw):
    try:
        assert list(SPEC.coerce(raw)) == list(SPEC.outputs)
    except ParseError as error:
        assert "cannot be used" in str(error)
