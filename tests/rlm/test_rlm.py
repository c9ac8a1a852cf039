"""RLM as a module: the loop, SUBMIT, tools, the direct way, the end, and strategies around it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from local_repl import LocalRepl, cell, everything, told

import redraft
from redraft import RLM, BestOfN, Budget, Predict, Refine, Run, SelfRefine, checks
from redraft.errors import BudgetExceeded, InputError, ParseError, RedraftError, SandboxError, UnknownNameError
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Capabilities, Choice, Completion

TEXT = "one\ntwo\nthree\n" * 1000


def rlm(replies, signature="text, question -> answer", **options):
    lm = replies if hasattr(replies, "generate") else ScriptedLM(replies)
    made = RLM(signature, lm=lm, **{"interpreter": LocalRepl, "bypass": 0, **options})
    return made, lm


def ask(replies, signature="text, question -> answer", **options):
    made, lm = rlm(replies, signature, **options)
    given = {"text": TEXT, "question": "How many?"}
    return made(**{name: given[name] for name in made.signature.inputs}), lm


def test_code_looks_at_the_data_and_gives_the_answer():
    said, lm = ask([cell("n = text.count('two')\nprint(n)"), cell("SUBMIT(answer=str(n))")])
    assert said.answer == "1000"
    first = everything(lm, 0)
    assert "text: str, 14,000 characters, 3,001 lines" in first
    assert len(first) < 4_000
    assert "SUBMIT(answer=...)" in first
    assert told(lm).startswith("Output:\n1000\n")
    assert [step["code"] for step in said.trajectory] == ["n = text.count('two')\nprint(n)", "SUBMIT(answer=str(n))"]
    assert said.trajectory[0]["output"] == "1000\n"
    assert said.trajectory[0]["reasoning"] == "Let me look."
    json.dumps(said.trajectory)


def test_the_front_has_it():
    assert redraft.RLM is RLM


def test_the_prompt_only_grows_at_its_end():
    _, lm = ask([cell("print(1)"), cell("print(2)"), cell("print(3)"), cell("SUBMIT('x')")])
    for before, after in zip(lm.requests, lm.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages


def test_the_last_expression_is_shown_and_state_outlives_an_error():
    said, lm = ask([cell("x = 41\n1/0"), cell("x + 1"), cell("SUBMIT(str(x))")])
    assert "ZeroDivisionError" in told(lm, 1)
    assert said.trajectory[0]["error"].startswith("ZeroDivisionError")
    assert "42" in told(lm, 2)
    assert said.answer == "41"


@pytest.mark.parametrize(
    "call",
    [
        "SUBMIT(3, ['a'])",
        "SUBMIT(count=3, names=['a'])",
        "SUBMIT({'count': '3', 'names': ['a']})",
        "SUBMIT(3, names='a')",
    ],
)
def test_an_answer_is_given_by_place_by_name_or_as_one_dict(call):
    said, _ = ask([cell(call)], "text -> count: int, names: list[str]")
    assert (said.count, said.names) == (3, ["a"])


def test_a_dict_is_the_value_of_a_lone_dict_output():
    said, _ = ask([cell("SUBMIT({'a': 1})")], "text -> table: dict[str, int]")
    assert said.table == {"a": 1}


def test_what_is_wrong_with_an_answer_is_said_by_field_and_nothing_is_lost():
    said, lm = ask(
        [cell("kept = 5\nSUBMIT(count='many', names=['a'])"), cell("SUBMIT(kept, ['a'], 1)"), cell("SUBMIT(count=kept)"),
         cell("SUBMIT(count=kept, nams=['a'])"), cell("SUBMIT(kept, ['a'])")],
        "text -> count: int, names: list[str]",
    )  # fmt: skip
    assert said.count == 5
    assert "'count' should be int, got 'many'" in told(lm, 1)
    assert "got 3 values" in told(lm, 2)
    assert "'names' (list[str]) is missing" in told(lm, 3)
    assert "there is no 'nams' (did you mean 'names'?)" in told(lm, 4)


def test_an_answer_has_to_pass_the_checks():
    said, lm = ask([cell("SUBMIT('one two three')"), cell("SUBMIT('one two')")], checks=[checks.words(2)])
    assert said.answer == "one two"
    assert "not taken" in told(lm)
    assert "2" in checks.words(2).tell()
    assert checks.words(2).tell() in everything(lm, 0)


def test_an_answer_caught_by_its_own_code_is_an_answer():
    said, _ = ask([cell("try:\n    SUBMIT('good')\nexcept Exception:\n    print('no')")])
    assert said.answer == "good"


def test_a_tool_is_called_in_place_by_name_and_returns_values():
    seen = []

    def valid(ts: str, strict: bool = False) -> bool:
        """Is it a timestamp?"""
        seen.append((ts, strict))
        return ts.startswith("2024")

    async def both(a: int, *more: int) -> dict[str, int]:
        return {"sum": a + sum(more)}

    said, lm = ask(
        [cell("print([valid('2024-01'), valid(ts='x', strict=True)], both(1, 2, 3))"), cell("SUBMIT('ok')")],
        tools=[valid, both],
    )
    assert seen == [("2024-01", False), ("x", True)]
    assert "[True, False] {'sum': 6}" in told(lm)
    assert "valid(ts: str, strict: bool=...): Is it a timestamp?" in everything(lm, 0)
    assert [call["function"] for call in said.trajectory[0]["calls"]] == ["valid", "valid", "both"]


def test_what_a_tool_raises_is_raised_in_the_code():
    def fails(x: int) -> int:
        raise KeyError("nothing there")

    code = "for a in (1, 'many'):\n    try:\n        fails(a)\n    except Exception as e:\n        print(type(e).__name__, e)"
    _, lm = ask([cell(code), cell("fails(1, 2)"), cell("SUBMIT('x')")], tools=[fails])
    assert "KeyError" in told(lm, 1)
    assert "nothing there" in told(lm, 1)
    assert "was not called" in told(lm, 1)
    assert "takes 1 arguments (x), got 2" in told(lm, 2)


def test_tools_of_any_signature():
    def odd(a, /, b=2, *rest, c, **more):
        return [a, b, rest, c, more]

    code = "print(odd(1, 2, 3, 4, c=5, d=6), odd(1, c=5))\ntry:\n    odd(1, c=2, a=3)\nexcept TypeError as e:\n    print(e)"
    said, _ = ask([cell(code), cell("SUBMIT('x')")], tools=[odd])
    assert "[1, 2, [3, 4], 5, {'d': 6}] [1, 2, [], 5, {}]" in said.trajectory[0]["output"]
    assert "got 'a' twice" in said.trajectory[0]["output"]


def test_a_thousand_calls_of_a_tool_are_made_and_a_few_are_listed():
    made = []

    async def check(n: int) -> None:
        made.append(n)

    said, _ = ask([cell("for i in range(1000): check(i)"), cell("SUBMIT('x')")], tools=[check])
    assert made == list(range(1000))
    assert len(said.trajectory[0]["calls"]) == 201
    assert said.trajectory[0]["calls"][-1]["function"] == "... and 800 more calls"


def test_an_input_may_be_called_history():
    noisy = [cell(f"print('line {i} ' * 200)") for i in range(4)]
    lm = ScriptedLM([*noisy, cell("SUBMIT(history[:3] + str(len(past_turns)))")])
    made = RLM("history -> answer", lm=lm, interpreter=LocalRepl, bypass=0, max_history_chars=3_000)
    assert made(history=TEXT).answer == "one4"


def test_names_of_the_repl_are_refused_at_the_door():
    with pytest.raises(InputError, match="llm_query"):
        RLM("llm_query -> answer")
    with pytest.raises(InputError, match="print"):
        RLM("text -> answer", tools=[redraft.Tool(len, name="print", parameters={"type": "object"})])
    with pytest.raises(InputError, match="my-tool"):
        RLM("text -> answer", tools=[redraft.Tool(lambda: 1, name="my-tool")])
    with pytest.raises(InputError, match="max_iterations=0"):
        RLM("text -> answer", max_iterations=0)
    with pytest.raises(InputError, match="field 'summary'"):
        RLM("text -> answer", checks=[checks.words(2, field="summary")])
    with pytest.raises(InputError, match="not both"):
        RLM("text -> answer", interpreter=LocalRepl, interpreter_factory=LocalRepl)
    with pytest.raises(UnknownNameError, match="no interpreter 'jial'; known: auto, jail"):
        RLM("text -> answer", interpreter="jial")


def test_dspys_newer_names_are_taken():
    made = RLM("text -> answer", max_iters=3, interpreter_factory=LocalRepl)
    assert made.max_iterations == 3
    assert made.interpreter is LocalRepl


def test_short_inputs_go_straight_to_one_call():
    lm = ScriptedLM(["42"])
    said = RLM("text, question -> answer", lm=lm, interpreter=LocalRepl)(text="6 x 7", question="?")
    assert said.answer == "42"
    assert len(lm.requests) == 1
    assert "REPL" not in everything(lm)
    assert said.trajectory[0]["bypass"] is True


def test_a_short_file_goes_straight_to_one_call_and_a_long_one_does_not(tmp_path):
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    short.write_text("the secret is blue")
    long.write_text("the secret is blue\n" * 1000)
    lm = ScriptedLM(["blue", cell("SUBMIT(text[14:18])")])
    made = RLM("text -> answer", lm=lm, interpreter=LocalRepl)
    assert made(text=short).answer == "blue"
    assert "the secret is blue" in everything(lm, 0)
    assert made(text=long).answer == "blue"


def test_a_direct_answer_that_cannot_be_used_falls_back_to_the_repl():
    lm = ScriptedLM(["no idea", cell("SUBMIT(2)")])
    said = RLM("text -> n: int", lm=lm, interpreter=LocalRepl)(text="a b")
    assert said.n == 2
    assert [bool(step.get("bypass")) for step in said.trajectory] == [True, False]
    lm = ScriptedLM(["one two three", cell("SUBMIT('one two')")])
    said = RLM("text -> answer", lm=lm, interpreter=LocalRepl, checks=[checks.words(2)])(text="a b")
    assert said.answer == "one two"
    assert said.trajectory[0]["error"]


def test_the_last_turn_is_told_and_the_fallback_is_marked():
    said, lm = ask([cell("print(1)"), cell("print(2)"), "It is two."], max_iterations=2)
    assert "last turn" not in everything(lm, 0)
    assert "last turn" in told(lm, 1)
    assert "No more code is run" in told(lm, 2)
    assert said.answer == "It is two."
    assert said.trajectory[-1]["fallback"] is True
    assert not any(step.get("fallback") for step in said.trajectory[:-1])


def test_one_turn_is_the_last_one_at_once():
    said, lm = ask([cell("SUBMIT('x')")], max_iterations=1)
    assert "last turn" in told(lm, 0)
    assert said.answer == "x"


@pytest.mark.parametrize(
    "word", ['{"n": 7}', "7", "```\n7\n```", cell("SUBMIT(n=7)"), '```json\n{"n": 7}\n```']
)  # fmt: skip
def test_a_last_word_is_read_in_any_form(word):
    said, _ = ask(FunctionLM(lambda r: word if "No more code" in r.messages[-1]["content"] else cell("print(1)")),
                  "text -> n: int", max_iterations=1)  # fmt: skip
    assert said.n == 7
    assert said.trajectory[-1]["fallback"] is True


def test_a_last_word_that_is_code_is_asked_for_again_and_then_an_error():
    said, _ = ask([cell("x = 1"), cell("SUBMIT(x)"), "one"], max_iterations=1)
    assert said.answer == "one"
    with pytest.raises(ParseError, match="not run any more"):
        ask([cell("x = 1"), cell("SUBMIT(x)"), cell("SUBMIT(x)")], max_iterations=1)


def test_of_answers_that_failed_a_check_the_best_is_kept():
    said, _ = ask(
        [cell("SUBMIT('a b c d e f')"), cell("SUBMIT('a b')"), "far too many words are in here, really"],
        max_iterations=2,
        checks=[checks.words(3)],
    )
    assert said.answer == "a b"
    assert said.trajectory[-1]["fallback"] is True
    assert said.trajectory[-1]["error"]


def test_turns_that_are_all_the_same_end_in_the_last_word():
    said, lm = ask([cell("print(1)")] * 3 + ["enough"])
    assert said.answer == "enough"
    assert len(lm.requests) == 4


def test_refine_best_of_n_and_self_refine_wrap_it():
    made, _ = rlm([cell("SUBMIT('a b c')"), cell("SUBMIT('a b')")])
    result = Refine(made, N=2, checks=[checks.words(2)], fix=False)(text=TEXT, question="?")
    assert result.answer == "a b"
    assert len(result.attempts) == 2
    made, _ = rlm([cell("SUBMIT('a')"), cell("SUBMIT('a b')"), cell("SUBMIT('a b c')")])
    best = BestOfN(made, N=3, reward_fn=lambda args, pred: len(pred.answer))(text=TEXT, question="?")
    assert best.answer == "a b c"
    made, _ = rlm([cell("SUBMIT('a draft')")])
    critic = ScriptedLM([json.dumps({"verdict": "ok", "issues": []})])
    assert SelfRefine(made, critic=critic)(text=TEXT, question="?").answer == "a draft"


def test_what_refine_says_reaches_the_author_and_no_sub_query():
    made, lm = rlm(
        [cell("llm_query('p')\nSUBMIT('a b c')"), "r", cell("print(llm_query('p'))"), "r", cell("SUBMIT('a b')")]
    )
    Refine(made, N=2, checks=[checks.words(2)], fix=False)(text=TEXT, question="?")
    tell = checks.words(2).tell()
    authors = [r for r in lm.requests if r.messages[0]["role"] == "system"]
    subs = [r for r in lm.requests if r.messages[0]["role"] != "system"]
    assert all(tell in "\n".join(m["content"] for m in r.messages) for r in authors)
    assert [r.messages[0]["content"] for r in subs] == ["p", "p"]


def test_a_batch_runs_items_apart():
    lm = FunctionLM(lambda r: cell("SUBMIT(str(len(text)))"))
    made = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0)
    done = made.batch([{"text": "a" * n} for n in range(1, 9)])
    assert [item.result.answer for item in done] == [str(n) for n in range(1, 9)]


def test_an_async_call_and_a_sync_one_are_the_same():
    made, _ = rlm([cell("SUBMIT('x')")])
    assert asyncio.run(made.acall(text=TEXT, question="?")).answer == "x"


def test_a_sandbox_of_ones_own_serves_one_call_at_a_time():
    mine = LocalRepl()
    lm = FunctionLM(lambda r: cell("SUBMIT(text[:1])"))
    made = RLM("text -> answer", lm=lm, interpreter=mine, bypass=0)

    async def many():
        return await asyncio.gather(*(made.acall(text=letter * 9) for letter in "abcdefgh"))

    assert [said.answer for said in asyncio.run(many())] == [*"abcdefgh"]
    assert mine.starts == mine.closed == 8


def test_a_sandbox_that_the_call_around_holds_is_refused_not_waited_for():
    mine = LocalRepl()
    inner = RLM("text -> answer", lm=ScriptedLM([cell("SUBMIT('in')")]), interpreter=mine, bypass=0)
    made, _ = rlm(
        [cell("inner(text='x')"), cell("SUBMIT('out')")], interpreter=mine, tools=[redraft.Tool(inner, name="inner")]
    )
    said = made(text=TEXT, question="?")
    assert "at work for the call around this one" in said.trajectory[0]["output"]
    with pytest.raises(InputError, match="give a factory"):
        RLM("text -> answer", interpreter=mine, depth=2)


def test_the_sandbox_is_closed_when_the_call_is_cancelled():
    mine = LocalRepl()

    async def wait_for_ever():
        started.set()
        await asyncio.Event().wait()

    async def main():
        made = RLM(
            "text -> answer",
            lm=ScriptedLM([cell("hang()")]),
            interpreter=mine,
            bypass=0,
            tools=[redraft.Tool(wait_for_ever, name="hang")],
        )
        task = asyncio.ensure_future(made.acall(text=TEXT))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = asyncio.Event()
    asyncio.run(main())
    assert mine.closed == 1


def test_no_fallback_and_nothing_bought_when_the_sandbox_cannot_start():
    lm = ScriptedLM([])
    made = RLM("text -> answer", lm=lm, interpreter=lambda: LocalRepl(broken=True), bypass=0)
    with pytest.raises(SandboxError, match="cannot start"):
        made(text=TEXT)
    assert lm.requests == []


def test_a_strategy_around_a_broken_sandbox_fails_and_buys_nothing():
    lm = ScriptedLM([])
    made = RLM("text -> answer", lm=lm, interpreter=lambda: LocalRepl(broken=True), bypass=0)
    with pytest.raises(RedraftError) as caught:
        BestOfN(made, N=2, checks=[checks.words(2)])(text=TEXT)
    assert isinstance(caught.value.__cause__ or caught.value, SandboxError)
    assert lm.requests == []


def test_a_lost_cell_is_told_and_its_variables_come_back():
    mine = LocalRepl()
    said, lm = ask(
        [cell("x = 1\nr = llm_query('p')"), "sub", cell("1/0"), cell("DIE"), cell("print(x, r)"), cell("SUBMIT(r)")],
        interpreter=mine,
    )
    assert said.answer == "sub"
    assert "TimeLimit: 2 s" in told(lm, 4)
    assert "what they were before it" in told(lm, 4)
    assert "so far" in told(lm, 4)
    assert "1 sub" in told(lm, 5)
    assert mine.starts == 2
    assert sum(r.messages[-1]["content"] == "p" for r in lm.requests) == 1


def test_tools_are_not_called_again_when_variables_are_brought_back():
    done = []
    _, lm = ask([cell("n = note('a')\nnote('b')"), cell("DIE"), cell("print(n)"), cell("SUBMIT('x')")],
                tools=[redraft.Tool(lambda text: done.append(text) or len(done), name="note")])  # fmt: skip
    assert done == ["a", "b"]
    assert told(lm, 3).startswith("Output:\n1\n")


def test_variables_that_cannot_be_brought_back_are_said_to_be_gone():
    class Fragile(LocalRepl):
        async def execute(self, code):
            if self.starts > 1 and "x = 1" in code:
                code = "DIE"
            return await super().execute(code)

    _, lm = ask([cell("x = 1"), cell("DIE"), cell("SUBMIT(text[:3])")], interpreter=Fragile)
    assert "Your variables are gone" in told(lm, 2)
    assert "turn 1" in told(lm, 2)


def test_code_that_does_not_do_the_same_again_is_said():
    mine = LocalRepl()
    once = "import local_repl\nlocal_repl.N = getattr(local_repl, 'N', 2) - 1\n1 / local_repl.N"
    _, lm = ask([cell(once), cell("DIE"), cell("SUBMIT('x')")], interpreter=mine)
    assert "not all is as it was: turn 1" in told(lm, 2)
    assert "ZeroDivisionError" in told(lm, 2)


def test_old_turns_are_told_in_brief_and_whole_in_a_variable():
    noisy = [cell(f"marker_{i} = {i}\nprint('line {i} ' * 200)") for i in range(6)]
    said, lm = ask(
        [*noisy, cell("print(len(history), history[0]['output'][:6], history[0]['code'][:8])"), cell("SUBMIT('x')")],
        max_history_chars=4_000,
    )
    assert "Turns 1 to" in everything(lm, 6)
    assert len(everything(lm, 6)) < 4_000 + 6_000
    assert "6 line 0 marker_0" in told(lm, 7)
    sizes = [len(everything(lm, i)) for i in range(len(lm.requests))]
    assert max(sizes) < 10_000
    assert said.answer == "x"


def test_a_prompt_too_long_for_the_model_is_made_shorter():
    from redraft.errors import ContextOverflowError

    def reply(request):
        words = sum(len(m["content"]) for m in request.messages)
        if words > 6_000:
            raise ContextOverflowError("too long", status=400)
        return (
            cell("SUBMIT('x')")
            if "Turns 1 to" in str(request.messages)
            else cell("print('a' * 1500)\n" + "#" * len(request.messages))
        )

    said, _ = ask(FunctionLM(reply))
    assert said.answer == "x"


def test_depth_asks_an_rlm_inside_on_the_same_counter():
    lm = ScriptedLM([
        cell("print(rlm_query('count the lines', data=text))"),
        cell("SUBMIT(str(len(data.splitlines())) + llm_query('inner'))"), "!",
        cell("SUBMIT('done')"),
    ])  # fmt: skip
    said = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0, depth=2, max_llm_calls=5)(text=TEXT)
    assert said.answer == "done"
    assert "3000!" in told(lm, 3)
    assert "3 of 5 sub-calls left" in told(lm, 3)
    (call,) = said.trajectory[0]["calls"]
    assert call["function"] == "rlm_query"
    assert call["turns"] == 1
    assert call["usage"]["calls"] == 2
    assert "rlm_query" not in everything(lm, 1)


def test_a_child_that_runs_out_of_sub_calls_ends_with_its_last_word():
    lm = FunctionLM(lambda r: "inner" if "No more code" in r.messages[-1]["content"] else
                    cell("print(1)") if "prompt: str" in str(r.messages) else
                    cell("SUBMIT(rlm_query('p'))"))  # fmt: skip
    said = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0, depth=2, max_llm_calls=3)(text=TEXT)
    assert said.answer == "inner"
    assert len(lm.requests) == 4


def test_what_was_given_before_a_limit_is_kept():
    lm = ScriptedLM([cell("print('look')\nSUBMIT('early')"), cell("SUBMIT('late')")])
    made = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0)
    with Run(budget=Budget(calls=1)):
        said = made(text=TEXT)
    assert said.answer == "early"
    assert said.trajectory[-1]["fallback"] is True
    assert "limit of 1 call" in said.trajectory[-1]["error"]


def test_an_ended_budget_inside_a_cell_ends_the_run_whatever_the_code_catches():
    code = "for i in range(9):\n    try:\n        llm_query(str(i))\n    except BaseException:\n        pass"
    lm = FunctionLM(lambda r: cell(code) if r.messages[0]["role"] == "system" else "r")
    made = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0)
    with Run(budget=Budget(calls=3)) as run, pytest.raises(BudgetExceeded):
        made(text=TEXT)
    assert run.usage.calls == 3
    result = None
    with pytest.raises(Exception) as caught:
        result = Refine(made, N=2, checks=[checks.words(2)], budget=Budget(calls=3))(text=TEXT)
    assert result is None
    assert len(caught.value.attempts) == 1


def test_tokens_left_are_told_where_they_are_limited():
    made, lm = rlm([cell("print(1)"), cell("SUBMIT('x')")])
    with Run(budget=Budget(tokens=100_000, calls=10, seconds=60)):
        made(text=TEXT, question="?")
    assert "tokens left; 9 model calls left; " in told(lm)


def test_verbose_says_the_steps_on_stderr(capsys):
    ask([cell("print('seen')"), cell("SUBMIT('x')")], verbose=True)
    said = capsys.readouterr()
    assert "seen" in said.err
    assert said.out == ""


def test_events_say_what_happens():
    events = []
    made, _ = rlm([cell("print(llm_query('p'))"), "r", cell("SUBMIT('x')")])
    with Run(listeners=[events.append]):
        made(text=TEXT, question="?")
    steps = [e.data for e in events if e.kind == "step"]
    assert [s["name"].partition(":")[0] for s in steps] == ["cell[0]", "cell[1]"]
    assert steps[0]["value"]["code"] == "print(llm_query('p'))"
    assert steps[0]["value"]["calls"][0]["reply"] == "r"
    assert [e.data["role"] for e in events if e.kind == "call"] == ["author", "sub", "author"]


def test_steps_that_are_no_cells_are_events_too(tmp_path):
    def kinds(replies, **options):
        lm = ScriptedLM(replies)
        made = RLM("text -> n: int", lm=lm, interpreter=LocalRepl, max_iterations=2, **options)
        with redraft.SqliteStore(tmp_path / "runs.db") as store, Run(run_id="r", store=store) as run:
            said = made(text="short")
        steps = [e.data for e in run.journal.events if e.kind == "step"]
        assert [s["value"]["output"] for s in steps] == [s["output"] for s in said.trajectory]
        assert steps[2]["value"]["usage"] == said.trajectory[2]["usage"]
        return [s["name"].partition(":")[0] for s in steps]

    expected = ["bypass", "no code", "cell[0]", "fallback"]
    assert kinds(["none at all", "prose", cell("print(1)"), "3"]) == expected
    assert kinds([]) == expected


def test_a_model_without_schemas_or_temperature_serves():
    lm = ScriptedLM([cell("print(1)"), "no idea", "none at all"], capabilities=Capabilities(temperature=False))
    said = RLM("text -> n: int", lm=lm, interpreter=LocalRepl, bypass=0, max_iterations=1, temperature=0.5)
    with pytest.raises(ParseError):
        said(text=TEXT)
    lm = ScriptedLM([cell("print(1)"), "3"], capabilities=Capabilities(temperature=False))
    assert RLM("text -> n: int", lm=lm, interpreter=LocalRepl, bypass=0, max_iterations=1)(text=TEXT).n == 3


def test_a_module_that_holds_one_finds_it_again_on_a_resume():
    class Twice(redraft.Module):
        def __init__(self, lm):
            self.find = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0)
            self.say = Predict("answer -> line", lm=lm)

        async def aforward(self, text):
            found = await self.find.acall(text=text)
            return await self.say.acall(answer=found.answer)

    assert Twice(ScriptedLM([cell("SUBMIT('x')"), "a line"]))(text=TEXT).line == "a line"


def test_tools_of_a_path_input_see_the_file(tmp_path):
    log = tmp_path / "app.log"
    log.write_text("ERROR a\n" * 3 + "ok\n" * 20_000)
    model = ScriptedLM([cell("SUBMIT(str(text.count('ERROR')))")])
    assert RLM("text -> answer", lm=model, interpreter=LocalRepl)(text=log).answer == "3"
    assert "of the file app.log" in everything(model)
    assert str(Path(tmp_path)) not in everything(model)


def test_items_of_signed_thinking_travel_back():
    first = Completion(choices=(Choice(text=cell("print(1)"), items=({"provider": "x", "sig": "s"},)),))
    _, lm = ask([first, cell("SUBMIT('x')")])
    assert lm.requests[1].messages[2]["items"] == [{"provider": "x", "sig": "s"}]
