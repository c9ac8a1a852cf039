"""One async core, one sync face: the private loop thread, and worker threads for users' `def` functions.

Worker threads are spawned on demand and never limited in number: a nested user module that waits for its children
would deadlock any fixed pool. They are daemons, so that Ctrl-C ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from redraft.errors import RunClosed, SyncOnLoopError

T = TypeVar("T")

_IDLE_SECONDS = 10.0
_GOODBYE = 0.2  # seconds that interrupted sync calls get to close their connections

_GRACE = 0.04  # seconds after a deadline or a cancellation for code to end by itself
_LAST = 0.11  # seconds after which nobody is waited for any more
_LOOK = 0.5  # seconds between two looks at whether the loop still runs
_ENDED = "the event loop of this run has ended; start a new run"

generation = 0
"""Goes up in a forked process: what lives on a loop of the parent is out of reach there."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def private_loop() -> asyncio.AbstractEventLoop:
    """The loop behind every sync call, running in a daemon thread of its own; started on first use."""
    global _loop  # noqa: PLW0603 - one loop a process is the point
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_run_forever, args=(_loop,), name="redraft-loop", daemon=True).start()
        return _loop


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        with contextlib.suppress(SystemExit, KeyboardInterrupt):  # one task's exit must not end everybody's loop
            loop.run_forever()


