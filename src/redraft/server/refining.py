"""One request to a preset, refined: a run for it, ended with it, and what the client is told of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redraft.budget import Meter
from redraft.config import context
from redraft.errors import ParseError, RedraftError, UnsupportedError
from redraft.lm.openai_wire import OPTIONAL
from redraft.modules.wire import TOOL_CALLS
from redraft.protocols import Store
from redraft.record import completion_from
from redraft.refusals import refused_by
from redraft.result import Result
from redraft.run import Run
from redraft.server.asked import PREFIX, Answer, Asked
from redraft.server.conversation import INPUT
from redraft.server.presets import Plan
from redraft.server.refusal import Refusal
from redraft.server.toolcalls import Turn, forbidden_in, named_in
from redraft.strategies.ladder import last_reply
from redraft.sync import seen
from redraft.turns import gate_of
from redraft.types import Attempt, Choice, Completion, Event, StopReason, Usage

Tell = Callable[[Mapping[str, Any]], None]
"""Told of a draft or a critique while the run goes on."""

_CLIENTS_OWN = ("temperature", "top_p", "seed", "logprobs", "effort")
"""What a run drops where a model refuses it: not where the client set it. A stop that is not taken is cut at here."""
_GOODBYE = 0.15
"""Seconds that a run gets to end when its client has left; its calls are cut off at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """A run that has ended, and its answer."""

    answer: Answer
    results: tuple[Result, ...]
    usage: Usage


class Refining:
    """One request's run."""

    def __init__(
        self,
        asked: Asked,
        plans: Sequence[Plan],
        *,
        run_id: str,
        store: Store | None,
        around: Meter | None = None,
        tell: Tell | None = None,
        patience: float = 10.0,
        listeners: Sequence[Callable[[Event], None]] = (),
    ) -> None:
        self.asked, self.plans, self.plan = asked, plans, plans[0]
        self.progress = _Progress(asked, tell) if tell is not None else None
        self._begun = time.perf_counter()
        self._patience = patience
        self._ends: UnsupportedError | Refusal | None = None
        """Why it was ended from here."""
        self._status = 503
        self._set = _set_fields(asked)
        hears: list[Callable[[Event], None]] = [self._hear, *listeners, *([self.progress] if self.progress else [])]
        self.run = Run(
            budget=self.plan.budget, store=store, run_id=run_id, seed=asked.request.seed, listeners=hears, around=around
        )
        self.run.journal.spec = {
            "strategy": self.plan.name,
            "task": _last_text(asked),
            "preset": asked.preset,
            "inputs": {INPUT: [*map(dict, asked.request.messages)]},
            **({"auto": dict(self.plan.auto)} if self.plan.auto else {}),
        }

    async def answer(self) -> Refined:
        """Run to the end. If the caller is cancelled, so is the whole tree of calls. Raises `RedraftError` or `Refusal`."""
        task = asyncio.ensure_future(self._results())
        try:
            results = await asyncio.shield(task)
        except asyncio.CancelledError:
            self.run.cancel()
            await asyncio.wait({task}, timeout=_GOODBYE)
            task.cancel()
            task.add_done_callback(seen)
            raise
        except RedraftError:
            if self._ends is not None:
                raise self._ends from None
            raise
        if isinstance(self._ends, UnsupportedError):
            raise self._ends
        return self._refined(results)

    async def _results(self) -> list[Result]:
        inputs = {INPUT: [*self.asked.request.messages]}
        with context(model=self.plan.lm):  # critics and judges without a model of their own ask this one, too
            if len(self.plans) == 1:
                return [await self.run.execute(self.plan.strategy, inputs)]
            async with self.run:
                return await _all(Run().execute(plan.strategy, inputs) for plan in self.plans)

    def _hear(self, event: Event) -> None:
        """What the client set is honoured or refused, never dropped; and whoever has a client waiting waits for no upstream
        that wants nothing for a minute: the client is told when to come back.
        """
        told = event.data
        if event.kind == "call_failed" and told.get("status"):
            self._status = int(told["status"])
        elif event.kind == "retry" and told["wait"] > self._patience:
            self._ends = Refusal(self._status, str(told["error"]), code="upstream_error", retry_after=told["wait"])
            self.run.cancel()
        elif event.kind == "dropped" and told["parameter"] in self._set and not told.get("parts"):
            self._ends = UnsupportedError(str(told["error"]), parameter=str(told["parameter"]), status=400)
            self.run.cancel()

    def _refined(self, results: Sequence[Result]) -> Refined:
        for result, plan in zip(results, self.plans, strict=True):
            self._check(result)
            _refuse_forbidden(result, plan)
        pairs = zip(results, self.plans, strict=True)
        choices = tuple(choice_of(self.run, result, plan.strategy) for result, plan in pairs)
        usage = self.run.usage
        completion = Completion(choices=choices, model=self.asked.preset, usage=usage)
        headers = self._headers(results, usage)
        block = _block(results, usage, self.asked.options.include, self.plan) if self._wants_block else None
        answer = Answer(completion=completion, run_id=self.run.run_id, headers=headers, block=block)
        return Refined(answer=answer, results=tuple(results), usage=usage)

    @property
    def _wants_block(self) -> bool:
        return bool(self.asked.options.include) or self.asked.options.progress

    def _check(self, result: Result) -> None:
        """An answer that breaks what the client asked for is none."""
        verdicts = () if result.best.score is None else result.best.score.verdicts
        broken = next((v for v in verdicts if v.check == "json_schema" and not v.passed), None)
        if self.asked.request.schema is not None and self.asked.strict and broken is not None:
            raise Refusal(502, f"no draft follows the schema: {broken.explanation}", code="response_format_not_held")
        if result.stop_reason is StopReason.CANCELLED and self._ends is None:
            raise Refusal(503, "the server is closing and has ended this run", code="closing", retry_after=1)

    def _headers(self, results: Sequence[Result], usage: Usage) -> dict[str, str]:
        """What every reply tells of its run."""
        result = results[0]
        first = next((a.score.value for a in result.attempts if a.score is not None), None)
        waited = sum(e.data.get("seconds", 0.0) for e in self.run.journal.events if e.kind == "call")
        told: dict[str, Any] = {
            "run-id": self.run.run_id,
            "strategy": self.plan.name,
            "rounds": max((a.index for r in results for a in r.attempts), default=0),
            "drafts": sum(len(r.attempts) for r in results),
            "score": None if result.score is None else f"{result.score:.4g}",
            "score-initial": None if first is None else f"{first:.4g}",
            "accepted": "true" if result.passed else "false",
            "stop-reason": ",".join(dict.fromkeys(str(r.stop_reason) for r in results)),
            "calls": usage.calls,
            "tokens": usage.tokens,
            "usage": "exact" if usage.exact else "estimated",
            "cost-usd": None if usage.unpriced else f"{usage.cost:.6g}",
            "overhead-ms": f"{max(0.0, time.perf_counter() - self._begun - waited) * 1000:.1f}",
        }
        return {PREFIX + name: str(value) for name, value in told.items() if value is not None}


