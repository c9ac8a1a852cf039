"""One async core, one sync face: scripts, threads, other loops, nesting, interrupts."""

import asyncio
import contextvars
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager

import pytest
from core_models import HangingLM, ask

from redraft import Module, Predict, Refine, Run
from redraft.errors import RunClosed, RunFailed, SyncOnLoopError
from redraft.sync import call_user, in_thread, private_loop, run_sync, to_its_end
from redraft.testing import FunctionLM

who = contextvars.ContextVar("who", default="nobody")


def echo():
    """Replies with the input `q`, whatever the prompt says around it."""
    return FunctionLM(lambda request: re.match(r"(?:Q:\s*)?(\S+)", request.messages[-1]["content"])[1])


@contextmanager
def script(code):
    """A process that runs the code; it is gone when the block ends."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# Where a sync call may stand


def test_from_a_script():
    assert Predict("q -> a", lm=echo())(q="hello").a == "hello"


async def test_from_code_on_a_running_loop_as_in_jupyter():
    """The notebook's loop stands still meanwhile, but the work has a loop of its own."""
    assert Predict("q -> a", lm=echo())(q="hello").a == "hello"


def test_from_many_threads():
    lm, got = echo(), {}

    def work(i):
        got[i] = Predict("q -> a", lm=lm)(q=f"t{i}").a

    threads = [threading.Thread(target=work, args=(i,)) for i in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert got == {i: f"t{i}" for i in range(30)}


async def test_on_the_loop_that_would_have_to_run_it_is_a_clear_error():
    predict = Predict("q -> a", lm=echo())

    async def module(q):
        return predict(q=q)

    with pytest.raises(SyncOnLoopError, match=r"await module\.acall"):
        await Refine(module, N=1).acall(q="x")


async def test_run_sync_on_the_private_loop_is_refused_too():
    async def inner():
        return run_sync(lambda: asyncio.sleep(0))

    with pytest.raises(SyncOnLoopError):
        await asyncio.to_thread(run_sync, inner)


def test_again_and_again_with_asyncio_run():
    """One module and one model, each time on a new loop; sync calls in between."""
    predict = Predict("q -> a", lm=echo())
    for i in range(5):
        assert asyncio.run(predict.acall(q=f"r{i}")).a == f"r{i}"
        assert predict(q=f"s{i}").a == f"s{i}"


def test_two_loops_at_once_share_a_model():
    lm = FunctionLM(lambda request: asyncio.sleep(0.001, result="ok"), name="shared-by-loops")
    lm.parallel = 2
    predict = Predict("q -> a", lm=lm)

    async def main():
        await asyncio.gather(*(predict.acall(q=str(i)) for i in range(20)))

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert len(lm.requests) == 60


# User code in worker threads


def test_twenty_nested_sync_runs_three_deep_do_not_deadlock():
    lm = echo()

    def level(depth):
        def module(q):
            time.sleep(0.005)
            return {"answer": inner(q=q)["answer"]}

        inner = level(depth - 1) if depth else Predict("q -> answer", lm=lm)
        return Refine(module, N=1)

    outer, got = level(3), {}
    threads = [threading.Thread(target=lambda i=i: got.update({i: outer(q=f"n{i}").answer})) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == {i: f"n{i}" for i in range(20)}
    assert len(lm.requests) == 20


async def test_a_def_runs_in_a_worker_thread_and_an_async_def_on_the_loop():
    here = threading.current_thread()
    seen = {}

    def slow(q):
        seen["def"] = threading.current_thread()
        return q

    async def fast(q):
        seen["async"] = threading.current_thread()
        return q

    await asyncio.gather(Refine(slow, N=1).acall(q="x"), Refine(fast, N=1).acall(q="x"))
    assert seen["async"] is here
    assert seen["def"] is not here
    assert seen["def"].daemon


async def test_a_blocking_def_does_not_block_the_loop():
    def slow(q):
        time.sleep(0.3)
        return q

    async def others():
        for _ in range(5):
            await asyncio.sleep(0.01)
        return time.monotonic()

    began = time.monotonic()
    done, result = await asyncio.gather(others(), Refine(slow, N=1).acall(q="x"))
    assert done - began < 0.25
    assert result.answer == "x"


def test_contextvars_are_carried_to_user_code_and_back_to_modules():
    seen = []

    class Look(Module):
        async def aforward(self, q):
            seen.append(("async inside def", who.get()))
            return q

    def module(q):
        seen.append(("def", who.get()))
        who.set("changed in the thread")
        return Look()(q=q)

    async def reward(inputs, prediction):
        seen.append(("reward", who.get()))
        return 1.0

    who.set("caller")
    Refine(module, N=1, reward_fn=reward)(q="x")
    assert seen == [("def", "caller"), ("async inside def", "changed in the thread"), ("reward", "caller")]
    assert who.get() == "caller"


async def test_what_user_code_raises_arrives_as_it_is():
    class Odd(BaseException):
        pass

    def raises(error):
        raise error

    with pytest.raises(ValueError, match="v"):
        await in_thread(raises, ValueError("v"))
    with pytest.raises(RuntimeError, match="user code raised Odd: o"):  # it would end the loop
        await in_thread(raises, Odd("o"))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(raises, StopIteration("s"))


async def test_call_user_takes_everything_callable():
    class Acts:
        async def __call__(self, x):
            return x + 1

    class Module_:
        async def acall(self, x):
            return x + 2

    assert await call_user(Acts(), 1) == 2
    assert await call_user(Module_(), x=1) == 3
    assert await call_user(lambda x: asyncio.sleep(0, result=x + 3), 1) == 4
    assert await call_user(str.upper, "a") == "A"


def test_sys_exit_in_user_code_ends_neither_the_process_nor_the_loop():
    """argparse, click and friends call sys.exit; the private loop must outlive it, or every later call hangs."""
    with script(
        """
        import sys
        from redraft import Predict, Refine
        from redraft.testing import FunctionLM

        def exits(q):
            sys.exit("usage: ...")

        async def exits_too(q):
            raise SystemExit(3)

        for module in (exits, exits_too, exits):
            try:
                Refine(module, N=1)(q="1")
            except BaseException as error:
                print(type(error).__name__)
            print(Predict("q -> a", lm=FunctionLM(lambda request: "alive"))(q="1").a)
        """
    ) as process:
        out, err = process.communicate(timeout=20)  # it hangs if the loop is dead
    assert process.returncode == 0, err
    assert out.count("alive") == 3, out + err


async def test_in_an_attempt_sys_exit_is_that_attempt_s_error():
    def exits(q):
        if q == "x":
            sys.exit("usage: ...")

    with pytest.raises(RunFailed) as caught:
        await Refine(exits, N=2, reward_fn=lambda inputs, p: 1.0).acall(q="x")
    assert len(caught.value.attempts) == 2
    assert "usage" in str(caught.value.attempts[0].error)


def test_a_thread_that_outlives_its_loop_gets_a_clear_error():
    """asyncio.run is over, the abandoned thread goes on: its sync call fails at once instead of hanging."""
    go, over, got = threading.Event(), threading.Event(), []
    predict = Predict("q -> a", lm=echo())

    def module(q):
        go.wait(10)
        try:
            got.append(predict(q=q))
        except RunClosed as error:
            got.append(error)
        over.set()
        return q

    async def main():
        task = asyncio.ensure_future(Refine(module, N=1).acall(q="x"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    go.set()
    assert over.wait(10), "the abandoned thread hangs"
    assert isinstance(got[0], RunClosed)


def test_a_call_that_reaches_a_loop_in_its_last_turn_does_not_hang():
    """The loop takes the call and ends before it begins."""
    loop, got = asyncio.new_event_loop(), []

    def work():
        try:
            run_sync(lambda: asyncio.sleep(0), home=loop)
        except RunClosed as error:
            got.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    time.sleep(0.05)
    loop.close()
    thread.join(3)
    assert not thread.is_alive()
    assert len(got) == 1


async def test_an_abandoned_thread_is_not_waited_for():
    release = threading.Event()
    task = asyncio.ensure_future(in_thread(release.wait, 10))
    await asyncio.sleep(0.01)
    task.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 1
    release.set()


def test_the_private_loop_is_one_and_a_daemon():
    loop = private_loop()
    assert loop is private_loop()
    run_sync(lambda: asyncio.sleep(0))
    named = [thread for thread in threading.enumerate() if thread.name == "redraft-loop"]
    assert len(named) == 1
    assert named[0].daemon


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_a_loop_of_its_own():
    with script(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        from redraft import Predict
        from redraft.testing import FunctionLM
        predict = Predict("q -> a", lm=FunctionLM(lambda request: "fine"))
        print(predict(q="1").a, flush=True)
        child = os.fork()
        if child == 0:
            print(predict(q="2").a, flush=True)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    ) as process:
        out, err = process.communicate(timeout=20)
    assert out.split() == ["fine", "fine", "0"], err


# Interrupts

INTERRUPTED = """
    import asyncio
    from redraft import Predict, Refine
    from redraft.testing import FunctionLM

    async def hang(request):
        print("asked", flush=True)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("cancelled", flush=True)
            raise

    module = Predict("q -> a", lm=FunctionLM(hang))
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("call", ["module(q='1')", "Refine(module, N=1)(q='1')", "asyncio.run(module.acall(q='1'))"])
def test_ctrl_c_cancels_the_call_and_ends_at_once(call):
    with script(INTERRUPTED.format(call=call)) as process:
        assert process.stdout.readline() == "asked\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert out.split() == ["cancelled", "interrupted"], err
    assert time.monotonic() - began < 3


def test_ctrl_c_in_a_worker_thread_s_nested_call_ends_the_process():
    with script(
        """
        import asyncio, time
        from redraft import Predict, Refine
        from redraft.testing import FunctionLM

        async def hang(request):
            print("asked", flush=True)
            await asyncio.sleep(60)

        inner = Predict("q -> a", lm=FunctionLM(hang))
        Refine(lambda q: inner(q=q), N=1)(q="1")
        """
    ) as process:
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert "KeyboardInterrupt" in err
    assert process.returncode not in (0, None)


def test_after_ctrl_c_the_next_call_works():
    """As in a notebook: the cell is interrupted, the session lives on."""
    lm = HangingLM()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        Predict("q -> a", lm=lm)(q="x")
    assert lm.cancelled == 1
    assert Predict("q -> a", lm=echo())(q="hello").a == "hello"


# Runs as blocks


def test_a_with_block_puts_sync_calls_under_one_budget():
    lm = echo()
    with Run() as run:
        Predict("q -> a", lm=lm)(q="x")
        Predict("q -> b", lm=lm)(q="y")
    assert run.usage.calls == 2
    assert [e.kind for e in run.journal.events].count("call") == 2


async def test_a_call_from_another_loop_joins_its_run():
    lm = echo()
    async with Run() as run:

        def elsewhere(context):
            context.run(lambda: asyncio.run(Predict("q -> a", lm=lm).acall(q="far")))

        await asyncio.to_thread(elsewhere, contextvars.copy_context())
        assert (await run.complete(ask("near"), lm=lm)).text == "near"
    assert run.usage.calls == 2


async def test_an_end_goes_to_its_end_though_it_is_cancelled_again_and_again():
    ended = []

    async def end():
        for step in range(3):
            await asyncio.sleep(0.01)
            ended.append(step)

    task = asyncio.ensure_future(to_its_end(end()))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [0, 1, 2]


async def test_what_goes_to_its_end_gives_its_value_or_its_error():
    async def value():
        return 7

    async def error():
        raise ValueError("as it is")

    assert await to_its_end(value()) == 7
    with pytest.raises(ValueError, match="as it is"):
        await to_its_end(error())
