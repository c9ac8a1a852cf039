"""What every interpreter promises, as checks that an implementation runs on itself.

    @pytest.mark.parametrize("promise", [pytest.param(check, id=name) for name, check in interpreter_contract(MyRepl)])
    async def test_contract(promise):
        await promise()

A broken promise raises `AssertionError` and says what was seen. `make` gives a new interpreter, not started, whose cells
may run for at most a second. `lacks` names what its `dialect` says that it has not: `interpreter_contract(make,
lacks={"threads"})` leaves out what needs them. The names are those in `PARTS`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from redraft.errors import SandboxError
from redraft.protocols import CellEnd, CellResult, Interpreter

MakeInterpreter = Callable[[], Interpreter]
Promise = Callable[[], Awaitable[None]]
PARTS = ("threads", "classes", "generators", "echo", "time limit", "kills", "containment", "top-level await")
"""What an interpreter may lack, if its dialect says so. "kills": it survives cells that cannot be interrupted."""
_PATIENCE = 30.0


def interpreter_contract(make: MakeInterpreter, lacks: Collection[str] = ()) -> list[tuple[str, Promise]]:
    """Every promise as `(name, check)`, without those that need a part that it lacks. ValueError: no such part."""
    if unknown := set(lacks) - set(PARTS):
        raise ValueError(f"no such parts: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    kept = [check for check, needs in _PROMISES.items() if not set(needs) & set(lacks)]
    return [(check.__name__, partial(check, make)) for check in kept]


@asynccontextmanager
async def _started(
    make: MakeInterpreter, variables: Mapping[str, Any] | None = None, **functions: Callable[..., Awaitable[Any]]
) -> AsyncIterator[Interpreter]:
    interpreter = make()
    await interpreter.start(variables or {}, functions)
    try:
        yield interpreter
    finally:
        await interpreter.close()


async def _runs(interpreter: Interpreter, code: str, output: str | None = None) -> CellResult:
    result = await asyncio.wait_for(interpreter.execute(code), _PATIENCE)
    assert not result.error, f"{code!r} failed: {result.error}\n{result.output}"
    assert not result.lost, f"{code!r} lost the sandbox"
    if output is not None:
        assert result.output == output, f"{code!r} showed {result.output!r}, not {output!r}"
    return result


async def it_has_the_shape_of_an_interpreter(make: MakeInterpreter) -> None:
    """All members are there."""
    assert isinstance(make(), Interpreter), "it lacks a member of redraft.protocols.Interpreter"
    assert isinstance(make().dialect, str), "its dialect is no text"


async def variables_arrive_as_they_are(make: MakeInterpreter) -> None:
    """Text, bytes, and what JSON holds."""
    values = {
        "text": "caf\u00e9 \U0001f600\n\x00",
        "blob": bytes(range(256)),
        "empty": "",
        "table": [{"n": 1, "x": None}, [True, 2.5, "\u2028"]],
        "whole": {"a": {"b": [1, 2, 3]}},
        "none": None,
    }
    async with _started(make, values) as interpreter:
        for name, value in values.items():
            await _runs(interpreter, f"print({name} == {value!r})", "True\n")


async def a_file_is_its_text(make: MakeInterpreter) -> None:
    """Or its bytes, where it is not UTF-8."""
    with tempfile.TemporaryDirectory() as home:
        text, raw = _file(home, "text", b"one\ntwo \xc3\xa9\n"), _file(home, "raw", b"\xff\x00")
        async with _started(make, {"text": text, "raw": raw}) as interpreter:
            await _runs(interpreter, "print(text == 'one\\ntwo \\u00e9\\n', raw == b'\\xff\\x00')", "True True\n")


def _file(home: str, name: str, data: bytes) -> Path:
    path = Path(home, name)
    path.write_bytes(data)
    return path


async def names_outlive_a_cell(make: MakeInterpreter) -> None:
    """And an exception in it."""
    async with _started(make) as interpreter:
        await _runs(interpreter, "x = 1\ndef add(n):\n    global x\n    x += n\n_hidden = 5", "")
        failed = await interpreter.execute("y = 2\n1 / 0")
        assert failed.error.startswith("ZeroDivisionError"), failed.error
        assert not failed.lost, "an exception ended the sandbox"
        await _runs(interpreter, "add(2)\nadd(3)\nprint(x, y, _hidden)", "6 2 5\n")


async def an_error_is_told(make: MakeInterpreter) -> None:
    """On one line in `error`, as a traceback in `output`, after what was printed before."""
    async with _started(make) as interpreter:
        failed = await interpreter.execute("print('before')\nraise ValueError('a\\nb')")
        assert failed.error.startswith("ValueError"), failed.error
        assert "\n" not in failed.error, f"error has several lines: {failed.error!r}"
        assert failed.output.startswith("before\n"), failed.output
        assert "ValueError" in failed.output, f"the output shows no traceback: {failed.output!r}"
        syntax = await interpreter.execute("x = (")
        assert syntax.error.startswith("SyntaxError"), syntax.error
        await _runs(interpreter, "print(1)", "1\n")


async def a_last_expression_is_shown(make: MakeInterpreter) -> None:
    """Its repr; None is not."""
    async with _started(make) as interpreter:
        await _runs(interpreter, "x = 'a'\nx", "'a'\n")
        await _runs(interpreter, "None", "")
        await _runs(interpreter, "", "")


async def host_functions_take_and_give_json(make: MakeInterpreter) -> None:
    """By position and by name."""
    seen: list[Any] = []

    async def ask(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return {"got": [1, None, "\u00e9"]}

    async with _started(make, ask=ask) as interpreter:
        await _runs(interpreter, "r = ask('a', [1, {'b': None}], key=2.5)\nprint(r['got'])", "[1, None, '\u00e9']\n")
    assert seen == [(("a", [1, {"b": None}]), {"key": 2.5})], f"the host got {seen}"


async def what_the_host_raises_is_raised(make: MakeInterpreter) -> None:
    """And can be caught."""

    async def ask() -> None:
        raise ValueError("no such thing")

    async with _started(make, ask=ask) as interpreter:
        await _runs(interpreter, "try:\n    ask()\nexcept ValueError as e:\n    print(e)", "no such thing\n")
        failed = await interpreter.execute("ask()")
        assert failed.error == "ValueError: no such thing", failed.error


async def cell_end_ends_the_cell(make: MakeInterpreter) -> None:
    """It is no error, nothing after it runs, and what was printed stays."""

    async def submit(_value: Any) -> None:
        raise CellEnd

    async with _started(make, submit=submit) as interpreter:
        code = "print('before')\ntry:\n    submit(1)\nexcept Exception:\n    print('caught')\nprint('after')"
        await _runs(interpreter, code, "before\n")
        await _runs(interpreter, "print('next')", "next\n")


async def functions_get_their_names_back(make: MakeInterpreter) -> None:
    """When code has overwritten or deleted them; it is told so."""

    async def ask() -> str:
        return "answer"

    async with _started(make, ask=ask) as interpreter:
        told = await _runs(interpreter, "ask = 'mine'")
        assert "ask" in told.output, "it did not say that the name was restored"
        await _runs(interpreter, "print(ask())", "answer\n")


async def threads_call_at_the_same_time(make: MakeInterpreter) -> None:
    """All calls are under way before the first returns; prints of threads are kept."""
    under_way = 0
    everybody = asyncio.Event()

    async def ask(n: int) -> int:
        nonlocal under_way
        under_way += 1
        if under_way == 8:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), _PATIENCE)
        return n

    async with _started(make, ask=ask) as interpreter:
        code = "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as pool:\n    "
        await _runs(interpreter, f"{code}print(sorted(pool.map(ask, range(8))))", "[0, 1, 2, 3, 4, 5, 6, 7]\n")
        await _runs(interpreter, f"{code}list(pool.map(lambda n: print('x' * 3), range(2)))\nprint('end')")


async def coroutines_run(make: MakeInterpreter) -> None:
    """`await` at the top level, and `asyncio.run`."""
    async with _started(make) as interpreter:
        await _runs(interpreter, "import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n", "")
        await _runs(interpreter, "print(await asyncio.gather(f(1), f(2)))", "[1, 2]\n")
        await _runs(interpreter, "print(asyncio.run(f(3)))", "3\n")


async def classes_and_dataclasses_work(make: MakeInterpreter) -> None:
    """Across cells."""
    async with _started(make) as interpreter:
        code = (
            "from dataclasses import dataclass, asdict\n@dataclass\nclass P:\n    x: int\n    y: 'list[int]' = None\n"
        )
        await _runs(
            interpreter, f"{code}class Q(P):\n    @property\n    def twice(self):\n        return 2 * self.x", ""
        )
        await _runs(interpreter, "print(asdict(P(1, [2])), Q(4).twice)", "{'x': 1, 'y': [2]} 8\n")


async def generators_work(make: MakeInterpreter) -> None:
    """Across cells."""
    async with _started(make) as interpreter:
        await _runs(interpreter, "def g():\n    for i in range(3):\n        yield i\nit = g()\nprint(next(it))", "0\n")
        await _runs(interpreter, "print(list(it))", "[1, 2]\n")


async def a_cell_has_its_time(make: MakeInterpreter) -> None:
    """An endless loop ends at the limit; the answer says which."""
    async with _started(make) as interpreter:
        result = await asyncio.wait_for(interpreter.execute("print('begun')\nwhile True:\n    pass"), _PATIENCE)
        assert result.error.startswith("TimeoutError"), result.error
        assert result.output.startswith("begun\n"), f"what it had printed is lost: {result.output!r}"


async def a_stubborn_cell_is_ended(make: MakeInterpreter) -> None:
    """The sandbox is lost, and says so; it can be started anew."""
    async with _started(make, {"x": 1}) as interpreter:
        code = "print('begun', end='')\nwhile True:\n    try:\n        while True:\n            abs(1)\n    except BaseException:\n        abs(2)"
        result = await asyncio.wait_for(interpreter.execute(code), _PATIENCE)
        assert result.lost, "it was not ended"
        assert result.error.startswith("TimeoutError"), result.error
        assert result.output.startswith("begun"), f"what it had printed is lost: {result.output!r}"
        try:
            await interpreter.execute("1")
        except SandboxError:
            pass
        else:
            raise AssertionError("a lost sandbox ran a cell")
        await interpreter.start({"x": 2}, {})
        await _runs(interpreter, "print(x)", "2\n")


async def exits_are_contained(make: MakeInterpreter) -> None:
    """The process's own end is the end of the sandbox, not of the host."""
    async with _started(make) as interpreter:
        left = await interpreter.execute("import sys\nsys.exit(3)")
        assert left.error, "sys.exit(3) was no error"
        result = await asyncio.wait_for(interpreter.execute("import os\nprint('last', end='')\nos._exit(4)"), _PATIENCE)
        assert result.lost, "os._exit did not end the sandbox"
        assert result.output == "last", f"what it had printed is lost: {result.output!r}"