def choice_of(run: Run, result: Result, strategy: Any) -> Choice:
    """The accepted draft as the message it is: with the finish reason and the probabilities of the reply it came from."""
    best = result.best
    reply, source = _reply_of(run, best, result), best
    while reply is None and source.parent is not None:
        source = result.attempts[source.parent]
        reply = _reply_of(run, source, result)
    if reply is None:
        first = strategy.first if isinstance(strategy, Turn) else None
        reply = first.choices[0] if first is not None else Choice()
    fields = {} if best.prediction is None else best.prediction.to_dict()
    text, calls = str(fields.get("answer", "")), tuple(fields.get(TOOL_CALLS) or ())
    if not text.strip() and not calls:
        raise ParseError("the best draft is empty")
    ended = "stop" if reply.finish_reason in (None, "tool_calls") else reply.finish_reason
    made = Choice(text=text, tool_calls=_with_ids(calls), finish_reason="tool_calls" if calls else ended)
    if text != reply.text or source is not best or (reply.tool_calls and not calls):
        return made  # what a provider keeps of a reply holds its calls, too
    return replace(made, logprobs=reply.logprobs, items=reply.items, reasoning=reply.reasoning)


def _refuse_forbidden(result: Result, plan: Plan) -> None:
    """A call that a preset forbids is never passed on, whatever else the turn says."""
    made = {} if result.best.prediction is None else result.best.prediction.to_dict()
    offered = {name for tool in plan.request.tools for name in named_in(tool)}
    name = forbidden_in(made.get(TOOL_CALLS) or (), plan.forbidden, offered) if plan.forbidden else None
    if name is not None:
        told = f"the model calls the tool {name!r:.80}, which this preset forbids, in its best draft of {len(result.attempts)}"
        raise Refusal(502, told, code="forbidden_tool")


