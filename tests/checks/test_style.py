"""Case, commas, language, repetition."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.checks.style import language, lowercase, no_commas, no_repetition, uppercase
from redraft.errors import ConfigError, UsageError


@pytest.mark.parametrize(
    ("check", "text", "score", "says"),
    [
        (lowercase(), "hello \u4e16\u754c 3.5!", 1.0, ""),
        (lowercase(), "Hello You", 0.75, "2 of 8 letters are capitals, want none"),
        (lowercase(), "", 1.0, ""),
        (lowercase(), "\u00c9t\u00c9", 1 / 3, "2 of 3 letters are capitals, want none"),
        (uppercase(), "HELLO 5 \u00dcBER", 1.0, ""),
        (uppercase(), "hELLO", 0.8, "1 of 5 letters are small letters, want none"),
        (no_commas(), "a; b - c.", 1.0, ""),
        (no_commas(), "a, b", 0.5, "1 comma, want none"),
        (no_commas(), "\u4f60\u597d\uff0c\u4e16\u754c\u3001", 1 / 3, "2 commas, want none"),
        (no_commas(), "1,000\u060c", 1 / 3, "2 commas, want none"),
        (no_repetition(), "The cat sat. The dog ran.", 1.0, ""),
        (no_repetition(), "", 1.0, ""),
        (no_repetition(), "The cat sat. Oh! The cat sat.", 2 / 3, "sentence 3 repeats sentence 1"),
        (no_repetition(), "so so so so good", 0.5, "word 1 comes 4 or more times in a row"),
        (no_repetition(), '{"a": "the cat sat", "b": "the cat sat"}', 1.0, ""),
    ],
)
def test_score_and_explanation(check, text, score, says):
    got, why = check.judge(text)
    assert got == pytest.approx(score)
    assert (why if got < 1 else "") == says


def test_tell():
    assert lowercase().tell() == "Write in lower case letters only."
    assert uppercase().tell() == "Write in capital letters only."
    assert no_commas().tell() == "Do not use any commas."
    assert no_repetition().tell() == "Do not repeat yourself: no sentence, line or list item twice."
    assert language("de").tell() == language("German").tell() == "Write in German."
    assert no_commas(tell=False).tell() == ""
    assert lowercase(field="title", hard=False).field == "title"


@given(st.text())
def test_any_text(text):
    for check in (lowercase(), uppercase(), no_commas(), no_repetition()):
        score, why = check.judge(text)
        assert 0.0 <= score <= 1.0
        assert score == 1.0 or why


# language


@pytest.fixture(scope="module")
def _identifier():
    pytest.importorskip("py3langid")


@pytest.mark.parametrize(
    ("code", "text", "passes"),
    [
        ("en", "This is a short note about the weather.", True),
        ("German", "Das Wetter ist heute sehr gut.", True),
        ("de", "This is a short note about the weather.", False),
        ("fr", "Das Wetter ist heute sehr gut.", False),
        ("ja", "\u4eca\u65e5\u306f\u3068\u3066\u3082\u3044\u3044\u5929\u6c17\u3067\u3059\u3002", True),
        ("fr", "OK", True),  # too brief to tell
        ("fr", "", True),
        ("fr", "42", True),
    ],
)
def test_language(_identifier, code, text, passes):
    score, why = language(code).judge(text)
    assert (score == 1.0) == passes == (why == "")
    assert 0.0 <= score <= 1.0


def test_language_says_what_it_reads(_identifier):
    score, why = language("French").judge("Das Wetter ist heute sehr gut. Wir gehen in den Park.")
    assert why == "reads as German, want French"
    assert score < 0.5


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    from redraft.checks import style

    for name in ("py3langid", "py3langid.langid"):
        monkeypatch.setitem(sys.modules, name, None)
    style._ranking.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'redraft\[language\]'"):
        language("en").judge("Hello there")


@pytest.mark.parametrize("code", ["xx", "", 5, None, "Klingon", "en-US"])
def test_an_unknown_language_lists_the_known_ones(code):
    with pytest.raises(UsageError, match="known are af, am, ar"):
        language(code)
