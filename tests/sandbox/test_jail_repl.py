"""The jail as a REPL: what a model sees of it."""

import asyncio
import re

import pytest

from redraft.errors import InputError, SandboxError, UsageError
from redraft.protocols import CellEnd
from redraft.sandbox import Jail


@pytest.fixture(scope="module")
def repl(share):
    seen = []

    async def ask(*args, **kwargs):
        seen.append((args, kwargs))
        return len(seen)

    async def fails(kind):
        raise {"own": OwnError, "value": ValueError, "group": _group, "unicode": _unicode}[kind]("told by the host")

    async def odd():
        return object()

    async def end():
        raise CellEnd

    async def never():
        await asyncio.Event().wait()

    shared = share(Jail(seconds=20), functions={"ask": ask, "fails": fails, "odd": odd, "end": end, "never": never})
    shared.seen = seen
    return shared


class OwnError(Exception):
    pass


def _group(message):
    return ExceptionGroup(message, [ValueError(1)])


def _unicode(message):
    return UnicodeDecodeError("utf-8", b"x", 0, 1, message)


async def shows(repl, code, output, error=""):
    result = await repl.run(code)
    assert (result.output, result.error) == (output, error)


# Tracebacks


async def test_a_traceback_shows_lines_of_cells_and_no_frame_of_ours(repl):
    await repl.start()
    await repl.run("def half(n):\n    # a comment\n    return n / 0")
    result = await repl.run("x = 1\nhalf(x)")
    frames = re.findall(r'File "(.*?)", line (\d+)', result.output)
    assert frames == [("<cell 2>", "2"), ("<cell 1>", "3")]
    assert "    return n / 0" in result.output
    assert "redraft" not in result.output


async def test_a_host_functions_error_points_at_the_call(repl):
    await repl.start()
    result = await repl.run("ask(1)\nfails('value')")
    assert re.findall(r'File "(.*?)", line (\d+)', result.output) == [("<cell 1>", "2")]
    assert result.error == "ValueError: told by the host"


async def test_causes_and_contexts_lose_our_frames_too(repl):
    result = await repl.run("try:\n    fails('value')\nexcept ValueError as e:\n    raise KeyError('mine') from e")
    assert "redraft" not in result.output
    assert "direct cause" in result.output


async def test_a_syntax_error_shows_its_line(repl):
    await repl.start()
    result = await repl.run("x = 1\ny = = 2")
    assert 'File "<cell 1>", line 2' in result.output
    assert result.error.startswith("SyntaxError: invalid syntax")


# Errors of host functions


async def test_errors_of_other_types_keep_their_names(repl):
    await shows(
        repl,
        "try:\n    fails('own')\nexcept Exception as e:\n    print(type(e).__name__, e)",
        "OwnError told by the host\n",
    )
    for kind, name in (("group", "ExceptionGroup"), ("unicode", "UnicodeDecodeError")):
        assert (await repl.run(f"fails({kind!r})")).error.startswith(f"{name}: ")


async def test_a_result_that_json_cannot_hold_is_the_functions_fault(repl):
    assert "odd returned what JSON cannot hold" in (await repl.run("odd()")).error


async def test_wrong_arguments_are_a_type_error(repl):
    assert (await repl.run("end(1, 2)")).error.startswith("TypeError")


async def test_what_json_has_no_word_for_is_converted(repl):
    code = """
import datetime, collections, enum, dataclasses
class C(enum.Enum):
    RED = 'red'
@dataclasses.dataclass
class P:
    x: int
ask((1, 2), {3}, datetime.date(2026, 1, 2), range(2), C.RED, P(4), collections.Counter('a'), (n for n in [5]), d={1: None})
"""
    assert (await repl.run(code)).error == ""
    assert repl.seen[-1] == (([1, 2], [3], "2026-01-02", [0, 1], "red", {"x": 4}, {"a": 1}, [5]), {"d": {"1": None}})


@pytest.mark.parametrize("value", ["object()", "lambda: 1", "b'bytes'", "{(1, 2): 3}", "[1j]", "open"])
async def test_what_json_cannot_hold_is_a_type_error_in_the_code(repl, value):
    before = len(repl.seen)
    result = await repl.run(f"ask({value})")
    assert result.error.startswith("TypeError: ask: arguments are what JSON can hold")
    assert len(repl.seen) == before