async def _all(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """All at once; if one fails, the others end with it."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _reply_of(run: Run, attempt: Attempt, result: Result) -> Choice | None:
    scope = next((e.scope for e in result.events if e.kind == "attempt" and e.data.get("index") == attempt.index), "")
    around = _In(run, scope.rpartition("/attempt[")[0])
    event = last_reply(around, attempt) if scope else None  # type: ignore[arg-type]
    return None if event is None else completion_from(event.data["completion"]).choices[0]


class _In:
    """The part of a run that a nested one was: what `last_reply` looks at."""

    def __init__(self, run: Run, scope: str) -> None:
        self.journal, self.scope = run.journal, scope


def _with_ids(calls: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """A client answers a call by its id."""
    return tuple({"id": f"call_{n}", "type": "function", **call} for n, call in enumerate(calls))


def _set_fields(asked: Asked) -> frozenset[str]:
    """What of the request the client itself set."""
    return frozenset(f for f in _CLIENTS_OWN if getattr(asked.request, f) not in (None, ()))


def refuse_what_is_lacking(asked: Asked, plan: Plan) -> None:
    """Raise `UnsupportedError` for a field that the preset's model is known not to take. A schema is held by its check."""
    request, capabilities, refused = asked.request, plan.lm.capabilities, refused_by(plan.lm)
    given = [name for name in (*_CLIENTS_OWN, "tools") if getattr(request, name) not in (None, ())]
    for name in given:
        needs = OPTIONAL[name].capability
        if name in refused or (needs and not getattr(capabilities, needs)):
            raise UnsupportedError(
                f"{plan.lm.name} does not take {name!r}; leave it out, or name a preset of another model",
                parameter=name,
                status=400,
            )


def refuse_while_shut(plan: Plan, patience: float) -> None:
    """Raise `Refusal` (429) while the preset's upstream wants nothing, because it had too many requests."""
    lm = plan.lm
    wait = gate_of((lm.name, lm.parallel, str(getattr(lm, "address", ""))))._opens - time.monotonic()
    if wait > patience:
        told = f"{lm.name} has had too many requests and wants none for another {wait:.0f} s"
        raise Refusal(429, told, code="upstream_error", retry_after=wait)


def _last_text(asked: Asked) -> str:
    """What was asked for, in short."""
    said = next((m.get("content") for m in reversed(asked.request.messages) if m.get("role") == "user"), "")
    if isinstance(said, list | tuple):
        said = " ".join(str(part.get("text") or "") for part in said)
    return str(said or "")


def _block(results: Sequence[Result], usage: Usage, include: Sequence[str], plan: Plan) -> dict[str, Any]:
    """The reply's `redraft` object."""
    result = results[0]
    last = result.best.usage
    return {
        "run_id": result.run_id,
        "strategy": plan.name,
        "stop_reason": str(result.stop_reason),
        "passed": result.passed,
        "score": result.score,
        "usage": {
            "calls": usage.calls,
            "tokens": usage.tokens,
            "uncertain_tokens": usage.uncertain_tokens,
            "exact": usage.exact,
            "cost_usd": None if usage.unpriced else usage.cost,
            "final_draft": {"input_tokens": last.input_tokens, "output_tokens": last.output_tokens},
        },
        "drafts": [draft_data(attempt, include) for r in results for attempt in r.attempts] if include else [],
    }


def draft_data(attempt: Attempt, include: Sequence[str]) -> dict[str, Any]:
    """One draft as a client sees it; never without the mark that it is one."""
    told: dict[str, Any] = {
        "draft": attempt.index,
        "rung": attempt.rung,
        "accepted": attempt.accepted,
        "reason": attempt.reason,
    }
    if "scores" in include and attempt.score is not None:
        failed = [v.explanation or v.check for v in attempt.score.verdicts if not v.passed]
        told |= {"score": attempt.score.value, "failed": failed}
    if "critiques" in include and attempt.critique is not None:
        issues = [{"problem": i.problem, "suggestion": i.suggestion} for i in attempt.critique.issues]
        told["critique"] = {"verdict": attempt.critique.verdict, "issues": issues, "by": attempt.critique.by}
    if "drafts" in include:
        told["text"] = attempt.text
    if attempt.error is not None:
        told["error"] = f"{type(attempt.error).__name__}: {attempt.error}"
    return told


class _Progress:
    """A listener that tells of drafts and critiques."""

    def __init__(self, asked: Asked, tell: Tell) -> None:
        self._include, self._tell = asked.options.include, tell

    def __call__(self, event: Event) -> None:
        """One event."""
        index = event.data.get("index")
        if index is None or not event.scope.endswith(f"attempt[{index}]"):
            return
        told: dict[str, Any] = {"event": event.kind, "draft": index}
        if event.kind == "attempt":
            score = event.data["score"]
            told |= {"rung": event.data["rung"], "score": score and score["value"], "event": "draft"}
            told |= {"text": event.data["text"]} if "drafts" in self._include else {}
        elif event.kind == "critique":
            told |= {"verdict": event.data["verdict"], "issues": len(event.data["issues"]), "by": event.data["by"]}
        elif event.kind in ("accept", "reject"):
            told["reason"] = event.data["reason"]
        else:
            return
        self._tell(told)
