"""PASR's tags: what holds the form, and that how a reply is cut into chunks makes no difference."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.proactive.pasr import TagStream, parse, strip_refine
from redraft.proactive.pasr.tags import TAGS

PARTS = st.sampled_from([*TAGS, "<", ">", "</", "<thi", "nk>", "a", " ", "\n", "<refine", "é", "<b>"])
TEXTS = st.lists(PARTS, max_size=14).map("".join)


@given(text=TEXTS, cuts=st.lists(st.integers(0, 80), max_size=8), opened=st.booleans())
def test_any_chunking_gives_the_same(text, cuts, opened):
    stream = TagStream(opened=opened)
    ends = [*sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [p for a, b in itertools.pairwise([0, *ends]) for p in stream.feed(text[a:b])]
    pieces += stream.close()
    whole = TagStream(opened=opened)
    expected = [*whole.feed(text), *whole.close()]
    assert merged(pieces) == merged(expected)
    assert "".join(piece.text for piece in pieces) == text
    assert stream.tagged() == parse(text, opened=opened)


def merged(pieces):
    """Texts of one place that follow each other, as one."""
    return [
        (where, tag, "".join(p.text for p in group))
        for (where, tag, _), group in itertools.groupby(pieces, key=lambda p: (p.where, p.tag, p.text if p.tag else ""))
    ]


@given(text=TEXTS, opened=st.booleans())
def test_nothing_of_a_refine_span_is_left_and_nothing_else_goes(text, opened):
    left = strip_refine(text, opened=opened)
    assert parse(left, opened=opened).refines == ()
    assert strip_refine(left, opened=opened) == left
    if not parse(text, opened=opened).refines:
        assert left == text


@given(
    thoughts=st.lists(st.text("ab <>/", max_size=6), min_size=1, max_size=4),
    said=st.text("xyz", min_size=1, max_size=4),
)
def test_what_is_put_together_well_is_well_formed(thoughts, said):
    if any(tag in "".join(thoughts) for tag in TAGS):
        return
    first, *looks = thoughts
    text = f"<think>{first}{''.join(f'<refine>{look}</refine>' for look in looks)}</think>\n<answer>{said}</answer>\n"
    tagged = parse(text)
    assert tagged.faults == ()
    assert tagged.refines == tuple(looks)
    assert tagged.answer == said
    assert tagged.think == "".join(thoughts)
    assert strip_refine(text) == f"<think>{first}</think>\n<answer>{said}</answer>\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "there is no <think>"),
        ("<think>a</think>", "there is no <answer>"),
        ("<answer>1</answer>", "there is no <think>"),
        ("<answer>1</answer><think>a</think>", "<think> comes after <answer>"),
        ("<think>a<answer>1</answer>", "<think> is not closed"),
        ("<think>a</think><answer>1", "<answer> is not closed"),
        ("<think>a</think><answer> </answer>", "the answer is empty"),
        ("<think>a</think><think>b</think><answer>1</answer>", "<think> stands there twice"),
        ("<think>a</think><answer>1</answer><answer>2</answer>", "<answer> stands there twice"),
        ("<think>a<think>b</think><answer>1</answer>", "<think> is out of place"),
        ("<think>a</think><answer>1</answer></answer>", "</answer> is out of place"),
        ("<think>a<refine>b</think><answer>1</answer>", "<refine> is not closed"),
        ("<think>a<refine>b<refine>c</refine></think><answer>1</answer>", "<refine> is out of place"),
        ("<think>a</refine></think><answer>1</answer>", "</refine> is out of place"),
        ("<think>a</think><refine>b</refine><answer>1</answer>", "<refine> is out of place"),
        ("<think>a</think><answer><refine>1</refine></answer>", "<refine> is out of place"),
        ("well <think>a</think><answer>1</answer>", "'well' stands in no block"),
        ("<think>a</think><answer>1</answer> bye", "'bye' stands in no block"),
    ],
)
def test_each_fault_of_the_form_is_named(text, fault):
    tagged = parse(text)
    assert fault in tagged.faults
    assert not tagged.well_formed


def test_a_broken_reply_still_has_its_answer():
    assert parse("<think>hm<answer> 42 </answer>").answer == "42"
    assert parse("<think>a</think><answer>1</answer><answer>2</answer>").answer == "2"
    assert parse("42").answer is None


def test_a_prompt_that_opened_the_thinking_counts():
    assert parse("a</think><answer>1</answer>", opened=True).well_formed
    assert not parse("a</think><answer>1</answer>").well_formed
    assert strip_refine("a<refine>b</refine>c</think>", opened=True) == "ac</think>"


def test_counts():
    counts = parse("<think>ab<refine>cde</refine><refine>f</refine></think><answer>12</answer>").counts
    assert counts == {"refines": 2, "think": 6, "refine": 4, "answer": 2}


def test_only_what_may_become_a_tag_is_held_back():
    stream = TagStream()
    assert [p.text for p in stream.feed("<think>a <")] == ["<think>", "a "]
    assert [p.text for p in stream.feed("b</refi")] == ["<", "b"]
    assert [p.text for p in stream.close()] == ["</refi"]
