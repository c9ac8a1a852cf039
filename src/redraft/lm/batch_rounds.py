"""Rounds of calls: gathered, sent as one job, waited for, and handed back to those who still wait."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from redraft.errors import BadRequestError, LMError, RedraftError, StoreError, TransientLMError
from redraft.lm.batch_book import Round
from redraft.lm.batch_jobs import URL, Job

if TYPE_CHECKING:
    from redraft.lm.provider_batch import ProviderBatchLM

T = TypeVar("T")

_WINDOW = 26 * 3600.0
"""Seconds after which a job with a window of 24 hours is given up."""
_TRIES = 6
"""How often a file or job is refused for a fault of the provider's before its calls fail."""
_PAUSE_WHEN_CROWDED = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """When a round is sent, and how often its job is asked for. Seconds, requests, bytes."""

    quiet: float = 2.0
    """A round is sent when no call came for so long (and everybody who is expected waits)."""
    longest: float = 120.0
    """And at the latest so long after its first call: others may be waiting for room in a budget."""
    requests: int = 50_000
    """The most in one job; OpenAI takes no more."""
    size: int = 100_000_000
    """The most bytes in one job; OpenAI takes 200 MB."""
    poll: tuple[float, float] = (5.0, 60.0)
    """Between two looks at a job, at first and at most."""


@dataclass(slots=True, eq=False)
class Call:
    """One call that waits."""

    key: str
    who: str
    """The run that it belongs to: one item of a batch."""
    body: bytes
    answer: asyncio.Future[str | LMError]
    custom_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def line(self) -> bytes:
        """Its line of the input file."""
        told = self.body.decode().replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
        return f'{{"custom_id":"{self.custom_id}","method":"POST","url":"{URL}","body":{told}}}\n'.encode()

    def told(self, what: str | LMError) -> None:
        """The end of the wait."""
        if not self.answer.done():
            self.answer.set_result(what)


class _NobodyWaitsError(Exception):
    """All who wanted the round have left."""