async def test_a_ring_and_a_giant_are_refused_in_the_code(repl):
    assert (await repl.run("x = []\nx.append(x)\nask(x)")).error.startswith("TypeError")
    assert "at most 8388608 can be passed" in (await repl.run("ask('x' * 9_000_000)")).error
    await shows(repl, "print(len(str(ask('x' * 3_000_000))) > 0)", "True\n")


async def test_half_an_emoji_gets_through(repl):
    await shows(repl, "n = ask('\\ud83d')", "")
    assert repl.seen[-1] == (("\ud83d",), {})


# Output


@pytest.mark.parametrize(
    "code",
    [
        "print('kept', end='')",
        "import sys\nsys.stdout.write('kept')",
        "import sys\nprint('kept', end='', file=sys.stderr)",
        "import os\nos.write(1, b'kept')",
        "import os\nos.write(2, b'kept')",
        "import threading\nt = threading.Thread(target=lambda: print('kept', end=''))\nt.start()\nt.join()",
        "import ctypes\nctypes.CDLL(None).write(1, b'kept', 4)",
        "import sys\nsys.__stdout__.write('kept')",
        "import sys\nsys.stdout.buffer.write(b'kept')",
        "import io, sys\nsys.stdout = io.StringIO()\nprint('hidden')\nsys.stdout = sys.__stdout__\nprint('kept', end='')",
    ],
)
@pytest.mark.parametrize(
    "end", ["", "\n1 / 0", "\nimport os\nos._exit(1)", "\nimport ctypes\nctypes.string_at(0)", "\nend()"]
)
async def test_what_was_printed_is_kept(repl, code, end):
    result = await repl.run(code + "\nNone" + end)
    assert result.output.startswith("kept")
    assert bool(result.error) == (end not in ("", "\nend()"))


async def test_prints_are_in_order(repl):
    code = (
        "import os, sys\nfor n in range(50):\n    print(n, end=' ')\n    os.write(2, b'|')\n    sys.stderr.write('. ')"
    )
    await shows(repl, code, "".join(f"{n} |. " for n in range(50)))


async def test_a_replaced_stdout_lasts_for_its_cell(repl):
    await repl.run("import io, sys\nsys.stdout = io.StringIO()")
    await shows(repl, "print('back')", "back\n")


async def test_long_output_keeps_its_head_and_its_tail(repl):
    result = await repl.run("print('head')\nfor n in range(100_000): print(n)\nprint('tail')")
    assert result.output.startswith("head\n0\n1\n")
    assert result.output.endswith("99999\ntail\n")
    assert re.search(r"\n\[\.\.\. \d+ bytes of output not shown \.\.\.\]\n", result.output)
    assert len(result.output) < 210_000


async def test_long_output_by_hand_is_cut_by_the_host(repl):
    result = await repl.run("import os\nfor n in range(1000): os.write(1, b'%07d\\n' % n * 100)")
    assert result.output.startswith("0000000\n")
    assert result.output.endswith("0000999\n")
    assert "[... 600000 bytes of output not shown ...]" in result.output


async def test_an_echo_is_the_repr_cut(repl):
    await shows(repl, "{'a': (1, 'x')}", "{'a': (1, 'x')}\n")
    result = await repl.run("'x' * 10_000_000")
    assert result.output.endswith("... (10000000 characters)\n")
    assert len(result.output) < 21_000
    assert (await repl.run("[0] * 10**6")).output.endswith("0, 0]... (1000000 items)\n")
    await shows(repl, "x = 5", "")
    await shows(repl, "1;", "1\n")


# Names, exits, time


async def test_the_sandboxs_names_come_back_and_the_code_is_told(repl):
    for code in ("ask = 3", "del ask", "def ask(): pass", "for ask in [1]: pass", "globals().clear()"):
        assert "`ask`" in (await repl.run(code)).output
        assert (await repl.run("ask()")).error == ""
    assert "`peek`" in (await repl.run("peek = 1")).output


async def test_a_variable_may_have_a_helpers_name(jail):
    await jail.start({"chunk": "mine"}, {})
    assert (await jail.execute("print(chunk)\nchunk = 2")).output == "mine\n"
    assert (await jail.execute("print(chunk)")).output == "2\n"


async def test_leaving_early_is_no_error_if_all_is_well(repl):
    for code in ("import sys\nprint(1)\nsys.exit()", "print(1)\nexit(0)", "print(1)\nraise SystemExit"):
        await shows(repl, code, "1\n")
    await shows(repl, "quit('why')", "", "SystemExit: why")