def run_sync(make: Callable[[], Coroutine[Any, Any, T]], home: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a coroutine to its end from sync code, in a copy of the caller's context.

    `home` is the loop of the run that the caller is part of; by default the private loop. An interrupt (Ctrl-C)
    cancels the coroutine. Raises `SyncOnLoopError` on the loop that would have to run it.
    """
    loop = home or private_loop()
    if _running_loop() is loop:
        raise SyncOnLoopError(
            "a sync call was made on the event loop that would have to run it, which would wait for itself; "
            "write `await module.acall(...)` there"
        )
    finished = threading.Event()

    async def whole() -> T:
        try:
            return await make()
        finally:
            finished.set()

    coroutine = whole()
    done = _start(coroutine, loop)
    try:
        return _outcome(done, coroutine, loop)
    except KeyboardInterrupt:
        done.cancel()
        finished.wait(_GOODBYE)
        raise


def _outcome(done: Future[T], coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Wait for the end; a loop that closed with the call still in its queue will never come to it."""
    while True:
        try:
            return done.result(_LOOK)
        except TimeoutError:
            if done.done():
                raise
            if loop.is_closed():
                coroutine.close()
                raise RunClosed(_ENDED) from None


def call_on(loop: asyncio.AbstractEventLoop | None, fn: Callable[[], T]) -> T:
    """Call a function on a loop (None: this one), from whatever thread this is, and wait for it."""
    if loop is None or _running_loop() is loop:
        return fn()

    async def call() -> T:
        return fn()

    return run_sync(call, home=loop)


def submit(make: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop) -> Future[T]:
    """Start a coroutine on another thread's loop, in a copy of the caller's context."""
    return _start(make(), loop)


def _start(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError as error:
        coroutine.close()
        raise RunClosed(_ENDED) from error


async def on_loop(make: Callable[[], Coroutine[Any, Any, T]], home: asyncio.AbstractEventLoop | None) -> T:
    """Await a coroutine on the run's own loop, from whichever loop this is."""
    if home is None or asyncio.get_running_loop() is home:
        return await make()
    return await asyncio.wrap_future(submit(make, home))


class LeftBehind(Exception):
    """Work did not end in time and goes on without anyone waiting for it."""


async def supervised(
    work: Coroutine[Any, Any, T], left: float | None, stop: asyncio.Future[None], inner: Callable[[], bool]
) -> T:
    """Await work until its end, for `left` seconds, or until `stop`.

    Then it gets a moment to end by itself with its best so far, and waits for the runs nested in it to end first
    (`inner` says whether there are any); then it is cancelled, and left behind if it ignores that: `LeftBehind`.
    """
    task = asyncio.ensure_future(work)
    try:
        both: set[asyncio.Future[Any]] = {task, stop}
        await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        last = task.get_loop().time() + _LAST
        await asyncio.wait({task}, timeout=_GRACE)
        while not task.done() and inner() and task.get_loop().time() < last:
            await asyncio.wait({task}, timeout=_GRACE / 8)
        if not task.done():
            await asyncio.wait({task}, timeout=_GRACE / 4)
        if task.done():
            return task.result()
        raise LeftBehind
    finally:
        stop.cancel()
        await leave_behind(task, _GRACE / 2)


def seen(task: asyncio.Future[Any]) -> None:
    """A done-callback: whoever was to read the error may have left, and the loop need not report it."""
    if not task.cancelled():
        task.exception()


async def leave_behind(task: asyncio.Task[Any], goodbye: float) -> None:
    """Cancel a task, give its connections a moment to close, and go on without it, even if it ignores that."""
    task.add_done_callback(seen)
    if task.cancel():
        await asyncio.wait({task}, timeout=goodbye)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that must not stay half done, such as an end. Cancellations that come meanwhile (anyio sends them again and
    again) take effect afterwards.
    """
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    seen(task)
    raise cancelled


def being_cancelled() -> bool:
    """True if somebody cancels this task; False if code inside it raised the error by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def in_thread(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call a user's `def` in a daemon worker thread, in a copy of the caller's context.

    Cancelling abandons the thread: it cannot be stopped, but the closed run sells it nothing more.
    """
    context = contextvars.copy_context()
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # from here on only the thread sets it

    def job() -> None:
        try:
            done.set_result(context.run(fn, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - user code; carried to the awaiting task
            done.set_exception(_sendable(error))

    _worker().put(job)
    return await asyncio.wrap_future(done)


async def call_user(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call anything of a user's: a module (`acall`), `async def` (the fast path), or `def` (in a worker thread)."""
    try:
        return await _call(fn, *args, **kwargs)
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _ordinary(error) from error


async def _call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if hasattr(fn, "acall"):
        return await fn.acall(*args, **kwargs)
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None)):  # noqa: B004
        return await fn(*args, **kwargs)
    value = await in_thread(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


class _Worker:
    """A daemon thread that waits a while for its next job."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="redraft-worker", daemon=True).start()

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with _lock:
                    if self in _idle:
                        _idle.remove(self)
                        return
                continue  # taken off the idle list meanwhile: its job is on the way
            _busy.add(self)
            job()
            _busy.discard(self)
            del job  # a waiting thread must not keep the user's objects alive
            with _lock:
                _idle.append(self)


_idle: list[_Worker] = []
_busy: set[_Worker] = set()


def in_foreign_thread() -> bool:
    """True in a thread that is neither the main one nor ours, while user code of some run is at work in ours."""
    here = threading.current_thread()
    return bool(_busy) and here is not threading.main_thread() and not here.name.startswith("redraft-")


def _worker() -> _Worker:
    with _lock:
        if _idle:
            return _idle.pop()
    return _Worker()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _sendable(error: BaseException) -> BaseException:
    """A future refuses StopIteration: it would end the awaiting coroutine silently."""
    ordinary = isinstance(error, Exception | asyncio.CancelledError) and not isinstance(error, StopIteration)
    return error if ordinary else _ordinary(error)


def _ordinary(error: BaseException) -> RuntimeError:
    """What is raised past every handler (an exit, a panic of native code) would end the loop, and every run with it."""
    if isinstance(error, SystemExit):
        return RuntimeError(f"user code called sys.exit({error.code!r}); return, or raise an ordinary error")
    return RuntimeError(f"user code raised {type(error).__name__}: {error}")


def _after_fork() -> None:
    global _loop, _lock, _idle, generation  # the child has none of the parent's threads
    _lock, _loop, _idle, generation = threading.Lock(), None, [], generation + 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
