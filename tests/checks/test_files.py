"""Checks from files: Python, TOML, and promptfoo's asserts."""

from __future__ import annotations

import asyncio
import json

import pytest

from redraft import Prediction
from redraft.checks import from_file
from redraft.errors import ConfigError

# Python


def write(tmp_path, text, name="mine.py"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_with_a_list(tmp_path):
    file = write(tmp_path, "from redraft.checks import *\nother = words(9)\nchecks = [sentences(3), words(2, 4)]\n")
    assert [c.tell() for c in from_file(file)] == ["Write exactly 3 sentences.", "Write 2 to 4 words."]
    assert len(from_file(str(file))) == 2


def test_a_file_with_decorated_functions(tmp_path):
    text = "from redraft import check, checks\n@check(tell='Be kind.')\ndef kind(text): return True\nlong = checks.words(9)\n"
    assert [c.name for c in from_file(write(tmp_path, text))] == ["kind", "words"]


def test_a_list_may_hold_plain_functions(tmp_path):
    """As `checks=[...]` of a strategy does."""
    text = "def kind(text): return True\nchecks = [kind]\n"
    assert [c.name for c in from_file(write(tmp_path, text))] == ["kind"]


@pytest.mark.parametrize("text", ["", "checks = []", "x = 1", "checks = 5", "checks = ['sentences:3']"])
def test_a_file_without_checks_says_what_to_write(tmp_path, text):
    with pytest.raises(ConfigError, match=r"checks = \[sentences\(3\)"):
        from_file(write(tmp_path, text))


def test_no_file(tmp_path):
    with pytest.raises(ConfigError, match="no check file"):
        from_file(tmp_path / "none.py")
    with pytest.raises(ConfigError, match="no check file"):
        from_file(tmp_path)
    with pytest.raises(ConfigError, match=r"ends in \.py, \.toml, \.yaml"):
        from_file(write(tmp_path, "x", "checks.txt"))


def test_a_file_is_run_as_no_main_program(tmp_path):
    text = "from redraft.checks import words\nchecks = [words(1)]\nif __name__ == '__main__': raise SystemExit\n"
    assert len(from_file(write(tmp_path, text))) == 1


def test_a_broken_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"mine\.py.*ZeroDivisionError"):
        from_file(write(tmp_path, "1 / 0\n"))
    with pytest.raises(ConfigError, match=r"mine\.py.*SyntaxError"):
        from_file(write(tmp_path, "def (\n"))


# TOML


def judged(checks, **fields):
    prediction = Prediction(fields or {"answer": ""})
    return [asyncio.run(check.verdict({}, prediction)).passed for check in checks]


MINE_TOO = "from redraft.checks import words\nchecks = [words(1)]\n"
TOML = """
checks = [
    "sentences:1",
    { check = "contains", args = ["Salt", "oil"], field = "body", hard = false, ignore_case = false },
    { any_of = ["json_valid", "one_of:yes|no"], field = "title" },
    { weighted = [{ check = "words:3", weight = 2 }, "lowercase"], threshold = 0.6, field = "title" },
    { not = "icontains:sugar" },
    { check = "json_schema:schema.json", field = "title", tell = false },
]

[[check]]
check = "words"
low = 2
high = 4
field = "body"
"""


