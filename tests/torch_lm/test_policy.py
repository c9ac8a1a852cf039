"""The refinement policy: it learns where there is something to learn, belongs to one model, and is compared with what is free."""

from __future__ import annotations

import copy
import random

import pytest

torch = pytest.importorskip("torch", reason="left out: make test-torch runs what needs torch")

from redraft.errors import ConfigError, InputError  # noqa: E402
from redraft.proactive.pasr.grading import Grader  # noqa: E402
from redraft.proactive.policy import Identity, Move, RefinementPolicy  # noqa: E402
from redraft.proactive.policy_eval import auroc, evaluate_pasr, table, tell_apart  # noqa: E402
from redraft.proactive.policy_text import (  # noqa: E402
    Bounds,
    HiddenSession,
    generate_with_pasr,
    prompt_ids,
    write_after,
    write_with,
)
from redraft.proactive.policy_train import (  # noqa: E402
    Measured,
    gradient_loss,
    measure_places,
    supervised_loss,
    train_on,
    train_refinement_policy,
)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

SIZE = 16
DISTANCES, TEMPERATURES = (1, 4), (0.7, 0.9)
NOBODY = Identity(kind="none", hidden_size=SIZE, layers=2, vocabulary=10, dtype="torch.float32", weights="0")


@pytest.fixture
def policy():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return RefinementPolicy(NOBODY, distances=DISTANCES, temperatures=TEMPERATURES)


def bandit(n, seed):
    """Places of three kinds, told by their state: at 0 only (4, 0.7) pays, at 1 only (1, 0.9), at 2 nothing does."""
    chance = torch.Generator().manual_seed(seed)
    kinds = torch.eye(3, SIZE) * 4
    places = []
    for i in range(n):
        kind = i % 3
        gains = torch.full((2, 2, 2), -0.5)
        if kind == 0:
            gains[1, 0] = 1.0
        elif kind == 1:
            gains[0, 1] = 1.0
        hidden = kinds[kind] + 0.3 * torch.randn(SIZE, generator=chance)
        nll = float(torch.rand(1, generator=chance))
        places.append(
            Measured(hidden=hidden, nll=nll, worth=0.5, gains=gains, extra=torch.full((2, 2, 2), 3.0), question=str(i))
        )
    return places


WANTED = [Move(distance=4, temperature=0.7), Move(distance=1, temperature=0.9), None]


def share_right(policy, places):
    return sum(policy.move(place.hidden) == WANTED[i % 3] for i, place in enumerate(places)) / len(places)


@pytest.mark.parametrize("how", ["warm-up", "gradient"])
def test_the_gradient_reaches_every_head(policy, how):
    places = bandit(12, 1)
    hidden = torch.stack([place.hidden for place in places])
    if how == "warm-up":
        loss = supervised_loss(policy, hidden, [place.best(0.01) for place in places])
    else:
        loss, _ = gradient_loss(policy, hidden, torch.stack([place.rewards(0.01) for place in places]), 16)
    loss.backward()
    norms = {name: float(head.weight.grad.norm()) for name, head in policy.heads.items()}
    assert min(norms.values()) > 1e-4, norms


