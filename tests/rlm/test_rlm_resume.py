"""A killed run goes on: no reply is bought twice, no tool acts twice, no cell runs twice but to bring variables back."""

from __future__ import annotations

import asyncio

import pytest
from local_repl import LocalRepl, cell, everything

import redraft
from redraft import RLM, BestOfN, Run, SqliteStore, Tool
from redraft.errors import RunClosed, TransientLMError
from redraft.frame import payer
from redraft.testing import FunctionLM, ScriptedLM

TEXT = "one\ntwo\nthree\n" * 1000


@pytest.fixture
def store(tmp_path):
    with SqliteStore(tmp_path / "runs.db") as kept:
        yield kept


def again(store, replies, *, strict=True, **options):
    """One process: what it said, what it bought, what was run."""
    lm = replies if hasattr(replies, "generate") else ScriptedLM(replies)
    repl = LocalRepl()
    made = RLM("text -> answer", lm=lm, interpreter=lambda: repl, bypass=0, **options)
    with Run(run_id="r", store=store, strict=strict) as run:
        said = made(text=TEXT)
    return said, lm, repl, run


def killed(store, replies, **options):
    """One process that ends in the middle: its last reply never comes, and is charged."""

    async def stop(request):
        del request
        payer().run.cancel()
        await asyncio.Event().wait()

    with pytest.raises(RunClosed):
        again(store, [*replies, stop], strict=False, **options)


FIRST = [cell("n = len(text)\nr = llm_query_batched(['p', 'q'])"), "one", "two", cell("print(r, note('x'))")]


@pytest.fixture
def note():
    done = []
    return Tool(
        lambda word: done.append(word) or len(done),
        name="note",
        parameters={"type": "object", "properties": {"word": {"type": "string"}}},
    ), done


def test_a_finished_run_is_said_again_without_a_sandbox(store, note):
    tool, done = note
    once, lm, _, run = again(store, [*FIRST, cell("SUBMIT(r[0])")], tools=[tool])
    assert once.answer == "one"
    twice, none, repl, rerun = again(store, [], tools=[tool])
    assert twice == once
    assert none.requests == []
    assert repl.starts == 0
    assert repl.cells == []
    assert done == ["x"]
    assert rerun.usage == run.usage
    del lm


def test_a_killed_run_goes_on_and_makes_its_variables_again(store, note):
    tool, done = note
    killed(store, FIRST, tools=[tool])
    said, lm, repl, run = again(store, [cell("SUBMIT(r[1] + str(n))")], tools=[tool])
    assert said.answer == "two14000"
    assert len(lm.requests) == 1
    assert repl.cells == [step["code"] for step in said.trajectory]
    assert done == ["x"]
    assert run.usage.calls == 5 + 1
    assert said.trajectory[1]["output"] == "['one', 'two'] 1\n"


def test_the_prompts_of_a_resumed_run_are_the_same(store):
    killed(store, FIRST[:3])
    _, lm, _, _ = again(store, [cell("print(1)"), cell("SUBMIT('x')")])
    first = everything(lm, 0)
    assert "48 of 50 sub-calls left" in first


def test_a_cell_cut_off_in_the_middle_asks_only_what_is_missing(store, note):
    tool, done = note
    code = cell("a = llm_query('a')\nnote(a)\nb = llm_query('b')\nSUBMIT(a + b)")
    killed(store, [code, "A"], tools=[tool])
    assert done == ["A"]
    said, lm, _, run = again(store, ["B"], tools=[tool])
    assert said.answer == "AB"
    assert [r.messages[0]["content"] for r in lm.requests] == ["b"]
    assert done == ["A"]
    assert run.usage.calls == 3 + 1


def test_a_failure_that_would_not_happen_again_is_answered_again(store):
    replies = iter([cell("r = llm_query_batched(['a', 'b'])\nprint(r)")])

    async def model(request):
        asked = request.messages[0]["content"]
        if asked == "b":
            raise TransientLMError("down", status=503)
        if asked == "a":
            return "A"
        if (code := next(replies, None)) is not None:
            return code
        payer().run.cancel()
        return await asyncio.Event().wait()

    with redraft.context(tries=1), pytest.raises(RunClosed):
        again(store, FunctionLM(model, name="scripted"), strict=False)
    said, lm, repl, _ = again(store, [cell("SUBMIT(r[1])")])
    assert said.answer == "[ERROR] scripted gave no reply: down"
    assert len(repl.cells) == 2
    assert len(lm.requests) == 1


def test_a_lost_cell_is_not_run_again(store):
    killed(store, [cell("x = 1"), cell("DIE"), cell("y = x")])
    said, _, repl, _ = again(store, [cell("SUBMIT(str(x + y))")])
    assert said.answer == "2"
    assert repl.deaths == 0


def test_a_child_is_not_asked_again(store):
    code = cell("a = rlm_query('find', data=text)")
    killed(store, [code, cell("SUBMIT(data[:3])")], depth=2)
    said, lm, _, run = again(store, [cell("SUBMIT(a)")], depth=2)
    assert said.answer == "one"
    assert len(lm.requests) == 1
    assert run.usage.calls == 3 + 1


def test_best_of_n_around_it_resumes(store):
    def once(replies):
        lm = ScriptedLM(replies)
        made = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0)
        with Run(run_id="b", store=store, strict=True):
            result = BestOfN(made, N=2, reward_fn=lambda args, pred: len(pred.answer))(text=TEXT)
        return result.answer, len(lm.requests)

    replies = [cell("SUBMIT('a')"), cell("SUBMIT('bb')")]
    assert once(replies) == ("bb", 2)
    assert once([]) == ("bb", 0)


def test_a_file_that_changed_is_another_run(store, tmp_path):
    path = tmp_path / "data.txt"

    def ask(replies):
        lm = ScriptedLM(replies)
        made = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0)
        with Run(run_id="f", store=store):
            return made(text=path).answer

    path.write_text("first " * 5000)
    assert ask([cell("SUBMIT(text[:5])")]) == "first"
    assert ask([]) == "first"
    path.write_text("other " * 5000)
    assert ask([cell("SUBMIT(text[:5])")]) == "other"


def test_other_code_is_another_cell(store):
    again(store, [cell("print('old')"), cell("SUBMIT('x')")])
    lm = ScriptedLM([cell("print('new')"), cell("SUBMIT('y')")])
    made = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0, system="Other rules.")
    with Run(run_id="r", store=store):
        said = made(text=TEXT)
    assert said.answer == "y"
    assert said.trajectory[0]["output"] == "new\n"
