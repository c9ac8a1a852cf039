"""What a cell wrote, as its host keeps it: the head, the tail, and how much lies between."""

from __future__ import annotations


class Kept:
    """The first half of `cap` bytes and the last half."""

    def __init__(self, cap: int) -> None:
        self._half = cap // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.seen = 0
        """Bytes that came in all."""

    def add(self, data: bytes) -> None:
        """Take what came next."""
        self.seen += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """All of it as text; what is no UTF-8 is marked."""
        tail = self._tail[-self._half :] if len(self._tail) > self._half else self._tail
        cut = self.seen - len(self._head) - len(tail)
        middle = f"\n[... {cut} bytes of output not shown ...]\n" if cut else ""
        if not cut:
            return (self._head + tail).decode("utf-8", "replace")
        return self._head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")
