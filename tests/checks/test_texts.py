"""contains and forbids: whole words, any case, any white space."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.checks import contains, forbids
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
