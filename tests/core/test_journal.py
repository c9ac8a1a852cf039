"""Keys, occurrences, replay, divergence, and what earlier processes spent."""

import copy
import datetime as dt
import enum
import json
import pathlib
import subprocess
import sys
from dataclasses import dataclass

import pytest
from core_models import ask

from redraft import BestOfN, Predict, Run, SelfRefine, StopReason
from redraft.errors import BadRequestError, DivergedError, TransientLMError
from redraft.journal import Journal, MemoryStore
from redraft.record import (
    completion_data,
    completion_from,
    content,
    critique_data,
    derived_seed,
    digest,
    score_data,
    score_from,
)
from redraft.testing import FaultyLM, FunctionLM
from redraft.types import Choice, Completion, Critique, Issue, Score, Usage, Verdict


def numbered(**options):
    """Every reply is a new one: a repeated call shows."""
    lm = FunctionLM(lambda request: f"reply {len(lm.requests)}", **options)  # its own requests, this one included
    return lm


def cut(store, last, nth=1, run_id="run"):
    """The store as a killed process left it: everything up to the nth event of a kind."""
    events = store.read(run_id)
    places = [i for i, event in enumerate(events) if event.kind == last]
    left = MemoryStore()
    left.append(run_id, events[: places[nth - 1] + 1])
    return left


def kinds(store, run_id="run"):
    return [event.kind for event in store.read(run_id)]


async def run(strategy, store, **options):
    return await Run(store=store, run_id="run", seed=options.pop("seed", 1), **options).execute(strategy, {"q": "x"})


# Keys


def test_a_key_is_scope_content_and_occurrence():
    journal = Journal(None, "run")
    keys = [journal.key("a", "h"), journal.key("a", "h"), journal.key("b", "h"), journal.key("a", "other")]
    assert keys == ["a|h|1", "a|h|2", "b|h|1", "a|other|1"]


def test_content_is_what_makes_two_calls_the_same():
    same = [ask(), ask(max_tokens=5), ask(max_tokens=500)]
    assert len({content("m", request) for request in same}) == 1, "the cap is no content"
    different = [
        ask(),
        ask("other"),
        ask(temperature=0.0),
        ask(temperature=0.1),
        ask(top_p=0.5),
        ask(stop=("x",)),
        ask(seed=0),
        ask(n=2),
        ask(schema={}),
        ask(schema={"type": "string"}),
        ask(grammar="g"),
        ask(tools=({"type": "function"},)),
        ask(tool_choice="auto"),
        ask(logprobs=0),
        ask(prefill=""),
        ask(effort="low"),
        ask(extra={"user": "me"}),
    ]
    assert len({content("m", request) for request in different}) == len(different)
    assert content("m", ask()) != content("other/m", ask())
    assert content("m", ask(extra={"a": 1, "b": 2})) == content("m", ask(extra={"b": 2, "a": 1}))


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class Opaque:
    """No text of its own: its repr holds an address."""


STABLE = [
    None,
    1.5,
    "ünï \ud83d",
    [1, (2, 3)],
    {"b": 1, "a": {"z": 1, "y": 2}},
    {1: "a", "b": 2},
    {(1, 2): "a"},
    {"set"},
    frozenset({"x", "y", "z"}),
    b"bytes",
    Point(1),
    [Point(1, 2)],
    Colour.RED,
    Opaque(),
    Opaque,
    dt.date(2026, 1, 2),
    pathlib.Path("a"),
    ValueError("v"),
    test_a_key_is_scope_content_and_occurrence,
    float("nan"),
]


@pytest.mark.parametrize("value", STABLE, ids=lambda value: type(value).__name__)
def test_digests_are_equal_for_equal_values_and_hold_no_address(value):
    assert digest({"v": value}) == digest({"v": copy.deepcopy(value)})


def test_digests_differ_for_different_values():
    pairs = [
        (pathlib.Path("a"), pathlib.Path("b")),
        (dt.date(2026, 1, 2), dt.date(2026, 1, 3)),
        (dt.timedelta(1), dt.timedelta(2)),
        (Point(1), Point(2)),
        (b"a", b"b"),
        ({1: "a"}, {1: "b"}),
        ({"a"}, {"b"}),
        (ValueError("a"), ValueError("b")),
        (1, 1.5),
        ("1", 1),
        (True, 1),
        (range(2), range(3)),
    ]
    assert [(a, b) for a, b in pairs if digest([a]) == digest([b])] == []


