"""Training a refinement policy: what going back would have been worth, measured by going back; then a warm-up on the best moves,
then policy gradient on the measured worth less the measured tokens.

The labels are counterfactual: at a place of a plain text, each move is carried out a few times and compared with going on, which
for greedy decoding is the plain text itself. Nothing copies the final verdict to every token. A place is one decision: what a later
move on top would be worth is not credited to an earlier one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.errors import InputError
from redraft.proactive.pasr.baseline import question_of
from redraft.proactive.pasr.grading import Grader, Row
from redraft.proactive.policy import Move, RefinementPolicy
from redraft.proactive.policy_text import Bounds, Decide, HiddenSession, Place, prompt_ids, write_after, write_with
from redraft.proactive.tokens import Token
from redraft.record import derived_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One place, and what each move was worth there."""

    hidden: Any
    """Hidden size numbers."""
    nll: float
    """The mean negative log-likelihood of what stood, in nats a token."""
    worth: float
    """Accuracy of the plain text, 0..1."""
    gains: Any
    """Accuracy less that of the plain text, for each (distance, intensity, try)."""
    extra: Any
    """Tokens written beyond those of the plain text, likewise; below 0 where a move saved some."""
    question: str

    def rewards(self, cost: float) -> Any:
        """Gain less `cost` a token, for each (distance, intensity, try)."""
        return self.gains - cost * self.extra

    def best(self, cost: float) -> tuple[float, int, int]:
        """The mean reward of the best move, and the indices of its distance and intensity."""
        means = self.rewards(cost).mean(dim=-1)
        at = int(means.argmax())
        return float(means.flatten()[at]), at // means.shape[1], at % means.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What training saw."""

    places: tuple[Measured, ...]
    warm_up: tuple[float, ...]
    """Loss of each supervised epoch."""
    gradient: tuple[float, ...]
    """Mean sampled reward of each epoch of policy gradient; going on is 0."""
    cost: float
    """Of a token, in units of accuracy."""
    fixed: Move
    """The move with the highest mean reward over all places: what rules without a policy make."""

    def nll_threshold(self, rate: float) -> float:
        """The mean NLL that this share of the places exceeds."""
        ordered = sorted(place.nll for place in self.places)
        return ordered[min(int((1 - rate) * len(ordered)), len(ordered) - 1)] if rate > 0 else float("inf")


def measure_places(
    model: Any,
    policy: RefinementPolicy,
    tokenizer: Any,
    rows: Iterable[Row],
    *,
    grader: Grader,
    max_length: int = 64,
    tries: int = 2,
    seed: int = 0,
) -> list[Measured]:
    """What each move of the policy is worth at a few places (4 at most, the end among them) of the plain text of each row.

    It writes `1 + places x distances x temperatures x tries` texts a row, those of distances that come to the same point once.
    Rows on whose plain text the judge gives no verdict are left out; so are tries without one (they count as no change).
    """
    session = HiddenSession(model.eval(), tokenizer, policy.layer)
    found: list[Measured] = []
    for row in rows:
        question = question_of(row)
        ids = prompt_ids(tokenizer, question)
        seen: list[Place] = []
        plain = write_with(session, ids, _all_into(seen), cap=max_length)
        [worth] = grader.grade([(row, plain.text)])
        if worth is None:
            continue
        chance = random.Random(derived_seed(seed, question))
        places = [*sorted(chance.sample(range(len(seen) - 1), min(3, len(seen) - 1))), len(seen) - 1]
        for at in places:
            place = seen[at]
            measure = _Measure(
                session, ids, place.tokens, row, grader, max_length, derived_seed(seed, f"{at}|{question}")
            )
            gains, extra = measure.table(policy, tries, worth, plain.tokens_generated)
            found.append(
                Measured(hidden=place.hidden, nll=place.nll, worth=worth, gains=gains, extra=extra, question=question)
            )
    return found


def _all_into(seen: list[Place]) -> Decide:
    def decide(place: Place) -> Move | None:
        seen.append(place)
        return None

    return decide


