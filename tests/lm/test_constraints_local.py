"""Constraints on the embedded model: it holds them, in texts that a reader can stand."""

from __future__ import annotations

import pytest

from redraft.checks import bullets, contains, lowercase, no_commas, sentences, words
from redraft.checks.clean import faults
from redraft.lm.local import LocalLM
from redraft.types import Request

pytestmark = pytest.mark.local

ASKED = [
    ("Write about how bees make honey in 3 sentences. Mention the winter.", (sentences(3), contains("winter")), 4),
    ("Give advice for better sleep in 3 bullets.", (bullets(3), words(20, 40), no_commas()), 4),
    (
        "Write 20 to 40 words about Lisbon, and mention music and the river.",
        (words(20, 40), contains("music", "river")),
        4,
    ),
    # Lower case is foreign ground to a small model.
    ("Give advice for a first day at work in 3 bullets, in lowercase.", (bullets(3), lowercase()), 2),
]


@pytest.mark.parametrize(("prompt", "checks", "least"), ASKED, ids=[prompt[:20] for prompt, _, _ in ASKED])
async def test_a_small_model_passes_and_most_texts_are_clean(prompt, checks, least):
    whole = checks[0].constraint()
    for check in checks[1:]:
        whole &= check.constraint()
    clean = 0
    for seed in range(6):
        request = Request(
            messages=({"role": "user", "content": prompt},),
            grammar=whole.grammar(),
            max_tokens=160,
            temperature=0.7,
            seed=seed,
        )
        reply = await LocalLM().generate(request)
        if reply.finish_reason != "stop":
            continue  # it lost itself in one word
        assert all(check.judge(reply.text)[0] == 1.0 for check in checks), reply.text
        clean += not faults(reply.text, prompt)
    assert clean >= least  # of six