def test_digests_are_the_same_in_another_process():
    """Hash randomisation, addresses and set order must not show."""
    code = (
        "from redraft.record import content, derived_seed, digest\n"
        "from redraft.types import Request\n"
        "class Opaque: pass\n"
        "value = {'s': {'x', 'y', 'z', 'w'}, 'o': Opaque(), 'f': digest, 'n': {1: 2, 'b': None}}\n"
        "print(digest(value), digest(content('m', Request(messages=({'role': 'user', 'content': 'x'},)))))\n"
        "print(derived_seed(7, 'scope'))"
    )
    seen = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
        for env in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    }
    assert len(seen) == 1


def test_looking_at_an_input_does_not_use_it_up():
    items = iter("abc")
    digest({"items": items})
    assert list(items) == ["a", "b", "c"]


def test_seeds_differ_by_run_and_place_and_fit_any_api():
    seeds = {derived_seed(run, scope) for run in range(20) for scope in "abcdefghij"}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert derived_seed(1, "a") == derived_seed(1, "a")


# Values as events


def test_completions_scores_and_critiques_survive_json():
    completion = Completion(
        choices=(
            Choice(text="t", reasoning="r", finish_reason="stop", logprobs=({"token": "t", "logprob": -1.0},)),
            Choice(tool_calls=({"id": "1"},)),
        ),
        model="m",
        usage=Usage(input_tokens=3, output_tokens=4, reasoning_tokens=1),
    )
    score = Score(value=0.5, feedback="f", verdicts=(Verdict(check="c", passed=False, score=0.5, explanation="e"),))
    critique = Critique(verdict="revise", issues=(Issue(problem="p", severity="minor"),), keep=("k",), by="me")

    def over_the_wire(data):
        return json.loads(json.dumps(data))

    assert completion_from(over_the_wire(completion_data(completion))) == completion
    assert completion_from(over_the_wire(completion_data(Completion(choices=(Choice(),))))).usage is None
    assert score_from(over_the_wire(score_data(score))) == score
    assert score_from(score_data(None)) is None
    assert over_the_wire(critique_data(critique)) == critique_data(critique)


# Replay


async def test_a_finished_run_replays_without_a_call_and_adds_no_events():
    store, lm = MemoryStore(), numbered()
    strategy = BestOfN(Predict("q -> a", lm=lm), N=3, reward_fn=lambda inputs, p: float(p.a[-1]))
    first = await run(strategy, store)
    before = store.read("run")
    again = await run(strategy, store)
    assert len(lm.requests) == 3
    assert (again.a, again.score, again.stop_reason, again.usage) == (
        first.a,
        first.score,
        first.stop_reason,
        first.usage,
    )
    assert [a.usage for a in again.attempts] == [a.usage for a in first.attempts]
    added = [event.kind for event in store.read("run")[len(before) :]]
    assert set(added) <= {"propose", "resumed"}, "decisions and replies are written once"


async def test_a_reply_that_was_committed_is_not_bought_again():
    store, lm = MemoryStore(), numbered()
    strategy = BestOfN(Predict("q -> a", lm=lm), N=3, reward_fn=lambda inputs, p: 1.0)
    whole = await run(strategy, store)
    for last, nth, bought in [("call", 1, 2), ("call", 2, 1), ("call", 3, 0), ("intent", 2, 2), ("attempt", 1, 2)]:
        before = len(lm.requests)
        result = await run(strategy, cut(store, last, nth))
        assert len(lm.requests) - before == bought, (last, nth)
        kept = 3 - bought
        assert [a.text for a in result.attempts[:kept]] == [a.text for a in whole.attempts[:kept]]


async def test_scores_are_replayed_not_recomputed():
    store, lm, judged = MemoryStore(), numbered(), []

    def reward(inputs, prediction):
        judged.append(prediction.a)
        return float(len(judged))

    strategy = BestOfN(Predict("q -> a", lm=lm), N=3, reward_fn=reward)
    whole = await run(strategy, store)
    again = await run(strategy, cut(store, "attempt", 2))
    assert judged == ["reply 1", "reply 2", "reply 3", "reply 4"], "only the third draft is new"
    assert [a.score.value for a in again.attempts[:2]] == [a.score.value for a in whole.attempts[:2]]


async def test_a_permanent_refusal_replays_and_a_transient_failure_does_not():
    for error, calls in [(BadRequestError("no", status=400), 1), (TransientLMError("busy", retry_after=0), 5)]:
        store, lm = MemoryStore(), FaultyLM(FunctionLM(lambda request: "ok"), [error] * (1 if calls == 1 else 4))
        strategy = BestOfN(Predict("q -> a", lm=lm), N=1)
        with pytest.raises(type(error)):
            await run(strategy, store)
        if calls == 1:
            with pytest.raises(BadRequestError, match="no") as caught:
                await run(strategy, store)
            assert caught.value.status == 400
        else:
            assert (await run(strategy, store)).a == "ok"
        assert lm.calls == calls