@dataclass(slots=True, eq=False)
class _Followed:
    """A round whose job is followed on this loop."""

    calls: dict[str, Call] = field(default_factory=dict)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Desk:
    """One event loop's calls and rounds."""

    def __init__(self, lm: ProviderBatchLM, loop: asyncio.AbstractEventLoop) -> None:
        self._name, self._jobs, self._book, self._rounds = lm.name, lm.jobs, lm.book, lm.rounds
        self._expected: Callable[[], int] = lambda: lm.expected() if lm.expected else 0
        self._followers = lm.followers
        self._cancels = not lm.keep_jobs
        self._loop = weakref.ref(loop)
        self._forming: dict[str, Call] = {}
        self._size = 0
        self._newest = self._oldest = 0.0
        self._clock: asyncio.Task[None] | None = None
        self._followed: dict[str, _Followed] = {}

    def ask(self, call: Call) -> None:
        """Take the call: the reply that is there already, a place in a job that runs, or one in the next round."""
        line = self._book.claim(call.key, self._may_take)
        if line is None:
            self._add(call)
            return
        call.custom_id = line.custom_id
        if line.reply is not None:
            self._book.handed_out(line.custom_id)
            call.told(line.reply)
        else:
            self._follow(line.round, [call])

    def leave(self, call: Call) -> None:
        """Its caller is gone, with an answer or without."""
        if self._forming.pop(call.custom_id, None) is not None:
            self._size -= len(call.body)
        for followed in self._followed.values():
            if followed.calls.pop(call.custom_id, None) is not None:
                self._book.release(call.custom_id)
                if not followed.calls:
                    followed.left.set()
                return

    def _may_take(self, name: str) -> bool:
        """No other loop of this process follows the round."""
        other = self._followers.get(name)
        return other is None or other is self._loop() or other.is_closed()

    # Gathering

    def _add(self, call: Call) -> None:
        self._newest = time.monotonic()
        if not self._forming:
            self._oldest = self._newest
        self._forming[call.custom_id] = call
        self._size += len(call.body)
        if len(self._forming) >= self._rounds.requests or self._size >= self._rounds.size:
            self._send()
        elif self._clock is None or self._clock.done():
            self._clock = asyncio.ensure_future(self._until_complete())

    async def _until_complete(self) -> None:
        while self._forming:
            now = time.monotonic()
            late, quiet = self._oldest + self._rounds.longest, self._newest + self._rounds.quiet
            if now >= late or (now >= quiet and self._all_wait()):
                self._send()
                return
            await asyncio.sleep(max(0.001, min(late, quiet if now < quiet else now + self._rounds.quiet) - now))

    def _all_wait(self) -> bool:
        waiting = {call.who for call in self._forming.values()}
        for followed in self._followed.values():
            waiting.update(call.who for call in followed.calls.values())
        return len(waiting) >= self._expected()

    def _send(self) -> None:
        calls, self._forming, self._size = list(self._forming.values()), {}, 0
        name = uuid.uuid4().hex
        try:
            self._book.begin(name, ((call.custom_id, call.key) for call in calls))
        except StoreError as error:
            self._tell_all(calls, error)
            return
        self._follow(name, calls, b"".join(call.line() for call in calls))

    # A round's life

    def _follow(self, name: str, calls: list[Call], sends: bytes | None = None) -> None:
        """Wait for a round's replies on behalf of these calls. `sends` are its lines, if it was not sent yet."""
        followed = self._followed.get(name) or self._followed.setdefault(name, _Followed())
        followed.calls.update((call.custom_id, call) for call in calls)
        followed.left.clear()
        if followed.task is None:
            self._followers[name] = asyncio.get_running_loop()
            followed.task = asyncio.ensure_future(self._whole(name, followed, sends))
            followed.task.add_done_callback(lambda task: self._over(name, followed, task))

    def _over(self, name: str, followed: _Followed, task: asyncio.Task[None]) -> None:
        """Whatever came of it, nobody is left waiting."""
        followed.task = None
        calls, followed.calls = list(followed.calls.values()), {}
        self._followed.pop(name, None)
        self._followers.pop(name, None)
        if task.cancelled():  # the loop ends, and those who wait with it
            return
        error = task.exception()
        if error is None and calls:  # they came while the last one left
            self._follow(name, calls)
        elif error is not None and not calls:  # a job that could not be cancelled, say
            logging.getLogger("redraft").warning("a batch of %s that nobody waits for: %s", self._name, error)
        elif error is not None:
            self._tell_all(calls, error)

    def _tell_all(self, calls: list[Call], error: BaseException) -> None:
        for call in calls:
            self._book.release(call.custom_id)
            call.told(_another(error, self._name))

    async def _whole(self, name: str, followed: _Followed, sends: bytes | None) -> None:
        job_id = self._book.round(name).job_id
        try:
            if job_id is None:
                job_id = await self._made(name, followed, sends)
            if job_id is None:
                await self._afresh(followed)
                return
            job = await self._ended(name, job_id, followed)
            replies = await self._read(job, followed)
        except _NobodyWaitsError:
            if job_id is not None and self._cancels:
                await self._jobs.cancel(job_id)
            return
        good = {custom_id: line for custom_id, line in replies.items() if _is_reply(line)}
        self._book.collected(name, good)
        for custom_id in [*followed.calls]:
            call = followed.calls.pop(custom_id)
            if custom_id in good:
                self._book.handed_out(custom_id)
            call.told(replies.get(custom_id) or self._lost(job))

    async def _made(self, name: str, followed: _Followed, sends: bytes | None) -> str | None:
        """The id of the round's job. Without its lines (a dead process had them) it is looked for; None: it never was."""
        try:
            if sends is None:
                job_id = await self._patiently(followed, lambda: self._found(self._book.round(name)), lasting=True)
            else:
                file_id = await self._patiently(followed, lambda: self._jobs.upload(sends))
                self._book.uploaded(name, file_id)
                job_id = await self._patiently(followed, lambda: self._create(self._book.round(name), file_id))
        except (LMError, _NobodyWaitsError):
            if sends is not None:
                self._book.collected(name, {})
            raise
        if job_id is None:
            self._book.collected(name, {})
        else:
            self._book.created(name, job_id)
        return job_id

    async def _create(self, of: Round, file_id: str) -> str:
        try:
            return await self._jobs.create(file_id, of.name)
        except TransientLMError as error:
            made = await self._found(of) if error.sent else None  # the reply was lost, perhaps not the job
            if made is None:
                raise
            return made

    async def _found(self, of: Round) -> str | None:
        try:
            return await self._jobs.find(of)
        except BadRequestError:  # no such list: what is sent again is this one round at most
            return None

    async def _afresh(self, followed: _Followed) -> None:
        """The round was never sent: those who wait for it are part of the next one."""
        calls, followed.calls = list(followed.calls.values()), {}
        for call in calls:
            call.custom_id = uuid.uuid4().hex
            self._add(call)

    async def _ended(self, name: str, job_id: str, followed: _Followed) -> Job:
        """The job, when nothing more comes of it."""
        begun = self._book.round(name).begun
        wait, most = self._rounds.poll
        refusals = 0
        while True:
            try:
                job = await self._jobs.look(job_id)
                if job.ended:
                    return job
                refusals = 0
            except TransientLMError as error:  # the job goes on without us
                wait = max(wait, error.retry_after or 0.0)
            except LMError as error:  # of a key that is refused for a moment, say
                refusals += 1
                if refusals >= _TRIES:
                    raise self._lost_sight(name, job_id, error) from error
            if time.time() - begun > _WINDOW:
                self._book.collected(name, {})
                raise TransientLMError(f"the job {job_id} of {self._name} did not end within a day", sent=True)
            await self._pause(followed, wait)
            wait = min(wait * 1.5, most)

    def _lost_sight(self, name: str, job_id: str, error: LMError) -> LMError:
        """Of a job that is gone for good; or that the list goes on speaking of, for another day: it is paid for."""
        if isinstance(error, BadRequestError):
            self._book.collected(name, {})
            return TransientLMError(f"the job {job_id} of {self._name} is gone: {error}", sent=True)
        error.sent = True
        return error

    async def _patiently(self, followed: _Followed, ask: Callable[[], Awaitable[T]], *, lasting: bool = False) -> T:
        """What `ask` gives, in the end. Too many requests are waited out; other faults of the provider's so many times.

        `lasting`: there is a job. Then passing faults are waited out as long as anybody waits, and refusals so many times;
        what is raised then was sent and is paid for.
        """
        failures = refusals = 0
        wait, most = self._rounds.poll
        while True:
            try:
                return await ask()
            except TransientLMError as error:
                failures += error.status != 429
                if failures >= _TRIES and not lasting:
                    raise
                wait = wait if error.retry_after is None else max(wait, error.retry_after)
            except LMError as error:
                refusals += 1
                if not lasting:
                    raise
                if refusals >= _TRIES:
                    error.sent = True
                    raise
            await self._pause(followed, wait)
            wait = min(wait * 2, most)

    async def _pause(self, followed: _Followed, seconds: float) -> None:
        """Wait; raises `_NobodyWaitsError` as soon as nobody does."""
        try:
            async with asyncio.timeout(seconds):
                await followed.left.wait()
        except TimeoutError:
            return
        if not followed.calls:
            raise _NobodyWaitsError

    async def _read(self, job: Job, followed: _Followed) -> dict[str, str]:
        """The lines of its files by custom id; what cannot be read is as if it were missing.

        Raises what keeps a file from being had, if it may be had another day: the list then still says that it is there.
        """
        found: dict[str, str] = {}
        for file_id in job.files:
            try:
                lines = await self._patiently(followed, partial(self._jobs.lines, file_id), lasting=True)
            except BadRequestError:  # the file is gone: its lines are missing
                continue
            for raw in lines:
                try:
                    told = json.loads(raw)
                except ValueError:
                    continue
                if isinstance(told, dict) and isinstance(told.get("custom_id"), str):
                    found[told["custom_id"]] = raw.decode("utf-8", "replace")
        return found

    def _lost(self, job: Job) -> TransientLMError:
        """Of a call that the job's files say nothing of. The next try waits for nothing but the next round."""
        which = f"the job {job.id} of {self._name}"
        if job.status == "completed":
            return TransientLMError(
                f"{which} has ended without a readable line for this call", sent=True, retry_after=0
            )
        why = f"{which} ended as {job.status}" + (f": {job.why}" if job.why else "")
        if job.crowded:  # a smaller round may do: fewer calls at once
            return TransientLMError(why, status=429, retry_after=_PAUSE_WHEN_CROWDED)
        return TransientLMError(why, sent=job.status != "failed", retry_after=0)


def _is_reply(line: str) -> bool:
    told = json.loads(line)
    answer = told.get("response")
    return not told.get("error") and isinstance(answer, dict) and answer.get("status_code") == 200


def _another(error: BaseException, name: str) -> LMError:
    """The same for one more caller; what is no failure of the model's is one of its batches."""
    if isinstance(error, LMError):
        return copy(error)
    what = str(error) if isinstance(error, RedraftError) else f"{type(error).__name__}: {error}"
    return LMError(f"the batches of {name} failed: {what}")
