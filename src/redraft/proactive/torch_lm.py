"""A transformers model as an LM that takes tokens as they are, and proactive decoding as `generate(custom_generate=...)`.

Needs the extra `torch`. Nothing here is imported by anything else of redraft.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from redraft.errors import ConfigError, UnsupportedError
from redraft.lm.cut import CUT, Watch
from redraft.lm.openai_wire import refuse_unsupported
from redraft.proactive.backend import FIRSTS, KEPT, TEMPERATURES
from redraft.proactive.backtrack import DynamicBacktracker
from redraft.proactive.decode import Ask, Decoding, Draft, Judge, Plan, Rewind, Written
from redraft.proactive.signals import Signal
from redraft.proactive.tokens import Token, entry_of
from redraft.proactive.torch_session import Pick, Session, Stretch, greedy, sampled
from redraft.protocols import Delta, OnDelta
from redraft.record import derived_seed
from redraft.sync import call_user
from redraft.types import Capabilities, Choice, Completion, Request, Usage

_ASKED = 4096
_REFUSED = ("top_p", "stop", "effort")


class TransformersLM:
    """A model and its tokenizer. One call at a time; what it has computed of a text is kept for the next one."""

    takes_ids = True
    capabilities = Capabilities(n=True, logprobs=True, prefill=True, seed=True, temperature=True, stream=True)
    parallel = 1

    def __init__(self, model: Any, tokenizer: Any, *, name: str = "") -> None:
        self.name = name or f"transformers/{getattr(model.config, 'name_or_path', '') or type(model).__name__}"
        self.tokenizer = tokenizer
        self.session = Session(model.eval(), tokenizer)
        self.max_output: int | None = getattr(model.config, "max_position_embeddings", None)
        self._busy = threading.Lock()

    @classmethod
    def load(cls, path: str | Path, *, gguf: str | None = None, dtype: str = "float32") -> TransformersLM:
        """A model of a folder or a hub; `gguf` names a file in it, whose weights are read into `dtype`."""
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise ConfigError(
                f"a transformers model needs the extra `torch`: pip install 'redraft[torch]' ({error})"
            ) from error
        more = {"gguf_file": gguf} if gguf else {}
        model = AutoModelForCausalLM.from_pretrained(str(path), dtype=getattr(torch, dtype), **more)
        return cls(model, AutoTokenizer.from_pretrained(str(path), **more), name=f"transformers/{gguf or path}")

    def watched(self, watch: Watch) -> _Watched:
        """See `Backend`."""
        return _Watched(self, watch)

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:
        """One call. Cancelling it returns at once; the model is free at its next token."""
        return await self.reply(request, None, on_delta)

    async def reply(self, request: Request, watch: Watch | None, on_delta: OnDelta) -> Completion:
        """The same, watched in the thread that writes."""
        refuse_unsupported(request, self.capabilities, self.name)
        for name in _REFUSED:
            if getattr(request, name):
                raise UnsupportedError(f"{self.name} does not take {name!r}; leave it out", parameter=name)
        loop, left = asyncio.get_running_loop(), threading.Event()

        def heard(token: Token) -> bool:
            entry = entry_of(token)
            if on_delta is not None:
                text = token.data.decode("utf-8", "replace")
                loop.call_soon_threadsafe(on_delta, Delta(text=text, tokens=(entry,)))
            return left.is_set() or (watch is not None and watch([entry]))

        try:
            completion: Completion = await call_user(self._reply, request, heard)
        finally:
            left.set()
        return completion

    def _reply(self, request: Request, heard: Callable[[Token], bool]) -> Completion:
        with self._busy:
            prompt = self.prompt(request)
            before = self.session.computed
            known = self._stretches(prompt, request, heard)
            out = sum(len(stretch.tokens) for stretch in known)
            fresh = self.session.computed - before - out + len(known)
        usage = Usage(input_tokens=len(prompt), output_tokens=out, cached_tokens=max(len(prompt) - max(fresh, 1), 0))
        return Completion(choices=tuple(map(_choice, known)), model=self.name, usage=usage)

    def _stretches(self, prompt: list[int], request: Request, heard: Callable[[Token], bool]) -> list[Stretch]:
        cap = request.max_tokens or _ASKED
        seed = request.seed or 0
        if FIRSTS in request.extra:
            picks = [_pick(t, seed + i) for i, t in enumerate(request.extra[TEMPERATURES])]
            return self.session.branch(prompt, request.extra[FIRSTS], cap, picks)
        watch = heard if request.n == 1 else None
        return [self.session.write(prompt, cap, _pick(request.temperature, seed + i), watch) for i in range(request.n)]

    def prompt(self, request: Request) -> list[int]:
        """The ids that are continued: the chat's, and what is kept as it is."""
        messages = [dict(message) for message in request.messages]
        if getattr(self.tokenizer, "chat_template", None):
            ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        else:
            ids = self.tokenizer("\n\n".join(str(message["content"]) for message in messages))["input_ids"]
        kept = request.extra.get(KEPT)
        if kept is None and request.prefill:
            kept = self.tokenizer(request.prefill, add_special_tokens=False)["input_ids"]
        return [*ids, *(kept or ())]

    def count(self, request: Request) -> int | None:
        """The prompt's tokens, exact."""
        return len(self.prompt(request))

    def cost(self, usage: Usage) -> float | None:  # noqa: ARG002 - the contract's signature
        """Nothing: this machine does the work."""
        return 0.0


