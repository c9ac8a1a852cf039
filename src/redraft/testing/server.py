"""A real model server on this machine, for tests: it answers by script and breaks on demand."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from types import TracebackType
from typing import Any

from redraft.testing.replies import Reply, as_bytes
from redraft.testing.wires import CHAT, Wire

Script = Iterable[Reply | str] | Callable[[dict[str, Any]], Reply | str]

_START_SECONDS = 5.0


class FaultServer:
    """`with FaultServer(script) as server:` serves `server.base_url` from a thread of its own until the block ends.

    The script is a function of the request's JSON body, or replies in order; asked once too often it answers 400. A
    text is a healthy reply of that text. Without a script every reply is "ok". It speaks OpenAI's chat completions, or
    another provider's format: `wire=redraft.testing.wires.ANTHROPIC`. `beside` is told "METHOD /path" and the body of
    whatever else is asked for, and answers it or gives None.

    `requests` are the bodies in the order of arrival and `headers` theirs, `calls` their number, `aborted` how many
    callers left before their reply was whole, `open_connections` how many are open now, `most_connections` how many
    were at once.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        models: Iterable[str] = ("test",),
        wire: Wire = CHAT,
        beside: Callable[[str, bytes], Reply | None] | None = None,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.aborted = 0
        self.open_connections = 0
        self.most_connections = 0
        self.base_url = ""
        self._answer = script if callable(script) else None
        self._replies = None if script is None or callable(script) else iter(script)
        self._models = tuple(models)
        self._wire = wire
        self._beside = beside
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fault-server", daemon=True)
        self._ready = threading.Event()

    @property
    def calls(self) -> int:
        """How many replies were asked for."""
        return len(self.requests)

    def __enter__(self) -> FaultServer:
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise TimeoutError(f"the test server did not start within {_START_SECONDS:g} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self._loop
        try:
            server = loop.run_until_complete(loop.create_server(self._connection, "127.0.0.1", 0))
            self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{self._wire.base}"
            self._ready.set()
            loop.run_forever()
            server.close()
            loop.run_until_complete(self._hang_up())
        finally:
            loop.close()

    async def _hang_up(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # a connection closes one turn after its task

    def _connection(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(_Caller(loop=self._loop), self._serve, loop=self._loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, _Caller)
        self.open_connections += 1
        self.most_connections = max(self.most_connections, self.open_connections)
        try:
            while (request := await _read_request(reader)) is not None:
                await self._respond(*request, _Line(reader, writer))
        except (_CallerLeftError, asyncio.IncompleteReadError, ConnectionError):
            self.aborted += 1
        except (_CutError, asyncio.CancelledError):
            pass  # the connection ends as it is, whoever wanted that
        finally:
            self.open_connections -= 1
            writer.transport.abort()

    async def _respond(self, target: str, headers: dict[str, str], body: bytes, line: _Line) -> None:
        if target == "GET /v1/models":
            data = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._models]
            await line.whole(200, {}, as_bytes({"object": "list", "data": data}))
        elif (read := self._wire.reads(target, body)) is not None:
            asked = json.loads(body)
            self.requests.append(asked)
            self.headers.append(headers)
            await _send(self._next(asked), read, line, self._wire)
        elif self._beside is not None and (told := self._beside(target, body)) is not None:
            await _send(told, {}, line, self._wire)
        else:
            await line.whole(404, {}, as_bytes({"error": {"message": f"there is no {target}"}}))

    def _next(self, asked: dict[str, Any]) -> Reply:
        if self._answer is not None:
            said = self._answer(asked)
        elif self._replies is not None:
            said = next(self._replies, Reply.error(400, f"the script has no reply for call {self.calls}"))
        else:
            said = "ok"
        return Reply(text=said) if isinstance(said, str) else said


async def _send(reply: Reply, asked: dict[str, Any], line: _Line, wire: Wire) -> None:
    await line.wait(reply.delay)
    if reply.cut == 0:
        raise _CutError
    headers = dict(reply.headers)
    if reply.body is not None:
        body = reply.body if isinstance(reply.body, bytes) else as_bytes(wire.told(reply, headers))
        await line.whole(reply.status, headers, body, cut=reply.cut is not None)
    elif not asked.get("stream"):
        await line.whole(reply.status, headers, as_bytes(wire.whole(reply, asked)), cut=reply.cut is not None)
    else:
        await _stream(reply, asked, line, wire)


async def _stream(reply: Reply, asked: dict[str, Any], line: _Line, wire: Wire) -> None:
    await line.head(reply.status, {**reply.headers, "content-type": wire.stream_type, "transfer-encoding": "chunked"})
    for sent, piece in enumerate(wire.events(reply, asked)):
        await line.wait(reply.pause)
        if sent == reply.cut:
            raise _CutError
        await line.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    await line.write(b"0\r\n\r\n")


class _CallerLeftError(Exception):
    """The caller closed its end."""


class _CutError(Exception):
    """The script closes the connection here."""


class _Caller(asyncio.StreamReader):
    """The caller's bytes, and word of its leaving, even while nothing is read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.left.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.left.set()


class _Line:
    """The way back to one caller; raises `_CallerLeftError` once there is nobody there."""

    def __init__(self, caller: _Caller, writer: asyncio.StreamWriter) -> None:
        self._caller = caller
        self._writer = writer

    async def wait(self, seconds: float) -> None:
        """Wait, or until the caller has left."""
        if seconds > 0:
            await _within(seconds, self._caller.left.wait())
        if self._caller.left.is_set():
            raise _CallerLeftError

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{k}: {v}" for k, v in headers.items())]
        await self.write("\r\n".join([*lines, "", ""]).encode())

    async def whole(self, status: int, headers: Any, body: bytes, *, cut: bool = False) -> None:
        usual = {"content-type": "application/json", "content-length": str(len(body))}
        await self.head(status, {**usual, **headers})
        if cut:
            await self.write(body[: len(body) // 2])
            raise _CutError
        await self.write(body)


async def _within(seconds: float, awaitable: Awaitable[object]) -> None:
    try:
        await asyncio.wait_for(awaitable, seconds)
    except TimeoutError:
        return


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes] | None:
    """Method and path, headers and body; None when the caller has hung up between requests."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *rest = head.decode("latin-1").split("\r\n")[:-2]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return " ".join(first.split()[:2]), headers, body
