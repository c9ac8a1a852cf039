"""What native doors make of failures: one error each, one request each, and no slot lost."""

import asyncio
import random
import socket
from contextlib import ExitStack

import pytest

pytest.importorskip("pydantic_ai")

from native_doors import CASES, STACKS, params, start

from redraft.config import context
from redraft.errors import (
    AuthError,
    BadRequestError,
    ContextOverflowError,
    LMError,
    TransientLMError,
)
from redraft.run import Run
from redraft.testing import Reply
from redraft.types import Request, Usage

pytestmark = pytest.mark.doors
both_ways = pytest.mark.parametrize("listen", [None, lambda delta: None], ids=["plain", "stream"])
every_door = pytest.mark.parametrize("case", params(STACKS))


def ask(text="hello you there", **fields):
    return Request(messages=({"role": "user", "content": text},), **{"max_tokens": 64, **fields})


async def until(condition):
    for _ in range(800):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen within 4 s")


@pytest.fixture
def serve():
    with ExitStack() as running:
        yield lambda case, script=None, **options: start(running, case, script, **options)


FAULTS = {
    "busy": (Reply.busy(), TransientLMError, False),
    "late": (Reply.error(408, "late"), TransientLMError, False),
    "broken": (Reply.error(500, "oops"), TransientLMError, True),
    "page": (Reply(status=502, body=b"<html>bad gateway</html>"), TransientLMError, True),
    "overloaded": (Reply.error(529, "Overloaded"), TransientLMError, True),
    "key": (Reply.error(401, "invalid key"), AuthError, False),
    "access": (Reply.error(403, "no access"), AuthError, False),
    "model": (Reply.error(404, "model: not found"), BadRequestError, False),
    "overflow": (Reply.overflow(), ContextOverflowError, False),
    "bad": (Reply.error(400, "bad"), BadRequestError, False),
    "html": (Reply(body=b"<html>hello</html>", headers={"content-type": "text/html"}), TransientLMError, True),
    "bytes": (Reply(body=b"\xff\xfe{"), TransientLMError, True),
    "list": (Reply(body=b"[1]"), TransientLMError, True),
    "null": (Reply(body=b"null"), TransientLMError, True),
    "empty": (Reply(body=b"{}"), TransientLMError, True),
    "silence": (Reply(cut=0), TransientLMError, True),
    "cut": (Reply(text="a b c", cut=1), TransientLMError, True),
    "cut error": (Reply(status=500, body=b"x" * 100, cut=1), TransientLMError, True),
}


@every_door
@both_ways
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failure_is_one_error_and_one_request(serve, case, listen, fault):
    reply, kind, sent = FAULTS[fault]
    server, lm = serve(case, lambda asked: reply)
    with pytest.raises(kind) as caught:
        await lm.generate(ask(), listen)
    assert type(caught.value) is kind
    assert caught.value.sent is sent
    assert server.calls == 1, "the client library tried again by itself"


@every_door
@both_ways
async def test_retry_after_is_passed_on(serve, case, listen):
    server, lm = serve(case, [Reply.busy("7"), Reply.error(503, "x", headers={"retry-after": "2"})])
    for seconds, status in ((7, 429), (2, 503)):
        with pytest.raises(TransientLMError) as caught:
            await lm.generate(ask(), listen)
        assert (caught.value.retry_after, caught.value.status) == (seconds, status)
    assert server.calls == 2


@every_door
async def test_a_stream_that_ends_without_its_finish_is_cut(serve, case):
    _, lm = serve(case, [Reply(text="a b c", finish_reason=None)])
    with pytest.raises(TransientLMError) as caught:
        await lm.generate(ask(), lambda delta: None)
    assert caught.value.sent


class Watcher:
    deltas = True

    def __call__(self, event):
        pass


@every_door
async def test_an_aborted_stream_is_booked_as_an_estimate(serve, case):
    _, lm = serve(case, lambda asked: Reply(text="a b c d e", cut=3))
    with context(tries=1):
        async with Run(listeners=[Watcher()]) as run:
            with pytest.raises(TransientLMError):
                await run.complete(ask(), lm=lm)
            usage = run.usage
    assert usage.calls == 1
    assert not usage.exact
    assert usage.uncertain_tokens >= 64, "at least the cap"


@every_door
async def test_messages_name_what_to_mend(serve, case):
    server, lm = serve(case, [Reply.error(401, "Incorrect key"), Reply.error(404, "not found")])
    with pytest.raises(AuthError, match="check the key in ") as caught:
        await lm.generate(ask())
    assert server.base_url in str(caught.value)
    with pytest.raises(BadRequestError, match="there is no model"):
        await lm.generate(ask())


@every_door
async def test_nobody_listens_there(serve, case):
    pytest.importorskip(case.needs)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        class Nowhere:
            base_url = f"http://127.0.0.1:{taken.getsockname()[1]}{case.wire.base}"

        with pytest.raises(TransientLMError, match="no connection") as caught:
            await case.make(Nowhere).generate(ask())
    assert not caught.value.sent


