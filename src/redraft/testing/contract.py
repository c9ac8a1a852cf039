"""What every LM promises, as checks that a plug-in runs on its own model.

    @pytest.mark.parametrize("promise", [pytest.param(check, id=name) for name, check in lm_contract(MyLM)])
    async def test_contract(promise):
        await promise()

A broken promise raises `AssertionError` and says what was seen. Each check makes a model of its own and a few short
calls; on a paid model the whole contract costs some thirty of them.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from redraft.errors import LMError, UnsupportedError
from redraft.protocols import LM, Delta
from redraft.testing.words import NEEDS
from redraft.types import Completion, Request, Usage

MakeLM = Callable[[], LM]
Promise = Callable[[], Awaitable[None]]

_PROMPT = "Name three colours."
_PROMPT_SECONDS = 2.0
"""A cancelled call may take this long to come back."""
_EXAMPLES: dict[str, dict[str, Any]] = {
    "schema": {"schema": {"type": "object", "properties": {}}},
    "grammar": {"grammar": 'start: "yes" | "no"'},
    "logprobs": {"logprobs": 0},
    "prefill": {"prefill": "Red"},
    "seed": {"seed": 7},
    "temperature": {"temperature": 0.5},
    "tools": {"tools": ({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},)},
    "n": {"n": 2},
}


def lm_contract(make_lm: MakeLM) -> list[tuple[str, Promise]]:
    """Every promise of an LM as `(name, check)`; `make_lm` is called only when a check runs."""
    return [(check.__name__, partial(check, make_lm)) for check in _PROMISES]


async def it_has_the_shape_of_an_lm(make_lm: MakeLM) -> None:
    """All members are there, and make sense."""
    lm = make_lm()
    assert isinstance(lm, LM), f"{type(lm).__name__} lacks a member of redraft.protocols.LM"
    assert lm.parallel >= 1, f"parallel is {lm.parallel}: no call could ever be made"
    assert lm.max_output is None or lm.max_output >= 1, f"max_output is {lm.max_output}"


async def its_name_never_changes(make_lm: MakeLM) -> None:
    """The name is part of every call's key: a new one would buy everything again."""
    lm = make_lm()
    before = lm.name
    await lm.generate(_request())
    assert before, "the name is empty"
    assert before == lm.name == make_lm().name, f"{before!r} became {lm.name!r} or {make_lm().name!r}"


async def it_replies_with_text(make_lm: MakeLM) -> None:
    """One choice of some text or reasoning."""
    completion = await make_lm().generate(_request())
    assert isinstance(completion, Completion), f"generate returned {type(completion).__name__}"
    assert len(completion.choices) == 1, f"one choice was asked for, {len(completion.choices)} came"
    assert completion.text or completion.reasoning, "the reply is empty"


async def it_reports_tokens_that_add_up(make_lm: MakeLM) -> None:
    """Usage is None or consistent; calls and money are not the LM's to count."""
    lm = make_lm()
    usage = (await lm.generate(_request())).usage
    if usage is None:
        return
    assert usage.input_tokens >= usage.cached_tokens >= 0, f"more tokens cached than given: {usage}"
    assert usage.output_tokens >= usage.reasoning_tokens >= 0, f"more reasoning than output: {usage}"
    assert usage.tokens > 0, "a call without tokens was reported; report None for unknown"
    assert usage.calls == 0, f"usage counts {usage.calls} calls: Run counts them"
    assert usage.cost == 0, f"usage holds ${usage.cost}: Run prices tokens with cost()"


async def its_count_is_an_upper_bound(make_lm: MakeLM) -> None:
    """`count` is None or no less than what the prompt turns out to be."""
    lm = make_lm()
    bound = lm.count(_request())
    usage = (await lm.generate(_request())).usage
    if bound is not None and usage is not None:
        assert usage.input_tokens <= bound, f"count said at most {bound} tokens, the prompt has {usage.input_tokens}"


async def it_honours_max_tokens(make_lm: MakeLM) -> None:
    """No reply is longer than its cap."""
    completion = await make_lm().generate(_request(max_tokens=2))
    if completion.usage is not None:
        spent = completion.usage.output_tokens
        assert spent <= 2, f"max_tokens was 2, {spent} output tokens were reported"


async def it_gives_n_choices(make_lm: MakeLM) -> None:
    """With the capability `n`, as many choices as asked for."""
    lm = make_lm()
    if lm.capabilities.n:
        got = len((await lm.generate(_request(n=2))).choices)
        assert got == 2, f"two choices were asked for, {got} came"


