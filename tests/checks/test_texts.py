"""What a text holds, how it begins and ends, what it is: whole words, any case, any white space."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.checks.answers import matches, one_of
from redraft.checks.texts import contains, ends_with, forbids, keyword_counts, starts_with
from redraft.errors import UsageError

HITS = [
    ("La Maison", "We love la maison!"),
    ("La Maison", "LA\nMAISON"),
    ("La Maison", "La\u00a0Maison"),
    ("La  Maison", "La Maison"),
    (" salt ", "Salt."),
    ("salt", '"salt"'),
    ("salt", "(salt)"),
    ("salt", "**salt**"),
    ("salt", "sea-salt"),
    ("C++", "I like C++."),
    ("$5", "It costs $5."),
    ("100%", "100%!"),
    ("e.g.", "Fruit, e.g. apples"),
    ("naïve", "NAÏVE"),
    ("Это", "это так"),
    ("👋", "Hi👋"),
    ("...", "Well..."),
    (".*", "a .* b"),
    ("don't", "I don\u2019t know"),
    ("don\u2019t", "I don't know"),
    ("北京", "我在北京住"),
    ("café", unicodedata.normalize("NFD", "un café noir")),
    (unicodedata.normalize("NFD", "café"), "un café noir"),
]
MISSES = [
    ("cat", "cats concatenate"),
    ("art", "part"),
    ("La Maison", "La belle Maison"),
    ("La Maison", "LaMaison"),
    ("foo_bar", "foo_bar2"),
    ("3", "33 and 3rd"),
    (".*", "anything"),
    ("salt", ""),
    ("cafe", "café"),
]


@pytest.mark.parametrize(("phrase", "text"), HITS)
def test_a_hit(phrase, text):
    assert contains(phrase).judge(text)[0] == 1.0
    assert forbids(phrase).judge(text)[0] == 0.5


@pytest.mark.parametrize(("phrase", "text"), MISSES)
def test_a_miss(phrase, text):
    assert contains(phrase).judge(text)[0] == 0.0
    assert forbids(phrase).judge(text)[0] == 1.0


def test_case_may_matter():
    assert contains("La Maison", ignore_case=False).judge("la maison")[0] == 0.0
    assert contains("La Maison", ignore_case=False).judge("La Maison")[0] == 1.0
    assert forbids("US", ignore_case=False).judge("It is for us")[0] == 1.0


def test_partial_credit_of_contains():
    check = contains("salt", "pepper", "thyme", "bay leaf")
    assert check.judge("Salt and pepper.") == (0.5, '"thyme" and "bay leaf" missing')
    assert check.judge("Salt, pepper, thyme.") == (0.75, '"bay leaf" missing')
    assert check.judge("")[0] == 0.0
    assert check.judge("salt pepper thyme bay leaf")[0] == 1.0


def test_partial_credit_of_forbids():
    check = forbids("very", "unique")
    scores = [check.judge(text)[0] for text in ("", "very", "very very", "very very unique")]
    assert scores == sorted(scores, reverse=True)
    assert scores[:3] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert check.judge("Very very unique.")[1] == '"very" 2 times, "unique" is forbidden'


def test_tell():
    assert contains("salt").tell() == 'Mention "salt".'
    assert contains("salt", "thyme", "bay").tell() == 'Mention "salt", "thyme" and "bay".'
    assert forbids("very", "unique").tell() == 'Do not write "very" or "unique".'
    assert contains("salt", tell=False).tell() == ""


@pytest.mark.parametrize("make", [contains, forbids])
@pytest.mark.parametrize("phrases", [(), ("",), ("salt", " "), (5,), (["salt"],)])
def test_empty_phrases_are_refused(make, phrases):
    with pytest.raises(UsageError, match="not empty"):
        make(*phrases)


@given(st.text(), st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=3))
def test_any_text(text, phrases):
    for check in (contains(*phrases), forbids(*phrases)):
        score, _ = check.judge(text)
        assert 0.0 <= score <= 1.0
        check.tell()


@given(st.text(min_size=1).filter(str.strip), st.text(), st.text())
def test_what_is_said_between_spaces_is_found(phrase, before, after):
    text = f"{before} {phrase} {after}"
    assert contains(phrase, ignore_case=False).judge(text)[0] == 1.0
    assert forbids(phrase).judge(text)[0] < 1.0


def test_keyword_counts():
    check = keyword_counts({"salt": 2, "oil": (1, 3), "thyme": (1, None)})
    assert check.tell() == 'Use "salt" exactly 2 times, "oil" 1 to 3 times, "thyme" at least 1 time.'
    assert check.judge("Salt, oil, thyme, salt.") == (1.0, "")
    assert check.judge("Salt, oil, saltier thyme") == (pytest.approx(5 / 6), '"salt" 1 time, want 2')
    assert check.judge("") == (
        0.0,
        '"salt" 0 times, want 2; "oil" 0 times, want 1 to 3; "thyme" 0 times, want at least 1',
    )
    assert keyword_counts({"a b": 0}).judge("a\nb A B") == (0.0, '"a b" 2 times, want 0')
    assert keyword_counts({"US": 1}, ignore_case=False).judge("us US")[0] == 1.0


@pytest.mark.parametrize(
    "counts",
    [{}, {"": 1}, {"a": -1}, {"a": 1.5}, {"a": (3, 2)}, {"a": (1, 2, 3)}, {"a": None}, {"a": (None, 3)}, [1], "a"],
)
def test_bad_keyword_counts_are_refused(counts):
    with pytest.raises(UsageError, match="give"):
        keyword_counts(counts)


@pytest.mark.parametrize(
    ("check", "text", "score"),
    [
        (starts_with("Dear Sir"), " dear\nsir, hello", 1.0),
        (starts_with("Dear Sir"), "Dear Sirs", 0.0),
        (starts_with("Dear Sir"), "Oh dear Sir", 0.5),
        (starts_with("Dear Sir"), "", 0.0),
        (starts_with("Dear", ignore_case=False), "dear", 0.0),
        (starts_with("\u201cHi\u201d"), '"Hi" there', 1.0),
        (starts_with("\u4f60\u597d"), "\u4f60\u597d\u4e16\u754c", 1.0),
        (ends_with("The end."), "So it was. The\u00a0end. \n", 1.0),
        (ends_with("The end"), "So it was. The end.", 0.5),
        (ends_with("end"), "weekend", 0.0),
        (ends_with("la la"), "la la la", 1.0),
        (ends_with("???"), "What ????", 1.0),
        (ends_with("don't"), "I don\u2019t", 1.0),
    ],
)
def test_edges(check, text, score):
    got, why = check.judge(text)
    assert got == score
    assert (got == 1.0) == (why == "")


def test_edges_say_what_is_wrong():
    assert starts_with(" Dear Sir ").tell() == 'Begin with "Dear Sir".'
    assert ends_with("The end.").tell() == 'End with "The end.".'
    assert starts_with("Dear Sir").judge("Oh, dear Sir")[1] == 'does not begin with "Dear Sir", which stands elsewhere'
    assert ends_with("The end.").judge("So it was")[1] == 'does not end with "The end."'


def test_matches():
    check = matches(r"\d{3}-\d{4}")
    assert check.judge(" 555-1234\n") == (1.0, "")
    assert check.judge("Call 555-1234") == (0.0, r"the text as a whole does not match \d{3}-\d{4}")
    assert check.tell() == r"Answer with text that as a whole matches the regular expression \d{3}-\d{4}"
    assert matches(r"\d", search=True).judge("Call 5 of us") == (1.0, "")
    assert matches(r"\d", search=True).judge("Call us") == (0.0, r"no part matches \d")
    assert matches(re.compile("yes", re.IGNORECASE)).judge("YES")[0] == 1.0


@pytest.mark.parametrize("pattern", ["(", None, 5, b"x"])
def test_a_bad_pattern_is_refused(pattern):
    with pytest.raises(UsageError, match="no regular expression"):
        matches(pattern)


def test_one_of():
    check = one_of("positive", "Not sure")
    assert check.tell() == 'Answer with "positive" or "Not sure" and nothing else.'
    for text in ("positive", " Positive.\n", '"POSITIVE"', "**not  sure**", "\u201cNot\nsure.\u201d"):
        assert check.judge(text) == (1.0, "")
    assert check.judge("It is positive, I think") == (0.5, '5 words, want "positive" or "Not sure" alone')
    assert check.judge("positives")[0] == 0.0
    assert check.judge("")[0] == 0.0
    assert one_of("A", "B", ignore_case=False).judge("a")[0] == 0.0


@pytest.mark.parametrize("labels", [(), ("",), ("a", " . "), (5,), (["a", "b"],)])
def test_empty_labels_are_refused(labels):
    with pytest.raises(UsageError, match="at least one label"):
        one_of(*labels)


@given(st.text())
def test_any_text_has_a_score(text):
    for check in (keyword_counts({"a": 1}), starts_with("a b"), ends_with("a."), matches("a*"), one_of("a", "yes")):
        score, why = check.judge(text)
        assert 0.0 <= score <= 1.0
        assert score == 1.0 or why
