"""The embedded engine (xllamacpp): one server a model file and process, started when first used, ended with the process.

The only file that touches xllamacpp, whose API moves. Everything that blocks runs in daemon worker threads; this
module knows nothing of event loops, requests or completions.
"""

from __future__ import annotations

import atexit
import ctypes
import http.client
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from redraft.errors import BadRequestError, ContextOverflowError, LMError, LocalEngineError, RedraftError

OnChunk = Callable[[Mapping[str, Any]], bool]
"""Takes one chunk of a reply; True ends the generation there."""

_BATCH = 128
"""Prompt tokens between two signs of life. Larger ones are no faster on a CPU, and a call ends between two only."""
_GOODBYE_S = 5.0
_COUNT_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """What makes two calls share an engine."""

    path: Path
    threads: int
    ctx: int
    """Tokens of context of each slot: they are not pooled, since one long call would then fail all others."""
    slots: int


class Engine:
    """A server in this process. `sign` is when it last showed that it lives (`time.monotonic`)."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.sign = time.monotonic()
        self._starting = threading.Lock()
        self._server: Any = None
        self._key = secrets.token_hex(16)

    def chat(self, body: Mapping[str, Any], on_chunk: OnChunk) -> None:
        """One streamed chat completion; blocks until its end. Raises `LMError`, or what `on_chunk` raises."""
        failed: list[RedraftError] = []

        def take(chunk: Mapping[str, Any]) -> bool:
            # The engine drops what a callback raises, and goes on.
            self.touch()
            try:
                if "error" in chunk:
                    raise self._refusal(chunk["error"])
                return ending() or on_chunk(chunk)
            except RedraftError as error:
                failed.append(error)
                return True

        server = self._started()
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
        try:
            answer = server.handle_chat_completions(streamed, take)
        except (RuntimeError, ValueError, TypeError) as error:
            raise BadRequestError(f"the embedded engine refused the request: {error}") from error
        if isinstance(answer, Mapping):
            take(answer)
        if failed:
            raise failed[0]

    def count(self, messages: bytes) -> int | None:
        """Tokens of a prompt, exact; `messages` is a JSON body. None if the engine is not up or not quick to answer."""
        server = self._server
        if server is None:
            return None
        address = urlsplit(server.listening_address)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_COUNT_S)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/chat/completions/input_tokens", messages, headers)
            tokens = json.loads(connection.getresponse().read()).get("input_tokens")
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return tokens if isinstance(tokens, int) else None

    def touch(self) -> None:
        """Note a sign of life."""
        self.sign = time.monotonic()

    def stop(self) -> None:
        """End the server. Nobody may be in a call."""
        self._server = None

    def abandon(self) -> None:
        """Keep a server that may not be ended from ever being so: its threads stayed in the parent process."""
        if self._server is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))

    def _started(self) -> Any:
        with self._starting:
            if self._server is None:
                self._server = self._start()
                self.touch()
            return self._server

    def _start(self) -> Any:
        xllamacpp = _xllamacpp()
        params = xllamacpp.CommonParams()
        params.model.path = str(self.spec.path)
        params.model_alias = {self.spec.path.stem}
        params.n_parallel = self.spec.slots
        params.n_ctx = self.spec.ctx * self.spec.slots
        params.n_batch = params.n_ubatch = _BATCH
        params.cpuparams.n_threads = self.spec.threads
        params.cpuparams_batch.n_threads = os.cpu_count() or 1
        # The HTTP port is always open: without the key it answers nothing that matters.
        params.api_keys = [self._key]
        params.ui = params.endpoint_slots = params.warmup = params.fit_params = False
        params.cache_ram_mib = 0  # by default up to 8 GB of old prompts; the slots keep their own
        params.verbosity = -1
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise LocalEngineError(
                f"the embedded engine could not load {self.spec.path} ({self.spec.slots} slots of {self.spec.ctx:,} "
                f"tokens): {error} Is there memory for it? If the file is damaged, `redraft models pull` mends an embedded "
                "model; another must be a whole GGUF file."
            ) from error

    def _refusal(self, error: Mapping[str, Any]) -> LMError:
        code, said = error.get("code"), error.get("message", error)
        status = code if isinstance(code, int) else None
        if error.get("type") == "exceed_context_size_error":
            return ContextOverflowError(
                f"the prompt has {error.get('n_prompt_tokens', 0):,} tokens, the model's context holds "
                f"{error.get('n_ctx', self.spec.ctx):,}; shorten the prompt, or use a model with a longer context",
                status=status,
            )
        if status is not None and 400 <= status < 500:
            return BadRequestError(f"the embedded engine refused the request: {said}", status=status)
        return LocalEngineError(f"the embedded engine failed: {said}; try again", status=status, sent=True)


_lock = threading.Lock()
_engines: dict[EngineSpec, Engine] = {}
_workers: set[threading.Thread] = set()
_closing = threading.Event()
_hooked = False


def engine_for(spec: EngineSpec) -> Engine:
    """The process's one engine of that spec, not started yet if it is new."""
    with _lock:
        return _engines.setdefault(spec, Engine(spec))


def in_worker(work: Callable[[], None]) -> None:
    """Run something in a daemon thread of its own, which the process's end waits for (some seconds)."""
    global _hooked  # noqa: PLW0603 - hooks are installed once, and not by an import

    def run() -> None:
        try:
            work()
        finally:
            _workers.discard(thread)

    thread = threading.Thread(target=run, name="redraft-local", daemon=True)
    with _lock:
        if not _hooked:
            atexit.register(_end)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_forget)
            _hooked = True
        check_open()
        _workers.add(thread)
        thread.start()


def ending() -> bool:
    """True once the process has begun to end: calls are being cut off, and nobody should hear of it."""
    return _closing.is_set()


def check_open() -> None:
    """Raise if the process is ending."""
    if ending():
        raise LocalEngineError("this process is ending: the embedded engine takes no more calls")


def _end() -> None:
    """End all calls, then the engines: a thread that comes out of C++ into a Python that is gone kills the process."""
    _closing.set()
    latest = time.monotonic() + _GOODBYE_S
    for thread in [*_workers]:
        thread.join(max(0.0, latest - time.monotonic()))
    if not _workers:
        for engine in _engines.values():
            engine.stop()


def _forget() -> None:
    """In a forked child: the engines' threads did not come along, so it starts its own.

    Only for children that leave by `os._exit`, as those of multiprocessing do: otherwise xllamacpp's own static
    data waits for its threads for ever.
    """
    global _lock  # noqa: PLW0603 - another thread may have held it
    _lock = threading.Lock()
    for engine in _engines.values():
        engine.abandon()
    _engines.clear()
    _workers.clear()


def _xllamacpp() -> Any:
    # libgomp's threads spin while they wait; on busy cores that costs a factor of 50. It reads this when loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import xllamacpp
    except ImportError as error:
        raise LocalEngineError(
            f"the embedded engine cannot be loaded: {error}. It needs the OpenMP library: apt-get install libgomp1 "
            "(Debian, Ubuntu), dnf install libgomp (Fedora), apk add libgomp (Alpine)"
        ) from error
    return xllamacpp
