"""Checks from text: our names, promptfoo's names, and the opposite of either."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft import registry
from redraft.checks import Check, aliases, contains, forbids, parse
from redraft.checks.parse import FORMS
from redraft.errors import UnknownNameError, UsageError
from redraft.grammar import accepts


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
        ("forbids:very | so", forbids("very", "so").tell()),
        ("contains:music|river", contains("music", "river").tell()),
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


@pytest.mark.parametrize("text", ["words:3", "not-words:3", "icontains:x"])
@pytest.mark.parametrize("option", [{"hard": "yes"}, {"tell": 3}, {"field": 3}, {"hard": 1}])
def test_an_option_of_another_type_is_refused(text, option):
    with pytest.raises(UsageError, match=rf"{next(iter(option))} = .*: give"):
        parse(text, **option)


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
    with pytest.raises(UnknownNameError, match="Known checks: bullets, chars, contains"):
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


@pytest.fixture
def folder(tmp_path):
    """The files that the examples name."""
    (tmp_path / "schema.json").write_text('{"type": "object"}', encoding="utf-8")
    (tmp_path / "tests.py").write_text("assert f(1) == 1\n", encoding="utf-8")
    (tmp_path / "style.md").write_text("- names the dish\n- names its price\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", registry.names("checks"))
def test_every_check_can_be_written_as_its_example_says(name, folder):
    pytest.importorskip("py3langid") if name == "language" else None
    for example in FORMS[name].example.split(" or "):
        made = parse(example.strip("'"), folder=folder)
        assert isinstance(made, Check)
        assert made.tell()


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("bullets:2", "- a\n- b", "- a"),
        ("chars:2-4", "abc", "a"),
        ("chars:..3", "abc", "abcd"),
        ("words:2 ..", "a b c", "a"),
        ("starts_with:Dear", "Dear you", "Hello"),
        ("one_of:yes|no", "yes", "maybe"),
        ("lowercase", "abc", "Abc"),
        ("keyword_counts:fox=2,dog=1-3", "fox fox dog", "fox dog"),
        ("json_valid", "[1]", "x"),
        ("number", "-4.5", "x"),
        ("number:0-10", "10", "11"),
        ("number:-5..-1", "-3", "0"),
        ("number:int 1-5", "4", "4.5"),
        ("not-contains:salt", "pepper", "salt"),
        ("not-json_valid", "x", "[1]"),
        ("not-lowercase", "A", "a"),
        # promptfoo's
        ("icontains:FOX", "a foxy thing", "a dog"),
        ("not-icontains:FOX", "a dog", "a foxy thing"),
        ("contains-any:fox, dog", "a hotdog", "a Fox"),
        ("contains-all:fox, dog", "dogfox", "dog"),
        ("icontains-all:fox, dog", "DogFox", "dog"),
        ("starts-with:He", "Hello", "hello"),
        ("ends-with:lo", "Hello", "Hello!"),
        ("equals:Hello", "Hello", "Hello "),
        ("not-equals:Hello", "Hallo", "Hello"),
        ("regex:^\\d{3}", "123 x", "12"),
        ("regex:(?<year>\\d{4})", "in 1984", "in 84"),
        ("is-json", "[1]", "x"),
        ('is-json:{"type": "object"}', "{}", "[]"),
        ("is-json:file://schema.json", "{}", "[]"),
        ("contains-json", 'Here: {"a": 1}.', "Here: a"),
        ('contains-json:{"required": ["b"]}', '{"a": 1} or {"b": 2}', '{"a": 1}'),
        ("word-count:2-3", "a b", "a"),
    ],
)
def test_what_a_text_makes(text, good, bad, folder):
    check = parse(text, folder=folder)
    assert check.judge(good)[0] == 1.0
    assert check.judge(bad)[0] < 1.0
    assert check.tell()


def test_tools_and_rubrics(folder):
    assert parse("tool_call:a,b").required == ("a", "b")
    assert parse("tool_call").required == ()
    assert parse("tool_call:none").none
    assert parse('tool_call:{"forbidden": ["rm"]}').forbidden == ("rm",)
    assert len(parse("rubric:style.md", folder=folder).judging.criteria) == 2
    assert parse("llm-rubric:is kind").asks
    assert parse("llm-rubric:is kind").hard, "promptfoo's asserts all gate"


def test_options_go_to_the_check():
    for text in ("words:3", "icontains:fox", "is-json"):
        made = parse(text, field="body", hard=False, tell=False)
        assert (made.field, made.hard, made.tell()) == ("body", False, "")
    with pytest.raises(UsageError, match="no option 'ignore_case'"):
        parse("icontains:fox", ignore_case=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("json_valid:x", "takes no argument"),
        ("keyword_counts:fox", "no WORD=COUNT.*fox=2"),
        ("number:few", "no range of numbers.*number:0-10"),
        ("number:5-1", "low <= high"),
        ("bullets:two", "neither a number nor a range.*bullets:3"),
        ("python_tests:none.py", "no such file"),
        ("contains-any:,", "contains-any"),
        ("equals:", "equals"),
        ("is-json:none.json", "no such file"),
        ("word-count:few", "min and max"),
        ("python:len(output) < 5", "only a file"),
        ("not-python:1", "only a file"),
        ("javascript:output.length < 5", "no JavaScript.*@check"),
        ("similar:a text", "embeds no texts"),
        ("latency:500", "--time-limit"),
        ("is-valid-openai-tools-call:", "tool_call:get_weather"),
    ],
)
def test_what_cannot_be_made_says_what_to_do(text, says):
    with pytest.raises(UsageError, match=says):
        parse(text)


@pytest.mark.parametrize("kind", aliases.REFUSED)
def test_every_refusal_says_what_to_do_instead(kind):
    with pytest.raises(UsageError, match=f"{kind!r} cannot be used here: .{{20}}"):
        aliases.made(kind, "x")


PIECES = st.sampled_from(["fo", "ab", "a", "Fo", "\u00df", "SS", "\u03c3", "\u03a3"])


@pytest.mark.parametrize("piece", ['<a> "b"', string.punctuation, "\u00e9\u6f22\n\t"])
@pytest.mark.parametrize("at", ["anywhere", "start", "end"])
def test_a_piece_is_in_its_language_as_it_is_spelled(piece, at):
    assert accepts(aliases.Holds(piece, at=at).constraint().grammar(), piece)
    assert accepts(aliases.Equals(piece).constraint().grammar(), piece)


@given(
    st.lists(PIECES, min_size=1, max_size=3),
    st.sampled_from(["anywhere", "start", "end"]),
    st.booleans(),
    st.booleans(),
    st.lists(PIECES, max_size=3).map("".join),
    st.lists(PIECES, max_size=3).map("".join),
)
def test_a_guards_word_holds_for_whatever_follows(pieces, at, every, ignore_case, prefix, rest):
    for check in (aliases.Holds(*pieces, at=at, every=every, ignore_case=ignore_case), aliases.Equals("".join(pieces))):
        said = check.guard(prefix)
        if said != "unknown":
            assert (check.judge(prefix + rest)[0] == 1.0) == (said == "pass")


def test_equals_takes_json_values_and_trims():
    assert aliases.made("equals", {"a": [1]}).judge('{ "a": [1] }')[0] == 1.0
    assert aliases.made("equals", {"a": [1]}).judge("x")[0] == 0.0
    assert aliases.made("equals", 4).judge("4")[0] == 1.0
    assert aliases.made("equals", "yes").fix(" yes\n") == "yes"
    assert aliases.made("equals", "yes").fix("yes!") is None
