"""RLM on its default sandbox: big inputs, threads, limits, a killed run, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path

import pytest
from local_repl import cell, everything, told

from redraft import RLM, Budget, Refine, Run, SqliteStore, checks
from redraft.errors import BudgetExceeded, RunClosed
from redraft.frame import payer
from redraft.testing import FunctionLM, ScriptedLM

TEXT = "one\ntwo\nthree\n" * 1000


def ask(replies, signature="text -> answer", text=TEXT, **options):
    lm = replies if hasattr(replies, "generate") else ScriptedLM(replies)
    return RLM(signature, lm=lm, bypass=0, **options)(text=text), lm


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_the_default_sandbox_is_used_and_leaves_nothing_behind():
    before = children()
    said, lm = ask([cell("print(len(text))"), cell("SUBMIT(str(text.count('two')))")])
    assert said.answer == "1000"
    assert children() == before
    assert "llm_map(ask, chunks" in everything(lm, 0)


def test_the_helpers_do_what_the_prompt_says():
    code = (
        "print(peek(text, 4, 3))\nprint(grep('tw.', text, limit=2)[1]['line'], len(chunk(text, 1000)))\n"
        "print(llm_map('Say: {chunk}', ['a', 'b']), llm_map(lambda c: c * 2, ['x'], schema='n: int'))"
    )
    said, lm = ask([cell(code), "A", "B", '{"n": 3}', cell("SUBMIT('x')")])
    assert "two" in said.trajectory[0]["output"]
    assert "5 15" in said.trajectory[0]["output"]
    assert "['A', 'B'] [{'n': 3}]" in said.trajectory[0]["output"]
    assert {lm.requests[1].messages[0]["content"], lm.requests[2].messages[0]["content"]} == {"Say: a", "Say: b"}


def test_a_file_is_read_by_the_code_alone(tmp_path):
    path = tmp_path / "app.log"
    with path.open("w") as file:
        for i in range(200_000):
            file.write(f"2024-01-01T{i % 24:02}:00:00 {'ERROR' if i % 1000 == 7 else 'INFO'} request {i}\n")
    lm = ScriptedLM([cell("import re\nSUBMIT(len(re.findall(' ERROR ', logs)))")])
    said = RLM("logs, question -> count: int", lm=lm)(logs=path, question="How many errors?")
    assert said.count == 200
    assert re.search("about (19|20)[0-9],000 lines", everything(lm))
    assert len(everything(lm)) < 5_000


def test_an_answer_from_a_thread_ends_a_cell_that_goes_on():
    code = "import threading\nthreading.Thread(target=SUBMIT, args=('x',)).start()\nwhile True: pass"
    said, _ = ask([cell(code)])
    assert said.answer == "x"


def test_the_runs_deadline_ends_a_cell():
    began = time.monotonic()
    with Run(budget=Budget(seconds=1.0)), pytest.raises(BudgetExceeded, match="while a cell was at work"):
        ask([cell("import time\ntime.sleep(60)")])
    assert time.monotonic() - began < 20


def test_an_ended_budget_ends_a_cell_of_threads():
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(i):\n    while True:\n        try: llm_query(str(i))\n        except BaseException: pass\n"
        "with ThreadPoolExecutor(4) as pool: list(pool.map(f, range(4)))"
    )
    lm = FunctionLM(lambda r: cell(code) if r.messages[0]["role"] == "system" else "r")
    with Run(budget=Budget(calls=9)) as run, pytest.raises(BudgetExceeded):
        ask(lm)
    assert run.usage.calls == 9


def test_a_killed_run_makes_its_variables_again_in_a_new_jail(tmp_path):
    async def stop(request):
        del request
        payer().run.cancel()
        await asyncio.Event().wait()

    first = [
        cell("import random\nr = random.random()\na = llm_query_batched(['p', 'q'])"),
        "P",
        "Q",
        cell("def f(): return a, r\nprint(f())"),
    ]
    with SqliteStore(tmp_path / "runs.db") as store:
        with pytest.raises(RunClosed), Run(run_id="k", store=store):
            ask([*first, stop])
        with Run(run_id="k", store=store, strict=True):
            said, lm = ask([cell("print(f())"), cell("SUBMIT(a[1])")])
    assert said.answer == "Q"
    assert len(lm.requests) == 2
    assert said.trajectory[2]["output"] == said.trajectory[1]["output"]


def test_refine_around_it_with_hard_and_soft_constraints():
    lm = ScriptedLM([cell("SUBMIT([])"), cell("SUBMIT(['timeout', 'oom'])")])
    made = RLM("logs, query -> patterns: list[str]", lm=lm, bypass=0)

    def reward(args, pred):
        return 0.0 if not pred.patterns else 1.0

    result = Refine(made, N=3, reward_fn=reward, threshold=0.9, advisor=False)(logs=TEXT, query="patterns?")
    assert result.patterns == ["timeout", "oom"]
    assert len(result.attempts) == 2


def test_checks_are_told_to_the_code_that_broke_them():
    said, lm = ask([cell("SUBMIT('far too many words')"), cell("SUBMIT('two words')")], checks=[checks.words(2)])
    assert said.answer == "two words"
    assert "ValueError: the answer was not taken" in told(lm)


def test_many_at_once_on_one_loop():
    made = RLM("text -> answer", lm=FunctionLM(lambda r: cell("SUBMIT(text[:1])")), bypass=0)

    async def main():
        return await asyncio.gather(*(made.acall(text=c * 20_000) for c in "abcdef"))

    assert [said.answer for said in asyncio.run(main())] == [*"abcdef"]


def test_a_cancelled_call_ends_its_jail():
    before = children()

    async def main():
        made = RLM("text -> answer", lm=ScriptedLM([hear]), bypass=0)
        task = asyncio.ensure_future(made.acall(text=TEXT))
        await asked.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def hear(request):
        del request
        asked.set()
        return cell("while True: pass")

    asked = asyncio.Event()
    asyncio.run(main())
    assert children() == before
