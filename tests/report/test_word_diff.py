from hypothesis import given
from hypothesis import strategies as st

from redraft.report.diff import Piece, kinship, marked, word_diff

WORDS = st.lists(
    st.sampled_from(["the", "soup", "bread,", "it's", "\u6c64", "\n\n", "hot!", "\u00e9t\u00e9", "("]), max_size=12
)
TEXT = WORDS.map(" ".join) | st.text(max_size=30)


@given(TEXT, TEXT)
def test_what_stayed_and_what_came_is_the_new_text(old, new):
    assert "".join(p.text for p in word_diff(old, new) if p.op != "-") == new


@given(TEXT, TEXT)
def test_what_stayed_and_what_went_has_the_old_texts_words(old, new):
    kept = "".join(p.text for p in word_diff(old, new) if p.op != "+")
    assert "".join(kept.split()) == "".join(old.split())


@given(TEXT)
def test_equal_texts_have_no_changes(text):
    assert {p.op for p in word_diff(text, text)} <= {"="}
    assert kinship(text, text) == 1.0


def test_marks_stand_close_to_the_words():
    pieces = word_diff("The soup was hot. We left.", "The soup was warm, and we left.")
    assert marked(pieces) == "The soup was [-hot. We-] {+warm, and we+} left."


def test_an_apostrophe_does_not_split_a_word():
    assert word_diff("it's", "its") == [Piece("-", "it's"), Piece("+", "its")]


def test_text_without_spaces_is_compared_by_character():
    assert marked(word_diff("\u6c64\u70ed", "\u6c64\u51b7")) == "\u6c64[-\u70ed-]{+\u51b7+}"


def test_colours_replace_the_marks():
    assert marked(word_diff("a b", "a c"), colour=True) == "a \x1b[31;9mb\x1b[0m \x1b[32mc\x1b[0m"
