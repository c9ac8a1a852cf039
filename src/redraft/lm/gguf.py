"""The head of a GGUF file: what a model needs of memory, and how long its context is, read from the first bytes.

Only the start is read, so that it can be asked of a server before the whole file is fetched.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping
from typing import Any

HEAD_BYTES = 1 << 16
"""The model's shape stands before its vocabulary, in the first kilobytes."""

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9
_HALF = 2
"""Bytes of one number in the context's cache."""


def read_head(data: bytes) -> dict[str, Any]:
    """The values that lie whole within `data`, the first bytes of a GGUF file, by name. Empty if it is no GGUF file."""
    found: dict[str, Any] = {}
    if data[:4] != b"GGUF":
        return found
    reader = _Reader(data, at=16)
    with contextlib.suppress(struct.error, UnicodeDecodeError, KeyError, RecursionError):  # what was read ends
        for _ in range(reader.scalar(10)):
            name = reader.text()
            found[name] = reader.value(reader.scalar(4))
    return found


def context_bytes(head: Mapping[str, Any]) -> int | None:
    """Bytes that each token of context takes, at most; None if the head does not say."""
    shape = _shape(head)
    layers, width, heads = (shape.get(key) for key in ("block_count", "embedding_length", "attention.head_count"))
    pairs = shape.get("attention.head_count_kv", heads)
    if not isinstance(layers, int):
        return None
    each, times = (pairs, 1) if isinstance(pairs, list) else ([pairs], layers)
    plain = width // heads if isinstance(width, int) and isinstance(heads, int) and heads else None
    key, value = (shape.get(f"attention.{part}_length", plain) for part in ("key", "value"))
    if not (isinstance(key, int) and isinstance(value, int) and all(isinstance(n, int) for n in each)):
        return None
    return sum(each) * times * (key + value) * _HALF


def longest_context(head: Mapping[str, Any]) -> int | None:
    """The longest context that the model was trained for, in tokens; None if the head does not say."""
    tokens = _shape(head).get("context_length")
    return tokens if isinstance(tokens, int) else None


def _shape(head: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{head.get('general.architecture')}."
    return {name.removeprefix(prefix): value for name, value in head.items() if name.startswith(prefix)}


class _Reader:
    """Raises `struct.error` where the bytes end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def scalar(self, kind: int) -> Any:
        form = _SCALARS[kind]
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def text(self) -> str:
        size = self.scalar(10)
        end = self._at + size
        if end > len(self._data):
            raise struct.error("the text goes on beyond what was read")
        raw, self._at = self._data[self._at : end], end
        return raw.decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            inner, size = self.scalar(4), self.scalar(10)
            return [self.value(inner) for _ in range(size)]
        return self.scalar(kind)