@every_door
async def test_a_redirect_is_not_followed(serve, case):
    server, lm = serve(case, lambda asked: Reply(status=307, body=b"", headers={"location": "/elsewhere"}))
    with pytest.raises(LMError):
        await lm.generate(ask())
    assert server.calls == 1


@every_door
@both_ways
async def test_cancelling_frees_the_slot_at_once(serve, case, listen):
    server, lm = serve(case, lambda asked: Reply(text="a b c", delay=0 if listen else 30, pause=30), parallel=1)
    call = asyncio.create_task(lm.generate(ask(), listen))
    await until(lambda: server.calls == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 2)
    if case.name != "bedrock" or listen:  # boto3 cannot be told to leave while it waits for a reply's head
        await until(lambda: server.aborted == 1)
        assert server.open_connections == 0


@every_door
async def test_cancelling_from_the_listener_closes_the_connection(serve, case):
    class Enough(Exception):
        pass

    def stop(delta):
        raise Enough

    server, lm = serve(case, [Reply(text="a b c d", pause=0.05), "fine"], parallel=1)
    with pytest.raises(Enough):
        await lm.generate(ask(), stop)
    await until(lambda: server.aborted == 1)
    assert (await asyncio.wait_for(lm.generate(ask()), 2)).text == "fine"


@every_door
@both_ways
async def test_no_slot_is_lost_under_contention(serve, case, listen):
    luck = random.Random(7)
    _, lm = serve(case, lambda asked: Reply(text="a b c", delay=luck.uniform(0, 0.01), pause=0.002), parallel=2)
    for _ in range(25):
        calls = [asyncio.create_task(lm.generate(ask(), listen)) for _ in range(6)]
        for call in calls[1:]:
            await asyncio.sleep(luck.uniform(0, 0.006))
            call.cancel()
        ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
        assert ended[0].text == "a b c"
        assert all(isinstance(end, asyncio.CancelledError) or end.text == "a b c" for end in ended[1:])
    ready = asyncio.gather(*(lm.generate(ask(), listen) for _ in range(2)))
    assert [completion.text for completion in await asyncio.wait_for(ready, 5)] == ["a b c"] * 2


@every_door
async def test_as_many_connections_as_parallel_calls(serve, case):
    server, lm = serve(case, lambda asked: Reply(delay=0.1), parallel=5)
    for _ in range(2):
        await asyncio.gather(*(lm.generate(ask()) for _ in range(5)))
        assert server.most_connections == 5, "they are opened as needed, and kept"


@every_door
def test_one_lm_on_many_loops_closes_what_it_opened(serve, case):
    server, lm = serve(case, lambda asked: Reply(delay=0.005))

    async def use():
        await asyncio.gather(*(lm.generate(ask()) for _ in range(2)))

    for _ in range(3):
        asyncio.run(use())
    asyncio.run(until(lambda: server.open_connections == 0))
    assert (server.calls, server.aborted) == (6, 0)


# -- n by repetition


@every_door
@both_ways
async def test_n_choices_are_n_requests_and_one_sum(serve, case, listen):
    numbers = iter(range(9))
    server, lm = serve(case, lambda asked: Reply(text=f"answer {next(numbers)}"))
    completion = await lm.generate(ask(n=3), listen)
    assert sorted(choice.text for choice in completion.choices) == ["answer 0", "answer 1", "answer 2"]
    assert completion.usage == Usage(input_tokens=9, output_tokens=6)
    assert server.calls == 3


@every_door
async def test_one_refusal_of_n_tells_what_the_others_used(serve, case):
    replies = iter([Reply.error(400, "bad"), Reply(text="a b", delay=0.05), Reply(text="a b", delay=0.05)])
    _, lm = serve(case, lambda asked: next(replies))
    with pytest.raises(BadRequestError) as caught:
        await lm.generate(ask(n=3))
    assert caught.value.reported == Usage(input_tokens=6, output_tokens=4)


@every_door
async def test_one_failure_of_n_ends_the_others(serve, case):
    server, lm = serve(case, lambda asked: Reply.busy("1") if server.calls == 1 else Reply(delay=30))
    with pytest.raises(TransientLMError) as caught:
        await asyncio.wait_for(lm.generate(ask(n=3)), 5)
    assert caught.value.sent, "the others may have used tokens"
    assert caught.value.retry_after == 1


@every_door
async def test_cancelling_cancels_all_n(serve, case):
    server, lm = serve(case, lambda asked: Reply(text="a b", pause=30))
    call = asyncio.create_task(lm.generate(ask(n=3), lambda delta: None))
    await until(lambda: server.calls == 3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 2)
    await until(lambda: server.aborted == 3)


def test_every_door_is_in_these_tests_or_named_here():
    from redraft.lm.native.table import DOORS

    assert set(DOORS) == {*CASES, "xai"}, "xai speaks gRPC: test_native_xai.py"
