"""The result never scores below the first attempt, nothing paid for is lost, and a call changes nothing it is made on."""

import asyncio
import copy
import random
from contextlib import suppress

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from world import BookkeepingLM, execute, faults, programs, strategy

from redraft import BestOfN, Budget, Critic, Pairwise, Predict, Refine, Reflect, Run, SelfRefine, StopReason, context
from redraft.checks import check
from redraft.errors import BadRequestError, RedraftError, TransientLMError
from redraft.scoring import rank
from redraft.testing import FunctionLM
from redraft.types import Prediction

quick = settings(max_examples=60, deadline=None)

score = st.one_of(st.floats(-5, 5, allow_nan=False), st.integers(-3, 3).map(float))
verdicts = st.lists(st.booleans(), min_size=2, max_size=2).map(tuple)
"""What two checks say of a draft."""
draft = st.one_of(
    st.tuples(st.integers(0, 5), score, verdicts),
    st.sampled_from(["error", "refused", "hang", "no score"]),
)


class Drafts:
    """A module that plays a list of drafts, and a scorer that knows them."""

    def __init__(self, drafts):
        self.drafts = drafts
        self.played = 0
        self.scores = {}

    async def acall(self, **inputs):
        here = self.drafts[min(self.played, len(self.drafts) - 1)]
        self.played += 1
        if here == "error":
            raise ValueError("user code")
        if here == "refused":
            raise BadRequestError("refused")
        if here == "hang":
            await asyncio.sleep(5)
        text = f"draft {self.played} {here}" if here == "no score" else f"draft {here[0]} {here[1]} {here[2]}"
        return Prediction(answer=text)

    def reward(self, inputs, prediction):
        if "no score" in prediction.answer:
            raise ValueError("no score")
        return float(prediction.answer.split()[2])

    def check(self, nth):
        def passes(text):
            return ("no score" not in text) and eval(text.split(maxsplit=3)[3])[nth]

        return check(passes, name="the same name for both")


class Coin:
    """A judge without a mind of its own."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    async def acall(self, **inputs):
        return Prediction(wins=self.rng.random() < 0.5)


def made(kind, module, with_reward, with_checks, judge, N):
    options = {"checks": [module.check(0), module.check(1)] if with_checks else []}
    if with_reward:
        options["reward_fn"] = module.reward
    if kind in ("refine", "best"):
        N = N if options.get("reward_fn") or options["checks"] else 1  # more need something to choose by
        return (Refine if kind == "refine" else BestOfN)(module, N=N, threshold=3.0, **options)

    def critic(text):
        return "could be better"

    if kind == "reflect":
        return Reflect(module, writer=None, editor=critic, rounds=N, judge=judge, **options)
    return SelfRefine(module, critic=critic, reviser=module, rounds=N, judge=judge, **options)


@given(
    drafts=st.lists(draft, min_size=1, max_size=6),
    kind=st.sampled_from(["refine", "best", "self_refine", "reflect"]),
    with_reward=st.booleans(),
    with_checks=st.booleans(),
    seed=st.integers(0, 99),
    N=st.integers(1, 5),
)
@settings(max_examples=300, deadline=None)
def test_the_result_never_scores_below_the_first_attempt(drafts, kind, with_reward, with_checks, seed, N):
    drafts = [d for d in drafts if d != "hang"] or ["error"]
    module = Drafts(drafts)

    async def main():
        with context(model=FunctionLM(lambda request: f"draft 3 {seed - 50} (True, False)")):
            return await made(kind, module, with_reward, with_checks, Coin(seed), N).acall(task="x")

    try:
        result = asyncio.run(main())
    except RedraftError as error:
        assert error.attempts
        assert all(a.prediction is None for a in error.attempts), "what was finished is returned, not raised"
        return
    scored = [a for a in result.attempts if a.score is not None]
    if scored:
        note(f"{[a.score.value for a in scored]} -> {result.score}")
        assert rank(result.best) >= rank(scored[0])
        best = max(scored, key=rank)
        if kind in ("refine", "best"):
            assert rank(result.best) == rank(best), "independent samples: the best of all"
            assert result.best.index == min(a.index for a in scored if rank(a) == rank(best)), "ties keep the earlier"
    accepted = [a for a in result.attempts if a.accepted]
    assert accepted[-1].index == result.best.index
    assert [rank(a) for a in accepted] == sorted(rank(a) for a in accepted)
    assert result.text == result.best.text


@given(
    drafts=st.lists(draft, min_size=1, max_size=4),
    kind=st.sampled_from(["refine", "self_refine", "reflect"]),
    depth=st.integers(0, 2),
    how=st.sampled_from(["deadline", "cancel"]),
)
@settings(max_examples=25, deadline=None)
def test_whatever_ends_it_the_best_so_far_is_there(drafts, kind, depth, how):
    """Hanging drafts ended by a deadline or by `cancel`, under strategies that nest: all that was finished survives."""
    drafts = [*drafts, "hang"]
    module = Drafts(drafts)

    async def main():
        inner = made(kind, module, True, False, Coin(1), 9)
        for _ in range(depth):
            inner = Refine(inner, N=3, reward_fn=module.reward)
        run = Run(budget=Budget(seconds=0.06) if how == "deadline" else Budget())
        if how == "cancel":
            asyncio.get_running_loop().call_later(0.06, run.cancel)
        with context(model=FunctionLM(lambda request: "x")):
            return await asyncio.wait_for(run.execute(inner, {"task": "x"}), 60)

    finished = module.drafts[: drafts.index("hang")]
    good = [d for d in finished if isinstance(d, tuple)]
    try:
        result = asyncio.run(main())
    except RedraftError as error:
        assert error.attempts or how == "cancel" or not module.played
        assert all(a.prediction is None for a in error.attempts)
        return
    assert result.text
    if result.stop_reason in (StopReason.BUDGET, StopReason.CANCELLED) and good:
        assert result.attempts


@given(node=programs(), plan=faults, seed=st.integers(0, 10**6), after=st.one_of(st.none(), st.floats(0, 0.02)))
@quick
def test_every_reply_that_was_bought_is_in_what_comes_back(node, plan, seed, after):
    """Result or error: it carries all attempts, the whole usage, and every call is in the run's events."""

    async def main():
        rng = random.Random(seed)
        outcome = await execute(node, BookkeepingLM(plan, rng), rng, cancel_after=after, how="run")
        finished = [call.seed for call in outcome.lm.calls if call.over]
        committed = [event for event in outcome.events if event.kind == "call"]
        late = [
            event
            for event in outcome.events
            if event.kind == "call_failed" and event.data["error"].startswith("cancel")
        ]
        assert len(committed) <= len(finished) <= len(committed) + len(late)
        carried = outcome.result if outcome.result is not None else outcome.error
        assert carried.attempts == outcome.run.attempts
        assert carried.run_id == outcome.run.run_id
        drafts = [a for a in carried.attempts if a.prediction is not None]
        assert (outcome.result is None) == (not drafts)
        if outcome.result is not None:
            scored = [a for a in drafts if a.score is not None]
            assert not scored or rank(outcome.result.best) >= rank(scored[0])

    asyncio.run(main())