def test_toml(tmp_path):
    write(tmp_path, '{"type": "array"}', "schema.json")
    checks = from_file(write(tmp_path, TOML, "checks.toml"))
    assert [c.name for c in checks] == ["sentences", "contains", "any_of", "weighted", "not_", "json_schema", "words"]
    assert [c.hard for c in checks] == [True, False, True, True, True, True, True]
    assert checks[5].tell() == ""
    assert judged(checks[1:], title="[1]", body="Salt and oil") == [True, True, False, True, True, True]
    assert judged(checks[1:3], title="maybe", body="salt and oil") == [False, False]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no checks"),
        ("checks = []", "holds no checks"),
        ("checks = [", "is no TOML"),
        ("check = 'words:3'", "check is no list"),
        ("cheks = ['words:3']", "unknown key 'cheks'"),
        ("checks = [3]", r"checks\[0\]: 3 is no check"),
        ("checks = ['words:3', 'word:3']", r"checks\[1\]: no check named 'word'. Did you mean"),
        ("checks = [{ name = 'words' }]", r"checks\[0\]: a table names one of check, all_of"),
        ("checks = [{ check = 'words', any_of = [] }]", "names one of"),
        ("checks = [{ check = 'words:3', fild = 'x' }]", r"checks\[0\]: .*unexpected keyword argument 'fild'"),
        ("checks = [{ check = 'words', low = 3, colour = 1 }]", "unexpected keyword argument 'colour'"),
        ("checks = [{ check = 'words', args = '3' }]", "args a list"),
        ("checks = [{ any_of = ['words:3', 'x'] }]", r"checks\[0\].any_of\[1\]: no check named 'x'"),
        ("checks = [{ all_of = ['words:3'], treshold = 1 }]", "treshold"),
        ("checks = [{ weighted = [{ check = 'words:3', weight = 'x' }] }]", r"checks\[0\]: .*want finite numbers"),
        (
            "checks = [{ weighted = ['words:3'], threshold = 'hi' }]",
            r"checks\[0\]: .*threshold 'hi'; want finite numbers",
        ),
        ("checks = [{ check = 'words:3', hard = 'yes' }]", r"checks\[0\]: hard = 'yes': give true or false"),
        ("checks = [{ check = 'words', low = 3, field = 3 }]", "field = 3: give the name of an output"),
        ("checks = [{ not = 'words:3', tell = 3 }]", "tell = 3: give true or false"),
        ("checks = [{ not = ['words:3', 'words:4'] }]", r"checks\[0\]: not takes one check, this one has 2"),
        ("checks = [{ check = 'python_tests', args = ['assert 1'], timeout = nan }]", "timeout=nan; give seconds"),
        ("checks = [{ check = 'python_tests', args = ['assert 1'], timeout = 'x' }]", "timeout='x'; give seconds"),
        ("checks = [{ check = 'tool_call', forbidden = 3 }]", r"forbidden=3\): give the names"),
        ("checks = " + "[" * 5_000, "is no TOML for checks: it nests too deep"),
        ("[[check]]\ncheck = 'sentences:x'", r"check\[0\]: .*neither a number nor a range"),
    ],
)
def test_what_is_wrong_in_toml_is_named_with_its_place(tmp_path, text, says):
    with pytest.raises(ConfigError, match=rf"(?s)checks\.toml.*{says}"):
        from_file(write(tmp_path, text, "checks.toml"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("c.toml", "checks = ['words:3']"), ("c.json", '[{"type": "contains", "value": "x"}]'), ("c.py", MINE_TOO)],
)
def test_a_byte_order_mark_is_no_text(tmp_path, name, text):
    assert len(from_file(write(tmp_path, f"\ufeff{text}", name))) == 1


# promptfoo


ASSERTS = [
    {"type": "icontains", "value": "soup"},
    {"type": "not-contains", "value": "sugar", "metric": "unsweetened"},
    {"type": "is-json", "value": "file://schema.json"},
    {"type": "python", "value": "file://mine.py:brief", "threshold": 0.5},
    {"type": "word-count", "value": {"max": 9}},
    {"type": "equals", "value": "never", "weight": 0},
]
MINE = "def brief(output, context): return {'pass': True, 'score': 1 / len(output), 'reason': 'too long'}\n"


@pytest.mark.parametrize(
    "wrap", [lambda a: a, lambda a: {"assert": a}, lambda a: {"tests": [{"assert": a}], "prompts": ["x"]}]
)
@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_asserts_all_gate(tmp_path, wrap, kind):
    write(tmp_path, '{"type": "string"}', "schema.json")
    write(tmp_path, MINE)
    checks = from_file(write(tmp_path, dumped(wrap(ASSERTS), kind), f"asserts.{kind}"))
    assert [c.name for c in checks] == ["contains", "unsweetened", "json_schema", "brief", "words"]
    assert judged(checks, answer='"Soup"') == [True, True, True, False, True]


def dumped(value, kind):
    if kind == "json":
        return json.dumps(value)
    return pytest.importorskip("yaml").safe_dump(value)


def promptfoo(tmp_path, value):
    return from_file(write(tmp_path, json.dumps(value), "asserts.json"))


A, B = {"type": "contains", "value": "a"}, {"type": "contains", "value": "b", "weight": 3}


def test_a_threshold_makes_a_weighted_mean(tmp_path):
    checks = promptfoo(tmp_path, {"tests": [{"assert": [A, B], "threshold": 0.7}]})
    assert len(checks) == 1
    assert judged(checks, answer="b") == [True]
    assert judged(checks, answer="a") == [False]


def test_default_asserts_join_those_of_the_test(tmp_path):
    config = {"defaultTest": {"assert": [A], "threshold": 0.2}, "tests": [{"vars": {"x": 1}}, {"assert": [B]}]}
    (check,) = promptfoo(tmp_path, config)
    assert check.weights == (1.0, 3.0)
    assert judged([check], answer="a") == [True]
    assert [c.name for c in promptfoo(tmp_path, {"defaultTest": {"assert": [A, B]}})] == ["contains", "contains"]