async def test_an_attempt_that_failed_and_now_succeeds_is_on_record_as_it_ended():
    store = MemoryStore()
    lm = FaultyLM(FunctionLM(lambda request: "good"), [TransientLMError("busy", retry_after=0)] * 4)
    strategy = BestOfN(Predict("q -> a", lm=lm), N=1, reward_fn=lambda inputs, p: 1.0)
    with pytest.raises(TransientLMError):
        await run(strategy, store)
    shown = []
    result = await run(strategy, store, listeners=[shown.append])
    assert result.stop_reason is StopReason.ROUNDS
    for events in (store.read("run"), shown, result.events):
        last = {event.kind: event for event in events}
        assert last["attempt"].data["text"] == "good"
        assert last["attempt"].data["error"] is None
        assert last["stop"].data["reason"] == "rounds"


async def test_a_refused_optional_parameter_is_dropped_again_after_a_kill():
    """Killed between the refusal and the reply: the resumed run must not take the refusal for its answer."""
    from redraft.errors import UnsupportedError

    def picky(request):
        if request.temperature is not None:
            raise UnsupportedError("no temperature", parameter="temperature", status=400)
        return "fine"

    store, lm = MemoryStore(), FunctionLM(picky, name="picky-about-kills")
    strategy = BestOfN(Predict("q -> a", lm=lm, temperature=0.5), N=1)
    assert (await run(strategy, store)).a == "fine"
    assert (await run(strategy, cut(store, "intent", 1))).a == "fine"
    failed = next(kind for kind in kinds(store) if kind in ("call_error", "call_failed"))
    assert (await run(strategy, cut(store, failed))).a == "fine"


async def test_equal_calls_in_one_scope_are_told_apart_by_their_order():
    store, lm = MemoryStore(), numbered()

    async def twice(q):
        return f"{(await predict.acall(q=q)).a}, {(await predict.acall(q=q)).a}"

    predict = Predict("q -> a", lm=lm)
    strategy = BestOfN(twice, N=1)
    assert (await run(strategy, store)).answer == "reply 1, reply 2"
    assert (await run(strategy, store)).answer == "reply 1, reply 2"
    assert (await run(strategy, cut(store, "call"))).answer == "reply 1, reply 3"


async def test_the_run_s_seed_is_recorded_and_kept():
    store = MemoryStore()
    for wanted in (5, 6, None):
        async with Run(store=store, run_id="run", seed=wanted) as run:
            assert run.seed == 5
    assert Run().seed != Run().seed


async def test_seeds_that_are_sent_are_the_same_on_resume_and_differ_between_calls():
    async def sent(store, lm):
        await run(BestOfN(Predict("q -> a", lm=lm), N=3, reward_fn=lambda inputs, p: 0.0), store)
        return [request.seed for request in lm.requests]

    store = MemoryStore()
    first = await sent(store, numbered())
    assert len(set(first)) == 3
    assert await sent(cut(store, "call", 1), numbered()) == first[1:]


# Divergence


def changing():
    """User code that passes something else each time it runs."""
    lm, runs = numbered(), []
    predict = Predict("q -> a", lm=lm)

    async def module(q):
        runs.append(q)
        return (await predict.acall(q=f"{q} {len(runs)}")).a

    return lm, BestOfN(module, N=1)


async def test_code_that_diverges_buys_anew_and_says_so():
    store = MemoryStore()
    lm, strategy = changing()
    await run(strategy, store)
    result = await run(strategy, store)
    assert result.answer == "reply 2"
    assert len(lm.requests) == 2
    assert "diverged" in kinds(store)


async def test_strict_raises_instead():
    store = MemoryStore()
    _, strategy = changing()
    await run(strategy, store)
    with pytest.raises(DivergedError, match="recorded in /attempt"):
        await run(strategy, store, strict=True)


async def test_strict_lets_an_honest_resume_through():
    store, lm = MemoryStore(), numbered()
    strategy = BestOfN(Predict("q -> a", lm=lm), N=4, reward_fn=lambda inputs, p: 1.0)
    await run(strategy, store)
    for nth in range(1, 5):
        for kind in ("intent", "call", "attempt"):
            result = await run(strategy, cut(store, kind, nth), strict=True)
            assert len(result.attempts) == 4


async def test_strict_lets_concurrent_code_through_that_arrives_in_another_order():
    import asyncio

    store, lm = MemoryStore(), numbered()
    lm.parallel = 1  # so that one call is committed before the other one is sent
    late = {"a": 0.0, "b": 0.01}

    class Both:
        async def steps(self, run, inputs):
            async def module(q):
                async def one(text):
                    await asyncio.sleep(late[text])
                    return (await run.complete(ask(text), lm=lm)).text

                return " ".join(await asyncio.gather(one("a"), one("b")))

            run.accept(await run.attempt(module, inputs), "done")
            return StopReason.ROUNDS

    await run(Both(), store)
    late.update(a=0.01, b=0.0)
    result = await run(Both(), cut(store, "call"), strict=True)
    assert result.answer == "reply 1 reply 3"


