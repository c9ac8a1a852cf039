"""Proactive decoding on the embedded engine."""

from __future__ import annotations

import pytest

from redraft import Predict, checks
from redraft.lm.local import LocalLM
from redraft.proactive import DynamicBacktracker, ProactiveDecoder, RandomSignal

pytestmark = pytest.mark.local


def decoder(rules, **options):
    return ProactiveDecoder(
        Predict("task -> answer", lm=LocalLM(), temperature=0.0, max_tokens=60), checks=rules, **options
    )


def test_where_nothing_triggers_it_is_the_plain_text_in_one_call():
    result = decoder([])(task="Say hello.")
    plain = Predict("task -> answer", lm=LocalLM(), temperature=0.0, max_tokens=60)(task="Say hello.")
    assert result.answer == plain.answer
    assert result.usage.calls == 1
    assert result.usage.exact


def test_a_forbidden_word_is_taken_back_while_it_is_written():
    plain = Predict("task -> answer", lm=LocalLM(), temperature=0.0, max_tokens=60)(
        task="Write one sentence about a cat."
    )
    word = next(word.strip(".,") for word in plain.answer.split()[3:] if len(word) > 3)
    result = decoder([checks.forbids(word)])(task="Write one sentence about a cat.")
    rewinds = [event.data for event in result.events if event.kind == "rewind"]
    assert rewinds[0]["cause"] == "guard"
    assert result.passed
    assert word.lower() not in result.answer.lower()
    # At most one token for each cut may have been written beyond it.
    assert result.usage.uncertain_tokens <= result.usage.calls


def test_what_is_kept_is_read_from_the_prefix_cache():
    back = DynamicBacktracker(reach=(1, 9), gap=6, most=2)
    result = decoder([], signal=RandomSignal(1.0), back=back)(task="List three fruits, one a line.")
    later = [event.data["usage"] for event in result.events if event.kind == "call"][1:]
    assert later
    # Branches run at once, in slots of their own, which may hold nothing of it yet.
    assert any(usage.get("cached_tokens", 0) > 0.9 * usage["input_tokens"] for usage in later)


def test_characters_of_several_tokens_are_kept_whole():
    result = decoder([checks.chars(at_most=12)])(
        task="Print this: \U0001f370\U0001f370\U0001f370\U0001f370\U0001f370\U0001f370"
    )
    result.answer.encode("utf-8")
    assert "\ufffd" not in result.answer
