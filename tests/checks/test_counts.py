"""Words and sentences: what is counted, what is told, how partial credit goes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.checks.counts import bullets, chars, paragraphs, sentences, words
from redraft.checks.segment import split_sentences
from redraft.errors import UsageError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" \n\t ", 0),
        ("one", 1),
        ("one two  three\nfour", 4),
        ("well-known self-made", 2),
        ("don't can\u2019t", 2),
        ("a - b -- c — d", 4),
        ("a—b", 1),
        ("3.14 is π", 3),
        ("**bold** _and_ `code`", 3),
        ("- one\n- two", 2),
        ("Hi 👋 there", 2),
        ("naïve café", 2),
        ("... !!! ???", 0),
        ("x\u00a0y\u2003z", 3),
        ("http://example.com/a?b=c d", 2),
    ],
)
def test_words_counted(text, count):
    assert words(count, count).judge(text) == (1.0, "")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        # plain
        ("Hello. World.", ["Hello.", "World."]),
        ("Hello. World", ["Hello.", "World"]),
        ("What?! No way!", ["What?!", "No way!"]),
        ("Hello.\n\nWorld.", ["Hello.", "World."]),
        ("Hello.\nWorld.", ["Hello.", "World."]),
        # nothing
        ("", []),
        ("  \n ", []),
        ("...", []),
        ("!!! ???", []),
        ("👋", []),
        # abbreviations, initials, titles
        ("Dr. Smith met Mrs. Doe.", ["Dr. Smith met Mrs. Doe."]),
        ("J. R. R. Tolkien wrote it. He smoked.", ["J. R. R. Tolkien wrote it.", "He smoked."]),
        ("Fruit, e.g. apples, i.e. food. Good.", ["Fruit, e.g. apples, i.e. food.", "Good."]),
        ("Apples, pears, etc. are fine.", ["Apples, pears, etc. are fine."]),
        ("Apples, pears, etc. The end.", ["Apples, pears, etc.", "The end."]),
        ("We met at 5 p.m. Then we ate.", ["We met at 5 p.m.", "Then we ate."]),
        ("We met at 5 p.m. on Friday.", ["We met at 5 p.m. on Friday."]),
        ("He lives in the U.S. The rain fell.", ["He lives in the U.S.", "The rain fell."]),
        ("It costs approx. 5 euros vs. 6.", ["It costs approx. 5 euros vs. 6."]),
        ("On Jan. 5 we met. It rained.", ["On Jan. 5 we met.", "It rained."]),
        ("See Fig. 3. It shows all.", ["See Fig. 3.", "It shows all."]),
        ("No. 5 is alive.", ["No. 5 is alive."]),
        ("I said no. He left.", ["I said no.", "He left."]),
        ("It was I. He left.", ["It was I.", "He left."]),
        # decimals, versions, addresses
        ("It costs $3.50 now. Cheap!", ["It costs $3.50 now.", "Cheap!"]),
        ("Use Python 3.11. It is fast.", ["Use Python 3.11.", "It is fast."]),
        ("Visit example.com. Now.", ["Visit example.com.", "Now."]),
        ("He scored 5. She scored 6.", ["He scored 5.", "She scored 6."]),
        # ellipses
        ("It was late... He left.", ["It was late...", "He left."]),
        ("Wait... what?", ["Wait... what?"]),
        ("Wait… what? Yes…", ["Wait… what?", "Yes…"]),
        # quotes and brackets
        ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
        ("“Go.” “Why?”", ["“Go.”", "“Why?”"]),
        ('"Stop!" she said. "Why?" he asked.', ['"Stop!" she said.', '"Why?" he asked.']),
        ("It is so (really). Next.", ["It is so (really).", "Next."]),
        ("**Bold.** _Next._", ["**Bold.**", "_Next._"]),
        # lists and headings: each line that has no end mark is one
        ("- one\n- two\n- three", ["one", "two", "three"]),
        ("* one.\n* two", ["one.", "two"]),
        ("• one\n• two", ["one", "two"]),
        ("1. First\n2. Second", ["First", "Second"]),
        ("1) First. And more.\n2) Second", ["First.", "And more.", "Second"]),
        ("# Title\n\nText here.", ["Title", "Text here."]),
        # a line break inside a sentence ends nothing
        ("a long\nline. The end.", ["a long line.", "The end."]),
        # other scripts
        ("你好。世界。", ["你好。", "世界。"]),
        ("元気\uff1fはい\uff01", ["元気\uff1f", "はい\uff01"]),
        ("Я люблю. Он тоже.", ["Я люблю.", "Он тоже."]),
        ("Bonjour ! Ça va ?", ["Bonjour !", "Ça va ?"]),
        ("Hi 👋. Bye 👋!", ["Hi 👋.", "Bye 👋!"]),
        ("a\r\n\r\nb", ["a", "b"]),
    ],
)
def test_sentences_split(text, parts):
    assert split_sentences(text) == parts
    assert sentences(len(parts)).judge(text) == (1.0, "")


@pytest.mark.parametrize(
    ("check", "tell"),
    [
        (words(50), "Write exactly 50 words."),
        (words(20, 40), "Write 20 to 40 words."),
        (words(1), "Write exactly 1 word."),
        (words(0, 40), "Write at most 40 words."),
        (sentences(3), "Write exactly 3 sentences."),
        (sentences(2, 4), "Write 2 to 4 sentences."),
        (sentences(1), "Write exactly 1 sentence."),
        (words(at_least=20), "Write at least 20 words."),
        (words(at_most=40), "Write at most 40 words."),
        (words(at_least=20, at_most=40), "Write 20 to 40 words."),
        (sentences(at_least=1), "Write at least 1 sentence."),
        (paragraphs(2), "Write exactly 2 paragraphs with a blank line between them."),
        (paragraphs(1), "Write exactly 1 paragraph."),
        (bullets(3), 'Write exactly 3 bullets, each on its own line after "- ".'),
        (bullets(at_least=2), 'Write at least 2 bullets, each on its own line after "- ".'),
        (chars(at_most=280), "Write at most 280 characters."),
    ],
)
def test_tell(check, tell):
    assert check.tell() == tell
    assert check.tell_text() in repr(check)


@pytest.mark.parametrize(
    ("check", "text", "score", "explanation"),
    [
        (words(2, 4), "a b", 1.0, ""),
        (words(2, 4), "a b c d", 1.0, ""),
        (words(2, 4), "a", 0.75, "1 word, want 2 to 4"),
        (words(2, 4), "a b c d e", 0.75, "5 words, want 2 to 4"),
        (words(2, 4), "", 0.5, "0 words, want 2 to 4"),
        (words(2), "a " * 100, 0.0, "100 words, want 2"),
        (words(0, 0), "a", 0.0, "1 word, want 0"),
        (words(0, 0), "", 1.0, ""),
        (sentences(3), "One. Two.", 2 / 3, "2 sentences, want 3"),
        (sentences(1), "One. Two.", 0.0, "2 sentences, want 1"),
        (words(at_least=4), "a b c", 0.75, "3 words, want at least 4"),
        (words(at_least=4), "a " * 1000, 1.0, ""),
        (words(at_most=2), "a b c", 0.5, "3 words, want at most 2"),
        (words(at_most=2), "", 1.0, ""),
        (bullets(3), "- a\n" * 7, 0.0, "7 bullets, want 3"),
        (paragraphs(2), "One.", 0.5, "1 paragraph, want 2"),
        (chars(1, 4), "  abcde\n", 0.75, "5 characters, want 1 to 4"),
    ],
)
def test_score_and_explanation(check, text, score, explanation):
    assert check.judge(text) == (pytest.approx(score), explanation)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One.", 1),
        ("One.\nStill one.", 1),
        ("One.\n\nTwo.", 2),
        ("One.\r\n \t\r\n\r\nTwo.", 2),
        ("\n\nOne.\n\n", 1),
        ("One.\n\n***\n\nTwo.", 2),
        ("# Title\n\n- a\n- b\n\n\u4f60\u597d\u3002", 3),
    ],
)
def test_paragraphs_counted(text, count):
    assert paragraphs(count, count).judge(text) == (1.0, "")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("No list - really", 0),
        ("- a\n* b\n+ c\n\u2022 d\n1. e\n2) f", 6),
        ("Here:\n\n  - a\n    - b\r\n- c", 3),
        ("-a\n**bold** text\n---\n- - -\n* * *\n1.5 litres\n-5", 0),
        ("- \n-\n- a", 1),
        ("1. **Bold** - good", 1),
        ("- 1.\n- 2.", 2),
    ],
)
def test_bullets_counted(text, count):
    assert bullets(count, count).judge(text) == (1.0, "")


def test_sentences_of_a_text_in_small_letters():
    """Elsewhere a small letter tells that a sentence goes on."""
    assert split_sentences("it is, e.g. here. it is late... so we go.") == [
        "it is, e.g. here.",
        "it is late... so we go.",
    ]
    assert split_sentences("It is approx. here. it goes on.") == ["It is approx. here. it goes on."]


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"high": 5},
        {"low": 2, "at_least": 3},
        {"low": 2, "at_most": 3},
        {"at_least": 0},
        {"at_least": 5, "at_most": 3},
        {"at_most": -1},
        {"at_least": "3"},
        {"at_most": True},
    ],
)
def test_bounds_that_say_nothing_or_too_much(bounds):
    with pytest.raises(UsageError, match="at_least= or at_most="):
        words(**bounds)


@pytest.mark.parametrize("make", [words, sentences, paragraphs, bullets, chars])
@pytest.mark.parametrize("bounds", [(-1,), (3, 2), (1.5,), ("3",), (None,), (2, "4")])
def test_bad_bounds_are_refused(make, bounds):
    with pytest.raises(UsageError, match="whole number"):
        make(*bounds)


@given(st.integers(0, 12), st.integers(0, 12), st.lists(st.integers(0, 40), min_size=2, max_size=2))
def test_partial_credit_is_monotone(low, width, counts):
    """Closer to the range is never worth less."""
    check = words(low, low + width)

    def distance(n):
        return max(low - n, n - low - width, 0)

    near, far = sorted(counts, key=distance)
    if (near <= low) == (far <= low):
        assert check.judge("w " * near)[0] >= check.judge("w " * far)[0]
    for n in counts:
        score, why = check.judge("w " * n)
        assert 0.0 <= score <= 1.0
        assert (score == 1.0) == (distance(n) == 0) == (why == "")


@given(st.text())
def test_any_text_is_counted(text):
    for check in (words(3), sentences(2, 4), paragraphs(2), bullets(1, 2), chars(at_least=5)):
        score, why = check.judge(text)
        assert 0.0 <= score <= 1.0
        assert (score == 1.0) == (why == "")


PIECES = [
    "Dr. ",
    "e.g. ",
    "J. ",
    "...",
    "…",
    '"',
    "”",
    "(",
    ")",
    ".",
    "!",
    "?",
    "。",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "# ",
    " ",
]


@given(st.lists(st.sampled_from([*PIECES, "word", "Word", "3.5", "é"]), max_size=30).map("".join))
def test_splitting_loses_no_word(text):
    """Garbled, but with every letter: what is left out is only markers, spaces and marks."""

    def letters(s):
        return [c for c in s if c.isalpha()]

    assert letters("".join(split_sentences(text))) == letters(text)


@pytest.mark.parametrize(
    "text", ["-" * 50_000, "." * 50_000, "." * 50_000 + "a", "!" * 50_000 + "a", '."' * 25_000 + "a"]
)
def test_degenerate_drafts_take_no_time(text):
    """Small models repeat a mark until their limit."""
    start = time.process_time()  # a busy machine is no fault of the check
    words(3).judge(text)
    sentences(3).judge(text)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("value", [None, 5, 1.5, True, ["a", "b"], {"a": 1}])
def test_a_value_that_is_no_text_is_read_as_its_text(value):
    assert 0.0 <= words(1).judge(value)[0] <= 1.0
