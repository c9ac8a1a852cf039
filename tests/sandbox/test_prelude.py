"""The helpers that code in a sandbox finds."""

import ast
import inspect
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.sandbox import prelude
from redraft.sandbox.prelude import chunk, grep, peek

TEXTS = st.text(alphabet="ab \n\u00e9", max_size=200)


@given(TEXTS, st.integers(1, 50), st.sampled_from(["line", "paragraph", "char"]))
def test_chunks_are_short_enough_and_joined_are_the_text(text, n, by):
    pieces = chunk(text, n, by=by)
    assert "".join(pieces) == text
    assert all(1 <= len(piece) <= n for piece in pieces)


@given(TEXTS, st.integers(2, 50), st.data(), st.sampled_from(["line", "paragraph", "char"]))
def test_chunks_overlap_by_what_was_asked(text, n, data, by):
    overlap = data.draw(st.integers(0, n - 1))
    pieces = chunk(text, n, overlap, by)
    assert all(len(piece) <= n for piece in pieces)
    whole = "".join(piece if not i else piece[overlap:] for i, piece in enumerate(pieces))
    assert whole == text
    for before, after in itertools.pairwise(pieces):
        assert after.startswith(before[len(before) - overlap :])


def test_chunks_end_where_lines_and_paragraphs_do():
    assert chunk("aa\nbb\ncc\n", 7) == ["aa\nbb\n", "cc\n"]
    assert chunk("aa\n\nbb\ncc", 8, by="paragraph") == ["aa\n\n", "bb\ncc"]
    assert chunk("aa\nbb\ncc", 7, by="paragraph") == ["aa\nbb\n", "cc"]
    assert chunk("abcdef", 4) == ["abcd", "ef"]
    assert chunk("", 4) == []


def test_impossible_chunks_are_errors():
    for wrong in ({"n": 0}, {"n": 3, "overlap": 3}, {"n": 3, "overlap": -1}, {"n": 3, "by": "page"}):
        with pytest.raises(ValueError, match=r"n=|by="):
            chunk("text", **wrong)


@given(TEXTS)
def test_grep_says_where(text):
    for hit in grep("a+", text, window=3, limit=7):
        assert text[hit["position"] :].startswith(hit["match"])
        assert hit["line"] == text.count("\n", 0, hit["position"]) + 1
        assert hit["match"] in hit["text"]


def test_grep_stops_at_its_limit_and_goes_through_lists():
    assert len(grep("a", "a" * 100)) == 50
    hits = grep("a", ["b", "xa", "aa"], limit=2)
    assert [(hit["item"], hit["position"]) for hit in hits] == [(1, 1), (2, 0)]
    assert len(grep("a+", "a" * 10**6)[0]["match"]) == 2000


def test_peek_shows_a_part_and_the_size():
    assert peek("abcdef", 2, 3) == "[2:5 of 6] cde"
    assert peek("abcdef", -2) == "[4:6 of 6] ef"
    assert peek([1, 2, 3], 1, 1) == "[1:2 of 3] [2]"


async def test_llm_map_asks_for_all_at_once(jail):
    asked = []

    async def llm_query_batched(prompts, schema=None):
        asked.append((prompts, schema))
        return [len(prompt) for prompt in prompts]

    await jail.start({}, {"llm_query_batched": llm_query_batched})
    result = await jail.execute(
        "print(llm_map('{i}: is {chunk} {x}?', ['a', '{chunk}']))\nprint(llm_map(lambda c: c * 2, 'ab', {'type': 'integer'}))"
    )
    assert result.output == "[12, 18]\n[2, 2]\n"
    assert asked == [(["0: is a {x}?", "1: is {chunk} {x}?"], None), (["aa", "bb"], {"type": "integer"})]


async def test_llm_map_is_there_only_with_a_model(jail):
    await jail.start({}, {})
    assert (await jail.execute("llm_map")).error.startswith("NameError")
    assert (
        await jail.execute("peek('abc'), grep('b', 'abc')[0]['line'], chunk('abc', 2)")
    ).output == "('[0:3 of 3] abc', 1, ['ab', 'c'])\n"


def test_every_interpreter_can_run_them():
    """No classes, generators or imports beyond `re`: a smaller Python has none."""
    tree = ast.parse(inspect.getsource(prelude))
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.Yield | ast.YieldFrom | ast.With)]
    assert [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)] == ["import re"]
