"""Bounds on sub-calls hold exactly, under batches, threads and children; what is refused costs nothing."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_repl import LocalRepl, cell, told

from redraft import RLM, Budget, Run
from redraft.errors import AuthError, BadRequestError, BudgetExceeded
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Choice, Completion

TEXT = "text " * 3000


def is_author(request):
    return request.messages[0]["role"] == "system"


def with_code(code, sub=lambda prompt: f"re {prompt}"):
    """A model that writes this code first, then submits; `sub` answers the sub-queries."""

    def reply(request):
        if not is_author(request):
            return sub(request.messages[0]["content"])
        return cell(code) if len(request.messages) == 2 else cell("SUBMIT('x')")

    return FunctionLM(reply)


def run(code, sub=lambda prompt: f"re {prompt}", **options):
    lm = with_code(code, sub)
    said = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0, **options)(text=TEXT)
    subs = [r.messages[0]["content"] for r in lm.requests if not is_author(r)]
    return said.trajectory[0], subs


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(st.integers(1, 6), st.just("one")), max_size=8), st.integers(0, 12))
def test_never_more_sub_calls_than_allowed_and_refused_batches_cost_none(asked, most):
    lines = ["refused = 0"]
    for i, n in enumerate(asked):
        call = f"llm_query('s{i}')" if n == "one" else f"llm_query_batched(['b{i}.' + str(j) for j in range({n})])"
        lines.append(f"try:\n    {call}\nexcept RuntimeError:\n    refused += 1")
    step, subs = run("\n".join(lines) + "\nprint(refused)", max_llm_calls=most)
    left, expected, refused = most, 0, 0
    for n in asked:
        size = 1 if n == "one" else n
        if size <= left:
            left, expected = left - size, expected + size
        else:
            refused += 1
    assert len(subs) == expected <= most
    assert step["output"] == f"{refused}\n"


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 12))
def test_the_runs_own_limit_holds_exactly_under_batches(batches, most):
    code = "\n".join(f"llm_query_batched(['b{i}.' + str(j) for j in range({n})])" for i, n in enumerate(batches))
    lm = with_code(code)
    made = RLM("text -> answer", lm=lm, interpreter=LocalRepl, bypass=0)
    with Run(budget=Budget(calls=most)) as around:
        try:
            made(text=TEXT)
            done = True
        except BudgetExceeded:
            done = False
    assert len(lm.requests) == around.usage.calls <= most
    assert done == (2 + sum(batches) <= most)


def test_threads_share_the_bound():
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def ask(i):\n    try:\n        return llm_query(str(i))\n    except RuntimeError as e:\n        return 'no'\n"
        "with ThreadPoolExecutor(8) as pool:\n    print(list(pool.map(ask, range(20))).count('no'))"
    )
    step, subs = run(code, max_llm_calls=7)
    assert len(subs) == 7
    assert step["output"] == "13\n"


def test_a_refusal_says_the_numbers():
    step, subs = run("llm_query_batched(['a', 'b', 'c'])", max_llm_calls=2)
    assert "3 sub-calls asked for and 2 of 2 left: none was made" in step["output"]
    assert subs == []


def test_one_oversized_prompt_fails_alone_and_unbought():
    step, subs = run("r = llm_query_batched(['a', 'x' * 11, 7, ' ', 'b'])\nfor x in r: print(x)", max_prompt_chars=10)
    lines = step["output"].splitlines()
    assert subs == ["a", "b"]
    assert lines[0] == "re a"
    assert lines[4] == "re b"
    assert all(line.startswith("[ERROR]") for line in lines[1:4])
    assert "11 characters and 10 are allowed; nothing was asked" in lines[1]
    assert step["sub_calls"] == 2
    step, subs = run("llm_query('x' * 11)", max_prompt_chars=10)
    assert step["error"].startswith("ValueError")
    assert subs == []


def test_a_prompt_that_the_model_refuses_fails_alone():
    def sub(prompt):
        if prompt == "b":
            raise BadRequestError("no such thing", status=400)
        return "fine"

    step, _ = run("print(llm_query_batched(['a', 'b', 'c']))", sub)
    assert step["output"].count("fine") == 2
    assert "[ERROR]" in step["output"]
    assert [bool(call["error"]) for call in step["calls"]] == [False, True, False]


def test_empty_and_cut_replies_are_visible():
    def sub(prompt):
        if prompt == "empty":
            return Completion(choices=(Choice(text="", reasoning="hm"),))
        return Completion(choices=(Choice(text="half an ans", finish_reason="length"),))

    step, _ = run("for x in llm_query_batched(['empty', 'cut']): print(x)", sub)
    assert "[EMPTY REPLY] the model only thought" in step["output"]
    assert "half an ans\n[CUT]" in step["output"]


def test_equal_prompts_of_a_batch_are_each_asked():
    given_out = iter("abc")
    step, subs = run("print(llm_query_batched(['p'] * 3))", lambda prompt: next(given_out))
    assert sorted(subs) == ["p", "p", "p"]
    assert sorted(json.loads(step["output"].replace("'", '"'))) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "schema", ["{'label': 'str', 'score': 'float'}", "'label: str, score: float'",
               "{'type': 'object', 'properties': {'label': {'type': 'string', 'pattern': '(a+)+$'}, 'score': {'type': 'number'}}, 'required': ['label', 'score']}"]
)  # fmt: skip
def test_a_schema_gives_values(schema):
    replies = iter(['```json\n{"label": "good", "score": 0.5}\n```', "no idea", '{"label": "bad", "score": 1}'])
    step, subs = run(f"print(llm_query('p', schema={schema}), llm_query('q', {schema}))", lambda prompt: next(replies))
    assert "'label': 'good'" in step["output"]
    assert "'label': 'bad'" in step["output"]
    assert len(subs) == 3
    assert "could not be used" in subs[2]
    assert step["sub_calls"] == 3


def test_a_schema_of_a_list_and_one_that_is_none():
    step, _ = run(
        "print(llm_query('p', schema={'type': 'array', 'items': {'type': 'integer'}})[1])", lambda p: "[1, 2]"
    )
    assert step["output"] == "2\n"
    step, subs = run("llm_query('p', schema={'type': 'nonsense'})")
    assert "ValueError: the schema cannot be read" in step["output"]
    assert subs == []
    step, _ = run("print(llm_query_batched(['p'], schema='n: int'))", lambda p: "seven")
    assert "[ERROR] the reply does not fit the schema" in step["output"]


def test_wrong_calls_are_pythons_own_errors():
    step, subs = run("for f in (lambda: llm_query(), lambda: llm_query_batched('abc'), lambda: llm_query(3), lambda: llm_query('a', b=1)):\n"
                     "    try:\n        f()\n    except Exception as e:\n        print(type(e).__name__, e)")  # fmt: skip
    assert step["output"].count("TypeError") == 4
    assert subs == []


def test_a_refused_key_ends_the_run():
    def sub(prompt):
        raise AuthError("bad key", status=401)

    with pytest.raises(AuthError):
        run("llm_query('p')", sub)


def test_a_sub_model_of_its_own_answers_the_sub_calls():
    author, sub = (
        ScriptedLM([cell("print(llm_query('p'))"), cell("SUBMIT('x')")]),
        ScriptedLM(["from sub"], name="cheap"),
    )
    said = RLM("text -> answer", lm=author, sub_lm=sub, interpreter=LocalRepl, bypass=0)(text=TEXT)
    assert said.trajectory[0]["calls"][0]["model"] == "cheap"
    assert "from sub" in told(author)


def test_queries_of_a_batch_are_under_way_together():
    inside = 0
    together = asyncio.Event()

    async def sub(request):
        nonlocal inside
        if is_author(request):
            return cell("llm_query_batched([str(i) for i in range(8)])\nSUBMIT('x')")
        inside += 1
        if inside == 8:
            together.set()
        await asyncio.wait_for(together.wait(), 20)
        return "r"

    async def main():
        made = RLM("text -> answer", lm=FunctionLM(sub), interpreter=LocalRepl, bypass=0)
        return await made.acall(text=TEXT)

    assert asyncio.run(main()).answer == "x"
    assert inside == 8