# A call changes nothing


def picture(thing, seen=None, depth=0):
    """All that can be reached from an object, by value; functions, models and locks by identity.

    A signature's `_cache` is left out: what is derived from the rest, and neither pickled nor copied.
    """
    seen = {} if seen is None else seen
    if isinstance(thing, str | int | float | bool | bytes | None | type):
        return thing
    if id(thing) in seen:
        return f"again {seen[id(thing)][0]}"
    seen[id(thing)] = (len(seen), thing)  # held, so that no other object gets its id meanwhile
    if isinstance(thing, dict):
        return {"dict": [(picture(k, seen, depth), picture(v, seen, depth + 1)) for k, v in thing.items()]}
    if isinstance(thing, list | tuple | set | frozenset):
        return {type(thing).__name__: [picture(item, seen, depth + 1) for item in thing]}
    if isinstance(thing, FunctionLM | random.Random) or (callable(thing) and not hasattr(thing, "acall")):
        return f"<{id(thing)}>"
    slots = [n for kind in type(thing).__mro__ for n in getattr(kind, "__slots__", ()) if isinstance(n, str)]
    state = {**getattr(thing, "__dict__", {}), **{n: getattr(thing, n) for n in slots if hasattr(thing, n)}}
    state.pop("_cache", None)
    return {type(thing).__name__: picture(state, seen, depth + 1)}


@given(node=programs(), plan=faults, seed=st.integers(0, 10**6), after=st.one_of(st.none(), st.floats(0, 0.01)))
@quick
def test_a_call_never_changes_what_it_is_made_on(node, plan, seed, after):
    async def main():
        rng = random.Random(seed)
        lm = BookkeepingLM(plan, rng)
        made_before = strategy(node, lm, rng)
        before = picture(made_before)
        run = Run(budget=node.budget)
        if after is not None:
            asyncio.get_running_loop().call_later(after, run.cancel)
        with context(model=lm):
            with suppress(RedraftError):
                await run.execute(made_before, made_before.bind({"q": "x"}))
            assert picture(made_before) == before
            with suppress(RedraftError):
                await made_before.acall(q="y")
        assert picture(made_before) == before

    asyncio.run(main())


def test_the_picture_shows_a_change():
    module = Refine(Predict("q -> a"), checks=[check(lambda text: True)])
    before = picture(module)
    assert picture(module) == before
    assert module.module.signature.outputs, "looking is no change"
    assert picture(module) == before
    module.module.temperature = 0.1
    assert picture(module) != before
    other = copy.copy(module)
    other.counter = 1
    assert picture(other) != picture(module)


@pytest.mark.parametrize("make", [Critic, Pairwise])
def test_judges_do_not_change_either(make):
    lm = FunctionLM(lambda request: '{"verdict": "ok", "issues": [], "better": "A"}')
    judge = make(lm=lm)
    before = picture(judge)
    given = {"task": "t", "draft": "d"} if make is Critic else {"task": "t", "challenger": "c", "incumbent": "i"}
    judge(**given)
    assert picture(judge) == before


async def test_inputs_are_not_changed_either():
    given = {"q": {"list": [1, {"deep": {2}}]}}
    before = copy.deepcopy(given)

    def module(q):
        return f"{q}"

    await Refine(module, N=2, reward_fn=lambda inputs, p: inputs.pop("q") and 1.0).acall(**given)
    assert given == before
    assert TransientLMError("x").retry_after is None