class _Watched:
    """The model with its replies watched."""

    def __init__(self, inner: TransformersLM, watch: Watch) -> None:
        self._inner, self._watch = inner, watch
        self.name, self.capabilities, self.parallel = inner.name, inner.capabilities, inner.parallel
        self.max_output, self.count, self.cost = inner.max_output, inner.count, inner.cost

    async def generate(self, request: Request, on_delta: OnDelta = None) -> Completion:
        return await self._inner.reply(request, self._watch, on_delta)


def _pick(temperature: float | None, seed: int) -> Pick:
    return sampled(temperature, seed) if temperature else greedy


def _choice(stretch: Stretch) -> Choice:
    text = b"".join(token.data for token in stretch.tokens).decode("utf-8", "ignore")
    finish = CUT if stretch.finish == "cut" else stretch.finish
    return Choice(text=text, finish_reason=finish, logprobs=tuple(map(entry_of, stretch.tokens)))


def proactive_generate(
    tokenizer: Any,
    *,
    guard: Callable[[str], str] = lambda _: "",
    signal: Signal | None = None,
    back: DynamicBacktracker | None = None,
    worth: Callable[[str], float] | None = None,
    seed: int = 0,
    on_rewind: Callable[[Rewind], None] | None = None,
) -> Callable[..., Any]:
    """A function for `model.generate(..., custom_generate=...)` that mends a text while it is written, outside any Run: nobody
    counts its tokens but the model. One text at a time; what `generate` was told of sampling and of its end holds.

    `guard` names what a text that begins like this cannot pass any more; `worth` judges a text that has ended, 1 or more passes.
    The ids returned are the best text's.
    """

    def run(
        model: Any, input_ids: Any, *, logits_processor: Any, stopping_criteria: Any, generation_config: Any, **_: Any
    ) -> Any:
        import torch

        if input_ids.shape[0] != 1:
            raise ConfigError(f"proactive_generate writes one text at a time, got a batch of {input_ids.shape[0]}")
        prompt = input_ids[0].tolist()
        room = stopping_criteria.max_length or generation_config.max_length
        plan = Plan(
            guard=guard, signal=signal, back=back or DynamicBacktracker(), max_tokens=room - len(prompt), seed=seed
        )
        pick = _as_generate(logits_processor, do_sample=bool(generation_config.do_sample))
        driver = _Driver(Session(model, tokenizer), prompt, pick, worth, on_rewind)
        return torch.tensor([[*prompt, *(token.id for token in driver.best(plan))]], device=input_ids.device)

    return run


def _as_generate(processor: Any, *, do_sample: bool) -> Pick:
    import torch

    def pick(ids: Sequence[int], logits: Any) -> int:
        scores = processor(torch.tensor([ids], device=logits.device), logits.to(dtype=torch.float32, copy=True))
        return int(torch.multinomial(torch.softmax(scores, dim=-1), 1) if do_sample else scores.argmax(dim=-1))

    return pick


class _Driver:
    """Carries out the steps on a session."""

    def __init__(self, session: Session, prompt: list[int], pick: Pick, *judging: Any) -> None:
        self.session, self.prompt, self.pick = session, prompt, pick
        self.worth, self.on_rewind = judging

    def best(self, plan: Plan) -> Sequence[Token]:
        """The tokens of the best text."""
        steps = Decoding(plan).steps()
        answer: Any = None
        best: tuple[float, Sequence[Token]] | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return best[1] if best else ()
            answer = None
            if isinstance(step, Ask):
                answer = self.written(step)
            elif isinstance(step, Judge):
                answer = [self.worth and self.worth(text) for text in step.texts]
            elif isinstance(step, Rewind):
                if self.on_rewind is not None:
                    self.on_rewind(step)
            else:
                best = self.better(best, step)
                answer = best[0] >= 1.0

    def better(self, best: tuple[float, Sequence[Token]] | None, draft: Draft) -> tuple[float, Sequence[Token]]:
        """The better one; of equals, the earlier."""
        value = self.value(draft.text) if draft.ended else -1.0
        return (value, draft.tokens) if best is None or value > best[0] else best

    def value(self, text: str) -> float:
        """What a text that has ended is worth; 1 where nothing is asked of it."""
        return 1.0 if self.worth is None else self.worth(text)

    def written(self, ask: Ask) -> list[Written]:
        """Write what is asked for."""
        ids = [*self.prompt, *(token.id for token in ask.kept)]
        [alone, *others] = ask.branches
        if others or alone.first is not None:
            firsts = [branch.first.id for branch in ask.branches if branch.first]
            place = f"{len(ids)}|{self.session.forwards}"
            picks = [sampled(b.temperature or 1.0, derived_seed(i, place)) for i, b in enumerate(ask.branches)]
            known = self.session.branch(ids, firsts, ask.cap, picks)  # type: ignore[arg-type]
        else:
            seen: list[Token] = []
            [watch] = ask.watch

            def heard(token: Token) -> bool:
                seen.append(token)
                return watch is not None and watch(seen)

            known = [self.session.write(ids, ask.cap, self.pick, heard)]  # type: ignore[arg-type]
        return [Written(tokens=stretch.tokens, finish=stretch.finish) for stretch in known]
