"""A CPython REPL in a process that the kernel has closed: the default sandbox on Linux. docs/sandbox.md says what it holds."""

from __future__ import annotations

import asyncio
import contextlib
import keyword
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.errors import InputError, SandboxError, UsageError
from redraft.protocols import CellResult, HostFunction
from redraft.sandbox import handover, spawn
from redraft.sandbox.cell import Cell, Terms
from redraft.sandbox.child import wire
from redraft.sync import in_thread
from redraft.types import Inputs

BASE_MEMORY = 512 << 20
_SECONDS_TO_START = 60.0
ADVICE = (
    "The jail needs Linux 5.13 or newer on x86-64 or aarch64 with Landlock and seccomp. Elsewhere use the interpreter "
    '"monty" (`pip install "redraft[monty]"`), or run redraft in a container or machine whose kernel has them.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One thing that the jailed process tried when it was closed."""

    tried: str
    held: bool
    came: str
    """The error that it met, or what worked."""


class Jail:
    """Implements `redraft.protocols.Interpreter`: a child process without files, network and other processes.

    `seconds` a cell may run, not counting those it waits for the host. `memory`: bytes beyond the bare interpreter's;
    by default 512 MiB and four times the variables. `prefix` is a command in front of the child, such as bwrap's; it has
    to hand descriptors on and must not need the environment. `output`: bytes of one cell's output that are kept.
    """

    dialect = ""

    def __init__(
        self,
        seconds: float = 30.0,
        memory: int | None = None,
        *,
        prefix: Sequence[str] = (),
        output: int = 200_000,
        python: str | None = None,
    ) -> None:
        if seconds <= 0 or (memory is not None and memory < 1 << 20) or output < 1000:
            raise UsageError(
                f"Jail({seconds=}, {memory=}, {output=}): seconds > 0, memory >= 1 MiB, output >= 1000 bytes"
            )
        self._seconds = seconds
        self._memory = memory
        self._prefix = tuple(prefix)
        self._output = output
        self._python = python or sys.executable
        self._process: spawn.Process | None = None
        self._functions: dict[str, HostFunction] = {}
        self._pid = 0
        self._cells = 0
        self._busy = False
        self.probes: tuple[Probe, ...] = ()
        """What the running child tried when it was closed; all of it failed."""
        self.used: dict[str, Any] = {}
        """What it is closed by: Landlock's ABI, the user, how many threads the kernel allows (0: not counted there)."""

    async def start(self, variables: Inputs, functions: Mapping[str, HostFunction]) -> None:
        """See `Interpreter`. Raises `SandboxError` if a lock is missing or does not hold, `InputError` for a value that
        cannot be handed over.
        """
        await self.close()
        if not sys.platform.startswith("linux"):
            raise SandboxError(f"the jail does not run on {sys.platform}. {ADVICE}")
        wrong = [name for name in functions if not name.isidentifier() or keyword.iskeyword(name)]
        if wrong:
            raise InputError(f"not names of functions: {', '.join(map(repr, wrong))}")
        made = await in_thread(handover.variables, variables)
        self._functions = dict(functions)
        process = await in_thread(self._spawned, made)
        try:
            met = False
            try:
                await asyncio.wait_for(self._meet(process, made), _SECONDS_TO_START)
                met = True
            except TimeoutError as error:
                raise SandboxError(f"the sandbox did not start within {_SECONDS_TO_START:g} s") from error
            finally:
                if not met:
                    await in_thread(process.end)
        finally:
            await in_thread(made.close)  # the last one to close a big one frees its memory, which takes time
        self._process, self._cells = process, 0

    def _spawned(self, made: handover.Handed) -> spawn.Process:
        """A new process. Holds `made` until it is there, also where nobody waits for it any more."""
        try:
            return spawn.start(self._prefix, self._python, [one.fd for one in made])
        except SandboxError:
            made.close()
            raise

    async def execute(self, code: str) -> CellResult:
        """See `Interpreter`. One cell at a time."""
        process = self._process
        if process is None:
            raise SandboxError(
                "the sandbox is not running: it was not started, was closed, or ended with a cell; `start` it"
            )
        if self._busy:
            raise SandboxError("a cell is running in this sandbox: wait for it, or start another sandbox")
        self._busy = True
        self._cells += 1
        lost = True
        try:
            terms = Terms(seconds=self._seconds, output=self._output, pid=self._pid)
            result = await Cell(process, self._cells, self._functions, terms).run(code)
            lost = result.lost
        finally:
            self._busy = False
            if lost:
                await self._gone(process)
        return result

    async def close(self) -> None:
        """See `Interpreter`. May be called at any time, and again; a cell that runs is ended."""
        process, self._process = self._process, None
        if process is not None and self._busy:
            process.kill()  # the cell sees it, and does the rest
        elif process is not None:
            await in_thread(process.end)

    async def _gone(self, process: spawn.Process) -> None:
        if self._process is process:
            self._process = None
        await in_thread(process.end)

    async def _meet(self, process: spawn.Process, made: list[handover.Variable]) -> None:
        """Tell the child what it is for, and hear whether it is closed."""
        loop = asyncio.get_running_loop()
        memory = self._memory or BASE_MEMORY + 4 * sum(one.size for one in made)
        asked = {
            "variables": [one.told() for one in made],
            "functions": [*self._functions],
            "memory": memory,
            "output": self._output,
        }
        with contextlib.suppress(OSError):  # it died: that is read below
            await loop.sock_sendall(process.socket, wire.pack(asked))
        told = await self._first_frame(loop, process)
        if "missing" in told:
            raise SandboxError(f"this system cannot hold the jail: {told['missing']}. {ADVICE}")
        self.used = told["ready"]
        self.probes = tuple(Probe(tried=tried, held=held, came=came) for tried, held, came in told["probes"])
        self._pid = 0 if self._prefix else process.popen.pid
        if broken := [f"{probe.tried} ({probe.came})" for probe in self.probes if not probe.held]:
            raise SandboxError(f"the jail does not hold on this system: {', '.join(broken)}. {ADVICE}")

    async def _first_frame(self, loop: asyncio.AbstractEventLoop, process: spawn.Process) -> dict[str, Any]:
        while (told := wire.unpack(process.incoming)) is None:
            try:
                data = await loop.sock_recv(process.socket, 1 << 16)
            except OSError:
                data = b""
            if not data:
                code = await in_thread(process.reap)
                raise SandboxError(f"the sandbox ended while it started (status {code}): {_said(process)}")
            process.incoming += data
        return told


def _said(process: spawn.Process) -> str:
    """The last lines that it, or the command in front of it, wrote."""
    import os

    with contextlib.suppress(BlockingIOError):
        if written := os.read(process.output, 1 << 16):
            return " ".join(written.decode("utf-8", "replace").split())[-600:]
    return "it said nothing"


async def self_test(prefix: Sequence[str] = ()) -> Jail:
    """Start a jail, which tries its own locks, and end it: its `probes` and `used` say what was tried and found.

    Every start does the same. Raises `SandboxError` that names what does not hold, and what to do.
    """
    jail = Jail(prefix=prefix)
    await jail.start({}, {})
    await jail.close()
    return jail
