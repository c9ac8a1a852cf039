"""The jailed process: reads what it gets, closes itself, tries the locks, and runs cells until its host goes."""

# pathlib is slow to load, and a jail starts often:
# ruff: noqa: PTH112, PTH118, PTH119

from __future__ import annotations

import builtins
import ctypes
import gc
import importlib
import json
import mmap
import os
import random
import signal
import sys
import threading
from contextlib import suppress
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType

from redraft.sandbox.child import lockdown, probes, show, wire
from redraft.sandbox.child.bridge import Bridge, CellEnded
from redraft.sandbox.child.repl import Repl, make_main

TYPE_CHECKING = False  # `typing` is slow to load, and type checkers know the name
if TYPE_CHECKING:
    from typing import Any

# Their shared libraries lie outside of what can be read later; once mapped, an import finds them.
_NATIVE = ("zlib", "_bz2", "_lzma", "_hashlib", "_decimal", "_uuid", "_sqlite3", "pyexpat")
# Loaded while there is nothing to do: the first cell is not slower for an `import` that everybody writes.
_IDLE = (
    "traceback datetime collections itertools functools textwrap string math io csv statistics heapq bisect operator enum abc"
    " contextlib copy base64 hashlib typing dataclasses decimal fractions concurrent.futures asyncio urllib.parse html"
    " difflib uuid pprint calendar time struct zlib"
)
_PLACES = (
    28  # processors that code is told of: pools get their full 32 threads, for they wait, and on every machine alike
)


class _Pinned(FileFinder):
    """Looks a directory through once, before it can be listed no more."""

    def _fill_cache(self) -> None:
        if not self._path_cache:  # type: ignore[attr-defined]
            super()._fill_cache()  # type: ignore[misc]


class _Reserve:
    """Memory set aside, so that a cell that took all can still say so."""

    _SIZE = 8 << 20

    def __init__(self) -> None:
        self._held: mmap.mmap | None = None

    def renew(self) -> None:
        """Set it aside again, if it was used and there is room."""
        if self._held is None:
            try:
                self._held = mmap.mmap(-1, self._SIZE)
            except (OSError, MemoryError):
                return

    def free(self) -> None:
        """Use it."""
        if self._held is not None:
            self._held.close()
            self._held = None


class _NoInput:
    """stdin: nobody is there."""

    encoding = "utf-8"

    def readline(self, *_: object) -> str:
        """Raises EOFError."""
        raise EOFError("nobody can answer input() in this sandbox: what there is to read is in the variables")

    read = readlines = readline

    def __iter__(self) -> _NoInput:
        return self

    __next__ = readline

    def fileno(self) -> int:
        """0, which is at its end."""
        return 0

    def isatty(self) -> bool:
        """No."""
        return False


def main(prelude: Any) -> None:
    """Everything. `prelude` is the module of helpers, or None."""
    wire_fd = os.dup(0)
    inbox = wire.Inbox(wire_fd)
    inbox.expect("cell")
    asked = inbox.take("cell")
    inbox.expect("cell")
    _pin()
    _map(_NATIVE)
    random.seed(0)  # a cell that is run again does the same again
    own = lockdown.address_space()
    values = {one["name"]: _decoded(one) for one in asked["variables"]}
    _settle(wire_fd)
    try:
        used = lockdown.lock(asked["memory"], own)
    except lockdown.Missing as error:
        inbox.send(wire.pack({"missing": str(error)}))
        os._exit(1)
    inbox.send(wire.pack({"ready": used, "probes": probes.failed(str(used["machine"])), "pid": os.getpid()}))
    _serve(inbox, values, asked, prelude)


