"""Provider batches against a real loopback server that has the Files and Batches endpoints."""

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from redraft import Batch, Budget, Predict, Refine, Run, checks
from redraft.errors import AuthError, BadRequestError, ConfigError, StoreError, TransientLMError, UnsupportedError
from redraft.journal import MemoryStore
from redraft.lm.openai import OpenAILM
from redraft.lm.provider_batch import ProviderBatchLM, Rounds
from redraft.testing import Reply, ScriptedLM, lm_contract
from redraft.testing.batch_endpoints import BatchServer, JobPlan
from redraft.types import Request, Usage

pytestmark = pytest.mark.server

VICTIM = Path(__file__).with_name("provider_batch_victim.py")
QUICK = Rounds(quiet=0.01, longest=30.0, poll=(0.001, 0.005))
FOREVER = JobPlan(looks=10**8)


def model(server, **options):
    inner = OpenAILM("gpt-4.1-mini", base_url=server.base_url, api_key="k")
    return ProviderBatchLM(inner, **{"rounds": QUICK, **options})


def ask(text, **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


def said(body):
    return body["messages"][-1]["content"]


def echo(body):
    return f"to {said(body)}"


async def answers(lm, n, **fields):
    return await asyncio.gather(*(lm.generate(ask(f"q{i}", **fields)) for i in range(n)), return_exceptions=True)


def texts(replies):
    return [reply if isinstance(reply, Exception) else reply.text for reply in replies]


# What it is


@pytest.mark.parametrize("name", [name for name, _ in lm_contract(lambda: None)])
async def test_it_keeps_the_promises_of_an_lm(name):
    with BatchServer(lambda body: Reply(text="Red, green and blue.", reasoning="rgb")) as server:
        await dict(lm_contract(lambda: model(server)))[name]()


async def test_calls_that_wait_together_are_one_job_and_each_gets_its_own_reply():
    with BatchServer(echo) as server:
        replies = await answers(model(server), 20, max_tokens=9)
        assert texts(replies) == [f"to q{i}" for i in range(20)]
        assert [job["endpoint"] for job in server.created] == ["/v1/chat/completions"]
        assert server.created[0]["completion_window"] == "24h"
        assert (len(server.sent), len(server.online)) == (20, 0)
        assert replies[0].usage.output_tokens == 2
        assert {body["model"] for body in server.sent} == {"gpt-4.1-mini"}


async def test_it_costs_half_and_what_goes_online_does_not():
    with BatchServer(["one"], jobs=[JobPlan(spoil=lambda at, line: None)]) as server:
        whole = OpenAILM("gpt-4.1-mini", base_url=server.base_url, provider="openai")
        tokens = Usage(input_tokens=1000, output_tokens=1000)
        assert model(server).cost(tokens) == pytest.approx(whole.cost(tokens) / 2)
        mixed = model(server, retry_online=True)
        assert mixed.cost(tokens) == whole.cost(tokens), "a reservation covers either way"


async def test_with_online_retries_each_reply_is_priced_by_how_it_came():
    with BatchServer(echo, jobs=[JobPlan(spoil=lambda at, line: line if at else None)]) as server:
        lm = model(server, retry_online=True)
        whole = lm.inner.cost(Usage(input_tokens=1, output_tokens=2))
        async with Run() as run:
            await asyncio.gather(*(run.complete(ask(f"q{i}"), lm=lm) for i in range(2)))
            assert [len(server.sent), len(server.online)] == [2, 1]
            assert run.usage.cost == pytest.approx(whole / 2 + whole, abs=1e-12)


async def test_other_models_than_openai_compatible_ones_are_refused():
    with pytest.raises(ConfigError, match="OpenAI-compatible"):
        ProviderBatchLM(ScriptedLM(["x"]))


# When a round is sent


async def test_a_round_waits_for_everybody_who_is_expected():
    with BatchServer(echo) as server:
        lm = model(server, expected=lambda: 3)
        first = [asyncio.create_task(lm.generate(ask(f"q{i}"))) for i in range(2)]
        done, _ = await asyncio.wait(first, timeout=0.2)
        assert not done
        assert server.created == []
        third = await lm.generate(ask("q2"))
        assert texts([*await asyncio.gather(*first), third]) == ["to q0", "to q1", "to q2"]
        assert len(server.created) == 1


async def test_nobody_is_waited_for_longer_than_the_bound():
    with BatchServer(echo) as server:
        lm = model(server, expected=lambda: 3, rounds=Rounds(quiet=0.01, longest=0.05, poll=(0.001, 0.005)))
        assert (await lm.generate(ask("alone"))).text == "to alone"


@pytest.mark.parametrize("bound", [{"requests": 4}, {"size": 250}])
async def test_a_job_holds_no_more_than_it_may(bound):
    with BatchServer(echo) as server:
        lm = model(server, rounds=Rounds(quiet=0.01, poll=(0.001, 0.005), **bound))
        assert texts(await answers(lm, 10)) == [f"to q{i}" for i in range(10)]
        assert len(server.created) == 3


async def test_every_line_is_one_line_of_json():
    odd = "a\u2028b\u2029c\x85d\ne \ud83d"
    with BatchServer(echo) as server:
        assert (await model(server).generate(ask(odd))).text == "to a\u2028b\u2029c\x85d\ne ?"


# What goes wrong


async def test_a_line_that_fails_fails_alone_and_as_it_would_online():
    said_by = {
        "q1": Reply.error(500, "overloaded"),
        "q2": Reply.error(400, "your prompt is odd"),
        "q3": Reply.busy(),
        "q4": Reply.unsupported("seed"),
    }
    with BatchServer(lambda body: said_by.get(said(body), "fine")) as server:
        replies = await answers(model(server), 6, seed=1)
        assert [type(r) for r in replies[1:5]] == [
            TransientLMError,
            BadRequestError,
            TransientLMError,
            UnsupportedError,
        ]
        assert [r.status for r in replies[1:5]] == [500, 400, 429, 400]
        assert texts([replies[0], replies[5]]) == ["fine", "fine"]


async def test_missing_and_malformed_lines_are_worth_another_try():
    spoilt = {1: lambda line: None, 2: lambda line: line[:40], 3: lambda line: b"[1]", 4: lambda line: b"\xff\xfe{"}
    plan = JobPlan(spoil=lambda at, line: spoilt[at](line) if at in spoilt else line)
    with BatchServer(echo, jobs=[plan]) as server:
        replies = await answers(model(server), 6)
        assert [isinstance(r, TransientLMError) and r.sent for r in replies] == [False, True, True, True, True, False]


@pytest.mark.parametrize(
    "response",
    [b'"response":{"status_code":200,"body":"<html>"}', b'"response":null', b'"response":{"status_code":200}'],
)
async def test_a_line_of_another_shape_is_worth_another_try(response):
    def spoil(at, line):
        return line[: line.index(b'"response"')] + response + b',"error":null}'

    with BatchServer(echo, jobs=[JobPlan(spoil=spoil)]) as server, pytest.raises(TransientLMError):
        await model(server).generate(ask("q"))


async def test_an_expired_job_keeps_what_is_done_and_costs_nothing_for_the_rest():
    with BatchServer(echo, jobs=[JobPlan(ends="expired", answered=2)]) as server:
        lm = model(server)
        async with Run() as run:
            replies = await asyncio.gather(*(run.complete(ask(f"q{i}"), lm=lm) for i in range(5)))
            assert texts(replies) == [f"to q{i}" for i in range(5)]
            assert run.usage.calls == 8, "three calls were tried twice"
            assert run.usage.uncertain_tokens == 0
        assert sorted(map(said, server.sent[5:])) == ["q2", "q3", "q4"]
        assert len(server.created) == 2


async def test_a_failed_job_says_why_and_is_tried_again():
    plan = JobPlan(ends="failed", errors=(("invalid_json_line", "line 1 is no JSON"),))
    with BatchServer(echo, jobs=[plan, plan]) as server:
        lm = model(server)
        with pytest.raises(TransientLMError, match="failed: line 1 is no JSON") as caught:
            await lm.generate(ask("q"))
        assert not caught.value.sent
        async with Run() as run:
            assert (await run.complete(ask("q"), lm=lm)).text == "to q"


async def test_a_job_that_is_too_much_means_fewer_at_once():
    plan = JobPlan(ends="failed", errors=(("token_limit_exceeded", "Enqueued token limit reached"),))
    with BatchServer(echo, jobs=[plan]) as server:
        with pytest.raises(TransientLMError, match="Enqueued") as caught:
            await model(server).generate(ask("q"))
        assert caught.value.status == 429


async def test_too_many_jobs_are_waited_out_and_a_lost_reply_makes_no_second_job():
    refusals = {
        "POST /files": [Reply.busy("0")] * 3 + [Reply.error(503, "later")],
        "POST /batches": [Reply.busy("0")] * 8 + [Reply.error(500, "oops"), Reply.busy("0")],
        "GET /batches": [Reply.error(500, "oops"), Reply(cut=0), Reply.busy("0")],
        "GET /files/content": [Reply.error(502, "bad gateway"), Reply(cut=0)],
    }
    with BatchServer(echo, refusals=refusals) as server:
        assert texts(await answers(model(server), 3)) == ["to q0", "to q1", "to q2"]
        assert [len(server.created), len(server.sent)] == [1, 3]
        assert not any(refusals.values())


async def test_a_job_whose_making_was_answered_with_an_error_is_found():
    with BatchServer(echo) as server:
        create = server._create

        def made_but_not_said(asked):
            create(asked)
            server._create = create
            return Reply(cut=0)

        server._create = made_but_not_said
        assert texts(await answers(model(server), 2)) == ["to q0", "to q1"]
        assert len(server.created) == 1


@pytest.mark.parametrize("path", ["POST /files", "POST /batches", "GET /batches"])
async def test_a_refused_key_is_said_to_everybody(path):
    times = 6 if path == "GET /batches" else 1  # a job that is there already is asked for more than once
    with BatchServer(echo, refusals={path: [Reply.error(401, "no such key")] * times}) as server:
        replies = await answers(model(server), 3)
        assert [type(r) for r in replies] == [AuthError] * 3
        assert len({id(r) for r in replies}) == 3


@pytest.mark.parametrize("status", [401, 403, 404, 409])
@pytest.mark.parametrize("path", ["GET /batches", "GET /files/content"])
async def test_a_refusal_in_passing_loses_nothing_that_is_paid_for(path, status):
    with BatchServer(echo, refusals={path: [Reply.error(status, "not now")] * 3}) as server:
        assert texts(await answers(model(server), 3)) == ["to q0", "to q1", "to q2"]
        assert [len(server.created), len(server.sent)] == [1, 3]


async def test_a_result_that_stays_refused_is_charged_and_there_another_day(tmp_path):
    path = tmp_path / "batches.db"
    with BatchServer(echo, refusals={"GET /files/content": [Reply.error(403, "no rights")] * 6}) as server:
        lm = model(server, path=path)
        store = MemoryStore()
        async with Run(run_id="r", store=store) as run:
            with pytest.raises(AuthError, match="no rights"):
                await run.complete(ask("q"), lm=lm)
            assert run.usage.uncertain_tokens > 0, "the job was done, whoever could not read it"
        lm.close()
        lm = model(server, path=path)
        async with Run(run_id="r", store=store) as run:
            assert (await run.complete(ask("q"), lm=lm)).text == "to q"
        assert [len(server.created), len(server.sent)] == [1, 1]
        lm.close()


async def test_a_server_without_a_batch_api_is_known_before_anything_is_sent():
    with BatchServer(echo, lists=False) as server, pytest.raises(BadRequestError, match="not every server has"):
        await model(server).check()
    with BatchServer(echo) as server:
        await model(server).check()
        assert server.created == []


async def test_what_fails_in_a_job_is_retried_online_where_asked():
    with BatchServer(echo, jobs=[JobPlan(ends="expired", answered=1)]) as server:
        lm = model(server, retry_online=True)
        async with Run() as run:
            replies = await asyncio.gather(*(run.complete(ask(f"q{i}"), lm=lm) for i in range(3)))
        assert texts(replies) == ["to q0", "to q1", "to q2"]
        assert sorted(map(said, server.online)) == ["q1", "q2"]
        assert len(server.created) == 1
        assert (await lm.generate(ask("q9"))).text == "to q9", (
            "once it was answered, the next goes out as a batch again"
        )
        assert len(server.created) == 2


async def test_what_is_only_to_be_said_in_other_words_stays_in_jobs():
    def particular(body):
        return Reply.unsupported("max_tokens") if "max_tokens" in body else echo(body)

    with BatchServer(particular) as server:
        lm = model(server, retry_online=True)
        async with Run() as run:
            replies = await asyncio.gather(*(run.complete(ask(f"q{i}", max_tokens=9), lm=lm) for i in range(3)))
        assert texts(replies) == ["to q0", "to q1", "to q2"]
        assert [len(server.created), len(server.online)] == [2, 0]


# Who leaves


async def until(happened):
    while not happened():
        await asyncio.sleep(0.002)


async def test_one_who_leaves_takes_nothing_from_the_others():
    with BatchServer(echo, jobs=[FOREVER]) as server:
        lm = model(server)
        calls = [asyncio.create_task(lm.generate(ask(f"q{i}"))) for i in range(3)]
        await until(lambda: server.created)
        calls[1].cancel()
        await asyncio.wait([calls[1]])
        server.end()
        assert texts(await asyncio.gather(calls[0], calls[2])) == ["to q0", "to q2"]
        assert not any("cancel" in what for what in server.asked)


async def test_a_job_that_nobody_waits_for_is_cancelled():
    with BatchServer(echo, jobs=[FOREVER]) as server:
        lm = model(server)
        calls = [asyncio.create_task(lm.generate(ask(f"q{i}"))) for i in range(2)]
        await until(lambda: server.created)
        for call in calls:
            call.cancel()
        await until(lambda: server.created[0]["status"] == "cancelling")
        assert (await lm.generate(ask("more"))).text == "to more"


async def test_or_kept_for_whoever_comes_back():
    with BatchServer(echo, jobs=[FOREVER]) as server:
        lm = model(server, keep_jobs=True)
        call = asyncio.create_task(lm.generate(ask("q")))
        await until(lambda: server.created)
        call.cancel()
        await asyncio.wait([call])
        server.end()
        assert (await lm.generate(ask("q"))).text == "to q"
        assert len(server.sent) == 1


async def test_a_deadline_gives_up_its_call_and_the_job():
    with BatchServer(echo, jobs=[FOREVER]) as server:
        lm = model(server)
        with pytest.raises(Exception, match="seconds"):
            async with Run(budget=Budget(seconds=1)) as run:
                await run.complete(ask("q"), lm=lm)
        await until(lambda: server.created[0]["status"] == "cancelling")


# Batches of items


def items(n):
    return [{"id": i, "task": f"say word{i}"} for i in range(n)]


async def test_round_k_of_every_item_is_one_job(tmp_path):
    seen = {}

    def worse_at_first(body):
        task = said(body)
        which = next(word for word in task.split() if word.startswith("word"))
        seen[which] = seen.get(which, 0) + 1
        return "no" if seen[which] < 2 else which

    with BatchServer(worse_at_first) as server:
        lm = model(server)
        work = Batch(
            Refine(Predict("task -> answer", lm=lm), N=3, checks=[checks.matches(r"word\d+")], advisor=False),
            concurrency=40,
        )
        lm.expected = lambda: 0
        done = [item async for item in work.as_completed(items(40))]
        assert {item.result.answer for item in done} == {f"word{i}" for i in range(40)}
        assert len(server.created) == 2
        assert len(server.sent) == 80


@pytest.mark.parametrize("limit", [{"calls": 10}, {"tokens": 300}, {"cost": 0.00008}])
async def test_no_budget_is_exceeded_and_what_fits_is_done(limit):
    with BatchServer(echo) as server:
        lm = model(server)
        predict = Predict("task -> answer", lm=lm, max_tokens=20)
        work = Batch(predict, concurrency=30, budget=Budget(**limit))
        done = [item async for item in work.as_completed(items(30)) if item.status == "done"]
        (name, allowed), spent = *limit.items(), work.usage
        assert getattr(spent, name) <= allowed
        assert 0 < len(done) == len(server.sent) < 30
        assert work.over is not None


# Restarts


@contextlib.contextmanager
def victim(folder, server, n):
    process = subprocess.Popen(
        [sys.executable, str(VICTIM), str(folder), server.base_url, str(n)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_for(server, what):
    with server.arrived:
        assert server.arrived.wait_for(lambda: what in server.asked, 30), f"never asked: {what}"


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_killed_process_finds_its_job_again(tmp_path):
    with BatchServer(echo, jobs=[FOREVER]) as server:
        with victim(tmp_path, server, 6) as process:
            wait_for(server, "GET /batches/batch_2")
            kill(process)
        with victim(tmp_path, server, 6) as process:
            server.end()
            told, _ = process.communicate(timeout=60)
        assert sorted(told.split()) == sorted(f"word{i}" for i in range(6))
        assert [len(server.created), len(server.sent), len(server.online)] == [1, 6, 0]


async def killed_then_resumed(store, server, path, budget=None):
    """A run whose process dies while its job runs, as the store and the list of jobs have it; and then its end."""
    lm = model(server, path=path, keep_jobs=True)
    first = Run(run_id="r", store=store, budget=Budget(tokens=3000))
    async with first:
        task = asyncio.create_task(first.complete(ask("q", max_tokens=20), lm=lm))
        await until(lambda: server.created)
        events = list(store.read("r"))
        task.cancel()
        await asyncio.wait([task])
    lm.close()
    left = MemoryStore()
    await left.append("r", events)
    server.end()
    lm = model(server, path=path)
    async with Run(run_id="r", store=left, budget=budget) as run:
        before = run.usage
        reply = await run.complete(ask("q", max_tokens=20), lm=lm)
    lm.close()
    again = Run(run_id="r", store=left)
    return before, reply, run.usage, again.usage


@pytest.mark.parametrize("budget", [None, Budget(tokens=200), Budget(calls=1)])
async def test_a_call_whose_job_a_new_process_takes_up_is_charged_once(tmp_path, budget):
    with BatchServer(echo, jobs=[FOREVER]) as server:
        before, reply, usage, on_record = await killed_then_resumed(
            MemoryStore(), server, tmp_path / "batches.db", budget
        )
        assert (before.calls, before.uncertain_tokens > 0) == (1, True)
        assert (reply.text, len(server.sent)) == ("to q", 1)
        assert usage == on_record
        assert (usage.calls, usage.uncertain_tokens, usage.tokens) == (1, 0, reply.usage.tokens)


async def test_where_the_list_of_jobs_is_lost_both_calls_are_charged(tmp_path):
    class Forgetful(MemoryStore):
        def read(self, run_id):
            (tmp_path / "batches.db").unlink(missing_ok=True)
            return super().read(run_id)

    with BatchServer(echo, jobs=[FOREVER]) as server:
        store = Forgetful()
        _, reply, usage, on_record = await killed_then_resumed(store, server, tmp_path / "batches.db")
        assert (reply.text, len(server.sent)) == ("to q", 2)
        assert usage == on_record
        assert (usage.calls, usage.uncertain_tokens > 0) == (2, True)


@pytest.mark.parametrize("effective", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("at", range(1, 5), ids=["upload", "create", "look", "download"])
def test_a_process_killed_at_any_request_sends_nothing_twice(at, effective, tmp_path):
    with BatchServer(echo, jobs=[JobPlan(looks=0)]) as server:
        kill_at(server, at, effective, tmp_path)
        assert [len(server.created), len(server.sent), len(server.online)] == [1, 4, 0]


def test_where_jobs_cannot_be_listed_one_job_at_most_is_made_twice(tmp_path):
    with BatchServer(echo, lists=False) as server:
        kill_at(server, 2, True, tmp_path)
        assert [len(server.created), len(server.sent), len(server.online)] == [2, 8, 0]


def kill_at(server, at, effective, folder):
    """A process dies when the server has received so many requests; `effective`: the last one was carried out. A second one
    comes to the end.
    """
    answer, killed = server._told, []

    def told(*request):
        if killed[-1] is None or len(server.asked) < at:
            return answer(*request)
        reply = answer(*request) if effective else None
        kill(killed[-1])
        killed.append(None)
        return reply

    server._told = told
    with victim(folder, server, 4) as process:
        killed.append(process)
        process.wait(timeout=60)
    with victim(folder, server, 4) as process:
        printed, _ = process.communicate(timeout=60)
    assert sorted(printed.split()) == sorted(f"word{i}" for i in range(4))


async def test_replies_of_an_ended_job_are_there_for_a_new_process_and_none_is_given_twice(tmp_path):
    path = tmp_path / "batches.db"
    with BatchServer(lambda body: f"{said(body)} {len(server.sent)}") as server:
        first = model(server, path=path)
        one = await first.generate(ask("q"))
        two = await first.generate(ask("q"))
        assert [one.text, two.text] == ["q 1", "q 2"], "the same call once more is a new one"
        first.close()
        second = model(server, path=path)
        again = [(await second.generate(ask("q"))).text for _ in range(3)]
        assert sorted(again) == ["q 1", "q 2", "q 3"], "what a dead process may have lost is given again, once each"
        second.close()


async def test_another_run_gets_replies_of_its_own(tmp_path):
    with BatchServer(echo) as server:
        lm = model(server, path=tmp_path / "batches.db")
        for _ in range(2):
            async with Run(seed=1) as run:
                await run.complete(ask("q"), lm=lm)
            lm.close()
            lm = model(server, path=tmp_path / "batches.db")
        assert len(server.sent) == 2
        lm.close()


def test_another_file_is_refused_and_kept(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE notes (text)")
    (tmp_path / "text").write_text("notes")
    with BatchServer() as server:
        for name in ("other.db", "text"):
            before = (tmp_path / name).read_bytes()
            with pytest.raises(StoreError, match=name):
                model(server, path=tmp_path / name)
            assert (tmp_path / name).read_bytes() == before
