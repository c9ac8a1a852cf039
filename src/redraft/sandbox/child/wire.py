"""Frames between the jail and its host: a length of four bytes, then JSON in UTF-8.

Any thread may send, and any number of threads may wait for frames meant for them: whoever waits first reads for all
(`Inbox`), so that a cell that calls nothing costs no second thread.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Callable

TYPE_CHECKING = False  # `typing` is slow to load, and type checkers know the name
if TYPE_CHECKING:
    from typing import Any

LARGEST = 8 << 20
"""Bytes of one frame that the jail may send."""
MOST = 200_000
"""Values in it, by its commas and opening brackets: each takes the host's time and memory, however short it is written."""
_VALUE = 100  # bytes that one takes about
_HEADER = struct.Struct("!I")
_FORM: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}
_ENCODER = json.JSONEncoder(**_FORM)


class TooLarge(ValueError):
    """A frame has more bytes than `LARGEST`, or more values than `MOST`."""


def pack(frame: dict[str, Any], default: Callable[[Any], Any] | None = None) -> bytes:
    """One frame as bytes. Raises what `json` raises for values it cannot hold."""
    encoder = _ENCODER if default is None else json.JSONEncoder(**_FORM, default=default)
    body = encoder.encode(frame).encode("utf-8", "surrogatepass")
    return _HEADER.pack(len(body)) + body


def unpack(buffer: bytearray) -> dict[str, Any] | None:
    """Take the first frame off `buffer`; None if it is not whole yet. Raises ValueError as `read` does."""
    body = cut(buffer)
    return None if body is None else read(body)


def cut(buffer: bytearray, largest: int | None = None) -> bytes | None:
    """The same for the frame's JSON. Raises `TooLarge`."""
    if len(buffer) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack_from(buffer)
    if largest is not None and size > largest:
        raise TooLarge(f"a frame of {size} bytes, at most {largest} are taken")
    end = _HEADER.size + size
    if len(buffer) < end:
        return None
    body = bytes(memoryview(buffer)[_HEADER.size : end])
    del buffer[:end]
    return body


def weight(body: bytes) -> int:
    """Bytes that the frame of this JSON takes about, once read. Raises `TooLarge` for more values than `MOST`."""
    values = _marks(body)
    if values > MOST:
        if body.count(b'"') - body.count(b'\\"') > 2 * MOST:  # at least one a text: the texts alone are too many
            values = MOST + 1
        else:
            import re  # slow to load, and seldom needed

            values = _marks(re.sub(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?', b"", body))
    if values > MOST:
        raise TooLarge(f"more than {MOST} values in one frame")
    return len(body) + _VALUE * values


def _marks(body: bytes) -> int:
    """No fewer than the values in it, but for one: what stands in a text counts, too."""
    return sum(map(body.count, (b",", b"[", b"{")))


def read(body: bytes) -> dict[str, Any]:
    """A frame of its JSON. Raises ValueError (of which RecursionError is made one) for what is no JSON object."""
    try:
        frame = json.loads(body.decode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise ValueError("a frame that is nested too deep") from error
    if not isinstance(frame, dict):
        raise ValueError("a frame that is no object")  # noqa: TRY004 - as all nonsense
    return frame


class _Box:
    """One thread that waits for one frame."""

    def __init__(self) -> None:
        self.frame: dict[str, Any] | None = None
        self._signal = threading.Lock()
        self._signal.acquire()

    def wake(self) -> None:
        try:
            self._signal.release()
        except RuntimeError:  # it was woken already
            return

    def sleep(self) -> None:
        self._signal.acquire()


class Inbox:
    """The jail's end of the wire. `busy` counts what an interrupt must not tear apart."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()
        self._boxes: dict[str | int, _Box] = {}
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self.busy = 0
        """Frames that the main thread is sending or reading."""

    def send(self, frame: bytes) -> None:
        """Send one whole frame."""
        main = threading.current_thread() is threading.main_thread()
        self.busy += main
        try:
            with self._writing:
                view = memoryview(frame)
                while view:
                    view = view[os.write(self._fd, view) :]
        finally:
            self.busy -= main

    def expect(self, key: str | int) -> None:
        """From now on a frame for `key` is kept until somebody takes it."""
        self._boxes[key] = _Box()

    def take(self, key: str | int) -> dict[str, Any]:
        """Wait for the frame for `key`, reading for others as long as nobody else does."""
        box = self._boxes[key]
        try:
            while box.frame is None:
                if self._reading.acquire(blocking=False):
                    self._read_until(box)
                else:
                    box.sleep()
            return box.frame
        finally:
            del self._boxes[key]
            self._wake_one()

    def idle(self) -> bool:
        """Nothing has come, and nobody reads."""
        import select

        return not self._buffer and not select.select([self._fd], [], [], 0)[0]

    def _read_until(self, box: _Box) -> None:
        main = threading.current_thread() is threading.main_thread()
        self.busy += main
        try:
            while box.frame is None:
                self._deliver(self._next())
        finally:
            self._reading.release()
            self.busy -= main
            self._wake_one()

    def _next(self) -> dict[str, Any]:
        while (frame := unpack(self._buffer)) is None:
            piece = os.read(self._fd, 1 << 16)
            if not piece:
                os._exit(0)  # the host has gone
            self._buffer += piece
        return frame

    def _deliver(self, frame: dict[str, Any]) -> None:
        box = self._boxes.get(frame.get("reply", "cell"))
        if box is not None:
            box.frame = frame
            box.wake()

    def _wake_one(self) -> None:
        """Somebody else has to read now."""
        for box in list(self._boxes.values()):
            if box.frame is None:
                box.wake()
                return
