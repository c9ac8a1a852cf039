"""The embedded model as an LM: no key, no server, no cost.

The engine is `redraft.lm.engine`; where the model file comes from is `redraft.lm.catalogue`. A call runs in a worker
thread, so that neither loading nor generating holds up an event loop; any number of loops and threads may call.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from redraft.config import say_once
from redraft.errors import BadRequestError, ConfigError, LocalEngineError, ModelFetchError, RedraftError
from redraft.grammar import engine_grammar
from redraft.lm import catalogue, hub
from redraft.lm.engine import Engine, EngineSpec, check_open, ending, engine_for, in_worker
from redraft.lm.openai_wire import Reply, as_json, read_usage, refuse_unsupported, request_body
from redraft.protocols import Delta
from redraft.types import Capabilities, Choice, Completion, Request, Usage

OnDelta = Callable[[Delta], None]

_CAP = 1024
"""Tokens of a reply for which no cap was asked: a small model that loses the thread writes until its context is full."""
_PATIENCE_S = 120.0
_SEEDS = 2**32 - 1  # the engine reads the next number as "no seed"
_fetching = threading.Lock()


class LocalLM:
    """A model of the catalogue, or any GGUF file, run in this process.

    `path` (or `REDRAFT_LOCAL_MODEL`) names a file to use instead of the catalogue's, and the model is then called
    after it. `threads` decode (prompts are read by all cores), `ctx` tokens are each call's context (4,096 by
    default), `slots` calls run at once. Equal settings share one engine. A reply without a cap ends at 1,024 tokens. A
    model that is not on this machine is fetched by the first call, with one notice on stderr.
    """

    capabilities = Capabilities(
        json_schema=True, grammar=True, n=True, logprobs=True, prefill=True, seed=True, temperature=True, stream=True
    )
    overshoot = 1
    """Tokens that are still written when a call is cut short."""

    def __init__(
        self,
        name: str = catalogue.DEFAULT,
        *,
        path: str | Path | None = None,
        threads: int = 1,
        ctx: int | None = None,
        slots: int = hub.SLOTS,
    ) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError("the embedded model needs the package xllamacpp: pip install 'redraft[local]'")
        if min(threads, slots, ctx or 1) < 1:
            raise ConfigError(f"threads, ctx and slots must be at least 1, got {threads}, {ctx} and {slots}")
        own = catalogue.check_gguf(Path(path).expanduser().absolute(), "path") if path else catalogue.override()
        self._model = None if own else catalogue.lookup(name)
        stem = own is not None and (path is None or name == catalogue.DEFAULT)
        self.name = f"local/{own.stem if own and stem else name}"
        limit = self._model.ctx if self._model else hub.CTX
        self._spec = EngineSpec(
            path=own or catalogue.lookup(name).path, threads=threads, ctx=ctx or min(hub.CTX, limit), slots=slots
        )
        self.address = str(self._spec.path)
        """Where the model lies: files of one name in two folders share no cached reply."""
        self.max_output: int | None = self._spec.ctx
        self.parallel = slots
        self.patience = _PATIENCE_S
        """Seconds without any sign of life (a token, a piece of a prompt) after which the engine is given up."""
        self.on_fetch: catalogue.Progress | None = None
        """Called from a worker thread while the model is fetched, in place of the notice on stderr."""

    async def generate(self, request: Request, on_delta: OnDelta | None = None) -> Completion:
        """One call. Cancelling it returns at once; its slot is free at the next token, or piece of the prompt."""
        refuse_unsupported(request, self.capabilities, self.name)
        engine = engine_for(self._spec)
        call = _Call(self, engine, request, on_delta)
        in_worker(call.run)
        started = time.monotonic()
        try:
            while not call.reply.done():
                patience = self.patience - (time.monotonic() - max(started, engine.sign))
                if patience <= 0:
                    raise LocalEngineError(
                        f"{self.name} gave no sign of life for {self.patience:g} s; use a smaller model or prompt, or "
                        "restart the process",
                        sent=True,
                    )
                await asyncio.wait({call.reply}, timeout=patience)
            return call.reply.result()
        finally:
            call.give_up()

    def count(self, request: Request) -> int | None:
        """The prompt's tokens, exact; None until the engine runs."""
        try:
            body = as_json({"messages": request_body(request, self.name, cap_name="max_tokens")["messages"]})
        except BadRequestError:
            return None
        return engine_for(self._spec).count(body)

    def cost(self, usage: Usage) -> float | None:  # noqa: ARG002 - the contract's signature
        """Nothing: this machine does the work."""
        return 0.0

    def _fetch(self, engine: Engine) -> None:
        """Have the model file on this machine; one call fetches, the others wait for it."""

        def progress(done: int, total: int) -> None:
            engine.touch()
            check_open()
            if self.on_fetch is not None:
                self.on_fetch(done, total)

        model = self._model
        if model is None or model.pulled:
            return
        with _fetching:
            check_open()
            if not model.pulled and self.on_fetch is None:
                say_once(
                    f"redraft: fetching {model.name} ({model.size / 1e6:.0f} MB, {model.licence}) once into "
                    f"{model.path.parent}"
                )
            try:
                catalogue.fetch(model, progress)
            except ModelFetchError as error:
                raise LocalEngineError(str(error)) from error