async def test_the_end_of_a_cell_reaches_its_main_thread(repl):
    """Another thread has ended the cell while the main one waits for something else."""
    code = "import threading\nprint('waits')\nthreading.Thread(target=end).start()\nthreading.Event().wait()\nprint('never')"
    await shows(repl, code, "waits\n")
    await shows(
        repl,
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(3) as p:\n    list(p.map(lambda f: f(), [never, never, end]))\nprint('never')",
        "",
    )
    await shows(repl, "print('next')", "next\n")


async def test_a_cell_that_will_not_end_is_ended(share):
    async def end():
        raise CellEnd

    jail = Jail(seconds=1)
    await jail.start({}, {"end": end})
    result = await jail.execute(
        "print('said')\nwhile True:\n    try:\n        end()\n    except BaseException:\n        pass"
    )
    assert (result.output, result.error, result.lost) == ("said\n", "", True)
    await jail.close()


async def test_time_over_keeps_the_variables(share):
    jail = Jail(seconds=0.5)
    await jail.start({}, {})
    result = await jail.execute("x = 1\nimport time\ntry:\n    time.sleep(60)\nfinally:\n    print('cleaned')")
    assert result.error == "TimeoutError: the cell ran longer than 0.5 s and was stopped; its variables are kept"
    assert result.output.startswith("cleaned\n")
    assert (await jail.execute("print(x)")).output == "1\n"
    await jail.close()


# Threads, loops, the same again


async def test_calls_of_threads_left_behind_are_ended_with_their_cell(repl):
    code = "import threading\ngot = []\ndef f():\n    try:\n        never()\n    except RuntimeError as e:\n        got.append(str(e))\nt = threading.Thread(target=f)\nt.start()\nwhile not t.is_alive(): pass\nask()"
    await repl.run(code)
    await shows(repl, "t.join(10)\nprint(got)", "['the cell that made this call has ended']\n")


async def test_tasks_go_on_between_awaits(repl):
    await shows(
        repl,
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return 5\nt = asyncio.create_task(f())\nawait asyncio.sleep(0)",
        "",
    )
    await shows(repl, "await t", "5\n")
    await shows(repl, "[await f() for _ in range(2)]", "[5, 5]\n")


async def test_calls_from_coroutines_run_at_the_same_time(repl):
    code = "import asyncio\nasync def main(): return await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(20)))\nprint(len(set(asyncio.run(main()))))"
    await shows(repl, code, "20\n")


async def test_the_same_code_does_the_same_again(jail):
    said = []
    for _ in range(2):
        await jail.start({}, {})
        result = await jail.execute("import random\nprint(random.random(), list({'a', 'b', 'c', 'd'}), hash('x'))")
        said.append(result.output)
    assert said[0] == said[1]


async def test_there_is_nothing_of_ours_to_import(repl):
    await shows(repl, "import sys\nprint([m for m in sys.modules if 'redraft' in m], sys.argv)", "[] ['']\n")


# Its use


async def test_a_cancelled_cell_is_killed(jail):
    async def hangs():
        running.set()
        await asyncio.Event().wait()

    running = asyncio.Event()
    await jail.start({}, {"hangs": hangs})
    cell = asyncio.create_task(jail.execute("hangs()"))
    await running.wait()
    process = jail._process.popen
    cell.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cell
    assert process.returncode == -9
    with pytest.raises(SandboxError, match="not running"):
        await jail.execute("1")
    await jail.start({}, {})
    assert (await jail.execute("1")).output == "1\n"


async def test_one_cell_at_a_time(jail):
    async def waits():
        running.set()
        await go.wait()

    running, go = asyncio.Event(), asyncio.Event()
    await jail.start({}, {"waits": waits})
    cell = asyncio.create_task(jail.execute("waits()"))
    await running.wait()
    with pytest.raises(SandboxError, match="a cell is running"):
        await jail.execute("1")
    go.set()
    assert (await cell).error == ""


async def test_a_jail_moves_between_loops(repl):
    await repl.run("x = 7")
    result = await asyncio.to_thread(lambda: asyncio.run(repl.run("import time\ntime.sleep(0.01)\nprint(x)")))
    assert result.output == "7\n"


async def test_what_cannot_be_is_said_at_the_door(jail):
    for wrong in ({"seconds": 0}, {"memory": 10}, {"output": 5}):
        with pytest.raises(UsageError, match="seconds > 0"):
            Jail(**wrong)
    with pytest.raises(InputError, match="not names of functions: 'a-b'"):
        await jail.start({}, {"a-b": None})
    with pytest.raises(SandboxError, match="not running"):
        await jail.execute("1")