async def waiting_for_the_host_is_free(make: MakeInterpreter) -> None:
    """A call may take longer than a cell."""

    async def slow() -> str:
        await asyncio.sleep(1.6)
        return "done"

    async with _started(make, slow=slow) as interpreter:
        await _runs(interpreter, "print(slow())", "done\n")


async def it_starts_anew(make: MakeInterpreter) -> None:
    """With the new variables and nothing else; `close` may be called twice."""
    interpreter = make()
    await interpreter.start({"a": 1}, {})
    await _runs(interpreter, "b = 2")
    await interpreter.start({"a": 3}, {})
    await _runs(interpreter, "try:\n    print(a, b)\nexcept NameError:\n    print(a)", "3\n")
    await interpreter.close()
    await interpreter.close()
    try:
        await interpreter.execute("1")
    except SandboxError:
        return
    raise AssertionError("a closed interpreter ran a cell")


async def it_belongs_to_no_loop(make: MakeInterpreter) -> None:
    """One interpreter works on one event loop after the other."""

    async def once() -> None:
        async with _started(make, {"x": 1}) as interpreter:
            await _runs(interpreter, "print(x)", "1\n")

    for _ in range(2):
        await asyncio.to_thread(lambda: asyncio.run(once()))


async def several_run_at_once(make: MakeInterpreter) -> None:
    """Each with names and output of its own."""

    async def one(number: int) -> None:
        async with _started(make, {"n": number}) as interpreter:
            await _runs(interpreter, "m = n * 2")
            await _runs(interpreter, "print(n, m)", f"{number} {2 * number}\n")

    await asyncio.gather(*map(one, range(3)))


_PROMISES: dict[Callable[[MakeInterpreter], Awaitable[None]], tuple[str, ...]] = {
    # Each with the parts that it needs.
    it_has_the_shape_of_an_interpreter: (),
    variables_arrive_as_they_are: (),
    a_file_is_its_text: (),
    names_outlive_a_cell: (),
    an_error_is_told: (),
    a_last_expression_is_shown: ("echo",),
    host_functions_take_and_give_json: (),
    what_the_host_raises_is_raised: (),
    cell_end_ends_the_cell: (),
    functions_get_their_names_back: (),
    threads_call_at_the_same_time: ("threads",),
    coroutines_run: ("top-level await",),
    classes_and_dataclasses_work: ("classes",),
    generators_work: ("generators",),
    a_cell_has_its_time: ("time limit",),
    a_stubborn_cell_is_ended: ("kills",),
    exits_are_contained: ("containment",),
    waiting_for_the_host_is_free: (),
    it_starts_anew: (),
    it_belongs_to_no_loop: (),
    several_run_at_once: (),
}
