"""Replies that other runs paid for: what is found, what is not, and that retries sample anew."""

import asyncio
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redraft import BestOfN, Budget, Predict, Refine, Run, context
from redraft.errors import BadRequestError, BudgetExceeded, ParseError, TransientLMError
from redraft.journal import MemoryStore
from redraft.store import SqliteCache
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Choice, Completion, Request, Usage


def ask(text="hello", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


@pytest.fixture
def cache(tmp_path):
    kept = SqliteCache(tmp_path / "cache.db")
    with context(cache=kept):
        yield kept
    kept.close()


def counting(name="test/m", price=0.01):
    """A model that says how often it was asked."""
    lm = FunctionLM(lambda request: f"reply {len(lm.requests)}", name=name, price=price)
    return lm


async def once(lm, request, **options):
    async with Run(**options) as run:
        return await run.complete(request, lm=lm), run


async def test_a_second_run_pays_nothing_and_its_record_says_so(cache):
    lm = counting()
    first, paid = await once(lm, ask())
    again, free = await once(lm, ask())
    assert (first.text, again) == ("reply 1", first)
    assert (paid.usage.calls, free.usage) == (1, Usage())
    kinds = [(e.kind, e.data.get("cached")) for e in free.journal.events]
    assert kinds == [("run", None), ("call", True), ("stop", None)], "no intent, as nothing was sent"


async def test_without_the_setting_nothing_is_kept(tmp_path):
    lm = counting()
    assert [(await once(lm, ask()))[0].text for _ in range(2)] == ["reply 1", "reply 2"]


async def test_a_path_will_do(tmp_path):
    lm = counting()
    with context(cache=str(tmp_path / "c.db")):
        assert [(await once(lm, ask()))[0].text for _ in range(2)] == ["reply 1", "reply 1"]
    with context(cache=tmp_path / "c.db"):
        assert (await once(lm, ask()))[0].text == "reply 1"


DIFFERENT = [
    {"temperature": 0.5}, {"top_p": 0.5}, {"max_tokens": 50}, {"stop": ("x",)}, {"seed": 3}, {"n": 2}, {"effort": "low"},
    {"schema": {"type": "object"}}, {"tools": ({"type": "function"},)}, {"logprobs": 0}, {"extra": {"top_k": 1}},
]  # fmt: skip


@pytest.mark.parametrize("fields", DIFFERENT, ids=lambda fields: next(iter(fields)))
async def test_another_request_is_another_reply(cache, fields):
    lm = counting()
    await once(lm, ask())
    await once(lm, ask(**fields))
    await once(lm, ask(**fields))
    assert len(lm.requests) == 2


async def test_other_models_and_other_addresses_share_nothing(cache):
    lms = [counting("test/a"), counting("test/b"), counting("test/a")]
    lms[2].address = "http://elsewhere/v1"
    for lm in lms:
        await once(lm, ask())
    assert [len(lm.requests) for lm in lms] == [1, 1, 1]


async def test_the_seed_of_a_run_is_no_part_of_the_question(cache):
    lm = counting()
    replies = [(await once(lm, ask(), seed=seed))[0].text for seed in (1, 2)]
    assert replies == ["reply 1", "reply 1"]
    assert lm.requests[0].seed is not None, "it was sent all the same"


async def test_the_same_call_made_often_in_one_run_still_gives_as_many_samples(cache):
    lm = counting()
    for _ in range(2):
        async with Run() as run:
            texts = [(await run.complete(ask(), lm=lm)).text for _ in range(3)]
        assert texts == ["reply 1", "reply 2", "reply 3"]
    assert len(lm.requests) == 3


async def test_everything_in_a_reply_comes_back(cache):
    full = Completion(
        model="m-1",
        usage=Usage(input_tokens=3, output_tokens=9, reasoning_tokens=4),
        choices=(
            Choice(text="a", reasoning="hm", finish_reason="stop", logprobs=({"token": "a", "logprob": -0.5},)),
            Choice(tool_calls=({"id": "1", "function": {"name": "f", "arguments": "{}"}},), items=({"provider": "p"},)),
        ),
    )
    lm = ScriptedLM([full])
    for _ in range(2):
        assert (await once(lm, ask(n=2, logprobs=0)))[0] == full


async def test_a_listener_is_shown_it_at_once(cache):
    shown = []

    def listen(event):
        if event.kind == "delta":
            shown.append((event.data["reasoning"], event.data["text"]))

    listen.deltas = True
    reply = Completion(choices=(Choice(text="Paris", reasoning="hm", finish_reason="stop"),))
    lm = ScriptedLM([reply])
    await once(lm, ask())
    await once(lm, ask(), listeners=[listen])
    assert shown == [("hm", "Paris")]


async def test_failures_are_not_kept(cache):
    lm = ScriptedLM([BadRequestError("no", status=400), TransientLMError("busy", retry_after=0), "yes"])
    with pytest.raises(BadRequestError):
        await once(lm, ask())
    reply, run = await once(lm, ask())
    assert (reply.text, run.usage.calls) == ("yes", 2)
    assert (await once(lm, ask()))[0].text == "yes"
    assert lm.left == 0


async def test_a_reply_cut_by_the_budget_is_not_kept_but_one_cut_by_its_own_cap_is(cache):
    lm = FunctionLM(lambda request: "word " * 30, name="test/long")
    squeezed, _ = await once(lm, ask(max_tokens=20), budget=Budget(tokens=10))
    assert squeezed.finish_reason == "length"
    whole, _ = await once(lm, ask(max_tokens=20))
    assert len(whole.text.split()) == 20
    assert (await once(lm, ask(max_tokens=20), budget=Budget(tokens=10)))[0] == whole
    assert len(lm.requests) == 2


async def test_what_a_filter_ended_is_not_kept(cache):
    lm = ScriptedLM([Completion(choices=(Choice(text="", finish_reason="content_filter"),)), "yes"])
    await once(lm, ask())
    assert (await once(lm, ask()))[0].text == "yes"


async def test_no_limit_stands_in_the_way_of_what_costs_nothing(cache):
    lm = counting(price=None)
    await once(lm, ask())
    async with Run(budget=Budget(calls=1, cost=0.5)) as run:
        assert (await run.complete(ask(), lm=lm)).text == "reply 1"
    async with Run(budget=Budget(calls=1)) as run:
        await run.complete(ask("new"), lm=lm)
        await run.complete(ask(), lm=lm)
        with pytest.raises(BudgetExceeded):
            await run.complete(ask("newer"), lm=lm)


async def test_a_resumed_run_takes_its_own_record_and_pays_what_it_paid(cache, tmp_path):
    lm = counting()
    await once(lm, ask("a"))
    store = MemoryStore()
    for _ in range(2):
        async with Run(store=store, run_id="r") as run:
            texts = [(await run.complete(ask(text), lm=lm)).text for text in ("a", "b", "b")]
        assert texts == ["reply 1", "reply 2", "reply 3"]
        assert run.usage.calls == 2
    cache.forget("")
    async with Run(store=store, run_id="r") as run:
        assert (await run.complete(ask("a"), lm=lm)).text == "reply 1", "what is on record needs no cache"
    assert len(lm.requests) == 3


async def test_a_reply_that_does_not_parse_is_let_go(cache):
    lm = ScriptedLM(["rubbish", '{"a": 1}', '{"a": 2}'], name="test/parse")
    predict = Predict("q -> a: int", lm=lm)
    async with Run() as run:
        assert (await predict.acall(q="x")).a == 1
    assert run.usage.calls == 2
    for calls in (1, 0):
        async with Run() as run:
            assert (await predict.acall(q="x")).a == 2
        assert run.usage.calls == calls


@pytest.mark.parametrize("make", [Refine, BestOfN])
async def test_retries_sample_anew(cache, make):
    lm = counting()

    def never(args, pred):
        return 0.0

    def strategy():
        return make(Predict("q -> a", lm=lm), 3, never, 1.0, **({"advisor": False} if make is Refine else {}))

    first = await strategy().acall(q="x")
    again = await strategy().acall(q="x")
    assert (first.usage.calls, again.usage.calls) == (3, 2)
    assert again.attempts[0].text == first.attempts[0].text
    late = {attempt.text for result in (first, again) for attempt in result.attempts[1:]}
    assert len(late) == 4, "each one new"


OTHER = ['{"other": 1}', '{"model": "m", "usage": null, "choices": []}', "[" * 100_000]


@pytest.mark.parametrize("text", OTHER, ids=["another form", "no choice", "too deep"])
async def test_a_cache_of_another_version_is_passed_over(cache, text):
    lm = counting()
    await once(lm, ask())
    cache._db.execute("UPDATE replies SET text = ?", (text,))
    assert (await once(lm, ask()))[0].text == "reply 2"


# Property

steps = st.lists(
    st.tuples(st.sampled_from(["predict", "typed", "best", "refine"]), st.integers(0, 2)), min_size=1, max_size=5
)


def echo():
    """A model whose reply is a function of what is asked and of the seed."""

    def reply(request):
        luck = random.Random(f"{request.messages[-1]['content']}|{request.temperature}|{request.seed}").random()
        return (
            json.dumps({"a": round(luck * 100)}) if request.schema is not None and luck > 0.3 else f"about {luck:.6f}"
        )

    return FunctionLM(reply, name="test/echo", price=0.001)


async def program(plan, lm):
    """What it says, what it tried, and what it cost."""

    def score(args, pred):
        return float(str(pred.a)[-1]) / 9 if str(pred.a)[-1].isdigit() else 0.0

    said, later = [], 0
    async with Run(seed=7) as run:
        for kind, topic in plan:
            ask_ = Predict("q -> a: int" if kind == "typed" else "q -> a", lm=lm)
            if kind in ("best", "refine"):
                made = BestOfN(ask_, 3, score, 0.9) if kind == "best" else Refine(ask_, 3, score, 0.9, advisor=False)
                result = await made.acall(q=str(topic))
                said.append((result.a, result.score, [a.text for a in result.attempts if a.error is None]))
                later += len(result.attempts) - 1
                continue
            try:
                said.append((await ask_.acall(q=str(topic))).a)
            except ParseError as error:
                said.append(str(error))
    return said, later, run.usage


def later(outcome):
    """How many attempts came after first ones: bought in any case."""
    return outcome[1]


@given(plan=steps)
@settings(max_examples=40, deadline=None)
def test_a_cache_changes_what_a_program_costs_and_not_what_it_says(plan, tmp_path_factory):
    async def main():
        without = await program(plan, echo())
        cache = SqliteCache(tmp_path_factory.mktemp("cache") / "c.db")
        with context(cache=cache):
            cold = await program(plan, echo())
            warm = await program(plan, echo())
        cache.close()
        assert cold == without
        assert warm[:2] == without[:2]
        sure = sum(kind != "typed" for kind, _ in plan)  # a typed one may not parse at first, and is let go
        assert later(cold) <= later(warm) <= warm[2].calls <= cold[2].calls - sure

    asyncio.run(main())


def test_the_receipt_says_what_came_from_the_cache(tmp_path):
    for said in ("1 call |", "0 calls and 1 answer from the cache |"):
        with context(cache=tmp_path / "c.db"):
            result = Refine(Predict("q -> a", lm=ScriptedLM(["yes"])), 1, checks=["contains:yes"])(q="x")
        assert said in result.receipt()