def test_assert_sets(tmp_path):
    some = {"type": "assert-set", "assert": [A, B], "threshold": 0.25, "metric": "some"}
    every = {"type": "assert-set", "assert": [A, B]}
    checks = promptfoo(tmp_path, [some, every])
    assert [c.name for c in checks] == ["some", "all_of"]
    assert judged(checks, answer="a") == [True, False]


def test_variables_are_filled_in(tmp_path):
    config = {
        "defaultTest": {"vars": {"dish": "soup", "place": "Rome"}},
        "tests": [
            {"vars": {"place": "Paris"}, "assert": [{"type": "contains-all", "value": ["{{dish}}", "{{ place }}"]}]}
        ],
    }
    assert judged(promptfoo(tmp_path, config), answer="soup in Paris") == [True]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "holds no asserts"),
        ("x", "neither a list"),
        ({"prompts": ["x"]}, "holds no asserts"),
        ({"assert": A}, "assert is no list"),
        ({"tests": "tests.csv"}, "written out in this file"),
        ({"tests": [{"assert": [A], "vars": 3}]}, "tests: vars is no table"),
        ({"tests": [{"assert": "x"}]}, "tests: assert is no list"),
        ({"defaultTest": {"assert": 3}}, "defaultTest: assert is no list"),
        ({"defaultTest": {"assert": [A], "vars": [1]}}, "defaultTest: vars is no table"),
        ({"tests": [{"assert": [A]}, {"assert": [B]}]}, "2 tests with asserts of their own"),
        ([A, "contains: x"], r"assert\[1\]: an assert is a table with a type"),
        ([{"type": "containz", "value": "x"}], r"assert\[0\]: no assert type 'containz'; known are: contains"),
        ([{**A, "valeu": "x"}], r"assert\[0\]: unknown key 'valeu'"),
        ([{**A, "transform": "x"}], "unknown key 'transform'"),
        ([{**A, "weight": "much"}], "'much' is no number"),
        ([{**A, "threshold": 0.5}], "contains takes no threshold"),
        ([{**A, "provider": "openai:x"}], "contains takes no provider"),
        ([{"type": "javascript", "value": "1"}], r"assert\[0\]: .*no JavaScript"),
        ([{"type": "not-similar", "value": "1"}], "embeds no texts"),
        ([{"type": "python", "value": "len(output) < 3"}], "only a file can be used"),
        ([{"type": "python", "value": "file://mine.py"}], "defines no function get_assert"),
        ([{"type": "is-json", "value": "file://none.json"}], "no such file"),
        ([{"type": "contains", "value": "{{who}}"}], r"no value for \{\{who\}\}"),
        ([{"type": "contains", "value": "{% if x %}"}], "only plain"),
        ([{"type": "assert-set", "assert": [{"type": "x"}]}], r"assert\[0\], assert\[0\]: no assert type 'x'"),
        ([{"type": "assert-set", "assert": [A], "config": {}}], "unknown key 'config'"),
    ],
)
def test_what_is_wrong_in_asserts_is_named_with_its_place(tmp_path, value, says):
    write(tmp_path, MINE)
    with pytest.raises(ConfigError, match=rf"(?s)asserts\.json.*{says}"):
        promptfoo(tmp_path, value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.json", "{"),
        ("x.yaml", "a: [1"),
        ("x.yml", "- a: 1\n b"),
        ("x.json", b"\xff"),
        ("x.json", "[" * 100_000),
        ("x.yaml", "[" * 3_000),
        ("x.yaml", "assert: &a\n- *a\n"),
        ("x.yaml", "assert: &a\n  type: *a\n"),
    ],
)
def test_a_broken_file_says_where(tmp_path, name, text):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    if name != "x.json":
        pytest.importorskip("yaml")
    with pytest.raises(ConfigError, match=name):
        from_file(file)


@pytest.mark.parametrize(
    ("said", "score", "why"),
    [
        (True, 1.0, ""),
        (0.25, 0.25, "get_assert failed"),
        ({"pass": False, "score": 1, "reason": "no"}, 0.999, "no"),
        ({"pass": True}, 1.0, ""),
    ],
)
def test_python_asserts_may_return_what_promptfoo_takes(tmp_path, said, score, why):
    write(
        tmp_path, f"def get_assert(output, context):\n    assert context['vars'] == {{'q': 'x'}}\n    return {said!r}\n"
    )
    (check,) = promptfoo(tmp_path, [{"type": "python", "value": "file://mine.py"}])
    verdict = asyncio.run(check.verdict({"q": "x"}, Prediction(answer="a")))
    assert (verdict.score, verdict.explanation) == (score, why)
