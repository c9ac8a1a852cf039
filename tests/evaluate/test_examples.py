"""Examples: DSPy's form, files, and errors that name the line."""

import json
import pickle

import pytest

from redraft.errors import InputError
from redraft.evaluate import Example, read_examples
from redraft.evaluate.examples import as_examples


def test_as_in_dspy():
    plain = Example(question="6 x 7?", answer="42")
    example = plain.with_inputs("question")
    assert (example.question, example["answer"], "answer" in example) == ("6 x 7?", "42", True)
    assert (example.inputs(), example.labels()) == ({"question": "6 x 7?"}, {"answer": "42"})
    assert Example({"question": "6 x 7?"}, answer="42") == example
    assert repr(example) == "Example(question='6 x 7?', answer='42').with_inputs('question',)"
    assert pickle.loads(pickle.dumps(example)).inputs() == example.inputs()
    with pytest.raises(InputError, match="does not say what its inputs are"):
        plain.inputs()


def test_it_does_not_change():
    example = Example(question="?")
    with pytest.raises(AttributeError, match="Example does not change"):
        example.question = "!"
    assert example.with_inputs("question") is not example


def test_an_input_has_to_be_a_field():
    with pytest.raises(InputError, match="no field 'q' to be an input; the fields are: question"):
        Example(question="?").with_inputs("q")


class DspyExample:
    """What we use of DSPy's."""

    def __init__(self, fields):
        self.fields = fields

    def inputs(self):
        return {"question": self.fields["question"]}

    def toDict(self):  # noqa: N802 - DSPy's name
        return dict(self.fields)


def test_examples_of_dspy_are_taken_as_they_are():
    (example,) = as_examples([DspyExample({"question": "?", "answer": "!"})])
    assert (example.inputs(), example.answer) == ({"question": "?"}, "!")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no examples"),
        ([{"question": "?"}], "example 0 is {'question'"),
        ([Example(q=1).with_inputs("q"), Example(q=2)], "example 1: this example does not say"),
    ],
)
def test_what_is_no_example_is_named(given, said):
    with pytest.raises(InputError, match=said):
        as_examples(given)


def test_json_lines(tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_text("\ufeff" + json.dumps({"q": "é", "n": 1}) + "\n\n" + json.dumps({"q": "b", "n": 2}), "utf-8")
    examples = read_examples(file, inputs=["q"])
    assert [(e.inputs(), e.n) for e in examples] == [({"q": "é"}, 1), ({"q": "b"}, 2)]


def test_csv(tmp_path):
    file = tmp_path / "e.CSV"
    file.write_text('q,answer\r\n"a, ""b""\nc",1\r\nd,\r\n', "utf-8")
    examples = read_examples(str(file), inputs="q")
    assert [e.to_dict() for e in examples] == [{"q": 'a, "b"\nc', "answer": "1"}, {"q": "d", "answer": ""}]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("e.txt", "", "read from .jsonl or .csv"),
        ("e.jsonl", '{"q": 1}\n{"q": ', "e.jsonl line 2 is no JSON"),
        ("e.jsonl", "[1]", "e.jsonl line 1: an example is an object"),
        ("e.jsonl", '{"q": 1}\n{"p": 1}', "e.jsonl line 2: no field 'q'"),
        ("e.csv", "q,answer\na\n", "e.csv line 2 has not 2 values"),
        ("e.csv", "q,answer\na,b,c\n", "e.csv line 2 has not 2 values"),
        ("e.csv", 'q\n"a', "e.csv cannot be read: unexpected end of data, in the row that begins after line 1"),
        ("e.csv", 'task,"b\n1,2\n', "e.csv cannot be read: unexpected end of data, in its header"),
        ("e.csv", 'q,"a"b\n1,2\n', "e.csv cannot be read: .*, in its header"),
        ("e.csv", "q,a,a\n1,2,3\n", "e.csv cannot be read: its header has more than one column 'a'"),
        ("e.csv", b"q\n\xff", "e.csv cannot be read"),
        ("missing.csv", None, "missing.csv cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=said):
        read_examples(tmp_path / name, inputs=["q"])
