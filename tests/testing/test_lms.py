import asyncio
import threading

import pytest

from redraft.errors import BadRequestError, TransientLMError, UnsupportedError
from redraft.protocols import LM
from redraft.testing import FaultyLM, FunctionLM, ScriptedLM
from redraft.types import Capabilities, Choice, Completion, Request, Usage


def ask(text="say something nice", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


async def test_a_script_is_followed_in_order():
    written = Completion(choices=(Choice(text="three"),))
    lm = ScriptedLM(["one", lambda request: request.messages[0]["content"].upper(), written])
    assert isinstance(lm, LM)
    assert [(await lm.generate(ask(text))).text for text in "abc"] == ["one", "B", "three"]
    assert [request.messages[0]["content"] for request in lm.requests] == ["a", "b", "c"]
    assert lm.left == 0


async def test_a_script_that_ran_out_says_so_and_is_not_retried():
    lm = ScriptedLM(["one"])
    await lm.generate(ask())
    with pytest.raises(BadRequestError, match="called 2 times and its script has 1 replies"):
        await lm.generate(ask())


async def test_a_scripted_exception_is_raised():
    with pytest.raises(TransientLMError, match="busy"):
        await ScriptedLM([TransientLMError("busy", status=429)]).generate(ask())


async def test_text_has_exact_usage():
    completion = await ScriptedLM(["four words of text"]).generate(ask())
    assert completion.usage == Usage(input_tokens=3, output_tokens=4)
    assert completion.finish_reason == "stop"


async def test_the_cap_cuts_whole_words():
    completion = await ScriptedLM(["four words\nof text"]).generate(ask(max_tokens=3))
    assert (completion.text, completion.finish_reason) == ("four words\nof", "length")
    assert completion.usage.output_tokens == 3


async def test_n_choices_all_cost():
    completion = await ScriptedLM(["two words"]).generate(ask(n=3))
    assert [choice.text for choice in completion.choices] == ["two words"] * 3
    assert completion.usage.output_tokens == 6


async def test_text_and_reasoning_are_streamed_by_word():
    said = Completion(choices=(Choice(text="it is  so", reasoning="let me see"),))
    deltas = []
    await ScriptedLM([said]).generate(ask(), deltas.append)
    assert [d.reasoning for d in deltas if d.reasoning] == ["let ", "me ", "see"]
    assert "".join(d.text for d in deltas) == "it is  so"


async def test_a_prompt_of_parts_is_counted():
    parts = [{"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    lm = ScriptedLM(["a cat"])
    request = Request(messages=({"role": "user", "content": parts}, {"role": "assistant", "content": None}))
    assert lm.count(request) == 3
    assert (await lm.generate(request)).usage.input_tokens == 3


async def test_what_it_cannot_do_is_refused():
    lm = ScriptedLM(["x"], capabilities=Capabilities(temperature=False))
    for field, value in {"temperature": 0.0, "schema": {}, "n": 2, "prefill": "", "logprobs": 0}.items():
        with pytest.raises(UnsupportedError) as caught:
            await lm.generate(ask(**{field: value}))
        assert caught.value.parameter == field
    assert lm.left == 1, "a refused request uses up no reply"


def test_each_reply_is_given_once_to_many_threads():
    lm = ScriptedLM([str(i) for i in range(200)])
    got = []

    def work():
        got.extend(asyncio.run(lm.generate(ask())).text for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, got)) == list(range(200))


async def test_latency_is_waited_for_and_can_be_cancelled():
    lm = ScriptedLM(["late"], latency=30)
    call = asyncio.create_task(lm.generate(ask()))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 1)


async def test_a_function_may_be_async():
    async def answer(request):
        await asyncio.sleep(0)
        return f"cap {request.max_tokens}"

    assert (await FunctionLM(answer).generate(ask(max_tokens=9))).text == "cap 9"
    assert (await FunctionLM(lambda request: "plain").generate(ask())).text == "plain"


def test_prices():
    usage = Usage(input_tokens=10, output_tokens=5)
    assert ScriptedLM([]).cost(usage) == 0
    assert ScriptedLM([], price=0.5).cost(usage) == 7.5
    assert ScriptedLM([], price=None).cost(usage) is None


async def test_faults_come_in_order_and_end():
    faults = [TransientLMError("lost", sent=True), "no_usage", "ignore_cap", None]
    lm = FaultyLM(FunctionLM(lambda request: "one two three"), faults)
    with pytest.raises(TransientLMError, match="lost"):
        await lm.generate(ask())
    assert (await lm.generate(ask())).usage is None
    assert (await lm.generate(ask(max_tokens=1))).usage.output_tokens == 3
    for _ in range(2):
        assert (await lm.generate(ask(max_tokens=1))).usage.output_tokens == 1
    assert (lm.calls, len(lm.inner.requests)) == (5, 4)


async def test_a_cut_reply_was_half_streamed():
    deltas = []
    lm = FaultyLM(FunctionLM(lambda request: "one two three four"), ["cut", "cut"])
    with pytest.raises(TransientLMError, match="after 2 of 4 pieces") as caught:
        await lm.generate(ask(), deltas.append)
    assert caught.value.sent
    assert "".join(delta.text for delta in deltas) == "one two "
    with pytest.raises(TransientLMError):
        await lm.generate(ask())


async def test_slow_can_be_cancelled_and_hang_cannot():
    loop = asyncio.get_running_loop()
    lm = FaultyLM(FunctionLM(lambda request: "x"), [("slow", 30), ("hang", 0.2), ("hang", 0.01)])
    for at_least, at_most in ((0, 0.15), (0.2, 5)):
        call = asyncio.create_task(lm.generate(ask()))
        await asyncio.sleep(0)
        began = loop.time()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert at_least - 0.01 <= loop.time() - began < at_most
    assert (await lm.generate(ask())).text == "x"
