"""How code is found in a reply, however it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.rlm.parsing import looks_like_code, read
from redraft.types import Choice, Completion

NESTED = '''Here.
```python
doc = """
```json
{"a": 1}
```
"""
print(doc)
```
Then I will see.'''


def reply(text, **more):
    return read(Completion(choices=(Choice(text=text, **more),)))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("```py\nprint(1)\n```", "print(1)"),
        ("```repl\nprint(1)\n```", "print(1)"),
        ("```Python\r\nprint(1)\r\n```", "print(1)"),
        ("```\nprint(1)\n```", "print(1)"),
        ("~~~python\nprint(1)\n~~~", "print(1)"),
        ("````python\nprint('```')\n````", "print('```')"),
        ("1. look:\n   ```python\n   for i in x:\n       print(i)\n   ```", "for i in x:\n    print(i)"),
        ("```python\n\tprint(1)\n```", "print(1)"),
        ("```python print(1)```", "print(1)"),
        ("```python\n>>> x = 1\n>>> for i in y:\n...     print(i)\n1\n```", "x = 1\nfor i in y:\n    print(i)"),
        ("```python\nprint(1)", "print(1)"),
        ("print(len(text))", "print(len(text))"),
        ("x = 1\nprint(x)\n", "x = 1\nprint(x)"),
        ('{"reasoning": "look", "code": "print(1)"}', "print(1)"),
        ("[[ ## reasoning ## ]]\nlook\n\n[[ ## code ## ]]\nprint(1)\n\n[[ ## completed ## ]]", "print(1)"),
        ("[[ ## code ## ]]\n```python\nprint(1)\n```\n[[ ## completed ## ]]", "print(1)"),
        ("```json\n{}\n```\n```python\nprint(1)\n```", "print(1)"),
        ("It prints:\n```\n1 2 3\n```\nso\n```python\nprint(1)\n```", "print(1)"),
        ("```\nthis is ( broken\n```", "this is ( broken"),
        ("```python\nif x\n    print(1)\n```", "if x\n    print(1)"),
        ("<think>\n```python\nprint(1)\n```", "print(1)"),
    ],
)
def test_code_is_found(text, code):
    assert reply(text).code == code
    assert not reply(text).fault


def test_a_fence_inside_a_string_does_not_end_the_code():
    got = reply(NESTED)
    assert got.code.endswith("print(doc)")
    assert got.thought == "Here."
    assert got.shown.endswith("```")
    assert "Then I" not in got.shown


def test_of_several_blocks_the_first_is_run_and_that_is_said():
    got = reply("a\n```python\nprint(1)\n```\nb\n```python\nprint(2)\n```\n```json\n{}\n```")
    assert got.code == "print(1)"
    assert "1 more was not" in got.note


@pytest.mark.parametrize(
    "text",
    [
        "I will call FINAL(x) later.",
        "FINAL_VAR(answer) is what I would say",
        "The answer is 42.",
        "Answer: yes",
        "Done",
        "42",
        "",
        "  \n",
        "```python\n```",
        "```python\n\n```\n",
        "```bash\nls\n```",
        '```json\n{"a": 1}\n```',
        '{"answer": 3}',
    ],
)  # fmt: skip
def test_what_is_no_code_is_none(text):
    got = reply(text)
    assert got.code == ""
    assert got.fault


def test_a_reply_of_none_is_none():
    assert reply(None).fault.startswith("Your reply was empty")


def test_half_a_block_is_not_run():
    assert "cut" in reply("```python\nprint(1)\nfor x in", finish_reason="length").fault
    assert reply("```python\nprint(1)\n```\nand then", finish_reason="length").code == "print(1)"
    assert "cut" in reply("print(1)\nfor x in", finish_reason="length").fault


def test_thinking_alone_and_tool_calls_say_what_to_do():
    assert "only thought until" in reply("", reasoning="hm", finish_reason="length").fault
    call = {"type": "function", "function": {"name": "python", "arguments": "{}"}}
    assert "called a tool" in reply("", tool_calls=(call,)).fault
    assert "no bash" in reply("```bash\nls\n```").fault


def test_a_name_is_no_code():
    assert not looks_like_code("answer")
    assert looks_like_code("await f()")


@given(st.text(alphabet="`~python\n \"'({[:=x1#", max_size=200))
def test_no_reply_breaks_it(text):
    got = reply(text)
    assert bool(got.code) != bool(got.fault)


def test_garbage_takes_linear_time():
    assert reply("```python\nx = (\n```\n" * 2_000).code
    assert reply("(" * 100_000).fault
    assert reply("```python\n" + "(" * 50_000 + "\n```\n```").code