def test_policy_gradient_alone_solves_a_bandit(policy):
    places = bandit(60, 1)
    hidden = torch.stack([place.hidden for place in places])
    rewards = torch.stack([place.rewards(0.01) for place in places])
    assert share_right(policy, bandit(60, 2)) < 0.7
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    means = []
    for _ in range(250):
        loss, mean = gradient_loss(policy, hidden, rewards, 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        means.append(mean)
    assert share_right(policy, bandit(60, 2)) > 0.95
    assert means[-1] > means[0] + 0.3


def test_training_solves_it_and_says_how(policy):
    trained = train_on(policy, bandit(60, 1), epochs=60, cost=0.01)
    assert share_right(policy, bandit(60, 2)) > 0.95
    assert trained.warm_up[-1] < trained.warm_up[0]
    assert trained.gradient[-1] > 0.5
    told = tell_apart(policy, bandit(60, 2), 0.01)
    assert told.policy > 0.95
    assert told.policy - 1.0 < told.difference[0] < told.difference[1]


def test_tokens_that_cost_more_than_they_bring_are_not_written(policy):
    train_on(policy, bandit(60, 1), epochs=60, cost=0.5)
    assert all(policy.move(place.hidden) is None for place in bandit(60, 2))


def test_without_places_there_is_nothing_to_learn(policy):
    with pytest.raises(InputError, match="no place to learn from"):
        train_on(policy, [])
    with pytest.raises(InputError, match="nothing to tell apart"):
        tell_apart(policy, [bandit(3, 1)[2]])


def test_a_policy_comes_back_as_it_was(tiny, tmp_path):
    model = tiny.session.model
    torch.manual_seed(1)
    policy = RefinementPolicy.on(model, layer=2, distances=(1, 3), temperatures=(0.5,))
    policy.save(tmp_path / "p.safetensors")
    again = RefinementPolicy.load(tmp_path / "p.safetensors", model)
    hidden = torch.randn(5, 32)
    assert (again.layer, again.distances, again.temperatures) == (2, (1, 3), (0.5,))
    assert all(torch.equal(policy(hidden)[name], again(hidden)[name]) for name in policy.heads)


def test_a_policy_of_another_model_is_refused(tiny, tmp_path):
    model = tiny.session.model
    RefinementPolicy.on(model).save(tmp_path / "p.safetensors")
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_input_embeddings().weight[3, 0] += 0.01
    with pytest.raises(ConfigError, match="trained on another model: weights"):
        RefinementPolicy.load(tmp_path / "p.safetensors", other)
    with pytest.raises(ConfigError, match=r"dtype torch\.float32 there, torch\.bfloat16 here"):
        RefinementPolicy.load(tmp_path / "p.safetensors", copy.deepcopy(model).to(torch.bfloat16))
    (tmp_path / "no.safetensors").write_bytes(b"no such thing")
    for name in ("no.safetensors", "absent.safetensors"):
        with pytest.raises(ConfigError, match="is no refinement policy"):
            RefinementPolicy.load(tmp_path / name, model)


def test_a_layer_that_is_not_there_is_refused(tiny):
    with pytest.raises(InputError, match="the model has 3"):
        RefinementPolicy.on(tiny.session.model, layer=4)


def test_without_a_trigger_it_is_generate_token_for_token(tiny):
    model = tiny.session.model
    ids = prompt_ids(tiny.tokenizer, "Once upon a time")
    asked = torch.tensor([ids])
    whole = model.generate(
        asked, attention_mask=torch.ones_like(asked), max_new_tokens=30, do_sample=False, pad_token_id=0
    )
    policy = RefinementPolicy.on(model)
    written = generate_with_pasr(model, policy, tiny.tokenizer, "Once upon a time", 30, refinement_threshold=1.0)
    assert written.ids == tuple(whole[0].tolist()[len(ids) :])
    assert (written.final_tokens, written.tokens_generated, written.efficiency) == (30, 30, 1.0)
    assert (written.refinements_applied, written.decisions) == (0, 30)


def test_the_state_that_decides_is_the_one_its_token_came_from(tiny):
    session = HiddenSession(tiny.session.model, tiny.tokenizer, -1)
    ids = prompt_ids(tiny.tokenizer, "Once")
    seen = []
    write_with(session, ids, seen.append, cap=6)
    with torch.inference_mode():
        for place in seen:
            before = [*ids, *(token.id for token in place.tokens[:-1])]
            out = session.model(input_ids=torch.tensor([before]), output_hidden_states=True)
            assert torch.allclose(place.hidden, out.hidden_states[-1][0, -1], atol=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_every_text_ends_and_every_token_is_counted(tiny, seed):
    chance = random.Random(seed)
    session = HiddenSession(tiny.session.model, tiny.tokenizer, -1)
    bounds = Bounds(keep=chance.choice([0.0, 0.2, 0.5]), most=chance.randrange(5), gap=chance.randrange(1, 6))
    lengths = []

    def always(place):
        lengths.append(len(place.tokens))
        return Move(distance=chance.randrange(1, 20), temperature=0.9)

    before = session.computed
    ids = prompt_ids(tiny.tokenizer, "Once")
    written = write_with(session, ids, always, cap=25, bounds=bounds, seed=seed)
    assert written.refinements_applied <= bounds.most
    assert written.final_tokens <= 25
    assert written.tokens_generated >= written.final_tokens
    assert session.computed - before <= len(ids) + written.tokens_generated + written.refinements_applied


@pytest.mark.parametrize("keep", [0.0, 0.2, 0.9])
def test_what_is_kept_is_kept(keep):
    for n in range(1, 40):
        for distance in range(1, 40):
            point = Bounds(keep=keep).point(n, distance)
            assert 0 <= point < n
            assert point >= min(keep * n, n - 1)
            assert point >= min(n - distance, n - 1)


def test_a_move_puts_another_token(tiny):
    session = HiddenSession(tiny.session.model, tiny.tokenizer, -1)
    ids = prompt_ids(tiny.tokenizer, "Once")
    texts = []

    def once(place):
        texts.append([token.id for token in place.tokens])
        return Move(distance=3, temperature=0.01) if len(place.tokens) == 6 and len(texts) == 6 else None

    write_with(session, ids, once, cap=12)
    assert texts[-1][:3] == texts[5][:3]
    assert texts[-1][3] != texts[5][3]


@pytest.mark.parametrize("at", [1, 4, 9, 12])
def test_a_move_on_what_stands_is_the_same_move_while_writing(tiny, at):
    session = HiddenSession(tiny.session.model, tiny.tokenizer, -1)
    ids = prompt_ids(tiny.tokenizer, "Once")
    move, seen = Move(distance=3, temperature=0.9), []

    def once(place):
        seen.append(place)
        return move if len(place.tokens) == at and len(seen) == at else None

    whole = write_with(session, ids, once, cap=12, bounds=Bounds(most=1), seed=5)
    assert write_after(session, ids, seen[at - 1].tokens, move, cap=12, seed=5).ids == whole.ids
    assert write_after(session, ids, seen[at - 1].tokens, move, cap=12, seed=5).tokens_generated == (
        whole.tokens_generated
    )


ROWS = [{"question": f"{i}?", "answer": "x"} for i in range(6)]


def many_e(args, pred):
    return min(pred.answer.count("e") + len(pred.answer) % 3, 4) / 4


def test_places_are_measured_against_the_plain_text(tiny):
    policy = RefinementPolicy.on(tiny.session.model, distances=(1, 4), temperatures=(0.9,))
    places = measure_places(
        tiny.session.model, policy, tiny.tokenizer, ROWS[:2], grader=Grader(reward=many_e), max_length=10, tries=2
    )
    assert len(places) == 8
    for place in places:
        assert place.gains.shape == place.extra.shape == (2, 1, 2)
        assert bool((place.gains + place.worth >= 0).all())
        assert bool((place.gains + place.worth <= 1).all())
    assert any(bool((place.extra > 0).any()) for place in places)


def test_it_trains_on_a_model_and_stands_beside_what_is_free(tiny):
    model = tiny.session.model
    torch.manual_seed(0)
    policy = RefinementPolicy.on(model, distances=(1, 4), temperatures=(0.9,))
    before = [p.detach().clone() for p in model.parameters()]
    grader = Grader(reward=many_e)
    trained = train_refinement_policy(
        policy, model, tiny.tokenizer, ROWS[:4], 1, grader=grader, options={"max_length": 10, "tries": 1}
    )
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)), "the model is frozen"
    arms = evaluate_pasr(model, policy, tiny.tokenizer, ROWS[4:], trained, grader=grader, max_length=10)
    assert [arm.name for arm in arms] == ["never", "policy", "nll", "random", "always"]
    never, *_, always = arms
    assert (never.moves, never.tokens, never.fixed, never.broken) == (0.0, never.final, 0, 0)
    assert always.moves > 0
    assert always.tokens > never.tokens
    assert never.interval[0] <= never.accuracy <= never.interval[1]
    assert len(table(arms).splitlines()) == 7


def test_areas_under_the_curve():
    assert auroc([1, 2, 3, 4], [False, False, True, True]) == 1.0
    assert auroc([4, 3, 2, 1], [False, False, True, True]) == 0.0
    assert auroc([1, 1, 1, 1], [False, True, True, False]) == 0.5
    assert auroc([1, 2, 2, 3], [False, True, False, True]) == 0.875
    assert auroc([1, 2], [True, True]) == 0.5
