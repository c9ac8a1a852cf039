"""A guard is sound: what it says of a prefix holds for every text that begins like it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redraft.checks.answers import matches, one_of
from redraft.checks.counts import bullets, chars, paragraphs, sentences, words
from redraft.checks.style import lowercase, no_commas, no_repetition, uppercase
from redraft.checks.texts import contains, ends_with, forbids, keyword_counts, starts_with

CHECKS = [
    *(make(*bounds) for make in (words, sentences, paragraphs, bullets, chars) for bounds in ((0, 0), (1,), (2, 3))),
    *(make(at_least=2) for make in (words, sentences, paragraphs, bullets, chars)),
    contains("La Maison"),
    contains("caf\u00e9", "no", ignore_case=False),
    forbids("La Maison", "no"),
    forbids("caf\u00e9", "\u5317\u4eac"),
    keyword_counts({"no": (0, 1), "La": (1, None)}),
    keyword_counts({"no": (2, None)}),
    keyword_counts({"la la": 1}),
    starts_with("La Maison"),
    starts_with("no.", ignore_case=False),
    starts_with("\u5317\u4eac"),
    ends_with("la maison."),
    matches(r"(la|no)+", search=True),
    one_of("no", "la maison", "No way"),
    one_of("LA", "caf\u00e9", ignore_case=False),
    lowercase(),
    uppercase(),
    no_commas(),
    no_repetition(),
]
PIECES = [
    *(
        "la",
        "La",
        "Maison",
        "maison",
        "no",
        "No.",
        "way",
        "cafe",
        "\u0301",
        "caf\u00e9",
        "\u5317\u4eac",
        "\u3002",
        "I",
        "1",
        "12",
    ),
    *(" ", " ", " ", "\n", "\n\n", "\r\n", "\u00a0", "- ", "* ", "1. ", "2) ", "1.", "# ", "-", "|", "```", "{", "["),
    *(".", "!", "?", "...", "\u2026", ",", "\uff0c", ":", '"', "'", "\u2019", "(", ")", "e.g.", "Dr.", "etc.", "p.m."),
    *("la la la. ", "No way out. ", "la maison\n", "no no no no "),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@pytest.mark.parametrize("check", CHECKS, ids=repr)
@settings(max_examples=60, deadline=None)
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
@example("x.\n1", [". !"])
@example("No way out. no way out. ", ["X"])
@example("la maison\nno\nla maison", [" no"])
def test_a_guard_is_sound(check, prefix, endings):
    says = check.guard(prefix)
    assert says in ("pass", "fail", "unknown")
    for ending in ("", *endings):
        passed = check.judge(prefix + ending)[0] == 1.0
        assert not (passed and says == "fail"), ending
        assert passed or says != "pass", ending


@pytest.mark.parametrize(
    ("check", "prefix", "says"),
    [
        (words(2), "one two", "unknown"),
        (words(2), "one two th", "fail"),
        (words(at_least=2), "one two", "pass"),
        (chars(3), "abcd", "fail"),
        (sentences(1), "One. Tw", "fail"),
        (sentences(1), "Dr. Who", "unknown"),
        (sentences(at_least=2), "One. Two", "pass"),
        (paragraphs(1), "One.\n\nT", "fail"),
        (bullets(1), "- a\n- b", "fail"),
        (bullets(1), "- a\n- ", "unknown"),
        (contains("salt"), "Salt and", "pass"),
        (contains("salt"), "salt", "unknown"),
        (forbids("salt"), "Salt and", "fail"),
        (forbids("salt"), "salt", "unknown"),
        (keyword_counts({"salt": 1}), "salt, salt and", "fail"),
        (keyword_counts({"salt": (1, None)}), "salt and", "pass"),
        (starts_with("Dear Sir"), "Dear Madam ", "fail"),
        (starts_with("Dear Sir"), "Sure, ", "fail"),
        (starts_with("Dear Sir"), " Dear", "unknown"),
        (starts_with("Dear Sir"), "Dear Sir, I", "pass"),
        (one_of("yes", "no"), "The answer", "fail"),
        (one_of("yes", "no"), '"ye', "unknown"),
        (lowercase(), "hello W", "fail"),
        (uppercase(), "HELLO w", "fail"),
        (no_commas(), "a,", "fail"),
        (no_repetition(), "The cat sat. The dog ran. The cat sat. It", "fail"),
        (no_repetition(), "- the cat sat\n- the cat sat\n", "fail"),
        (no_repetition(), "One very very very very very long day. It. Was", "fail"),
        (no_repetition(), "The cat sat. The dog ran. The cat sat", "unknown"),
    ],
)
def test_a_doomed_draft_is_seen(check, prefix, says):
    assert check.guard(prefix) == says
