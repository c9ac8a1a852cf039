"""Starting and ending the jailed process.

It is started by a thread that lives as long as this process: the kernel kills it when the thread that started it is no
more, so it cannot outlive its host, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import marshal
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from types import CodeType

from redraft.errors import SandboxError

_CHILD = "redraft.sandbox.child"
_MODULES = (
    *(f"{_CHILD}.{name}" for name in ("syscalls", "lockdown", "probes", "wire", "show", "bridge", "repl", "main")),
    "redraft.sandbox.prelude",
)
_BOOT = f"""
import gc, marshal, os, sys
from types import ModuleType
gc.disable()  # until all is loaded
fd = int(sys.argv[1])
for name, code in marshal.loads(os.pread(fd, os.fstat(fd).st_size, 0)):
    module = sys.modules[name] = ModuleType(name)
    module.__path__ = []
    file = "<redraft " + name.rpartition(".")[2] + ">"
    exec(compile(code, file, "exec") if isinstance(code, str) else code, vars(module))
    parent, _, leaf = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, module)
sys.modules["{_CHILD}.main"].main(sys.modules["redraft.sandbox.prelude"])
"""
_OPTIONS = ("-s", "-S", "-P", "-B", "-X", "utf8", "-X", "frozen_modules=on")
_SEALS = 0xF  # F_SEAL_SEAL, SHRINK, GROW, WRITE
_REFUSED = (OSError, subprocess.SubprocessError, ValueError, TypeError, RuntimeError, MemoryError)
"""What `Popen` raises: for the system, for a command that is none, at the interpreter's end."""
_HANDED_ON = ("LD_LIBRARY_PATH", "PYTHONHOME")  # without them some Pythons do not start; the code does not see them


class Process:
    """A jailed process and the two ends of it: `socket` (`wire`) for frames, `output` for what it writes. Neither blocks."""

    def __init__(self, popen: subprocess.Popen[bytes], wire: socket.socket, output: int) -> None:
        self.popen = popen
        self.socket = wire
        self.output = output
        self.wire = wire.fileno()
        self.poll = select.poll()
        self.poll.register(self.wire, select.POLLIN)
        self.poll.register(output, select.POLLIN)
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self._end = weakref.finalize(self, _end, popen, wire, output, os.getpid())

    def kill(self) -> None:
        """Kill it and what was in front of it; `reap` collects it."""
        _kill(self.popen)

    def interrupt(self) -> None:
        """Ask its code to stop."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGINT)

    def reap(self) -> int:
        """Kill it, wait until it is gone, and say how it ended, as `Popen.returncode`."""
        self.kill()
        return self.popen.wait()

    def end(self) -> None:
        """Kill and reap it, and close its ends."""
        self._end()


def start(prefix: Sequence[str], python: str, handed: Sequence[int]) -> Process:
    """A new process that waits for its first frame. It inherits `handed`. Blocks for some milliseconds.

    Raises `SandboxError` if it cannot be started.
    """
    try:
        bundle = _bundle(compiled=python == sys.executable)
        ours, theirs, read, write = _ends()
    except OSError as error:
        raise SandboxError(f"the sandbox could not be started: {error.strerror}") from error
    command = [*prefix, python, *_OPTIONS, "-c", _BOOT, str(bundle)]
    env = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": "UTC"}
    env |= {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
    if prefix:
        env["PATH"] = os.environ.get("PATH", os.defpath)
    try:
        popen = _in_spawner(
            lambda: subprocess.Popen(  # noqa: S603 - the command is the caller's
                command,
                stdin=theirs.fileno(),
                stdout=write,
                stderr=write,
                pass_fds=(bundle, *handed),
                start_new_session=True,
                env=env,
                cwd="/",
            )
        )
    except _REFUSED as error:
        ours.close()
        os.close(read)
        raise SandboxError(f"the sandbox could not be started: {command[0]}: {error}") from error
    finally:
        theirs.close()
        os.close(write)
    ours.setblocking(False)
    os.set_blocking(read, False)
    return Process(popen, ours, read)


def _ends() -> tuple[socket.socket, socket.socket, int, int]:
    ours, theirs = socket.socketpair()
    try:
        return ours, theirs, *os.pipe()
    except OSError:
        ours.close()
        theirs.close()
        raise


def _kill(popen: subprocess.Popen[bytes]) -> None:
    if popen.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, signal.SIGKILL)


def _end(popen: subprocess.Popen[bytes], wire: socket.socket, output: int, host: int) -> None:
    if os.getpid() == host:  # a forked copy of the host has only copies of the descriptors to close
        _kill(popen)
        popen.wait()
    wire.close()
    os.close(output)


@cache
def _code(*, compiled: bool) -> bytes:
    """The child's modules, as code for this very Python or as text for another."""
    parts: list[tuple[str, str | CodeType]] = [(name, "") for name in ("redraft", "redraft.sandbox", _CHILD)]
    for name in _MODULES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        text: str = spec.loader.get_source(name)  # type: ignore[attr-defined]
        file = f"<redraft {name.rpartition('.')[2]}>"
        parts.append((name, compile(text, file, "exec", dont_inherit=True) if compiled else text))
    return marshal.dumps(parts)


_bundles: dict[tuple[int, bool], int] = {}
_lock = threading.Lock()


def _bundle(*, compiled: bool) -> int:
    """A descriptor of the child's code, kept for all jails of this process."""
    with _lock:
        key = (os.getpid(), compiled)
        if key not in _bundles:
            fd = os.memfd_create("redraft", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(_code(compiled=compiled))
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)  # every jail is handed it, none may write to it
            _bundles[key] = fd
        return _bundles[key]


# The thread that starts them.

_Job = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]
_spawner: tuple[int, queue.SimpleQueue[_Job]] | None = None


def _in_spawner(job: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    global _spawner  # noqa: PLW0603 - one thread a process is the point
    with _lock:
        if _spawner is None or _spawner[0] != os.getpid():
            jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
            threading.Thread(target=_spawn, args=(jobs,), name="redraft-spawner", daemon=True).start()
            _spawner = os.getpid(), jobs
        done: Future[subprocess.Popen[bytes]] = Future()
        _spawner[1].put((job, done))
    return done.result()


def _spawn(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        job, done = jobs.get()
        try:
            done.set_result(job())
        except _REFUSED as error:  # any other would end this thread, and every jail with it
            done.set_exception(error)
        del job, done  # a waiting thread must not keep a process alive
