"""Variables on their way into a sandbox: each one a descriptor that the child reads once.

A text is written in slices, so that no other thread waits longer than one of them takes.
"""

from __future__ import annotations

import json
import os
import stat
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redraft.errors import InputError, SandboxError

_SLICE = 1 << 20
_GROUP = 256
_SHORT = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One value as bytes behind a descriptor, which whoever holds this closes."""

    name: str
    kind: str
    """text, bytes, json, or file: text if it is UTF-8."""
    fd: int
    size: int

    def told(self) -> dict[str, Any]:
        """For the child."""
        return {"name": self.name, "kind": self.kind, "fd": self.fd, "size": self.size}


class Handed(list[Variable]):
    """Variables whose descriptors are closed by `close`, or when nobody wants them any more: a start that is cancelled
    leaves the thread that makes them behind.
    """

    def __init__(self) -> None:
        self._fds: list[int] = []
        self.close = weakref.finalize(self, _close, self._fds)
        """May be called again."""

    def take(self, one: Variable) -> None:
        """One more."""
        self._fds.append(one.fd)
        self.append(one)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def variables(values: Mapping[str, Any]) -> Handed:
    """All values as descriptors. Blocks; meant for a thread.

    Raises `InputError` for a name that is none, a file that cannot be read, and what JSON cannot hold.
    """
    made = Handed()
    whole = False
    try:
        for name, value in values.items():
            if not (isinstance(name, str) and name.isidentifier()):
                raise InputError(f"{name!r} cannot be the name of a variable in the sandbox")
            made.take(_opened(name, value) if isinstance(value, Path) else _written(name, value))
        whole = True
    finally:
        if not whole:
            made.close()
    return made


def _opened(name: str, path: Path) -> Variable:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer would wait
    except (OSError, ValueError) as error:
        raise InputError(f"the file of {name!r} cannot be read: {path}: {_why(error)}") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise InputError(f"{name!r} is no file but something else: {path}")
    if not status.st_size:  # empty, or one whose size nobody knows before it is read, as in /proc
        return _copied(name, path, fd)
    return Variable(name=name, kind="file", fd=fd, size=status.st_size)


def _copied(name: str, path: Path, fd: int) -> Variable:
    try:
        with os.fdopen(fd, "rb", buffering=0) as file:
            return _written(name, file.readall() or b"", "file")
    except OSError as error:
        raise InputError(f"the file of {name!r} cannot be read: {path}: {error.strerror}") from error


def _why(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)


def _written(name: str, value: Any, kind: str = "") -> Variable:
    data = isinstance(value, bytes | bytearray | memoryview)
    kind = kind or ("text" if isinstance(value, str) else "bytes" if data else "json")
    try:
        fd = os.memfd_create(f"redraft-{name[:40]}", os.MFD_CLOEXEC)
    except OSError as error:
        raise SandboxError(f"no memory can be made to hand over {name!r}: {error.strerror}") from error
    try:
        for piece in _bytes_of(value, kind):
            _write(fd, piece)
        return Variable(name=name, kind=kind, fd=fd, size=os.fstat(fd).st_size)
    except (TypeError, ValueError, RecursionError) as error:
        os.close(fd)
        raise InputError(
            f"{name!r} cannot be handed to the sandbox ({error}): text, bytes, a Path, or what JSON holds"
        ) from error
    except OSError as error:
        os.close(fd)
        raise SandboxError(f"{name!r} cannot be handed to the sandbox: {error.strerror}") from error


def _write(fd: int, piece: bytes | memoryview) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(fd, view) :]


def _bytes_of(value: Any, kind: str) -> Iterator[bytes | memoryview]:
    if kind in ("bytes", "file"):
        whole = memoryview(value).cast("B")
        yield from (whole[at : at + _SLICE] for at in range(0, len(whole), _SLICE))
    elif kind == "text":
        yield from (value[at : at + _SLICE].encode("utf-8", "surrogatepass") for at in range(0, len(value), _SLICE))
    else:
        waiting: list[str] = []
        size = 0
        for piece in pieces(value):
            waiting.append(piece)
            size += len(piece)
            if size > _SLICE:
                yield "".join(waiting).encode("utf-8", "surrogatepass")
                waiting, size = [], 0
        yield "".join(waiting).encode("utf-8", "surrogatepass")


def pieces(value: Any) -> Iterator[str]:
    """The value as JSON, in pieces none of which takes long to make. Joined they are what `json.dumps` says."""
    if isinstance(value, str) and len(value) > _SHORT:
        yield '"'
        yield from (_dumps(value[at : at + _SLICE])[1:-1] for at in range(0, len(value), _SLICE))
        yield '"'
    elif isinstance(value, list | tuple) and not _small(value):
        yield "["
        for at in range(0, len(value), _GROUP):
            yield "," if at else ""
            yield from _group(value[at : at + _GROUP])
        yield "]"
    elif isinstance(value, dict) and not _small(value.values()):
        yield "{"
        for count, (key, one) in enumerate(value.items()):
            yield f"{',' if count else ''}{_dumps({key: 0})[1:-2]}"
            yield from pieces(one)
        yield "}"
    else:
        yield _dumps(value)


def _group(items: Any) -> Iterator[str]:
    if all(
        _small(one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else (one,))
        for one in items
    ):
        yield _dumps(items)[1:-1]
        return
    for count, one in enumerate(items):
        yield "," if count else ""
        yield from pieces(one)


def _small(values: Any) -> bool:
    """Few values, all of them short."""
    return len(values) <= _GROUP and all(
        one is None or isinstance(one, int | float) or (isinstance(one, str) and len(one) <= _SHORT) for one in values
    )


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