async def test_a_longer_run_is_no_divergence():
    store, lm = MemoryStore(), numbered()
    module = Predict("q -> a", lm=lm)
    await run(BestOfN(module, N=1, reward_fn=lambda inputs, p: 0.0), store)
    result = await run(BestOfN(module, N=3, reward_fn=lambda inputs, p: 0.0), store, strict=True)
    assert len(result.attempts) == 3
    assert len(lm.requests) == 3


# What earlier processes spent


async def test_spent_counts_every_ended_try_and_charges_those_that_did_not_end():
    store, lm = MemoryStore(), numbered()
    await run(BestOfN(Predict("q -> a", lm=lm, max_tokens=7), N=2, reward_fn=lambda inputs, p: 0.0), store)
    whole = Journal(store, "run").spent()
    assert whole.calls == 2
    assert whole.exact
    killed = Journal(cut(store, "intent", 2), "run").spent()
    assert killed.calls == 2, "the second call was sent as far as anyone knows"
    assert killed.tokens == whole.tokens // 2
    assert killed.uncertain_tokens >= 7


async def test_a_killed_call_counts_against_the_budget():
    from redraft import Budget
    from redraft.errors import BudgetExceeded

    store, lm = MemoryStore(), numbered()
    strategy = BestOfN(Predict("q -> a", lm=lm), N=2, reward_fn=lambda inputs, p: 0.0)
    await run(strategy, store)
    result = await run(strategy, cut(store, "intent", 2), budget=Budget(calls=2))
    assert result.stop_reason is StopReason.BUDGET
    assert isinstance(result.error, BudgetExceeded)
    assert result.usage.calls == 2


async def test_nested_budgets_remember_failed_and_killed_tries():
    """A nested limit of three calls: one failed try and one reply before the kill leave one."""
    from redraft import Budget

    lost = TransientLMError("lost", retry_after=0)
    for last, nth, left in [("call", 1, 1), ("intent", 2, 1), ("call_failed", 1, 2)]:
        store, lm = MemoryStore(), FaultyLM(numbered(), [lost])
        inner = BestOfN(Predict("q -> a", lm=lm), N=5, reward_fn=lambda inputs, p: 0.0, budget=Budget(calls=3))
        outer = BestOfN(inner, N=1)
        await run(outer, store)
        assert lm.calls == 3
        result = await run(outer, cut(store, last, nth))
        assert lm.calls - 3 == left, (last, nth)
        assert result.attempts[0].usage.calls == 3


async def test_the_time_between_processes_is_not_worked_time():
    import time

    store = MemoryStore()
    lm = FunctionLM(lambda request: "x")
    strategy = BestOfN(Predict("q -> a", lm=lm), N=1)
    began = time.monotonic()
    await run(strategy, store)
    for _ in range(3):
        worked = time.monotonic() - began
        time.sleep(0.2)
        assert Journal(store, "run").seconds() <= worked
        began = time.monotonic() - worked
        await run(strategy, store)


# Listeners and stores


async def test_events_are_numbered_in_order_and_plain_json():
    store, lm = MemoryStore(), numbered()
    await run(SelfRefine(Predict("q -> a", lm=lm), critic=lambda text: "longer", rounds=2, judge=Yes()), store)
    events = store.read("run")
    assert [event.seq for event in events] == list(range(len(events)))
    assert events[0].kind == "run"
    assert events[-1].kind == "stop"
    for event in events:
        json.dumps(dict(event.data), allow_nan=False)


class Yes:
    async def acall(self, **inputs):
        from redraft import Prediction

        return Prediction(wins=True)


async def test_a_replay_is_shown_to_listeners_as_well():
    store, lm = MemoryStore(), numbered()
    strategy = BestOfN(Predict("q -> a", lm=lm), N=2, reward_fn=lambda inputs, p: 0.0)
    first, again = [], []
    await run(strategy, store, listeners=[first.append])
    await run(strategy, store, listeners=[again.append])
    for kind in ("call", "attempt", "accept", "stop"):
        assert [e.data for e in first if e.kind == kind] == [e.data for e in again if e.kind == kind]


def test_memory_stores_keep_runs_apart_and_forget_when_closed():
    store = MemoryStore()
    with Run(store=store, run_id="a"):
        pass
    assert store.read("b") == []
    assert [event.kind for event in store.read("a")] == ["run", "stop"]
    store.close()
    assert store.read("a") == []
