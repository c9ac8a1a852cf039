"""RLM in careless hands: odd names, tools that do not end, files that change, replies that go on and on."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from local_repl import LocalRepl, cell, told

from redraft import RLM
from redraft.errors import InputError
from redraft.rlm.parsing import read
from redraft.testing import ScriptedLM
from redraft.types import Choice, Completion

TEXT = "word " * 4000
LONG = 60_000  # where the square of it would take minutes


def ask(replies, signature="text -> answer", text=TEXT, **options):
    lm = ScriptedLM(replies)
    return RLM(signature, lm=lm, bypass=0, **options)(text=text), lm


def test_a_tool_may_call_its_arguments_what_it_likes():
    def look(asked: str, self: str, args: str, kwargs: str, name: str) -> str:
        return asked + self + args + kwargs + name

    code = "SUBMIT(look(asked='a', self='b', args='c', kwargs='d', name='e'))"
    said, _ = ask([cell(code)], tools=[look], interpreter=LocalRepl)
    assert said.answer == "abcde"


def test_an_output_may_have_any_name():
    said, _ = ask([cell("SUBMIT(asked='a', name='b')")], "text -> asked, name", interpreter=LocalRepl)
    assert (said.asked, said.name) == ("a", "b")


def test_a_file_that_changed_is_said_when_the_variables_are_made_again(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("x\n" * 10_000)

    def rotate() -> str:
        path.write_text("y\n")
        return "done"

    cells = [cell("n = len(text)\nprint(rotate())"), cell("import os\nos._exit(1)"), cell("SUBMIT(text)")]
    said, lm = ask(cells, text=path, tools=[rotate])
    assert said.answer == "y\n"
    assert "not all is as it was: the file of `text` has changed. Check them." in told(lm, 2)


def test_a_file_that_is_gone_then_is_an_error(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("x\n" * 10_000)
    with pytest.raises(InputError, match=r"'text'.*app\.log.*No such file"):
        ask([cell("print(gone())"), cell("import os\nos._exit(1)")], text=path, tools=[gone := Gone(path)])
    assert gone.calls == 1


class Gone:
    """A tool that deletes a file."""

    __name__ = "gone"

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, 0

    def __call__(self) -> str:
        self.calls += 1
        self.path.unlink()
        return "gone"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_without_a_size_is_read_whole():
    said, lm = ask([cell("SUBMIT(text)")], text=Path("/proc/self/status"))
    assert said.answer.startswith("Name:")
    assert "Name:" in lm.requests[0].messages[1]["content"]


@pytest.mark.parametrize("bypass", [0, 8000])
def test_a_path_that_cannot_be_one_is_an_error(bypass):
    with pytest.raises(InputError, match=r"cannot be read: .*embedded null"):
        RLM("text -> answer", lm=ScriptedLM([]), bypass=bypass)(text=Path("a\0b"))


def test_a_tool_that_ignores_its_cancellation_is_left_behind():
    enough = threading.Event()

    async def stubborn() -> str:
        while not enough.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return "late"

    code = (
        "import threading, time\nthreading.Thread(target=stubborn, daemon=True).start()\ntime.sleep(0.1)\nSUBMIT('x')"
    )
    said, _ = ask([cell(code)], tools=[stubborn])
    enough.set()
    assert said.answer == "x"


def test_refused_sub_calls_are_counted_beyond_what_is_listed():
    code = "for _ in range(500):\n    try: llm_query('')\n    except ValueError: pass\nprint(llm_query('q'))"
    said, _ = ask([cell(code), "re", cell("SUBMIT('x')")], interpreter=LocalRepl)
    calls = said.trajectory[0]["calls"]
    assert len(calls) == 202
    assert (calls[-2]["reply"], calls[-1]["function"]) == ("re", "... and 300 more calls")


@pytest.mark.parametrize(
    "text",
    [
        "[[ ## code ## ]]x = 1" + " " * LONG + "y",
        "```" + " " * LONG + "x",
        "a\n```python " + " " * LONG + "`x",
        "```" + "a" * LONG + "`",
        "```" * LONG,
        " " * LONG + "```" + " " * LONG,
        "```python\n" + "x=1\n" * LONG + "y=(\n```\n" * 30,
    ],
    ids=["marked", "blanks", "fenced blanks", "word", "ticks", "around", "closing fences"],
)
def test_a_reply_without_an_end_is_read_in_no_time(text):
    began = time.monotonic()
    read(Completion(choices=(Choice(text=text, finish_reason="length"),)))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("```x```", "x"),
        ("```python x = 1```", "x = 1"),
        ("  ```  py   f(x)  ```  ", "f(x)"),
        ("```python ```", "python"),
        ("[[ ## code ## ]]\n  x = 1 \n[[ ## done ## ]]", "x = 1"),
    ],
)
def test_code_on_a_line_of_its_fences(line, code):
    assert read(Completion(choices=(Choice(text=line),))).code == code