def _pin() -> None:
    """Modules are found without listing the standard library's own directory, where other packages may lie."""
    loaders = (
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (SourceFileLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
    for path in sys.path:
        if os.path.isdir(path):
            finder = _Pinned(path, *loaders)
            finder._fill_cache()
            sys.path_importer_cache[path] = finder


def _map(names: tuple[str, ...]) -> None:
    for path in sys.path:
        for name in names if os.path.basename(path) == "lib-dynload" else ():
            with suppress(OSError):  # part of the interpreter itself, or this Python was built without it
                ctypes.CDLL(os.path.join(path, name + EXTENSION_SUFFIXES[0]))


def _decoded(one: dict[str, Any]) -> Any:
    """A variable, read through a map of its descriptor: no copy of the bytes but the value itself."""
    fd, size, kind = one["fd"], one["size"], one["kind"]
    if not size:
        value: Any = b""
    else:
        with mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ) as whole:
            value = _text(whole, kind) if kind != "bytes" else whole[:]
    os.close(fd)
    if kind == "json":
        return json.loads(value)
    return value.decode() if not size and kind != "bytes" else value


def _text(whole: mmap.mmap, kind: str) -> str | bytes:
    view = memoryview(whole)
    try:
        return str(view, "utf-8", "strict" if kind == "file" else "surrogatepass")
    except UnicodeDecodeError:
        return bytes(view)
    finally:
        view.release()


def _settle(wire_fd: int) -> None:
    """Nothing of what was inherited stays: descriptors, environment, directory, buffers."""
    lockdown.close_all_but({1, 2, wire_fd})
    read, write = os.pipe()  # 0 and one more: what reads stdin finds its end
    os.close(write)
    if read != 0:
        os.dup2(read, 0)
        os.close(read)
    os.environ.clear()
    os.environ["LANG"] = "C.UTF-8"
    os.chdir("/")
    ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX: threads share one heap, whose reserve counts as memory
    threading.stack_size(2 << 20)
    os.cpu_count = lambda: _PLACES
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = lambda: _PLACES


def _serve(inbox: wire.Inbox, values: dict[str, Any], asked: dict[str, Any], prelude: Any) -> None:
    bridge = Bridge(inbox)
    functions = {name: bridge.function(name) for name in asked["functions"]}
    raw = show.Output(1, asked["output"])
    out = show.text_of(raw)
    helpers = _helpers(prelude, functions)
    reserved = {name: value for name, value in (helpers | functions).items() if name not in values}
    reserve = _Reserve()
    repl = Repl(values, reserved, out.write, reserve.free)
    _stand_in(repl.module, bridge)
    sys.stdin = sys.__stdin__ = _NoInput()  # type: ignore[assignment, misc]
    late = _IDLE.split()[::-1]
    while True:
        while late and inbox.idle():  # load what cells will ask for, one module at a time, until the first one comes
            with suppress(ImportError):  # this Python was built without it
                importlib.import_module(late.pop())
        frame = inbox.take("cell")
        late.clear()
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = out  # type: ignore[misc]
        reserve.renew()
        try:
            error = _one(repl, bridge, frame["code"])
            raw.end()
            inbox.expect("cell")
            done = wire.pack({"done": frame["cell"], "error": error})
        except MemoryError:  # its variables fill all there is: the next cell can delete them
            reserve.free()
            inbox.expect("cell")
            done = wire.pack({"done": frame["cell"], "error": "MemoryError: variables fill the sandbox's memory"})
        inbox.send(done)


def _one(repl: Repl, bridge: Bridge, code: str) -> str:
    def ended() -> None:
        bridge.running = False

    bridge.begin()
    try:
        return repl.run(code, ended)
    except KeyboardInterrupt as late:  # between the code's end and the note of it
        return show.line_of(late)
    finally:
        bridge.running = False


def _helpers(prelude: Any, functions: dict[str, Any]) -> dict[str, Any]:
    if prelude is None:
        return {}
    names = [name for name in prelude.HELPERS if name != "llm_map" or "llm_query_batched" in functions]
    vars(prelude).update(functions)  # `llm_map` calls one of them
    return {name: getattr(prelude, name) for name in names}


def _stand_in(module: ModuleType, bridge: Bridge) -> None:
    """What a program finds around it: its module, its signals, its exits."""
    make_main(module)
    for name in [name for name in sys.modules if name.partition(".")[0] == "redraft"]:
        del sys.modules[name]  # no package that the code could ask for
    signal.signal(signal.SIGINT, bridge.interrupt)
    threading.excepthook = _thread_failed
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    sys.argv = [""]
    gc.freeze()  # what is here stays: no collection looks through it again
    gc.enable()


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not CellEnded:
        threading.__excepthook__(args)
