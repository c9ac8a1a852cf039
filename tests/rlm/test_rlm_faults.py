"""What users reported of other RLMs, each as a test that passes here: the rows of the field notes, by repository and number.

Rows about the sandbox run in the jail, with real processes.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from local_repl import LocalRepl, cell, everything, told

from redraft import RLM, Budget, Run, Tool
from redraft.errors import BadRequestError, BudgetExceeded, InputError, SandboxError
from redraft.sandbox import Jail
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Choice, Completion, Usage

TEXT = "one\ntwo\nthree\n" * 1000


def is_author(request):
    return request.messages[0]["role"] == "system"


def jailed(replies, signature="text -> answer", jail=Jail, **options):
    lm = replies if hasattr(replies, "generate") else ScriptedLM(replies)
    return RLM(signature, lm=lm, interpreter=jail, bypass=0, **options), lm


def outputs(*codes, text=TEXT, **options):
    """What cells print in the jail, one after the other."""
    made, _ = jailed([*map(cell, codes), cell("SUBMIT('x')")], **options)
    return [step["output"] for step in made(text=text).trajectory[: len(codes)]]


# rlm (alexzhang13)


def test_rlm_180_eight_at_once_mix_no_output_and_change_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, _ = jailed(
        FunctionLM(lambda r: cell("print(text[:2] * 3)") if len(r.messages) == 2 else cell("SUBMIT(text[:2])"))
    )
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda n: made(text=f"{n} " * 500), range(10, 18)))
    for n, prediction in zip(range(10, 18), said, strict=True):
        assert prediction.answer == str(n)
        assert prediction.trajectory[0]["output"] == f"{n}{n}{n}\n"
    import os

    assert os.getcwd() == str(tmp_path)  # noqa: PTH109


def test_rlm_95_final_in_prose_is_prose_and_overwritten_functions_come_back():
    made, lm = jailed(
        ["I will call FINAL(x) later, then FINAL_VAR(y).", cell("llm_query = 'mine'\nSUBMIT = 3\ntext = 'x'"),
         cell("print(llm_query('p'))"), "reply", cell("SUBMIT(text)")]
    )  # fmt: skip
    said = made(text=TEXT)
    assert "nothing was run" in told(lm, 1)
    assert "reply" in said.trajectory[2]["output"]
    assert said.answer == "x"  # an input is the code's to change


def test_rlm_38_a_prompt_too_long_for_the_sub_model_fails_alone():
    def model(request):
        if is_author(request):
            return (
                cell("r = llm_query_batched(['a', 'b' * 2000, 'c', 'd', 'e'])\nprint(r)")
                if len(request.messages) == 2
                else cell("SUBMIT(r[0])")
            )
        if len(request.messages[0]["content"]) > 1000:
            from redraft.errors import ContextOverflowError

            raise ContextOverflowError("too long", status=400)
        return "fine"

    made, _ = jailed(FunctionLM(model))
    said = made(text=TEXT)
    assert said.trajectory[0]["output"].count("fine") == 4
    assert said.trajectory[0]["output"].count("[ERROR]") == 1


@pytest.mark.parametrize(
    "code",
    [
        "r = llm_query_batched([str(i) for i in range(8)])",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as p: r = list(p.map(llm_query, map(str, range(8))))",
        "import asyncio\nr = await asyncio.gather(*(asyncio.to_thread(llm_query, str(i)) for i in range(8)))",
        "r = llm_map('Say {}', [str(i) for i in range(8)])",
    ],
)
def test_rlm_26_eight_sub_calls_are_under_way_together(code):
    inside, together = [], asyncio.Event()

    async def model(request):
        if is_author(request):
            return cell(f"{code}\nSUBMIT(str(len(r)))")
        inside.append(1)
        if len(inside) == 8:
            together.set()
        await asyncio.wait_for(together.wait(), 30)
        return "r"

    made, _ = jailed(FunctionLM(model))
    assert asyncio.run(made.acall(text=TEXT)).answer == "8"


def test_rlm_17_a_thousand_sub_calls_meet_a_hard_stop():
    code = "done = 0\nfor i in range(1000):\n    try:\n        llm_query(str(i))\n        done += 1\n    except RuntimeError: pass\nprint(done)"
    made, lm = jailed(
        FunctionLM(lambda r: "r" if not is_author(r) else cell(code) if len(r.messages) == 2 else cell("SUBMIT('x')")),
        max_llm_calls=7,
    )
    assert made(text=TEXT).trajectory[0]["output"] == "7\n"
    made, lm = jailed(FunctionLM(lambda r: cell(code) if is_author(r) else "r"))
    with Run(budget=Budget(calls=5)), pytest.raises(BudgetExceeded):
        made(text=TEXT)
    assert len(lm.requests) == 5


def test_rlm_84_and_80_a_child_draws_on_the_budget_of_its_parent():
    made, lm = jailed(
        FunctionLM(lambda r: cell("rlm_query('more')") if is_author(r) else "r"), depth=3, max_llm_calls=9
    )
    with Run(budget=Budget(calls=4)) as run, pytest.raises(BudgetExceeded):
        made(text=TEXT)
    assert run.usage.calls == len(lm.requests) == 4
    other = ScriptedLM([cell("SUBMIT(prompt)")], name="cheap")
    made, lm = jailed([cell("SUBMIT(rlm_query('deep'))")], depth=2, sub_lm=other)
    assert made(text=TEXT).answer == "deep"
    assert len(other.requests) == 1


def test_rlm_4_the_time_of_a_cell_is_its_own_option():
    made, lm = jailed(
        [cell("x = 1\nimport time\ntime.sleep(60)"), *[cell("SUBMIT('after')")] * 9], jail=lambda: Jail(seconds=0.3)
    )
    said = made(text=TEXT)
    assert said.answer == "after"
    assert said.trajectory[0]["error"]
    del lm


# rlm's LocalREPL, as reproduced in the field notes


def test_rlm_local_variables_set_before_an_exception_are_kept():
    assert outputs("x = 41; 1/0", "print(x)")[1] == "41\n"


def test_rlm_local_classes_and_dataclasses_work():
    code = "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 3\nprint(A().x)"
    assert outputs(code, "class B(A): pass\nprint(B().x + 1)") == ["3\n", "4\n"]


def test_rlm_local_global_lasts_across_cells():
    assert outputs("n = 0\ndef inc():\n    global n\n    n += 1", "inc(); inc(); print(n)")[1] == "2\n"


def test_rlm_local_underscored_variables_last():
    assert outputs("_t = 5", "print(_t)")[1] == "5\n"


def test_rlm_local_and_deeprepo_1_and_18_the_host_is_out_of_reach(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "hunter2")
    said = outputs(
        "import os\nprint(os.environ)",
        "print(os.popen('id').read())",
        "print(open('/etc/passwd').read())",
        "import socket\nsocket.create_connection(('127.0.0.1', 9))",
    )
    assert "hunter2" not in "".join(said)
    assert all("Error" in out for out in said[1:])


# dspy


@pytest.mark.parametrize("empty", ["", "```python\n```", Completion(choices=(Choice(text=None),), usage=Usage())])
def test_dspy_9632_empty_code_is_a_nudge_and_not_a_crash(empty):
    made, lm = jailed([empty, cell("SUBMIT('x')")])
    said = made(text=TEXT)
    assert said.answer == "x"
    assert said.trajectory[0]["error"] == "no code"
    assert "```python" in told(lm)


@pytest.mark.parametrize(
    "odd",
    [
        "```\nprint(7)\n```",
        "[[ ## code ## ]]\n```python\nprint(7)\n```",
        "reasoning: look\ncode:\n```py\nprint(7)\n```\ntrailing `ticks` and ```",
        '{"reasoning": "r", "code": "print(7)"}',
        "print(7)",
    ],
)
def test_dspy_9573_odd_replies_are_read_or_answered_never_raised(odd):
    made, _ = jailed([odd, cell("SUBMIT('x')")])
    assert made(text=TEXT).trajectory[0]["output"] == "7\n"


def test_dspy_10165_a_tool_that_raises_leaves_the_session_alive():
    async def fails(n: int) -> int:
        await asyncio.sleep(0)
        raise ValueError(f"no {n}")

    code = "import asyncio\nr = await asyncio.gather(*(asyncio.to_thread(fails, i) for i in range(3)), return_exceptions=True)\nprint(r)"
    made, _ = jailed([cell("x = 1\nfails(1)"), cell(code), cell("SUBMIT(str(x))")], tools=[fails])
    said = made(text=TEXT)
    assert "ValueError: fails failed: no 1" in said.trajectory[0]["output"]
    assert said.trajectory[1]["output"].count("ValueError") == 3
    assert said.answer == "1"


@pytest.mark.parametrize("when", ["start", "cell", "restore"])
def test_dspy_9643_a_broken_sandbox_is_an_error_and_never_an_answer(when):
    class Breaks(LocalRepl):
        async def start(self, variables, functions):
            self.broken = when == "start" or (when == "restore" and self.starts > 0)
            await super().start(variables, functions)

    lm = ScriptedLM([cell("print(1)\nSUBMIT('early')"), cell("DIE" if when == "restore" else "BREAK"), "made up"])
    made = RLM("text -> answer", lm=lm, interpreter=Breaks, bypass=0)
    with pytest.raises(SandboxError):
        made(text=TEXT)
    assert lm.left == {"start": 3, "cell": 1, "restore": 1}[when]


def test_dspy_9501_9527_and_10186_no_home_and_no_folder_matter(tmp_path, monkeypatch):
    (tmp_path / "package.json").write_text('{"type": "module", "name": "x"}')
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert outputs("import json\nprint(json.dumps([1]))") == ["[1]\n"]


def test_dspy_9233_a_text_of_150_mb_is_a_variable():
    assert outputs("print(len(text), text[-3:])", text="x" * 150_000_000 + "end") == ["150000003 end\n"]


def test_dspy_9035_an_endless_loop_ends_and_says_so():
    made, _ = jailed([cell("x = 1\nwhile True:\n    pass"), *[cell("SUBMIT(str(x)) if 'x' in globals() else SUBMIT('gone')")] * 9],
                     jail=lambda: Jail(seconds=0.3))  # fmt: skip
    said = made(text=TEXT)
    assert "0.3" in said.trajectory[0]["error"]
    assert said.answer in ("1", "gone")


def test_dspy_9082_9138_and_10022_one_module_in_eight_threads():
    made, _ = jailed(FunctionLM(lambda r: cell("SUBMIT(text[:3])")))
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda n: made(text=f"{n:03}" * 9).answer, range(16)))
    assert said == [f"{n:03}" for n in range(16)]


def test_dspy_9082_one_sandbox_shared_by_threads_serves_them_in_turn():
    made, _ = jailed(FunctionLM(lambda r: cell("SUBMIT(text[:3])")), jail=(mine := Jail()))
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda n: made(text=f"{n:03}" * 9).answer, range(4)))
    assert said == ["000", "001", "002", "003"]
    del mine


def test_dspy_10137_overlapping_calls_do_not_see_each_others_tools():
    both = threading.Barrier(2, timeout=30)

    def tool(name):
        def call() -> str:
            """Say who."""
            both.wait()
            return name

        return Tool(call, name=f"{name}_tool")

    def ask(name):
        other = {"a": "b", "b": "a"}[name]
        code = f"r = {name}_tool()\nSUBMIT(r + str('{other}_tool' in globals()))"
        made, _ = jailed([cell(code)], tools=[tool(name)])
        return made(text=TEXT).answer

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, "ab")) == ["aFalse", "bFalse"]


def test_dspy_10266_and_10300_a_refused_batch_costs_nothing_and_none_is_charged_twice():
    code = "try:\n    llm_query_batched(['a', 'b', 'c'])\nexcept RuntimeError as e:\n    print(e)\nprint(llm_query_batched(['a', 'b']))"
    made, lm = jailed(
        FunctionLM(lambda r: "r" if not is_author(r) else cell(code) if len(r.messages) == 2 else cell("SUBMIT('x')")),
        max_llm_calls=2,
    )
    said = made(text=TEXT)
    assert "3 sub-calls asked for and 2 of 2 left" in said.trajectory[0]["output"]
    assert "['r', 'r']" in said.trajectory[0]["output"]
    assert said.trajectory[0]["sub_calls"] == 2
    assert sum(not is_author(r) for r in lm.requests) == 2
    assert "0 of 2 sub-calls left" in told(lm)


def test_dspy_9446_a_sub_prompt_has_a_greatest_length_which_is_told():
    made, lm = jailed([cell("llm_query(text)"), cell("SUBMIT('x')")], max_prompt_chars=1_000)
    said = made(text=TEXT)
    assert "14,000 characters and 1,000 are allowed" in said.trajectory[0]["output"]
    assert "at most 1,000 characters" in everything(lm, 0)
    assert len(lm.requests) == 2


def test_dspy_9289_images_are_refused_at_the_door_and_models_are_routed():
    made, lm = jailed([])
    with pytest.raises(InputError, match="image"):
        made(text=[{"type": "image_url", "image_url": {"url": "data:"}}])
    assert lm.requests == []
    sub = ScriptedLM(["sub"], name="sub")
    made, lm = jailed([cell("SUBMIT(llm_query('p'))")], sub_lm=sub)
    assert made(text=TEXT).answer == "sub"
    assert "local" in RLM("text -> answer", interpreter="unsafe_local").interpreter


def test_dspy_9210_an_answer_from_a_cell_that_printed_is_asked_for_again_once():
    made, lm = jailed([cell("print('look at me')\nSUBMIT('early')"), cell("print('again')\nSUBMIT('late')")])
    said = made(text=TEXT)
    assert said.answer == "late"
    assert "look at me" in told(lm)
    assert "not taken yet" in told(lm)
    made, lm = jailed([cell("print('look')\nSUBMIT('early')")], read_first=False)
    assert made(text=TEXT).answer == "early"
    made, lm = jailed([cell("print('look')\nSUBMIT('only')")], max_iterations=1)
    assert made(text=TEXT).answer == "only"


def test_dspy_9210_the_answer_that_was_held_back_is_never_lost():
    made, lm = jailed([cell("print('look')\nSUBMIT('early')"), cell("print('hm')")], max_iterations=2)
    said = made(text=TEXT)
    assert said.answer == "early"
    assert said.trajectory[-1]["fallback"] is True
    made, lm = jailed([cell("print('look')\nSUBMIT('early')"), BadRequestError("no", status=400)])
    assert made(text=TEXT).answer == "early"
    del lm


def test_dspy_9917_the_sandbox_is_python_itself():
    code = "import csv, io, statistics, re, json, itertools\nprint(list(csv.reader(io.StringIO('a,b\\n1,2')))[1], statistics.mean([1, 2]))"
    assert outputs(code) == ["['1', '2'] 1.5\n"]


# verifiers, pydantic-ai-rlm


@pytest.mark.parametrize(
    "bomb",
    ["while True:\n    try:\n        while True: pass\n    except BaseException: pass", "import os\nos._exit(3)"],
)
def test_verifiers_659_and_678_after_a_cell_that_ended_badly_the_next_one_works(bomb):
    made, lm = jailed(
        [cell("kept = llm_query('p')"), "sub", cell(bomb), *[cell("SUBMIT(kept)")] * 9], jail=lambda: Jail(seconds=0.3)
    )
    said = made(text=TEXT)
    assert said.answer == "sub"
    step = said.trajectory[1]
    assert step["error"]
    assert not step["lost"] or "what they were before it" in told(lm, 3)
    assert step["lost"] or "exit" not in bomb
    assert sum(r.messages[-1]["content"] == "p" for r in lm.requests) == 1


def test_pydantic_ai_rlm_4_a_recursive_model_recurses():
    made, _ = jailed(
        [cell("a = rlm_query('outer', data=[1, 2, 3])\nSUBMIT(a)"), cell("b = rlm_query('inner', data=data[1:])\nSUBMIT(b)"),
         cell("SUBMIT(str(sum(data)))")],
        depth=3,
    )  # fmt: skip
    assert made(text=TEXT).answer == "5"