class _Call:
    """One call in flight: its future belongs to the caller's loop, everything else to the worker thread."""

    def __init__(self, lm: LocalLM, engine: Engine, request: Request, on_delta: OnDelta | None) -> None:
        self._lm, self._engine, self._request, self._on_delta = lm, engine, request, on_delta
        self._loop = asyncio.get_running_loop()
        self.reply: asyncio.Future[Completion] = self._loop.create_future()
        self._given_up = False
        self._parts = Reply(lm.name)
        self._usages: list[Usage] = []

    def give_up(self) -> None:
        """The caller has left; the engine learns it at its next sign of life."""
        self._given_up = True
        self.reply.cancel()

    def run(self) -> None:
        """In the worker thread: do the work, and tell the caller how it ended, whatever happens."""
        outcome: Completion | RedraftError = LocalEngineError(
            "a fault in redraft ended the call; see stderr", sent=True
        )
        try:
            outcome = self._work()
        except RedraftError as error:
            outcome = error
        finally:
            if not ending():
                self._tell(self._settle, outcome)

    def _settle(self, outcome: Completion | RedraftError) -> None:
        if self.reply.done():
            return
        if isinstance(outcome, RedraftError):
            self.reply.set_exception(outcome)
        else:
            self.reply.set_result(outcome)

    def _tell(self, to: Callable[[Any], object], what: object) -> None:
        try:
            self._loop.call_soon_threadsafe(to, what)
        except RuntimeError:  # the caller's loop is closed
            self._given_up = True

    def _work(self) -> Completion:
        request = self._request
        body = self._body()
        self._lm._fetch(self._engine)
        # The engine takes at most as many choices as it has slots. It seeds choice i with seed + i.
        for first in range(0, request.n, self._lm.parallel):
            seed = None if request.seed is None else (request.seed + first) % _SEEDS
            n = min(self._lm.parallel, request.n - first)
            part = {**body, "n": n} if seed is None else {**body, "n": n, "seed": seed}
            if not self._given_up:
                self._engine.chat(part, partial(self._take, first))
        done = self._parts.completion()
        choices = tuple(_trimmed(choice, request.logprobs) for choice in done.choices)
        return Completion(choices=choices, model=self._lm.name, usage=_sum(self._usages))

    def _body(self) -> dict[str, Any]:
        request = self._request
        if request.grammar is not None and request.schema is not None:
            raise BadRequestError(f"{self._lm.name} takes a schema or a grammar, not both: put one into the other")
        if request.grammar is not None:
            request = replace(request, grammar=engine_grammar(request.grammar))
        body = request_body(request, self._lm.name, cap_name="max_tokens")
        body.setdefault("max_tokens", min(_CAP, self._lm._spec.ctx))
        if request.logprobs is not None:
            body["top_logprobs"] = max(1, request.logprobs)  # with 0 the engine reports none at all
        plain: dict[str, Any] = json.loads(as_json(body))
        return plain

    def _take(self, first: int, chunk: Mapping[str, Any]) -> bool:
        usage = read_usage(chunk.get("usage"))
        if usage is not None:
            self._usages.append(usage)
        choices = [{**choice, "index": choice.get("index", 0) + first} for choice in chunk.get("choices", ())]
        for delta in self._parts.add({"choices": choices}):
            if self._on_delta is not None:
                self._tell(self._on_delta, delta)
        return self._given_up


def _sum(usages: list[Usage]) -> Usage | None:
    """Choices share one prompt: it is counted once, and cached as far as it was for each."""
    if not usages:
        return None
    return Usage(
        input_tokens=max(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        cached_tokens=min(usage.cached_tokens for usage in usages),
    )


def _trimmed(choice: Choice, top: int | None) -> Choice:
    """The choice with as many alternatives a token as were asked for."""
    if choice.logprobs is None or top is None:
        return choice
    tokens = tuple({**token, "top_logprobs": token["top_logprobs"][:top]} for token in choice.logprobs)
    return replace(choice, logprobs=tokens)


def lm(model: str = catalogue.DEFAULT, *, base_url: str | None = None) -> LocalLM:
    """What the registry calls for `local/NAME`, `local/FILE.gguf` and `local/OWNER/REPO/FILE.gguf`, pulled from a hub.

    A file of that path goes before a pulled model of that name.
    """
    if base_url is not None:
        raise ConfigError(f"local/{model} runs in this process and takes no base URL, got {base_url!r}; leave it out")
    if not model.endswith(".gguf"):
        return LocalLM(model)
    if hub.looks_like_one(model) and not Path(model).is_file():
        return LocalLM(str(hub.parse(model)), path=hub.find(model))
    return LocalLM(path=model)
