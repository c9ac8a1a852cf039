"""A fix repairs form by code: it makes a check pass, invents nothing, and leaves a reader no worse a text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft.checks.answers import matches, one_of
from redraft.checks.counts import Sentences, bullets, chars, paragraphs, sentences, words
from redraft.checks.style import lowercase, no_commas, no_repetition, uppercase
from redraft.checks.texts import contains, ends_with, forbids, keyword_counts, starts_with

THREE = "The fish is fresh. The wine is cold! We will come again."
LIST = "My tips:\n\n1. Boil it\n2. Salt it\n   with care\n3. Eat it\n\nEnjoy!"


@pytest.mark.parametrize(
    ("check", "text", "fixed"),
    [
        # counts: cut at a sentence, never below the range
        (words(5, 9), THREE, "The fish is fresh. The wine is cold!"),
        (words(at_most=5), THREE, "The fish is fresh."),
        (words(5), THREE, None),
        (words(20, 40), THREE, None),
        (words(at_least=20), THREE, None),
        (words(at_most=3), "The fish is fresh and the wine is cold.", None),
        (words(4, 6), 'He said "Go now. Then come back." And we went.', None),
        (words(2, 9), "## Fish and wine\n\nAll that we ate was fresh from the sea today.", None),
        (chars(10, 40), THREE, "The fish is fresh. The wine is cold!"),
        (sentences(2), THREE, "The fish is fresh. The wine is cold!"),
        (sentences(1), "Dr. Who came. He left.", "Dr. Who came."),
        (sentences(1), "One.\n\nTwo.", "One."),
        (sentences(0), THREE, None),
        (sentences(1), "a heading\n\nAnd text.", None),
        (paragraphs(1), "One.\n\nTwo.", "One."),
        (paragraphs(2), "One.\nTwo.", "One.\n\nTwo."),
        (paragraphs(3), "One.\nTwo.", None),
        (paragraphs(2), "One\ntwo.", None),
        (bullets(2), LIST, "My tips:\n\n1. Boil it\n2. Salt it\n   with care\n\nEnjoy!"),
        (bullets(1, 2), "- a\r\n- b\r\n- c", "- a\r\n- b"),
        (bullets(4), LIST, None),
        (bullets(2), LIST.replace("My", "My three"), None),
        # edges
        (starts_with("Dear Sir,"), '"Dear Sir, hello."', "Dear Sir, hello."),
        (starts_with("Dear Sir"), "Sure, here it is:\n\nDear Sir, hello.", "Dear Sir, hello."),
        (starts_with("Dear Sir,"), "I am well.", "Dear Sir, I am well."),
        (starts_with("Dear Sir,"), "I am well.\nBye.", "Dear Sir,\n\nI am well.\nBye."),
        (starts_with("Once upon a time"), "There was a king.", None),
        (starts_with("Dear Sir,"), "Hello. Dear Sir, I am well.", None),
        (starts_with("Dear Sir,"), "", None),
        (ends_with("The end"), "So it was. The end.", "So it was. The end"),
        (ends_with("The end"), "So it was. **The end.**", None),
        (ends_with("The end."), "\u201cSo it was. The end.\u201d", "So it was. The end."),
        (ends_with("The end."), "So it was.", "So it was. The end."),
        (ends_with("The end."), "So it was.\n\nAll well.\n", "So it was.\n\nAll well.\n\nThe end."),
        (ends_with("The end."), "So it", None),
        (ends_with("the sea"), "We went.", None),
        # the whole answer
        (one_of("yes", "no"), "The answer is yes.", "yes"),
        (one_of("Yes", "No"), "no, it is not so", "No"),
        (one_of("yes", "no"), "yes or no", None),
        (one_of("good", "bad"), "It is not good", None),
        (one_of("good", "bad"), "It isn\u2019t good", None),
        (one_of("good", "very good"), "Very good indeed", "very good"),
        (one_of("A", "B"), "A good answer is (B)", "B"),
        (one_of("A", "B"), "A good answer", None),
        (one_of("in stock", "sold out"), "Status: sold\nout", "sold out"),
        (matches(r"\d+"), '"42"', "42"),
        (matches(r"\d+"), "about 42", None),
        # style
        (lowercase(), "The END", "the end"),
        (uppercase(), "The end \u00df", "THE END SS"),
        (
            no_commas(),
            "However, it is big, red, and 1,000,000 years old, yes!",
            "However it is big and red and 1000000 years old yes!",
        ),
        (no_commas(), "I like sea salt, black pepper, and oil.", "I like sea salt and black pepper and oil."),
        (no_commas(), "When he came, she left, and he cried.", "When he came she left and he cried."),
        (no_commas(), "One,\ntwo,three ,.", "One\ntwo three."),
        (no_commas(), "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u4f60\u597d \u4e16\u754c\u3002"),
        (no_commas(), '{"a": 1, "b": 2}', None),
        (no_repetition(), "The cat sat. It ran. The cat sat. It slept.", "The cat sat. It ran. It slept."),
        (
            no_repetition(),
            "1. Boil the pot\n2. Salt it well\n3. Boil the pot\n4. Eat it all. Boil the pot.",
            "1. Boil the pot\n2. Salt it well\n3. Eat it all.",
        ),
        (no_repetition(), "the sea is wide\nso be it\nthe sea is wide", "the sea is wide\nso be it"),
        (no_repetition(), "One here now.\n\nOne here now.\n\nTwo.", "One here now.\n\nTwo."),
        (no_repetition(), "go go go go", None),
        # nothing to repair by code
        (contains("salt"), "pepper", None),
        (forbids("salt"), "salt", None),
        (keyword_counts({"salt": 1}), "salt salt", None),
    ],
)
def test_what_is_repaired(check, text, fixed):
    assert check.fix(text) == fixed
    if fixed is not None:
        assert check.judge(text)[0] < check.judge(fixed)[0] == 1.0


CHECKS = [
    *(make(*bounds) for make in (words, sentences, paragraphs, bullets) for bounds in ((1,), (1, 2), (2, 5))),
    *(chars(1, 30), chars(5, 90)),
    *(starts_with("Dear Sir,"), ends_with("The end."), ends_with("The end", ignore_case=False)),
    *(one_of("yes", "no", "in stock"), one_of("A", "B", ignore_case=False), matches("[a-z]+")),
    *(lowercase(), uppercase(), no_commas(), no_repetition()),
]
PIECES = [
    *(
        "Dear Sir,",
        "The end.",
        "The end",
        "yes",
        "No",
        "in stock",
        "A",
        "B",
        "salt",
        "We ate well.",
        "we ate well",
        "e.g.",
    ),
    *(
        " ",
        " ",
        " ",
        "\n",
        "\n\n",
        "\r\n",
        "- ",
        "1. ",
        "2. ",
        "# ",
        ".",
        "!",
        "?",
        ", ",
        ",",
        '"',
        "\u201c",
        "\u201d",
        "(",
    ),
    *(")", "**", "1,000", "\u00df", "\u0130", "\u4f60\u597d\u3002", "\uff0c", "\0", "Sure:"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)


@pytest.mark.parametrize("check", CHECKS, ids=repr)
@settings(max_examples=50, deadline=None)
@given(TEXTS | st.text())
def test_a_fix_scores_higher_and_stays(check, text):
    fixed = check.fix(text)
    if fixed is None:
        return
    assert check.judge(fixed)[0] > check.judge(text)[0]
    assert fixed.strip()
    assert check.judge(fixed)[0] == 1.0 or check.fix(fixed) != fixed


@pytest.mark.parametrize("check", CHECKS, ids=repr)
@pytest.mark.parametrize("value", [None, 5, 2.5, ["The end"], {"a": "B"}, "", " "])
def test_what_is_no_text_is_left_alone(check, value):
    assert check.fix(value) is None


PROSE = st.lists(
    st.sampled_from(["The fish is fresh", "we ate", "Salt", "It is so", "Dr. Who came"]), min_size=1, max_size=6
)


@given(PROSE, st.sampled_from([". ", ".\n", ".\n\n", "!\n- ", ", ", "; "]))
def test_case_and_commas_leave_the_counts(parts, joint):
    text = joint.join(parts) + "."
    others = [
        words(len(text.split()) - text.split().count("-")),
        *(make(max(1, make(0, 99).count(text))) for make in (paragraphs,)),
        contains(*parts),
    ]
    for check in (lowercase(), no_commas()):
        fixed = check.fix(text)
        for other in others if fixed else ():
            assert other.judge(fixed)[0] >= other.judge(text)[0]


def test_sentences_are_counted_in_small_letters():
    text = "The fish is fresh. We, e.g. Dr. Who, ate it. It was good!"
    assert sentences(3).judge(lowercase().fix(text)) == (1.0, "")


def test_a_long_text_is_read_as_far_as_it_is_kept():
    read = []

    class Noting(Sentences):
        def count(self, text):
            read.append(len(text))
            return super().count(text)

    text = "So it goes. " * 10_000
    assert Noting(3).fix(text) == "So it goes. So it goes. So it goes."
    assert sum(read) < len(text) + 1_000


@pytest.mark.parametrize("text", ["a, ", "a b, ", " ", "- a\n", "1,000,", "So it goes on.\n", '"', "yes "])
@pytest.mark.parametrize("check", CHECKS, ids=repr)
def test_degenerate_drafts_take_no_time(check, text):
    long = text * (30_000 // len(text))
    start = time.process_time()
    check.fix(long)
    assert time.process_time() - start < 3
