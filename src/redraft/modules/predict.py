"""Predict and ChainOfThought: one signature, one reply, parsed into typed fields."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from redraft.cached import forget
from redraft.config import resolve_lm
from redraft.errors import InputError, ParseError, UnsupportedError
from redraft.frame import Frame, current_frame, entered
from redraft.modules.answered import tell_answer
from redraft.modules.base import Module
from redraft.modules.demos import Demo, as_demos, shown
from redraft.modules.toolbox import wire_tools
from redraft.modules.wire import Style, asked_of, compose, parse, style_for
from redraft.protocols import LM
from redraft.record import digest
from redraft.refusals import refused_in_run, remember_refusal
from redraft.signature import Signature, SignatureSpec, as_signature
from redraft.types import Completion, Prediction, Request

_LONGEST = 10_000_000
_SAMPLING = frozenset(Request.__dataclass_fields__) - {"messages", "schema", "grammar", "max_tokens", "temperature"}


class Predict(Module):
    """Ask a model for a signature's outputs: `Predict("question -> answer: int")(question="6 x 7?").answer`.

    A single `str` output is the reply's text. Typed outputs use the model's JSON schema mode, else JSON asked for in
    words. A reply that does not parse is asked for again in a fresh prompt that names the error, at most `reasks` times, each
    counted and recorded; then `ParseError`. Further keywords are sampling parameters of `Request` (top_p, stop); `tools`
    may be functions.
    """

    alone = True
    _saved = ("system", "temperature", "max_tokens", "reasks", "sampling")
    _demos: tuple[Demo, ...] = ()

    def __init__(
        self,
        signature: str | type[Signature] | SignatureSpec,
        *,
        lm: LM | str | None = None,
        system: str = "",
        temperature: float | None = None,
        max_tokens: int | None = None,
        reasks: int = 2,
        role: str = "author",
        **sampling: Any,
    ) -> None:
        self.signature = as_signature(signature)
        self.lm = lm
        self.system = system
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.reasks = reasks
        self.role = role
        if unknown := sorted(set(sampling) - _SAMPLING):
            hint = " (a model is given as lm=)" if unknown[0] == "model" else ""
            raise InputError(f"unknown sampling parameter {unknown[0]!r}{hint}; known: {', '.join(sorted(_SAMPLING))}")
        if "n" in sampling:
            raise InputError("Predict asks for one reply; use BestOfN for several")
        if temperature is not None and not 0 <= temperature < math.inf:
            raise InputError(f"temperature={temperature!r}: give a finite number, 0 or more")
        if max_tokens is not None and not (isinstance(max_tokens, int) and 1 <= max_tokens <= _LONGEST):
            raise InputError(f"max_tokens={max_tokens!r}: give a whole number from 1 to {_LONGEST:,}")
        if not isinstance(reasks, int) or reasks < 0:
            raise InputError(
                f"reasks={reasks!r}: give how often a reply that does not parse is asked for again, 0 or more"
            )
        if not isinstance(lm, str | LM | None):
            raise InputError(f"lm={lm!r}: give a model's name or an LM")
        if isinstance(stop := sampling.get("stop"), str):
            sampling["stop"] = (stop,)
        if "tools" in sampling:
            sampling["tools"] = wire_tools(sampling["tools"])
        self.sampling = sampling

    @property
    def demos(self) -> tuple[Demo, ...]:
        """Examples that the model is shown as earlier turns. Set any mappings, Predictions or Examples with all inputs and
        outputs: `predict.demos = [{"question": "2 + 2?", "answer": 4}]`; `InputError` says what does not fit.
        """
        return self._demos

    @demos.setter
    def demos(self, given: Iterable[Any]) -> None:
        if demos := as_demos(self.signature, given):
            self._demos = demos
        else:
            vars(self).pop("_demos", None)  # as one that never had any

    def __call__(self, *unnamed: Any, **inputs: Any) -> Prediction:
        """Ask and wait. On an event loop, `await predict.acall(...)` instead."""
        prediction: Prediction = super().__call__(*unnamed, **inputs)
        return prediction

    async def aforward(self, **inputs: Any) -> Prediction:
        """See `Module`."""
        frame = current_frame()
        assert frame is not None
        bound = self.signature.bind(inputs)
        lm = frame.advice.lm or resolve_lm(self.lm)
        error: ParseError | None = None
        thoughts = 0
        for _ in range(1 + self.reasks):
            style = self._style(lm)
            request = self._request(frame, lm, bound, style, error)
            try:
                completion = await self._ask(frame, lm, request, error)
            except UnsupportedError as refused:
                if refused.parameter != "schema" or style != "schema":
                    raise
                # Where only this schema is too much for the model, others are still sent.
                remember_refusal(lm, _this_schema(request) if refused.parts else "schema")
                style = self._style(lm)
                request = self._request(frame, lm, bound, style, error)
                completion = await self._ask(frame, lm, request, error)
            try:
                prediction = parse(self.signature, completion, style)
                tell_answer(self, frame.scope, bound, prediction, final=False)
                return prediction
            except ParseError as caught:
                if error is None and not frame.fresh:
                    forget(lm, request)
                error = caught
                error.completion = completion
                journal = frame.run.journal
                key = journal.key(frame.scope, "parse_error")
                journal.note("parse_error", scope=frame.scope, key=key, error=str(error))
                thoughts += only_thought(completion)
                if thoughts > 1:
                    break
        assert error is not None
        raise error

    def _style(self, lm: LM) -> Style:
        style = style_for(self.signature, lm.capabilities)
        if style != "schema" or not (refused := refused_in_run(lm)):
            return style
        return "json" if not refused.isdisjoint(("schema", _this_schema(self._schema()))) else style

    def _schema(self) -> Mapping[str, Any]:
        return asked_of(self.signature).json_schema()

    async def _ask(self, frame: Frame, lm: LM, request: Request, error: ParseError | None) -> Completion:
        with entered(frame if error is None else frame.again()):
            return await frame.run.complete(request, lm=lm, role=self.role)

    def _request(self, frame: Frame, lm: LM, bound: dict[str, Any], style: Style, error: ParseError | None) -> Request:
        advice = frame.advice
        temperature = self.temperature if advice.temperature is None else advice.temperature
        effort, max_tokens = advice.effort or self.sampling.get("effort"), self.max_tokens
        if error is not None and error.completion is not None and only_thought(error.completion):
            effort, max_tokens = differently(lm, error.completion, effort, max_tokens)
        messages = compose(
            self.signature,
            bound,
            style=style,
            system=self.system,
            requirements=advice.requirements,
            hint=advice.hint,
            error="" if error is None else str(error),
        )
        if self._demos:
            instructed = int(bool(self.system or self.signature.instructions))
            messages = shown(self.signature, self._demos, style, messages, after=instructed)
        return Request(
            messages=messages,
            temperature=temperature if lm.capabilities.temperature else None,
            max_tokens=max_tokens,
            schema=self._schema() if style == "schema" else advice.schema if style == "plain" else None,
            grammar=advice.grammar if style == "plain" and lm.capabilities.grammar else None,
            **{**self.sampling, **({"effort": effort} if effort else {})},
        )

    def identity(self) -> str:
        """See `Module`."""
        return self._kind()

    def _kind(self) -> str:
        lm = getattr(self.lm, "name", self.lm)
        parts = (self.signature, self.signature.instructions, lm, self.system, self.temperature, self.max_tokens)
        shown_too = (digest([demo.to_dict() for demo in self._demos]),) if self._demos else ()
        return "|".join(map(str, (*parts, *shown_too)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.signature)!r})"


class ChainOfThought(Predict):
    """Predict that writes its `reasoning` first; the reasoning is an output field of its own, never judged.

    The field has no description: small models copied one as its value.
    """

    def __init__(self, signature: str | type[Signature] | SignatureSpec, **options: Any) -> None:
        spec = as_signature(signature)
        super().__init__(spec.with_output("reasoning"), **options)


def differently(
    lm: LM, completion: Completion, effort: str | None, max_tokens: int | None
) -> tuple[str | None, int | None]:
    """Effort and cap for the one retry of a reply that was all thought: the same request would only think again.

    A model that sent its thoughts has an effort to lower, whatever was declared of it. It gets twice the room it was
    given, or, where it was given no cap and still was cut, twice what it used; at most its own maximum.
    """
    used = completion.usage.output_tokens if completion.usage and completion.finish_reason == "length" else 0
    room = max_tokens or used or None
    if room is not None:
        room = max(room, min(2 * room, lm.max_output or 2 * room))
    return (effort if effort in _LITTLE else "low"), room


_LITTLE = ("none", "minimal", "low")


def _this_schema(of: Request | Mapping[str, Any]) -> str:
    """What the refusal of one schema is remembered as."""
    return f"schema {digest(of.schema if isinstance(of, Request) else of)}"


def only_thought(completion: Completion | None) -> bool:
    """True for a reply of reasoning and nothing else."""
    return bool(completion and completion.reasoning and not completion.text.strip() and not completion.tool_calls)
