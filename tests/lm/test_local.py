"""The embedded model: the real engine, the real model."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from redraft.errors import (
    BadRequestError,
    ConfigError,
    ContextOverflowError,
    LocalEngineError,
    UnknownNameError,
    UnsupportedError,
)
from redraft.lm import catalogue
from redraft.lm.local import LocalLM, lm
from redraft.protocols import LM
from redraft.testing import lm_contract
from redraft.types import Request

pytestmark = pytest.mark.local

PROMISES = lm_contract(lambda: LocalLM(ctx=256))


def ask(text="Name three colours.", **fields):
    return Request(messages=({"role": "user", "content": text},), **{"max_tokens": 12, **fields})


def long(word="story", tokens=3000):
    """A prompt that takes seconds to read."""
    return ask(f"{word} " * tokens)


@pytest.mark.parametrize("promise", [pytest.param(check, id=name) for name, check in PROMISES])
async def test_it_keeps_its_promise(promise):
    await promise()


async def test_a_reply_is_whole():
    model, pieces = LocalLM(), []
    reply = await model.generate(ask(seed=1), pieces.append)
    assert isinstance(model, LM)
    assert reply.model == model.name == "local/smollm2-135m"
    assert "".join(piece.text for piece in pieces) == reply.text != ""
    assert reply.finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.output_tokens == 12
    assert model.cost(reply.usage) == 0.0


async def test_a_seed_repeats_and_another_does_not():
    model = LocalLM()
    one, same, other = [(await model.generate(ask(seed=seed, temperature=1.0))).text for seed in (1, 1, 2**40)]
    assert one == same != other


async def test_the_count_is_what_the_engine_reads():
    model = LocalLM()
    for request in (ask(), ask("<|im_start|> é 😀 " * 20), ask(prefill="Red,"), ask(schema={"type": "object"})):
        reply = await model.generate(request)
        assert model.count(request) == reply.usage.input_tokens


def test_the_count_is_unknown_before_the_engine_runs():
    assert LocalLM(ctx=64).count(ask()) is None


async def test_more_choices_than_slots():
    model = LocalLM()
    pieces = {}
    reply = await model.generate(
        ask(n=6, seed=5, temperature=1.0), lambda d: pieces.setdefault(d.choice, []).append(d.text)
    )
    texts = [choice.text for choice in reply.choices]
    assert len(set(texts)) == 6
    assert ["".join(pieces[i]) for i in range(6)] == texts
    assert reply.usage.output_tokens == 6 * 12
    assert reply.usage.input_tokens == model.count(ask())
    again = await model.generate(ask(seed=9, temperature=1.0))
    assert again.text == texts[4]


@pytest.mark.parametrize("top", [0, 3])
async def test_logprobs_come_with_as_many_alternatives_as_asked(top):
    reply = await LocalLM().generate(ask(logprobs=top, temperature=0.0))
    assert len(reply.logprobs) == 12
    assert "".join(token["token"] for token in reply.logprobs) == reply.text
    assert all(token["logprob"] <= 0 and len(token["top_logprobs"]) == top for token in reply.logprobs)


@pytest.mark.parametrize("more", [{}, {"grammar": "start: /( [4-9],?)+/"}])
async def test_a_prefill_is_continued_and_not_repeated(more):
    reply = await LocalLM().generate(ask("Count to nine.", prefill="1, 2, 3,", temperature=0.0, **more))
    assert reply.text.startswith(" 4, 5")


async def test_a_stop_text_ends_the_reply():
    reply = await LocalLM().generate(ask("Count to nine.", prefill="1, 2, 3,", temperature=0.0, stop=("6",)))
    assert reply.text.rstrip() == "4, 5,".rjust(6)
    assert reply.finish_reason == "stop"


async def test_a_schema_is_held():
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"enum": [1, 2, 3]}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    reply = await LocalLM().generate(ask("A child, as JSON.", schema=schema, max_tokens=80, temperature=0.0))
    assert set(json.loads(reply.text)) == {"name", "age"}


@pytest.mark.parametrize("header", ["", "%llguidance {}\n"])
async def test_a_grammar_is_held(header):
    grammar = header + "start: T\nT: A & ~NO\nA: /(apple|pear) and (fig|plum)/\nNO: /apple.*/"
    reply = await LocalLM().generate(ask("Two fruits.", grammar=grammar, temperature=2.0))
    assert reply.text in ("pear and fig", "pear and plum")
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize(
    "grammar",
    ["", "start: ((((", "start: unknown", "start: T\nT: /a/ & /b/", "start: /ab/ T\nT: /[a-z]+/ & ~/[a-z]*/"],
    ids=["empty", "syntax", "name", "empty-language", "dead-end"],
)
async def test_a_grammar_that_the_engine_would_drop_is_refused(grammar):
    with pytest.raises(BadRequestError, match="the grammar was not sent"):
        await LocalLM().generate(ask(grammar=grammar))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"tools": ({"type": "function", "function": {"name": "f"}},)}, UnsupportedError),
        ({"schema": {"type": "nonsense"}}, BadRequestError),
        ({"schema": {"type": "object"}, "grammar": "start: /a/"}, BadRequestError),
        ({"extra": {"max_tokens": "many"}}, BadRequestError),
    ],
)
async def test_what_the_engine_cannot_do_is_refused(fields, error):
    with pytest.raises(error):
        await LocalLM().generate(ask(**fields))


async def test_a_prompt_that_does_not_fit_is_told_in_numbers():
    with pytest.raises(ContextOverflowError, match=r"5,\d\d\d tokens, .* holds 4,096; shorten"):
        await LocalLM().generate(ask("hello " * 5000))


async def test_a_second_call_reuses_the_shared_prefix():
    model, story = LocalLM(), "The fox jumps over the dog near the bank of the river. " * 20
    await model.generate(ask(story + "Who?", max_tokens=1))
    reply = await model.generate(ask(story + "Where?", max_tokens=1))
    assert reply.usage.cached_tokens > 200


@pytest.mark.parametrize("request_", [ask("Write a long story.", max_tokens=2000), long()], ids=["writing", "reading"])
async def test_a_cancelled_call_returns_at_once_and_frees_its_slot(request_):
    model = LocalLM()
    await model.generate(ask(max_tokens=1))
    calls = [asyncio.create_task(model.generate(request_)) for _ in range(model.parallel)]
    await asyncio.sleep(0.5)
    left = time.monotonic()
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert time.monotonic() - left < 0.5
    await model.generate(ask(max_tokens=1))
    assert time.monotonic() - left < 20
    assert all(call.cancelled() for call in calls)


async def test_the_loop_is_never_held_up():
    model, ticks = LocalLM(), [time.monotonic()]
    call = asyncio.create_task(model.generate(long("river", 1000)))
    while not call.done():
        await asyncio.sleep(0.01)
        ticks.append(time.monotonic())
    assert max(after - before for before, after in pairwise(ticks)) < 1


async def test_an_engine_without_a_sign_of_life_is_given_up():
    model = LocalLM()
    await model.generate(ask(max_tokens=1))
    model.patience = 0.01
    with pytest.raises(LocalEngineError, match=r"no sign of life for 0\.01 s"):
        await model.generate(long("silence"))


def test_loops_in_several_threads_share_the_engine():
    texts = {}

    def use(seed):
        texts[seed] = asyncio.run(LocalLM().generate(ask(seed=seed, temperature=1.0))).text

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(texts.values())) == 6


async def test_a_file_that_is_no_model_fails_with_its_name(tmp_path):
    (tmp_path / "cut.gguf").write_bytes(b"GGUF" + bytes(1000))
    model = lm(str(tmp_path / "cut.gguf"))
    assert model.name == "local/cut"
    with pytest.raises(LocalEngineError, match=r"could not load .*cut\.gguf"):
        await model.generate(ask())


def test_the_environment_names_the_model(monkeypatch):
    monkeypatch.setenv("REDRAFT_LOCAL_MODEL", str(catalogue.pull()))
    assert LocalLM().name == "local/smollm2-135m-b179c952"


def test_wrong_settings_are_refused_before_anything_runs():
    with pytest.raises(UnknownNameError, match="known: smollm2-135m"):
        lm("gpt-5")
    with pytest.raises(ConfigError, match="base URL"):
        lm(base_url="http://localhost:1")
    with pytest.raises(ConfigError, match="slots"):
        LocalLM(slots=0)


PRELUDE = """
import asyncio, sys, threading, time
from redraft.lm.local import LocalLM
from redraft.types import Request
assert "xllamacpp" not in sys.modules
def ask(text, **more): return Request(messages=({"role": "user", "content": text},), **more)
"""
LEAVE = """
async def main():
    model = LocalLM()
    await model.generate(ask("hi", max_tokens=1))
    call = asyncio.create_task(model.generate(ask({prompt})))
    await asyncio.sleep(0.3)
    assert not call.done()
asyncio.run(main())
"""
SCRIPTS = {
    "done": 'assert asyncio.run(LocalLM().generate(ask("hi", max_tokens=3))).text',
    "writing": LEAVE.format(prompt="'a long story'"),
    "reading": LEAVE.format(prompt="'story ' * 3500"),
    "starting": """
async def main():
    call = asyncio.create_task(LocalLM().generate(ask("hi")))
    await asyncio.sleep(0.01)
asyncio.run(main())
""",
    "daemon thread": """
started = threading.Event()
def work(): asyncio.run(LocalLM().generate(ask("a long story"), lambda delta: started.set()))
threading.Thread(target=work, daemon=True).start()
started.wait()
""",
    "forked worker": """
import multiprocessing
model = LocalLM()
def work(): assert asyncio.run(model.generate(ask("hi", max_tokens=3))).text
work()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
""",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_process_ends_promptly_and_in_silence(script):
    catalogue.pull()
    if "fork" in script and sys.platform != "linux":
        pytest.skip("forks only on Linux")
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
