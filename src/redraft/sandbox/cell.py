"""One cell seen from the host: what it sends, what it asks for, and when its time is over.

Nothing that comes from the child is trusted. A frame that makes no sense ends the sandbox, and only that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redraft.protocols import CellEnd, CellResult, HostFunction
from redraft.sandbox.child import wire
from redraft.sandbox.clock import Clock
from redraft.sandbox.output import Kept
from redraft.sandbox.spawn import Process
from redraft.sync import being_cancelled, call_user, in_thread, seen

CALLS = 256
"""Calls of one cell at the same time."""
THREADS = 256
"""Threads of the jail; beyond it is ended."""
FLOOD = 64 << 20
"""Bytes of output of one cell after which it is ended."""
HELD = 64 << 20
"""Bytes of arguments of the calls under way."""
_ANSWER = 32 << 20  # bytes of one answer
_UNREAD = 64 << 20  # bytes of answers that the child does not read
_GRACE = 0.5  # seconds for an interrupted cell to end by itself
_END_GRACE = 2.0  # the same for one that a host function has ended
_GOODBYE = 0.5  # seconds for host functions to end once nobody wants what they give
_LOOK = 0.25  # seconds between two looks at its threads and its use of the processor
_TICK = os.sysconf("SC_CLK_TCK")
_FRAMES = 32  # handled in one turn of the loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What one cell gets. `pid` is the child's, where signals reach it; 0 where something stands in front of it."""

    seconds: float
    output: int
    pid: int


