"""Does a refinement policy pay? Always beside what is free: never, always, at random as often, and the mean NLL as a trigger."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.errors import InputError
from redraft.proactive.pasr.baseline import question_of
from redraft.proactive.pasr.grading import Grader, Row
from redraft.proactive.policy import RefinementPolicy
from redraft.proactive.policy_text import Bounds, Decide, HiddenSession, Written, prompt_ids, write_with
from redraft.proactive.policy_train import Measured, Trained
from redraft.record import derived_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to decide, over all rows."""

    name: str
    right: tuple[float, ...]
    """Accuracy of each row's text, 0..1."""
    tokens: float
    """Written a row, those taken back included."""
    final: float
    """That stand in the end, a row."""
    moves: float
    """A row."""
    rate: float
    """Moves a decision."""
    fixed: int
    """Rows that were wrong without a move (below 0.5), and are right."""
    broken: int
    """The other way round."""

    @property
    def accuracy(self) -> float:
        """The mean over rows."""
        return sum(self.right) / len(self.right)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of `accuracy`, by bootstrap over rows."""
        return bootstrap([(value,) for value in self.right], lambda drawn: sum(v for (v,) in drawn) / len(drawn))


def evaluate_pasr(
    model: Any,
    policy: RefinementPolicy,
    tokenizer: Any,
    benchmark_tasks: Iterable[Row],
    trained: Trained,
    *,
    grader: Grader,
    max_length: int = 64,
    seed: int = 0,
) -> list[Arm]:
    """The policy beside its peers: never (plain), always, random and NLL. Random triggers as often as the policy did on
    these rows, NLL at the share of `trained`'s places that this is (`moves` says how often that was), and always, random and NLL make the one move that was best in training.

    Give rows that were not trained on, easy and hard ones alike: where most are wrong, always going back looks clever. Rows without
    a verdict on a text raise `InputError`.
    """
    rows = [*benchmark_tasks]
    if not rows:
        raise InputError("there are no rows to evaluate on")
    asked = _Asked(HiddenSession(model.eval(), tokenizer, policy.layer), tokenizer, rows, grader, max_length, seed)
    plain = asked.arm("never", lambda _: None)
    learned = asked.arm("policy", lambda place: policy.move(place.hidden), plain)
    chance = random.Random(seed)
    threshold = trained.nll_threshold(learned.rate)
    return [
        plain,
        learned,
        asked.arm("nll", lambda place: trained.fixed if place.nll > threshold else None, plain),
        asked.arm("random", lambda _: trained.fixed if chance.random() < learned.rate else None, plain),
        asked.arm("always", lambda _: trained.fixed, plain),
    ]


@dataclass(frozen=True)
class _Asked:
    session: HiddenSession
    tokenizer: Any
    rows: Sequence[Row]
    grader: Grader
    cap: int
    seed: int

    def arm(self, name: str, decide: Decide, plain: Arm | None = None) -> Arm:
        """All rows, written with this way to decide."""
        texts = [self.written(row, decide) for row in self.rows]
        judged = self.grader.grade([(row, text.text) for row, text in zip(self.rows, texts, strict=True)])
        right = tuple(value for value in judged if value is not None)
        if len(right) < len(self.rows):
            raise InputError(f"the judge gave no verdict on {len(self.rows) - len(right)} of {len(self.rows)} texts")
        before = plain.right if plain else right
        n = len(self.rows)
        decisions = sum(text.decisions for text in texts)
        moves = sum(text.refinements_applied for text in texts)
        return Arm(
            name=name,
            right=right,
            tokens=sum(text.tokens_generated for text in texts) / n,
            final=sum(text.final_tokens for text in texts) / n,
            moves=moves / n,
            rate=moves / max(decisions, 1),
            fixed=sum(a < 0.5 <= b for a, b in zip(before, right, strict=True)),
            broken=sum(b < 0.5 <= a for a, b in zip(before, right, strict=True)),
        )

    def written(self, row: Row, decide: Decide) -> Written:
        """One row's text."""
        question = question_of(row)
        ids = prompt_ids(self.tokenizer, question)
        seed = derived_seed(self.seed, question) % 100_003
        return write_with(self.session, ids, decide, cap=self.cap, bounds=Bounds(), seed=seed)


def table(arms: Sequence[Arm]) -> str:
    """The arms as a table in Markdown."""
    lines = [
        "| triggers | accuracy (95 %) | tokens a row | that stand | moves a row | fixed / broken |",
        "|---|---|---|---|---|---|",
    ]
    for arm in arms:
        low, high = arm.interval
        lines.append(
            f"| {arm.name} | {arm.accuracy:.3f} ({low:.3f} to {high:.3f}) | {arm.tokens:.1f} | {arm.final:.1f} "
            f"| {arm.moves:.2f} | {arm.fixed} / {arm.broken} |"
        )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How well two scores tell the places where going back pays from the others: areas under the ROC curve, 0.5 is chance."""

    policy: float
    nll: float
    difference: tuple[float, float]
    """95 % interval of policy less nll, by bootstrap over questions."""


def tell_apart(policy: RefinementPolicy, places: Sequence[Measured], cost: float = 0.005) -> Told:
    """The policy's trigger beside the mean NLL, on places that were not trained on. Raises `InputError` where going back pays
    everywhere or nowhere.
    """
    import torch

    with torch.no_grad():
        scores = policy.probability(torch.stack([place.hidden for place in places])).tolist() if places else []
    labels = [place.best(cost)[0] > 0 for place in places]
    if len(set(labels)) < 2:
        raise InputError(f"going back pays at {sum(labels)} of {len(labels)} places: there is nothing to tell apart")
    groups: dict[str, list[tuple[float, float, bool]]] = {}
    for place, score, label in zip(places, scores, labels, strict=True):
        groups.setdefault(place.question, []).append((score, place.nll, label))

    def areas(drawn: Sequence[Any]) -> tuple[float, float]:
        rows = [row for group in drawn for row in group]
        labels = [row[2] for row in rows]
        return auroc([row[0] for row in rows], labels), auroc([row[1] for row in rows], labels)

    def ahead(drawn: Sequence[Any]) -> float:
        own, free = areas(drawn)
        return own - free

    own, free = areas([*groups.values()])
    return Told(policy=own, nll=free, difference=bootstrap([*groups.values()], ahead))


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The chance that one with the label scores above one without it, ties half; 0.5 where there is none of either."""
    n = sum(labels)
    if not 0 < n < len(labels):
        return 0.5
    ordered = sorted(zip(scores, labels, strict=True))
    ranks, at = 0.0, 0
    while at < len(ordered):
        end = at
        while end < len(ordered) and ordered[end][0] == ordered[at][0]:
            end += 1
        ranks += (at + 1 + end) / 2 * sum(label for _, label in ordered[at:end])
        at = end
    return (ranks - n * (n + 1) / 2) / (n * (len(labels) - n))


def bootstrap(rows: Sequence[Any], of: Callable[[Sequence[Any]], float], draws: int = 1000) -> tuple[float, float]:
    """The 2.5th and 97.5th percentile of a figure over resampled rows; the same each time."""
    chance = random.Random(0)
    seen = sorted(of(chance.choices(rows, k=len(rows))) for _ in range(draws))
    return seen[int(0.025 * draws)], seen[int(0.975 * draws) - 1]