async def it_streams_what_it_returns(make_lm: MakeLM) -> None:
    """The pieces told to `on_delta` are the text and the reasoning of the completion."""
    lm = make_lm()
    text: dict[int, str] = defaultdict(str)
    reasoning: dict[int, str] = defaultdict(str)

    def listen(delta: Delta) -> None:
        text[delta.choice] += delta.text
        reasoning[delta.choice] += delta.reasoning

    completion = await lm.generate(_request(), listen)
    if not (text or reasoning):
        assert not lm.capabilities.stream, "capabilities.stream is on and on_delta was never called"
        return
    for index, choice in enumerate(completion.choices):
        assert text[index] == choice.text, f"streamed {text[index]!r}, returned {choice.text!r}"
        assert reasoning[index] == choice.reasoning, f"streamed {reasoning[index]!r}, returned {choice.reasoning!r}"


async def it_can_be_cancelled(make_lm: MakeLM) -> None:
    """A cancelled call comes back at once, and the next one works."""
    lm = make_lm()
    for turns in range(4):
        call = asyncio.create_task(lm.generate(_request()))
        for _ in range(turns):
            await asyncio.sleep(0.001)
        call.cancel()
        done, _ = await asyncio.wait([call], timeout=_PROMPT_SECONDS)
        assert done, f"a cancelled call did not return within {_PROMPT_SECONDS:g} s"
        assert call.cancelled() or call.exception() is None, f"a cancelled call raised {call.exception()!r}"
    await lm.generate(_request())


async def it_serves_calls_at_once(make_lm: MakeLM) -> None:
    """As many calls in flight as it says (eight are tried)."""
    lm = make_lm()
    replies = await asyncio.gather(*(lm.generate(_request()) for _ in range(min(lm.parallel, 8))))
    assert all(isinstance(reply, Completion) for reply in replies), "a parallel call gave no completion"


async def it_belongs_to_no_loop(make_lm: MakeLM) -> None:
    """One LM works on one event loop after the other."""
    lm = make_lm()
    for _ in range(2):
        await asyncio.to_thread(lambda: asyncio.run(lm.generate(_request())))


async def it_refuses_what_it_cannot_do(make_lm: MakeLM) -> None:
    """A field whose capability is off raises `UnsupportedError` that names the field."""
    lm = make_lm()
    for field, example in _EXAMPLES.items():
        if not getattr(lm.capabilities, NEEDS.get(field, field)):
            refused = await _refused(lm, _request(**example))
            assert refused == field, f"{field!r} needs a capability that is off, and was refused as {refused!r}"


async def its_errors_are_lm_errors(make_lm: MakeLM) -> None:
    """Odd requests get a reply or an `LMError`, nothing else."""
    lm = make_lm()
    odd = (
        Request(messages=()),
        Request(messages=({"role": "nobody", "content": None},)),
        _request(max_tokens=1, stop=("",)),
        _request(extra={"no_such_field": [1, {}]}),
        Request(messages=({"role": "user", "content": "half an emoji: \ud83d"},)),
        Request(messages=({"role": "user", "content": "not JSON", "at": object()},)),
    )
    for request in odd:
        try:
            await lm.generate(request)
        except LMError:
            continue


async def its_cost_is_monotone(make_lm: MakeLM) -> None:
    """More tokens never cost less; an unknown price is None for every amount."""
    lm = make_lm()
    steps = (0, 1, 1_000, 200_000, 1_000_000)
    for same in steps:
        for row in (
            [lm.cost(Usage(input_tokens=same, output_tokens=more)) for more in steps],
            [lm.cost(Usage(input_tokens=more, output_tokens=same)) for more in steps],
        ):
            known = [cost for cost in row if cost is not None]
            assert len(known) in (0, len(row)), f"the price is known for some amounts only: {row}"
            assert all(math.isfinite(cost) and cost >= 0 for cost in known), f"not a price: {row}"
            assert known == sorted(known), f"more tokens cost less: {row} for {steps} tokens"


_PROMISES: tuple[Callable[[MakeLM], Awaitable[None]], ...] = (
    it_has_the_shape_of_an_lm,
    its_name_never_changes,
    it_replies_with_text,
    it_reports_tokens_that_add_up,
    its_count_is_an_upper_bound,
    it_honours_max_tokens,
    it_gives_n_choices,
    it_streams_what_it_returns,
    it_can_be_cancelled,
    it_serves_calls_at_once,
    it_belongs_to_no_loop,
    it_refuses_what_it_cannot_do,
    its_errors_are_lm_errors,
    its_cost_is_monotone,
)


async def _refused(lm: LM, request: Request) -> str | None:
    try:
        await lm.generate(request)
    except UnsupportedError as error:
        return error.parameter
    return None


def _request(**fields: Any) -> Request:
    return Request(**{"messages": ({"role": "user", "content": _PROMPT},), "max_tokens": 16, **fields})