class Cell:
    """One run of one cell on the running loop."""

    def __init__(self, process: Process, number: int, functions: Mapping[str, HostFunction], terms: Terms) -> None:
        self._process = process
        self._number = number
        self._functions = functions
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[CellResult] = self._loop.create_future()
        self._kept = Kept(terms.output)
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._held: dict[int, int] = {}
        """Bytes that the arguments of each take about."""
        self._worked: float | None = None
        """Seconds of processors that the jail had used at the last look."""
        self._clock = Clock(terms.seconds, self._late)
        self._watch: asyncio.TimerHandle | None = None
        self._interrupted = False
        self._ended = False
        """A host function has raised CellEnd."""

    async def run(self, code: str) -> CellResult:
        """Send it and see it through. Cancelling kills the child."""
        process = self._process
        told: CellResult | None = None
        try:
            self._send(wire.pack({"cell": self._number, "code": code}))
            self._frames()
            self._glance()
            if not self._over.done():
                self._attend()
            told = await self._over
        finally:
            if told is None:
                process.kill()
            if self._watch is not None:
                self._leave()
            if self._calls:
                await self._cancel_calls()
        if told.lost:
            return await self._bury(told)
        self._drain()
        return CellResult(output=self._kept.text(), error="" if self._ended else self._why(told.error))

    def _glance(self) -> None:
        """Most cells are over within a millisecond: for those the loop need not be told of the descriptors."""
        ready = {fd for fd, _ in self._process.poll.poll(1)} if not self._over.done() else ()
        if self._process.output in ready:
            self._written()
        if self._process.wire in ready:
            self._readable()

    def _attend(self) -> None:
        loop, process = self._loop, self._process
        loop.add_reader(process.wire, self._readable)
        loop.add_reader(process.output, self._written)
        if process.outgoing:
            loop.add_writer(process.wire, self._writable)
        self._watch = loop.call_later(_LOOK, self._look)
        self._go_on()

    def _leave(self) -> None:
        self._clock.stop()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._loop.remove_reader(self._process.wire)
        self._loop.remove_reader(self._process.output)
        self._loop.remove_writer(self._process.wire)

    async def _cancel_calls(self) -> None:
        """The cell is over: what its other threads still ask for is not wanted any more."""
        calls = self._dropped(lambda number: _raised(number, "RuntimeError", "the cell that made this call has ended"))
        await asyncio.wait(calls, timeout=_GOODBYE)

    def _dropped(self, answer: Callable[[int], bytes]) -> list[asyncio.Task[None]]:
        """Cancel all calls under way, and answer them so. Their tasks; one that ignores it is left behind."""
        calls, self._calls = self._calls, {}
        for number, task in calls.items():
            task.add_done_callback(seen)
            task.cancel()
            self._send(answer(number))
        return [*calls.values()]

    def _why(self, error: str) -> str:
        if not (self._interrupted and error.startswith("KeyboardInterrupt")):
            return error
        return f"{self._limit()} and was stopped; its variables are kept"

    def _limit(self) -> str:
        return f"TimeoutError: the cell ran longer than {self._terms.seconds:g} s"

    # The child's end

    def _lose(self, error: str) -> None:
        if not self._over.done():
            self._over.set_result(CellResult(error=error, lost=True))

    async def _bury(self, told: CellResult) -> CellResult:
        """Collect the process, and what it wrote before its end."""
        code = await in_thread(self._process.reap)
        self._drain()
        error = told.error or _how(code)
        return CellResult(output=self._kept.text(), error="" if self._ended else error, lost=True)

    # Output

    def _written(self) -> None:
        try:
            data = os.read(self._process.output, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._process.output)  # it closed its streams; it may go on all the same
            return
        self._kept.add(data)
        if self._kept.seen > FLOOD:
            self._lose(f"OverflowError: the cell wrote more than {FLOOD >> 20} MB; the sandbox was ended")

    def _drain(self) -> None:
        """What it wrote before its last frame lies in the pipe."""
        most = self._kept.seen + (1 << 20)
        with contextlib.suppress(BlockingIOError):
            while self._kept.seen < most and (data := os.read(self._process.output, 1 << 16)):
                self._kept.add(data)

    # Frames

    def _readable(self) -> None:
        try:
            data = self._process.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:  # it ended with something unread
            data = b""
        if not data:
            self._lose("")  # how it ended says why
            return
        self._process.incoming += data
        self._frames()

    def _frames(self) -> None:
        for _ in range(_FRAMES):
            if self._over.done():
                return
            try:
                body = wire.cut(self._process.incoming, wire.LARGEST)
                weight = wire.weight(body) if body is not None else 0
                frame = wire.read(body) if body is not None else None
            except ValueError as error:
                self._lose(f"ValueError: the code spoke for the sandbox, and said what makes no sense ({error})"[:300])
                return
            if frame is None:
                return
            self._frame(frame, weight)
        self._loop.call_soon(self._frames)

    def _frame(self, frame: dict[str, Any], weight: int) -> None:
        match frame:
            case {"done": number, "error": str(error)} if number == self._number and type(number) is int:
                self._over.set_result(CellResult(error=error[:1000]))
            case {"call": int(number), "name": str(name), "args": list(args), "kwargs": dict(kwargs)}:
                self._call(number, name, args, kwargs, weight)
            case _:
                self._lose("ValueError: the code spoke for the sandbox, and said what makes no sense")

    def _send(self, frame: bytes) -> None:
        """Send now what can be sent, the rest when the child reads."""
        process = self._process
        if not process.outgoing:
            try:
                frame = frame[process.socket.send(frame) :]
            except BlockingIOError:
                pass
            except OSError:  # it is gone: the reader says so
                return
        if not frame:
            return
        process.outgoing += frame
        if len(process.outgoing) > _UNREAD:
            self._lose(f"OverflowError: {_UNREAD >> 20} MB of answers were not read; the sandbox was ended")
            return
        if self._watch is not None:  # the loop looks after this cell; later cells send it otherwise
            self._loop.add_writer(process.wire, self._writable)

    def _writable(self) -> None:
        process = self._process
        try:
            del process.outgoing[: process.socket.send(memoryview(process.outgoing)[: 1 << 20])]
        except BlockingIOError:
            return
        except OSError:
            process.outgoing.clear()
        if not process.outgoing:
            self._loop.remove_writer(process.wire)

    # Calls

    def _call(self, number: int, name: str, args: list[Any], kwargs: dict[str, Any], weight: int) -> None:
        refused = ""
        if name not in self._functions:
            refused = f"there is no function {name[:80]!r}"
        elif number in self._calls:
            refused = f"call {number} is under way already"
        elif len(self._calls) >= CALLS:
            refused = f"{CALLS} calls are under way, no more can be"
        elif sum(self._held.values()) + weight > HELD:
            refused = f"calls with {HELD >> 20} MB of arguments are under way, no more can be"
        elif self._interrupted:
            refused = "the cell's time is over"
        if self._ended:
            self._send(_end(number))
        elif refused:
            self._send(wire.pack({"reply": number, "raise": ["RuntimeError", refused]}))
        else:
            self._clock.stop()
            task = self._loop.create_task(self._answer(number, name, args, kwargs))
            self._calls[number] = task
            self._held[number] = weight
            task.add_done_callback(lambda _: self._held.pop(number, None))

    async def _answer(self, number: int, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        try:
            value = await call_user(self._functions[name], *args, **kwargs)
        except CellEnd:
            self._ended = True
            answer = _end(number)
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            answer = _raised(number, "RuntimeError", f"{name} was cancelled from inside")
        except Exception as error:  # noqa: BLE001 - user code: what a host function raises is raised in the cell
            answer = _raised(number, type(error).__name__, str(error))
        else:
            try:
                answer = wire.pack({"reply": number, "value": value})
            except (TypeError, ValueError, RecursionError) as error:
                answer = _raised(number, "TypeError", f"{name} returned what JSON cannot hold: {error}")
        if len(answer) > _ANSWER:
            much = f"{name} returned {len(answer)} bytes, at most {_ANSWER} can be passed: return less at once"
            answer = _raised(number, "ValueError", much)
        if self._calls.pop(number, None) is None:
            return  # it was cancelled, and answered
        if self._ended:
            self._dropped(_end)
            self._clock.left = min(self._clock.left, _END_GRACE)
        self._send(answer)
        if self._watch is not None:
            self._go_on()

    # Time

    def _go_on(self) -> None:
        if not self._calls and not self._over.done():
            self._clock.go_on()

    def _late(self) -> None:
        if self._over.done():
            return
        if self._terms.pid and not self._interrupted:
            self._interrupted = True
            self._process.interrupt()
            self._dropped(lambda number: _raised(number, "RuntimeError", "the cell's time is over"))
            self._clock.left = _GRACE
            self._clock.go_on()
        else:
            self._lose(f"{self._limit()}; it could not be stopped, and the sandbox was ended with all its variables")

    def _look(self) -> None:
        """A process as root has no limit of threads that the kernel would hold; and code that works waits for nobody."""
        with contextlib.suppress(OSError):
            about = Path(f"/proc/{self._terms.pid}/stat").read_text(encoding="ascii", errors="replace")
            # from the third on, after the name: user and system time in ticks, threads
            numbers = about.rpartition(")")[2].split()
            worked, threads = (int(numbers[11]) + int(numbers[12])) / _TICK, int(numbers[17])
            if threads > THREADS:
                self._lose(f"RuntimeError: {threads} threads, at most {THREADS} are allowed; the sandbox was ended")
            since, self._worked = self._worked, worked
            if self._calls and since is not None:
                self._clock.charge(min(worked - since, _LOOK))
        self._watch = self._loop.call_later(_LOOK, self._look)


def _raised(number: int, kind: str, message: str) -> bytes:
    return wire.pack({"reply": number, "raise": [kind, message]})


def _end(number: int) -> bytes:
    return wire.pack({"reply": number, "end": True})


def _how(code: int) -> str:
    """In words what a return code says."""
    if code >= 0:
        return f"SystemExit: the code ended the sandbox's own process (exit status {code})"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"SystemError: the sandbox's process died of {name}"
