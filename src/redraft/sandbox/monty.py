"""Monty, a Python of its own in a process of its own (package `pydantic-monty`): the sandbox where there is no jail.

It runs on Linux, macOS and Windows, and has nothing to lock away: neither files nor network nor processes are part of it.
What of Python it has not is said in `DIALECT`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import keyword
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redraft.errors import ConfigError, InputError, SandboxError, UsageError
from redraft.protocols import CellResult, HostFunction
from redraft.sandbox import handover, prelude
from redraft.sandbox.monty_cell import AT_ONCE, ECHO, Cell, echoed
from redraft.sync import in_thread
from redraft.types import Inputs

BASE_MEMORY = 512 << 20
DIALECT = f"""This REPL is Monty, a small Python. It has no `del`, no `yield`, no threads, no properties, class or static methods, no class that inherits, and no files. Of the standard library it has re, json, csv, collections, datetime, itertools, functools, math, random, time, typing, asyncio, copy, hashlib, base64, decimal, dataclasses (`dataclass` alone) and a few others; it has no statistics, string, textwrap, io, enum and heapq. Each function of the list also has an awaitable twin whose name ends in {AT_ONCE}, for several calls at the same time: `await asyncio.gather(*[llm_query{AT_ONCE}(p) for p in prompts])`."""


class Monty:
    """Implements `redraft.protocols.Interpreter` with pydantic-monty (`pip install 'redraft[monty]'`).

    `seconds` a cell may run, not counting those it waits for the host; at the limit the sandbox is lost. `memory`: bytes of
    its heap; by default 512 MiB and four times the variables. `output`: bytes of one cell's output that are kept.
    """

    dialect = DIALECT

    def __init__(self, seconds: float = 30.0, memory: int | None = None, *, output: int = 200_000) -> None:
        if seconds <= 0 or (memory is not None and memory < 1 << 20) or output < 1000:
            raise UsageError(
                f"Monty({seconds=}, {memory=}, {output=}): seconds > 0, memory >= 1 MiB, output >= 1000 bytes"
            )
        self._seconds, self._memory, self._output = seconds, memory, output
        self._library = _library()
        self._pool: Any = None
        self._session: Any = None
        self._functions: dict[str, HostFunction] = {}
        self._restore = ""
        self._cell: Cell | None = None

    async def start(self, variables: Inputs, functions: Mapping[str, HostFunction]) -> None:
        """See `Interpreter`. Raises `InputError` for what cannot be handed over, `SandboxError` if it does not start."""
        await self.close()
        if wrong := [name for name in functions if not name.isidentifier() or keyword.iskeyword(name)]:
            raise InputError(f"not names of functions: {', '.join(map(repr, wrong))}")
        values, sizes = await in_thread(_handed, variables)
        self._functions = dict(functions)
        try:
            await self._open(self._memory or BASE_MEMORY + 4 * sizes)
            await self._give(values)
        except (self._library.MontyError, OSError, RuntimeError) as error:
            await self.close()
            raise SandboxError(f"the sandbox could not be started: {error}") from error

    async def execute(self, code: str) -> CellResult:
        """See `Interpreter`. One cell at a time."""
        if self._session is None:
            raise SandboxError(
                "the sandbox is not running: it was not started, was closed, or ended with a cell; `start` it"
            )
        if self._cell is not None:
            raise SandboxError("a cell is running in this sandbox: wait for it, or start another sandbox")
        cell = self._cell = self._new_cell()
        whole = False
        try:
            result = await self._with_names(await cell.run(echoed(code)))
            whole = not result.lost
        finally:
            self._cell = None
            if not whole:
                await self.close()
        return result

    async def close(self) -> None:
        """See `Interpreter`. May be called at any time, and again; a cell that runs is ended."""
        pool, self._pool = self._pool, None
        session, self._session = self._session, None
        if self._cell is not None:
            self._cell.kill()
        for one in (session, pool):
            if one is not None:
                with contextlib.suppress(self._library.MontyError, RuntimeError):  # it is gone already
                    await one.__aexit__(None, None, None)

    async def _open(self, memory: int) -> None:
        self._pool = self._library.AsyncMonty(max_processes=1)
        await self._pool.__aenter__()
        self._session = self._pool.checkout(
            script_name="cell",
            limits={
                "max_feed_duration_secs": self._seconds,
                "max_suspensions": 2**31,
                "max_memory": memory,
            },
            # The same cells, run again, do the same; a sleep would not count as the cell's time.
            os_policy={"sleep": "zero", "random_start": {"seed": 0}},
        )
        await self._session.__aenter__()

    async def _give(self, values: Mapping[str, Any]) -> None:
        source = _prelude(with_map="llm_query_batched" in self._functions)
        called = [name + end for name in self._functions for end in ("", AT_ONCE)]
        helpers = [name for name in prelude.HELPERS if f"def {name}(" in source]
        reserved = [name for name in (*called, *helpers) if name not in values]
        inputs = {name: _named(name) for name in called if name in reserved}
        await self._trusted(source, {})
        for name, value in values.items():
            if isinstance(value, _Json):
                await self._trusted(f"import json as _redraft_json\n{name} = _redraft_json.loads(_redraft_text)", value)
            else:
                await self._trusted("pass", {name: value})
        keep = "\n".join(f"_redraft_{name} = {name}" for name in reserved)
        await self._trusted(keep or "pass", inputs)
        checks = "\n".join(
            f"if {name} is not _redraft_{name}:\n    {name} = _redraft_{name}\n    _redraft_lost.append('{name}')"
            for name in reserved
        )
        self._restore = f"_redraft_lost = []\n{checks}\n_redraft_lost"

    async def _with_names(self, result: CellResult) -> CellResult:
        """Give the sandbox's own names back, and say so."""
        if result.lost:
            return result
        try:
            lost = await self._trusted(self._restore, {})
        except self._library.MontyError as error:  # its memory is full
            said = f"{' '.join(str(error).split())[:200]}; the sandbox was ended"
            return CellResult(output=result.output, error=result.error or said, lost=True)
        if not lost:
            return result
        names = ", ".join(f"`{name}`" for name in lost)
        said = f"[{names}: the sandbox's own function again; give your variable another name]\n"
        return CellResult(output=result.output + said, error=result.error)

    async def _trusted(self, code: str, inputs: Mapping[str, Any]) -> Any:
        """Run code of ours, and have its last value."""
        return await self._session.feed_run(code, inputs=dict(inputs), print_callback=_ignore)

    def _new_cell(self) -> Cell:
        return Cell(self._library, self._session, self._functions, self._seconds, self._output)


