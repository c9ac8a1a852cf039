"""Constraints on the embedded model: it holds them, in texts that a reader can stand."""

from __future__ import annotations

import pytest

from redraft.checks import bullets, contains, lowercase, no_commas, sentences, words
from redraft.checks.clean import faults
from redraft.lm.local import LocalLM
from redraft.types import Request

pytestmark = pytest.mark.local

ASKED = [
    ("Write about how bees make honey in 3 sentences. Mention the winter.", (sentences(3), contains("winter"))),
    ("Give advice for better sleep in 3 bullets.", (bullets(3), words(20, 40), no_commas())),
    (
        "Write 20 to 40 words about Lisbon, and mention music and the river.",
        (words(20, 40), contains("music", "river")),
    ),
    # Lower case is foreign ground to a small model.
    ("Give advice for a first day at work in 3 bullets, in lowercase.", (bullets(3), lowercase())),
]


async def test_a_small_model_passes_and_most_texts_are_clean():
    """Which texts come depends on the processor, whose rounding differs: so all are counted together."""
    clean = 0
    for prompt, checks in ASKED:
        whole = checks[0].constraint()
        for check in checks[1:]:
            whole &= check.constraint()
        clean += sum([await passes_and_is_clean(prompt, checks, whole.grammar(), seed) for seed in range(6)])
    assert clean >= 12  # of 24; 18 to 20 were seen


async def passes_and_is_clean(prompt, checks, grammar, seed):
    request = Request(
        messages=({"role": "user", "content": prompt},), grammar=grammar, max_tokens=160, temperature=0.7, seed=seed
    )
    reply = await LocalLM().generate(request)
    if reply.finish_reason != "stop":
        return False  # it lost itself in one word
    assert all(check.judge(reply.text)[0] == 1.0 for check in checks), reply.text
    return not faults(reply.text, prompt)
