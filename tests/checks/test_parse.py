"""Checks from text and from files."""

from __future__ import annotations

import json

import pytest

from redraft import registry
from redraft.checks import Check, from_file, parse
from redraft.errors import ConfigError, UnknownNameError, UsageError


@pytest.mark.parametrize(
    ("text", "tell"),
    [
        ("sentences:3", "Write exactly 3 sentences."),
        ("sentences: 3 ", "Write exactly 3 sentences."),
        (" sentences :3", "Write exactly 3 sentences."),
        ("words:20-40", "Write 20 to 40 words."),
        ("words:20 - 40", "Write 20 to 40 words."),
        ("words:20,40", "Write 20 to 40 words."),
        ("words:20..40", "Write 20 to 40 words."),
        ("contains:La Maison", 'Mention "La Maison".'),
        ("contains: La Maison ", 'Mention "La Maison".'),
        ("contains:time: 5 p.m., at most", 'Mention "time: 5 p.m., at most".'),
        ("forbids:very unique", 'Do not write "very unique".'),
    ],
)
def test_parse(text, tell):
    assert parse(text).tell() == tell


def test_parse_a_schema_or_its_file(tmp_path):
    schema = {"type": "object", "required": ["a"]}
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema), encoding="utf-8")
    for text in (f"json_schema:{json.dumps(schema)}", f"json_schema:{file}", f"json_schema: {file} "):
        assert parse(text).judge('{"a": 1}')[0] == 1.0
        assert parse(text).judge("{}")[0] < 1.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sentences", "lacks its argument.*sentences:3"),
        ("sentences:", "lacks its argument"),
        ("contains: ", "contains:La Maison"),
        ("json_schema:", "schema.json"),
        ("sentences:three", "neither a number nor a range"),
        ("words:20-", "neither a number nor a range"),
        ("words:-3", "neither a number nor a range"),
        ("words:3.5", "neither a number nor a range"),
        ("words:1-2-3", "neither a number nor a range"),
        ("words:40-20", "low <= high"),
        ("json_schema:no/such/file.json", "no such file"),
        ("json_schema:{bad", "not JSON"),
        ('json_schema:{"type": "objekt"}', "no valid JSON schema"),
    ],
)
def test_errors_say_what_to_write(text, says):
    with pytest.raises(UsageError, match=says):
        parse(text)


@pytest.mark.parametrize("content", ["[1]", "not json", '"text"', b"\xff\xfe\x00"])
def test_files_that_hold_no_schema(tmp_path, content):
    file = tmp_path / "schema.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError):
        parse(f"json_schema:{file}")


def test_a_folder_is_no_schema(tmp_path):
    with pytest.raises(UsageError, match="json_schema"):
        parse(f"json_schema:{tmp_path}")


@pytest.mark.parametrize("text", ["sentence:3", "", ":3", "Sentences:3"])
def test_an_unknown_check_lists_the_known_ones(text):
    with pytest.raises(UnknownNameError, match="Known checks: contains, forbids"):
        parse(text)
    with pytest.raises(UnknownNameError, match="Did you mean 'sentences'"):
        parse("sentence:3")


def test_a_check_of_the_users_by_name(monkeypatch):
    class Rhymes(Check):
        def __init__(self, scheme):
            super().__init__()
            self.scheme = scheme

    monkeypatch.setitem(registry._KNOWN["checks"], "rhymes", Rhymes)
    assert parse("rhymes: ABAB ").scheme == "ABAB"
    with pytest.raises(UsageError, match="rhymes:"):
        parse("rhymes")


# files


def write(tmp_path, text):
    file = tmp_path / "mine.py"
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


def test_a_file_is_run_as_no_main_program(tmp_path):
    text = "from redraft.checks import words\nchecks = [words(1)]\nif __name__ == '__main__': raise SystemExit\n"
    assert len(from_file(write(tmp_path, text))) == 1


def test_a_broken_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"mine\.py.*ZeroDivisionError"):
        from_file(write(tmp_path, "1 / 0\n"))
    with pytest.raises(ConfigError, match=r"mine\.py.*SyntaxError"):
        from_file(write(tmp_path, "def (\n"))
