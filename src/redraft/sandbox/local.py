"""No sandbox at all: the code runs in this process, with all that this process may do. For tests, by its name only."""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import io
import itertools
import json
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from redraft.errors import InputError, SandboxError
from redraft.protocols import CellEnd, CellResult, HostFunction
from redraft.sandbox import prelude
from redraft.sandbox.child.bridge import CellEnded, plain
from redraft.sandbox.child.repl import Repl
from redraft.sandbox.clock import Clock
from redraft.sync import in_thread
from redraft.types import Inputs

_GRACE = 0.5


class UnsafeLocal:
    """Implements `redraft.protocols.Interpreter` without holding anything: code can do whatever this process can.

    Output is what `print` writes. A cell beyond `seconds` is interrupted; one that does not stop goes on in its thread.
    """

    dialect = ""

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds = seconds
        self._functions: dict[str, HostFunction] = {}
        self._repl: Repl | None = None
        self._out = io.StringIO()
        self._calls = 0

    async def start(self, variables: Inputs, functions: Mapping[str, HostFunction]) -> None:
        """See `Interpreter`. Warns once a process that nothing is held."""
        _warn()
        await self.close()
        loop = asyncio.get_running_loop()
        called = {name: _called(name, self._timed(function), loop) for name, function in functions.items()}
        values = {name: _value(name, value) for name, value in variables.items()}
        helpers = {name: getattr(prelude, name) for name in prelude.HELPERS if name != "llm_map"}
        if "llm_query_batched" in called:
            helpers["llm_map"] = _bound(prelude.llm_map, called)
        reserved = {name: value for name, value in (helpers | called).items() if name not in values}
        self._out = io.StringIO()
        self._repl = Repl(values, reserved, self._out.write)
        self._repl.names["__builtins__"] = {**vars(builtins), "print": self._print, "input": _input}

    async def execute(self, code: str) -> CellResult:
        """See `Interpreter`."""
        repl = self._repl
        if repl is None:
            raise SandboxError("the interpreter is not running: `start` it")
        self._out.seek(0)
        self._out.truncate()
        thread: list[int] = []

        def run() -> str:
            thread.append(threading.get_ident())
            return repl.run(code, thread.clear)

        running = asyncio.ensure_future(in_thread(run))
        late = asyncio.Event()
        self._clock = Clock(self._seconds, late.set)
        self._clock.go_on()
        ringing = asyncio.ensure_future(late.wait())
        try:
            await asyncio.wait([running, ringing], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                for ident in thread:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt)
                    )
                await asyncio.wait([running], timeout=_GRACE)
        finally:
            self._clock.stop()
            ringing.cancel()
            if not running.done():  # it goes on in its thread, and nobody hears of it
                running.cancel()
                self._repl = None
        said = f"TimeoutError: the cell ran longer than {self._seconds:g} s"
        if running.cancelled() or not running.done():
            return CellResult(output=self._out.getvalue(), error=f"{said}; it was left behind", lost=True)
        error = running.result()
        return CellResult(
            output=self._out.getvalue(),
            error=f"{said} and was stopped; its variables are kept" if error and late.is_set() else error,
        )

    async def close(self) -> None:
        """See `Interpreter`."""
        repl, self._repl = self._repl, None
        if repl is not None:
            repl.close()

    def _timed(self, function: HostFunction) -> HostFunction:
        """While it runs, the cell's time stands."""

        async def timed(*args: Any, **kwargs: Any) -> Any:
            clock = self._clock
            self._calls += 1
            clock.stop()
            try:
                return await function(*args, **kwargs)
            finally:
                self._calls -= 1
                if not self._calls:
                    clock.go_on()

        return timed

    def _print(self, *values: object, file: Any = None, **options: Any) -> None:
        options.pop("flush", None)
        builtins.print(*values, file=file or self._out, **options)


_once = itertools.count()


def _warn() -> None:
    if next(_once) == 0:
        said = "unsafe_local runs a model's code in this very process, with all its rights: for tests and code you trust only"
        warnings.warn(said, RuntimeWarning, stacklevel=3)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Path):
        data = value.read_bytes()
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data
    if isinstance(value, str | bytes):
        return value
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{name!r} cannot be handed over ({error}): text, bytes, a Path, or what JSON holds"
        ) from error


def _called(name: str, function: HostFunction, loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    """As the code sees it: arguments and results as if they had gone through JSON."""

    async def whole(args: list[Any], kwargs: dict[str, Any]) -> Any:
        return await function(*args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            sent = json.loads(json.dumps([args, kwargs], default=plain))
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"{name}: arguments are what JSON can hold (text, numbers, lists, dicts): {error}"
            ) from None
        try:
            return json.loads(json.dumps(asyncio.run_coroutine_threadsafe(whole(*sent), loop).result()))
        except CellEnd:
            raise CellEnded from None

    call.__name__ = name
    return call


def _bound(helper: Any, called: Mapping[str, Any]) -> Any:
    """The helper with functions of its own, not of another interpreter in this process."""
    made = type(helper)(helper.__code__, {**vars(prelude), **called}, helper.__name__, helper.__defaults__)
    made.__doc__ = helper.__doc__
    return made


def _input(*_: object) -> str:
    raise EOFError("nobody can answer input() in this sandbox: what there is to read is in the variables")