class _Json(dict[str, str]):
    """A value as JSON text, which is read in the sandbox: handed over as objects it would keep the host's loop."""


def _handed(variables: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The values as they are given to the sandbox, and their size in bytes. Blocks; meant for a thread."""
    values: dict[str, Any] = {}
    size = 0
    for name, given in variables.items():
        if not (isinstance(name, str) and name.isidentifier()):
            raise InputError(f"{name!r} cannot be the name of a variable in the sandbox")
        value = _read(name, given) if isinstance(given, Path) else given
        if not isinstance(value, str | bytes):
            value = _Json(_redraft_text=_as_json(name, value))
        values[name] = value
        size += len(value["_redraft_text"] if isinstance(value, _Json) else value)
    return values, size


def _as_json(name: str, value: Any) -> str:
    try:
        return "".join(handover.pieces(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{name!r} cannot be handed to the sandbox ({error}): text, bytes, a Path, or what JSON holds"
        ) from error


def _read(name: str, path: Path) -> str | bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"the file of {name!r} cannot be read: {path}: {error.strerror}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _prelude(*, with_map: bool) -> str:
    spec = importlib.util.find_spec(prelude.__name__)
    assert spec is not None
    source: str = spec.loader.get_source(prelude.__name__)  # type: ignore[union-attr]
    return (source if with_map else source.partition("\ndef llm_map")[0]) + ECHO


def _named(name: str) -> Any:
    """A function by whose name the sandbox calls the host; it is never called here."""

    def function() -> None: ...

    function.__name__ = name
    return function


def _ignore(_stream: str, _text: str) -> None: ...


def _library() -> Any:
    try:
        import pydantic_monty
    except ImportError as error:
        raise ConfigError(
            "the interpreter \"monty\" needs the package pydantic-monty: pip install 'redraft[monty]'"
        ) from error
    return pydantic_monty
