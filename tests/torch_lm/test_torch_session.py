"""A cache that goes back and branches holds what a computation from scratch gives."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="left out: make test-torch runs what needs torch")

from redraft.proactive.torch_session import Session, greedy, sampled, token_bytes  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

PROMPT = [*b"Once upon a time"]


@pytest.fixture
def session(tiny):
    return Session(tiny.session.model, tiny.tokenizer)


def from_scratch(session, ids):
    with torch.inference_mode():
        return session.model(input_ids=torch.tensor([ids])).logits[:, -1, :]


def ids_of(stretch):
    return [token.id for token in stretch.tokens]


def test_it_writes_what_generate_writes(session):
    asked = torch.tensor([PROMPT])
    whole = session.model.generate(
        asked, attention_mask=torch.ones_like(asked), max_new_tokens=40, do_sample=False, pad_token_id=0
    )
    stretch = session.write(PROMPT, 40, greedy)
    assert ids_of(stretch) == whole[0].tolist()[len(PROMPT) :]
    assert session.computed == len(PROMPT) + len(stretch.tokens) - 1, "nothing is computed twice"


def test_logits_after_any_rewind_are_those_of_a_computation_from_scratch(session):
    chance = random.Random(3)
    ids = [*PROMPT, *ids_of(session.write(PROMPT, 40, greedy))]
    for _ in range(25):
        cut = chance.randrange(1, len(ids))
        kept = [*ids[:cut], chance.randrange(256)]
        with torch.inference_mode():
            logits = session._reach(kept)
        assert torch.allclose(logits, from_scratch(session, kept), atol=1e-3)
        assert session.ids == kept
        assert session.cache.get_seq_length() == len(kept)
        ids = [*kept, *ids_of(session.write(kept, chance.randrange(1, 12), greedy))]
        assert session.cache.get_seq_length() == len(ids) - 1


def test_a_rewind_computes_the_new_token_only(session):
    written = ids_of(session.write(PROMPT, 30, greedy))
    before = session.computed
    session.write([*PROMPT, *written[:10], 7], 1, greedy)
    assert session.computed - before == 1


def test_branches_are_what_each_would_be_alone_and_leave_the_text_alone(session):
    written = ids_of(session.write(PROMPT, 20, greedy))
    kept = [*PROMPT, *written[:8]]
    firsts = [65, 66, 67]
    together = session.branch(kept, firsts, 9, [greedy, greedy, sampled(0.9, 4)])
    before = session.computed
    session.write([*PROMPT, *written], 1, greedy)
    assert session.computed - before == 1, "the text itself is still there"
    for first, stretch in zip(firsts[:2], together[:2], strict=True):
        alone = Session(session.model, _tokenizer_of(session))
        assert ids_of(alone.write([*kept, first], 9, greedy)) == ids_of(stretch)


def test_the_branch_that_is_taken_becomes_the_text_and_is_not_computed_again(session):
    kept = [*PROMPT, *ids_of(session.write(PROMPT, 12, greedy))[:6]]
    branches = session.branch(kept, [65, 66], 9, [greedy, greedy])
    taken = [*kept, 66, *ids_of(branches[1])]
    before = session.computed
    with torch.inference_mode():
        logits = session._reach(taken)
    assert session.computed - before == 1
    assert torch.allclose(logits, from_scratch(session, taken), atol=1e-3)


def test_a_branch_that_ends_early_waits_for_the_others(session):
    kept = [*PROMPT, *ids_of(session.write(PROMPT, 4, greedy))]
    ended, other = session.branch(kept, [256, 65], 5, [greedy, greedy])
    assert (ended.tokens, ended.finish) == ((), "stop")
    assert len(other.tokens) == 5


def test_the_numbers_of_a_token_are_those_of_the_whole_distribution(session):
    stretch = session.write(PROMPT, 1, greedy)
    [token] = stretch.tokens
    shares = torch.log_softmax(from_scratch(session, PROMPT)[0], dim=-1)
    assert token.logprob == pytest.approx(float(shares.max()), abs=1e-3)
    assert token.entropy == pytest.approx(float(-(shares.exp() * shares).sum()), abs=1e-3)
    assert token.entropy_topk <= token.entropy + 1e-4
    assert [t.logprob for t in token.top] == sorted((t.logprob for t in token.top), reverse=True)


def test_watching_ends_it_at_that_very_token(session):
    full = ids_of(session.write(PROMPT, 10, greedy))
    stretch = session.write(PROMPT, 10, greedy, watch=lambda token: token.id == full[3])
    assert stretch.finish == "cut"
    assert ids_of(stretch) == full[: full.index(full[3]) + 1]


def test_bytes_of_tokens_make_up_the_text(tiny):
    text = "caf\u00e9 \U0001f370\n"
    ids = tiny.tokenizer(text)["input_ids"]
    assert b"".join(token_bytes(tiny.tokenizer, number) for number in ids).decode() == text


def _tokenizer_of(session):
    class Bare:
        eos_token_id = 256
        all_special_ids = (256,)

        @staticmethod
        def convert_ids_to_tokens(number):
            return chr(number)

    del session
    return Bare()
