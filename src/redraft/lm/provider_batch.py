"""A model through its provider's Batch API, at half price: calls that wait together go out as one job."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from redraft.errors import ConfigError, LMError, TransientLMError
from redraft.frame import payer
from redraft.lm.batch_book import Book
from redraft.lm.batch_jobs import Jobs
from redraft.lm.batch_rounds import Call, Desk, Rounds
from redraft.lm.openai import OpenAILM
from redraft.lm.openai_errors import Refusal
from redraft.lm.openai_wire import Reply, as_json, refuse_unsupported
from redraft.protocols import LM, OnDelta
from redraft.record import content, digest
from redraft.turns import Gate
from redraft.types import Completion, Request, Usage

_OTHER_WORDS = frozenset({400, 422})
"""Statuses of a transient refusal: the next try, in other words, may go out in a job as well."""
_UNSPENT = frozenset({"batch_expired", "batch_cancelled"})
"""Codes of lines that were never worked on."""


class ProviderBatchLM:
    """The same model as `inner`, an OpenAI-compatible one, asked through `/v1/files` and `/v1/batches`.

    A call waits until its round is sent (`rounds` says when) and its job has ended: minutes to a day. Use it where many
    items work at once. `expected` tells how many of them do; then a round waits for them all. `path` is a file that
    remembers which requests are in which job: a new process finds the jobs of a killed one, and takes their replies for
    the same calls of the same run. `retry_online`: a call that failed in a job is made online, at full price, when it is
    tried again. A job that nobody waits for any more is cancelled, unless `keep_jobs`.

    What failed in a job, or with it, raises `TransientLMError`, so that Run tries it again; what the model refuses
    raises what it would online. `cost` is half of the inner model's.
    """

    def __init__(
        self,
        inner: LM,
        *,
        path: str | Path | None = None,
        retry_online: bool = False,
        keep_jobs: bool = False,
        expected: Callable[[], int] | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        if not isinstance(inner, OpenAILM):
            raise ConfigError(
                f"{inner.name} has no Batch API that redraft can use: provider batches need a model behind an "
                "OpenAI-compatible endpoint (openai/..., or any name with --base-url)"
            )
        self.inner = inner
        self.name = inner.name
        """The inner model's: a run may go on online, and buys no reply again."""
        self.address = inner.address
        self.capabilities = replace(inner.capabilities, stream=False)
        self.max_output = inner.max_output
        self.rounds = rounds or Rounds()
        self.parallel = self.rounds.requests
        self.retry_online = retry_online
        self.keep_jobs = keep_jobs
        self.expected = expected
        self.jobs = Jobs(inner)
        self.book = Book(path)
        self.followers: WeakValueDictionary[str, asyncio.AbstractEventLoop] = WeakValueDictionary()
        """The loop on which a round's job is followed: two would both take its replies."""
        self._desks: WeakKeyDictionary[asyncio.AbstractEventLoop, Desk] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._online = Gate(inner.parallel)
        self._failed: set[str] = set()

    async def check(self) -> None:
        """Raises `LMError` if the upstream cannot be reached, refuses the key or has no Batch API. Costs nothing."""
        await self.jobs.check()

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:
        """One call, as a line of a job."""
        refuse_unsupported(request, self.capabilities, self.name)
        body = self.inner._body(request)
        line = as_json(body)
        run, key = self._key(request)
        if key in self._failed:
            return await self._now(key, request, on_delta)
        call = Call(key, run or key, line, asyncio.get_running_loop().create_future())
        desk = self._desk()
        try:
            desk.ask(call)
            told = await call.answer
            if isinstance(told, LMError):
                raise told
            return self._completion(told, body, request)
        except TransientLMError as error:
            if self.retry_online and error.status not in _OTHER_WORDS:
                self._failed.add(key)
            raise
        finally:
            desk.leave(call)

    def under_way(self, request: Request) -> bool:
        """True if an earlier process has sent this call in a job whose reply is there, or may come: `generate` takes it up."""
        return self.book.has(self._key(request)[1])

    def _key(self, request: Request) -> tuple[str, str]:
        """The run that asks; and the same for the same call of that run, whatever its cap is now: its reply is paid for."""
        frame = payer()
        run = frame.run.root.run_id if frame else ""
        return run, digest(f"{self.address}|{run}|{frame.scope if frame else ''}|{content(self.name, request)}")

    async def _now(self, key: str, request: Request, on_delta: OnDelta) -> Completion:
        """Online, because it failed in a job."""
        entered = await self._online.enter()
        try:
            completion = await self.inner.generate(request, on_delta)
        finally:
            self._online.leave(entered)
        self._failed.discard(key)
        return completion

    def count(self, request: Request) -> int | None:
        """As the inner model does."""
        return self.inner.count(request)

    def cost(self, usage: Usage) -> float | None:
        """Half of what the inner model costs. With `retry_online`, only replies out of jobs cost half: all else, reservations
        too, is priced in full, so that a money limit holds whichever way a call goes.
        """
        whole = self.inner.cost(usage)
        if whole is None or (self.retry_online and not isinstance(usage, _Halved)):
            return whole
        return whole / 2

    def close(self) -> None:
        """Let go of the file."""
        self.book.close()

    def _desk(self) -> Desk:
        loop = asyncio.get_running_loop()
        with self._lock:
            desk = self._desks.get(loop)
            if desk is None:
                desk = self._desks[loop] = Desk(self, loop)
            return desk

    def _completion(self, line: str, body: dict[str, Any], request: Request) -> Completion:
        """Out of one line of a job's output or errors."""
        inner = self.inner
        upstream = inner._host if request.tools else ""
        reply = Reply(self.name, upstream=upstream, in_thought=inner._opens_thinking)
        told = json.loads(line)
        answer, error = told.get("response"), told.get("error")
        if error:
            said = Refusal.read(None, {"error": error})
            raise TransientLMError(
                f"{self.name} did not answer in its job: {said.message}",
                sent=said.code not in _UNSPENT,
                retry_after=0,  # it has waited long enough, and in the next round with the others
            )
        if not isinstance(answer, dict):
            raise reply.garbled("a line of the job's output has no response")
        status, raw = answer.get("status_code"), answer.get("body")
        if status != 200:
            raise inner._explained(Refusal.read(status if isinstance(status, int) else None, raw), body)
        try:
            reply.add(inner._whole(raw, body))
        except ValueError as broken:
            raise reply.garbled(f"not JSON ({broken})") from broken
        completion = reply.completion()
        inner._opens_thinking = reply.lone or (inner._opens_thinking and not reply.bare)
        if completion.usage is None or not self.retry_online:
            return completion
        amounts = {field.name: getattr(completion.usage, field.name) for field in fields(Usage)}
        return replace(completion, usage=_Halved(**amounts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Halved(Usage):
    """The usage of a reply out of a job."""
