"""User code on strategies, modules and checks, type-checked by `make check` and never run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, assert_type

import redraft
from redraft import (
    Attempt,
    BestOfN,
    ChainOfThought,
    Check,
    Critic,
    Critique,
    InputField,
    Issue,
    Module,
    OutputField,
    Predict,
    Prediction,
    Refine,
    Reflect,
    Result,
    Role,
    Run,
    Score,
    SelfRefine,
    Signature,
    SqliteStore,
    StopReason,
    Usage,
    checks,
    configure,
    context,
)
from redraft.budget import Budget
from redraft.errors import BudgetExceeded, RedraftError
from redraft.protocols import LM, Reward, Strategy
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Event, Inputs


class Review(Signature):
    """Review a restaurant."""

    topic: str = InputField(desc="what is reviewed")
    tone: str = InputField(default="dry")
    review: str = OutputField(desc="two sentences")
    stars: int = OutputField()


# models and settings

lm: LM = ScriptedLM(["one", "two"])
echo: LM = FunctionLM(lambda request: str(request.messages[-1]["content"]))


def show(event: Event) -> None:
    """A listener."""
    assert_type(event.data, Mapping[str, Any])


configure(model="openai/gpt-4.1-mini", budget=Budget(calls=20), listeners=(show,))


# modules


class Essay(Module):
    """Sub-modules in attributes, lists and dicts."""

    def __init__(self) -> None:
        self.plan = Predict("topic -> plan")
        self.steps = [ChainOfThought("plan -> part"), Predict("plan -> part", temperature=0.3, top_p=0.9)]
        self.ends = {"close": Predict(Review, lm=lm, system="You are kind.", max_tokens=200, stop=("END",))}

    async def aforward(self, **inputs: Any) -> Prediction:
        """Plan, then write."""
        plan = await self.plan.acall(topic=inputs["topic"])
        parts = await asyncio.gather(*(step.acall(plan=plan.plan) for step in self.steps))
        return Prediction(review=" ".join(part.part for part in parts))


class Loud(Module):
    """A sync one."""

    def forward(self, **inputs: Any) -> dict[str, str]:
        """Louder."""
        return {"answer": str(inputs["text"]).upper()}


def plain(topic: str) -> str:
    """A function is a module, too."""
    return topic.upper()


async def later(topic: str) -> dict[str, str]:
    """And so is a coroutine function."""
    return {"review": topic}


# rewards, checks, critics


def reward(args: dict[str, Any], pred: Any) -> float:
    """DSPy's form."""
    return len(pred.review) / len(args["topic"])


def with_feedback(args: dict[str, Any], pred: Any) -> tuple[float, str]:
    """With feedback."""
    return 0.5, "too short"


async def slow(args: dict[str, Any], pred: Prediction) -> Score:
    """Async, as a Score."""
    return Score(value=0.5, feedback="too short")


rewards: list[Reward] = [reward, with_feedback, slow, lambda args, pred: True]


@redraft.check(tell="Be kind.", hard=False)
def kind(text: str) -> bool:
    """A check of one argument."""
    return "!" not in text


@redraft.check
def on_topic(inputs: Inputs, prediction: Prediction) -> tuple[float, str]:
    """A check of two."""
    return float(inputs["topic"] in prediction.review), "off the topic"


class Shouting(Check):
    """A check as a class."""

    name = "shouting"

    def tell_text(self) -> str:
        """What the author is told."""
        return "Write in capitals."

    def judge(self, value: Any) -> tuple[float, str]:
        """The share of capitals."""
        return float(str(value).isupper()), "not in capitals"


wanted: list[Check] = [
    checks.sentences(3),
    checks.words(20, 40, field="review", hard=False),
    checks.contains("La Maison", "soup"),
    checks.forbids("very unique", ignore_case=False),
    checks.json_schema({"type": "object"}, tell=False),
    checks.parse("words:20-40"),
    *checks.from_file("my_checks.py"),
    Shouting(tell=False),
]


def critic(text: str) -> str | None:
    """A critic of one argument; None is fine."""
    return None if "soup" in text else "no dish -> name one"


async def critic_of_two(inputs: Inputs, prediction: Prediction) -> Critique:
    """A critic of two, as a value."""
    issue = Issue(problem="no dish", suggestion="name one", severity="minor", location="line 1")
    return Critique(verdict="revise", issues=(issue,))


# strategies

refine = Refine(
    Essay(), N=3, reward_fn=reward, threshold=1.0, fail_count=1, checks=[*wanted, kind], budget=Budget(cost=0.01)
)
best = BestOfN(plain, 5, with_feedback, 0.9)
nested = Refine(SelfRefine(Predict(Review), checks=wanted), N=2, reward_fn=slow)
by_task = SelfRefine("Write a haiku on autumn.", critic=critic, rounds=2, revise="fresh")
by_roles = SelfRefine(
    "topic -> review",
    critic=Critic("food critic", criteria=["sensory detail"], lm=lm, temperature=0.3),
    reviser=Role(persona="line editor", lm="openai/gpt-4.1", temperature=0.2),
    judge=lm,
)
reflect = Reflect("Review La Maison.", writer="blogger", editor=critic_of_two, criteria=["balance"], rounds=1)


def use() -> str:
    """Sync code."""
    result = refine(topic="La Maison")
    with context(model=lm, seed=1, store=SqliteStore("runs.db")) as here:
        assert_type(here.seed, int | None)
        best(topic="x")
    with Run(budget=Budget(calls=9)) as run:
        nested(topic="x")
        assert_type(run.usage, Usage)
    return str(result.review)


async def use_async() -> Result:
    """Async code: the receipt has types, the fields are the signature's."""
    result = await by_roles.acall(topic="La Maison")
    assert_type(result, Result)
    assert_type(result.score, float | None)
    assert_type(result.cost, float | None)
    assert_type(result.passed, bool)
    assert_type(result.stop_reason, StopReason)
    assert_type(result.attempts, tuple[Attempt, ...])
    assert_type(result.best.critique, Critique | None)
    assert_type(result.error, Exception | None)
    assert_type(result.receipt(), str)
    assert_type(result.to_dict(), dict[str, Any])
    if result.stop_reason is StopReason.BUDGET and isinstance(result.error, BudgetExceeded):
        assert_type(result.error.limit, str)
    said: str = result.review
    stars: int = result["stars"]
    del said, stars
    try:
        await reflect.acall()
    except RedraftError as error:
        assert_type(error.attempts, tuple[Attempt, ...])
        assert_type(error.usage, Usage | None)
    return result


class Twice:
    """A strategy of the user's: a plain class, nothing to inherit."""

    async def steps(self, run: Run, inputs: Inputs) -> StopReason:
        """Two tries; the longer one."""
        first = await run.attempt(later, inputs)
        run.accept(first, "the first draft")
        second = await run.attempt(later, inputs, parent=first, rung="resample")
        if len(second.text) > len(first.text):
            run.accept(second, "longer")
        else:
            run.reject(second, "not longer")
        return StopReason.ROUNDS


strategy: Strategy = Twice()
also: Strategy = refine


async def drive() -> Result:
    """A run by hand, resumable."""
    run = Run(store=SqliteStore("runs.db"), run_id="r1", seed=7, strict=True)
    return await run.execute(strategy, {"topic": "x"})