@dataclass(frozen=True)
class _Measure:
    session: HiddenSession
    ids: list[int]
    stands: Sequence[Token]
    row: Row
    grader: Grader
    cap: int
    seed: int

    def table(self, policy: RefinementPolicy, tries: int, worth: float, plain: int) -> tuple[Any, Any]:
        """Gains and extra tokens for each (distance, intensity, try)."""
        import torch

        known: dict[tuple[int, float, int], tuple[float, int]] = {}
        shape = (len(policy.distances), len(policy.temperatures), tries)
        gains, extra = torch.zeros(shape), torch.zeros(shape)
        for d, distance in enumerate(policy.distances):
            point = Bounds().point(len(self.stands), distance)
            for t, temperature in enumerate(policy.temperatures):
                for k in range(tries):
                    key = (point, temperature, k)
                    if key not in known:
                        known[key] = self.tried(Move(distance=distance, temperature=temperature), k, worth)
                    gains[d, t, k] = known[key][0] - worth
                    extra[d, t, k] = known[key][1] - plain
        return gains, extra

    def tried(self, move: Move, k: int, worth: float) -> tuple[float, int]:
        """Accuracy and tokens written with this one move."""
        seed = self.seed % 100_003 + k
        text = write_after(self.session, self.ids, self.stands, move, cap=self.cap, seed=seed)
        [value] = self.grader.grade([(self.row, text.text)])
        return (worth if value is None else value), text.tokens_generated


def train_refinement_policy(
    policy: RefinementPolicy,
    model: Any,
    tokenizer: Any,
    train_data: Iterable[Row],
    num_epochs: int = 10,
    *,
    grader: Grader,
    cost: float = 0.005,
    options: Mapping[str, Any] | None = None,
) -> Trained:
    """Measure, warm up, then train by policy gradient, `num_epochs` x 10 passes each (a pass is milliseconds). `options` go to
    `measure_places`. Raises `InputError` without a place to learn from.
    """
    places = measure_places(model, policy, tokenizer, train_data, grader=grader, **(options or {}))
    return train_on(policy, places, epochs=10 * num_epochs, cost=cost)


def train_on(
    policy: RefinementPolicy,
    places: Sequence[Measured],
    *,
    epochs: int = 100,
    cost: float = 0.005,
    group: int = 8,
    rate: float = 0.01,
    seed: int = 0,
) -> Trained:
    """The same on places that were measured before. `group` actions are drawn a place and pass; each draws one of the measured
    tries, and what counts is its reward above the mean of its place's group.
    """
    import torch

    if not places:
        raise InputError("there is no place to learn from: give rows on which the judge has a verdict")
    torch.manual_seed(seed)
    hidden = torch.stack([place.hidden for place in places]).float()
    rewards = torch.stack([place.rewards(cost) for place in places])
    optimizer = torch.optim.AdamW(policy.parameters(), lr=rate, weight_decay=0.01)
    best = [place.best(cost) for place in places]
    warm_up = [_step(optimizer, supervised_loss(policy, hidden, best)) for _ in range(epochs)]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=rate / 2, weight_decay=0.01)
    gradient = []
    for _ in range(epochs):
        loss, mean = gradient_loss(policy, hidden, rewards, group)
        _step(optimizer, loss)
        gradient.append(mean)
    return Trained(
        places=tuple(places),
        warm_up=tuple(warm_up),
        gradient=tuple(gradient),
        cost=cost,
        fixed=_fixed(policy, rewards),
    )


def supervised_loss(policy: RefinementPolicy, hidden: Any, best: Sequence[tuple[float, int, int]]) -> Any:
    """Cross-entropy of the trigger (the best move is worth more than going on), and of that move where it is."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

    logits = policy(hidden)
    wanted = torch.tensor([float(value > 0) for value, _, _ in best])
    loss = binary_cross_entropy_with_logits(logits["trigger"], wanted)
    on = wanted > 0
    if bool(on.any()):
        for i, name in enumerate(("distance", "intensity"), 1):
            loss = loss + cross_entropy(logits[name][on], torch.tensor([b[i] for b in best])[on])
    return loss


def gradient_loss(policy: RefinementPolicy, hidden: Any, rewards: Any, group: int) -> tuple[Any, float]:
    """REINFORCE: -(reward - mean of the group) x log-probability of the action, its mean; and the mean reward. Going on is 0.

    `rewards` is (places x distances x intensities x tries).
    """
    import torch

    n = hidden.shape[0]
    actions, logprobs = policy.sampled(hidden.repeat_interleave(group, dim=0))
    tries = torch.randint(rewards.shape[-1], (n * group,))
    place = torch.arange(n).repeat_interleave(group)
    got = rewards[place, actions[:, 1], actions[:, 2], tries] * actions[:, 0]
    by_place = got.view(n, group)
    # The mean of the others: an action's own reward in its baseline would shrink the step.
    ahead = (by_place - by_place.mean(dim=1, keepdim=True)) * (group / max(group - 1, 1))
    return -(ahead.flatten() * logprobs).mean(), float(got.mean())


def _step(optimizer: Any, loss: Any) -> float:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _fixed(policy: RefinementPolicy, rewards: Any) -> Move:
    means = rewards.mean(dim=(0, 3))
    at = int(means.argmax())
    return Move(distance=policy.distances[at // means.shape[1]], temperature=policy.temperatures[at % means.shape[1]])
