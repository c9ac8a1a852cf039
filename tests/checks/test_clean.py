"""What counts as degenerate, and what must not: a false alarm costs a call."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.checks.clean import faults

REFRAIN = """The sea is wide
And the wind blows on
A gull cries out
Above the stones
The tide comes in
The sand is warm
And the wind blows on
My heart is calm"""
SONG = "\n".join(
    line
    for verse in ("The road is long tonight", "The moon is up at last", "The town is fast asleep")
    for line in (f"{verse} my dear", f"{verse} my friend", "Oh carry me over home", "Oh carry me over there")
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # what small models write under a grammar
        ("- 1.\n- 2.\n- 3.", "the list item in line 1 is empty (and 2 more)"),
        ("- Salt\n-\n- Oil", "the list item in line 2 is empty"),
        ("1. Salt\n2. ...\n3. Oil", "the list item in line 2 is empty"),
        ("* , .", "the list item in line 1 is empty"),
        ("Word, word, word, word", "word 1 comes 4 or more times in a row"),
        ("It is a very very VERY, very fine day.", "word 4 comes 4 or more times in a row"),
        ("We go to the and go to the and go to the and", "words 2 to 5 come 3 or more times in a row"),
        ("yes no yes no yes no yes no", "words 1 to 2 come 4 or more times in a row"),
        ("\u6211\u559c\u6b22\u6c34" * 3, "words 1 to 4 come 3 or more times in a row"),
        ("The food is good. The food is good. The food is good.", "sentence 2 repeats sentence 1"),
        ("The food is good. So is the wine. The FOOD is - good!", "sentence 3 repeats sentence 1"),
        ("- Fresh fish daily\n- Bread\n- Fresh fish daily", "sentence 3 repeats sentence 1"),
        ("- Fish\n- Bread\n- Fish\n- fish.", "sentence 3 repeats sentence 1"),
        ("the sea is wide\nthe sand is warm\nthe sea is wide", "line 3 repeats line 1"),
        (
            "\u4eca\u5929\u5f88\u597d\u3002\u6211\u5f88\u9ad8\u5174\u3002\u4eca\u5929\u5f88\u597d\u3002",
            "sentence 3 repeats sentence 1",
        ),
        ("La Maison,.", "marks with nothing between them after word 2"),
        (", ,.", "marks with nothing between them after word 0"),
        # values of JSON
        ('{"title": "", "stars": 4}', "$.title is empty"),
        ('{"a": {"b": ["x", "..."]}}', "$.a.b[1] is empty"),
        ('{"steps": ["Boil the water", "Add salt", "Boil the water"]}', "$.steps[2] repeats $.steps[0]"),
        ('[{"name": "salt"}, {"name": "salt"}]', "$[1] repeats $[0]"),
        ('{"tags": ["good", "good", "good"]}', "all 3 items of $.tags are the same"),
        ('{"text": "It is so good. It is so good."}', "in $.text sentence 2 repeats sentence 1"),
    ],
)
def test_a_fault_with_its_place(text, says):
    assert says in faults(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "La Maison is a fine place. The fish is fresh, the wine is cold; we stayed late... And left happy!",
        "Row, row, row your boat. No, no, no!",
        "Ha ha ha. Well, ... so it goes. It costs ,5 or .5; see .NET.",
        "Yes. Yes. It was so good that we came again.",
        "1. 42\n2. 17\n3. 42",
        "- 1945\n- 1989\n- 2001",
        "1.\nBoil the water.\n\n2.\nAdd the salt.",
        "- \U0001f44d\n- \u2713 done",
        "One.\n\n---\n\nTwo.\n\n* * *\n\nThree.",
        "## Soup\n\nRating: 4 of 5\nGood for: a cold day\n\n## Fish\n\nRating: 4 of 5\nGood for: a cold day",
        "| a | b |\n|---|---|\n| yes | yes |\n| yes | yes |\n| yes | yes |",
        "0 0 0 0 1 1 1 1\n0, 0, 0, 0",
        "```python\nx = f(x) + 1\nx = f(x) + 1\n- \n```",
        "def f(x):\n    return x + 1 + 2\n\ndef g(x):\n    return x + 1 + 2\n",
        "a,b,,c\nd,e,,f",
        "\u54c8\u54c8\u54c8\u54c8\u54c8\uff0c\u597d\u7684\u597d\u7684\u3002",
        "\u092e\u0947\u0902 \u092e\u0947\u0902 \u092e\u0947\u0902",
        REFRAIN,
        '{"tags": ["yes", "no", "yes", "no"], "n": [1, 1, 1], "none": null, "list": [], "rows": [[], []]}',
        '["a", "a"]',
        "[1] is not JSON. {Nor} is this.",
    ],
)
def test_an_ordinary_text_is_clean(text):
    assert faults(text) == []


def test_a_song_has_a_chorus_where_one_was_asked_for():
    assert faults(SONG) != []
    assert faults(SONG, "Write a song about the road") == []
    assert faults(SONG.replace("my dear", "my friend"), "Write a song") != [], "a line right after itself is a fault"


def test_a_copied_prompt():
    prompt = "Write a short review of the best French restaurant in the whole city of Paris"
    copied = ["12 or more words of the prompt are copied, from word 5 on"]
    assert faults(f"Sure! Here it is: {prompt}.", prompt) == copied
    assert faults("A review of the best French restaurant in the whole city of Lyon.", prompt) == []
    assert faults(f"Well, {prompt}", f'End with "{prompt}", please.') == [], "what is quoted is asked for"
    assert faults(prompt, f"Repeat this word for word: {prompt}") == []
    material = " ".join(f"Word{i} of the text." for i in range(60))
    assert faults(material, material) == [], "a long prompt holds material"


def test_many_faults_are_counted_not_listed():
    found = faults(" ".join([f"This is sentence number {i}." for i in range(9)] * 2))
    assert len(found) == 4
    assert found[-1] == "6 more sentences are repeats"


@given(st.text(), st.text())
def test_any_text(text, prompt):
    assert all(isinstance(fault, str) and fault for fault in faults(text, prompt))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a. ",
            "- \n",
            "1. ",
            "1.\n",
            ", ",
            "1,",
            "word ",
            "\u6211",
            "[",
            "`",
            "``` a ",
            "a: ",
            " \n",
            "_*",
            "- 1.\n",
        ),
        *("a b c d e f g h\n", "So it goes on. ", "{}", "| a ", '"', "\u201c", "e.g. "),
    ],
)
def test_degenerate_drafts_take_no_time(text):
    long = text * (60_000 // len(text))
    start = time.process_time()
    faults(long, long)
    assert time.process_time() - start < 3


@pytest.mark.parametrize("text", ["- x\n", "\u6f22\u3002", "a\n\n", '["a", '])
def test_of_a_very_long_draft_the_beginning_is_looked_at(text):
    start = time.process_time()
    assert faults(text * (1_000_000 // len(text)))
    assert faults("[" + "1, " * 300_000 + "1]") == []
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize("joint", ["\n- ", "\n1. ", ", ", " "])
def test_the_cut_makes_no_fault(joint):
    for more in range(8):
        text = " ".join(f"word{i}" for i in range(7_000))[: 59_990 + more]
        assert faults(f"{text}{joint}the end, and {text[::-1]}") == []


def test_deep_json():
    assert faults("[" * 900 + "]" * 900) == []
