"""A DSPy program as a redraft module: its predictors are told what an attempt is advised, its calls are the run's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import dspy

from redraft.errors import InputError, SignatureError
from redraft.frame import Advice, current_frame, within_path
from redraft.integrations.dspy.failures import taken_from_dspy
from redraft.integrations.dspy.lms import from_dspy
from redraft.integrations.dspy.results import Output
from redraft.integrations.dspy.route import routed
from redraft.modules import Module, Predict
from redraft.protocols import LM
from redraft.signature import Field, SignatureSpec
from redraft.sync import in_thread


def as_module(program: Any, *, awaits: bool = False) -> Program:
    """A dspy.Module as one of redraft's. `awaits`: call its `aforward` where it has both (else `forward`, in a thread)."""
    return program if isinstance(program, Program) else Program(program, awaits=awaits)


class Program(Module):
    """See `as_module`. Its output is a Prediction of the program's fields; `program` itself is never copied or changed."""

    alone = True  # its predictors are known to it alone: what walks through a strategy's modules stops here

    def __init__(self, program: Any, *, awaits: bool = False, once: bool = False) -> None:
        if not isinstance(program, dspy.Module):
            raise InputError(f"{program!r} is no dspy.Module")
        self.program = program
        self.awaits = awaits
        # DSPy looks through a whole program for its predictors, which takes longer than a call: once for one call.
        self._found = program.named_predictors() if once else None

    def predictors(self) -> list[tuple[str, Any]]:
        """Its predictors with their paths."""
        return self.program.named_predictors() if self._found is None else self._found  # type: ignore[no-any-return]

    @property
    def signature(self) -> SignatureSpec | None:
        """What a lone predictor turns into what; None for programs, and for what redraft has no form for."""
        predictor = self.program.predict if type(self.program) is dspy.ChainOfThought else self.program
        return spec_of(predictor.signature) if isinstance(predictor, dspy.Predict) else None

    @property
    def lm(self) -> LM | None:
        """The model of its predictors: the first one's own, or DSPy's configured one."""
        own = next((p.lm for _, p in self.predictors() if p.lm is not None), None) or dspy.settings.lm
        return from_dspy(own) if isinstance(own, dspy.BaseLM) else None

    def stand_in(self, predictor: Any) -> Any:
        """What stands for a predictor in redraft's eyes; the predictor itself if it is none of this program's."""
        known = _stand_ins.setdefault(self, {})
        if id(predictor) not in known:
            list(self.named_modules())
        return known.get(id(predictor), predictor)

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Its predictors under the paths that DSPy gives them."""
        known = _stand_ins.setdefault(self, {})
        for path, predictor in self.predictors():
            one = known.get(id(predictor))
            if one is None or one.signature_of is not predictor.signature:
                if (spec := spec_of(predictor.signature)) is None:
                    continue
                one = known[id(predictor)] = StandIn(predictor, spec)
            yield path, one

    def identity(self) -> str:
        """See `Module`."""
        return self._kind()

    def _kind(self) -> str:
        inside = (f"{path}={m.signature}|{m.signature.instructions}" for path, m in self.named_modules())
        return f"{type(self.program).__qualname__}({', '.join(inside)})"

    async def aforward(self, **inputs: Any) -> Output:
        """See `Module`."""
        frame = current_frame()
        assert frame is not None
        if frame.run.usage.soft:  # what it buys by itself no reservation holds back: it must not begin
            frame.meter.check_room()
        told = {id(p): hint for path, p in self.predictors() if (hint := _own_hint(frame.advice, path))}
        steps: list[Any] | None = None if dspy.settings.trace is None else []
        with routed(trace=steps, hints=told), taken_from_dspy():
            said = await self._called(inputs)
        return Output(said, steps or ())

    async def _called(self, inputs: Mapping[str, Any]) -> Any:
        kind = type(self.program)
        sync = hasattr(kind, "forward") or "forward" in vars(self.program)
        if hasattr(kind, "aforward") and (not sync or (self.awaits and not _hides(self.program))):
            return await self.program.acall(**inputs)
        if dspy.settings.send_stream is None:
            return await in_thread(self.program, **inputs)
        import anyio

        # A thread of anyio's: DSPy sends to its streams through one.
        call = partial(self.program, **inputs)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


class StandIn(Predict):
    """A DSPy predictor as redraft's advisor sees it: its signature under its path. It is never called."""

    def __init__(self, predictor: Any, spec: SignatureSpec) -> None:
        super().__init__(spec)
        self.signature_of = predictor.signature


_stand_ins: WeakKeyDictionary[Program, dict[int, StandIn]] = WeakKeyDictionary()
"""By `id` of the predictor; kept beside the programs, since they say nothing of what a program is."""


def _own_hint(advice: Advice, path: str) -> str:
    """What is said to the predictor at this path, or to a module around it."""
    return "\n".join(hint for named, hint in advice.hints.items() if within_path(path, named))


def _hides(program: Any) -> bool:
    """True if a subclass's own `forward` would be passed over by an `aforward` that it inherited."""
    if "forward" in vars(program):
        return True
    order = type(program).__mro__
    first = {name: next(i for i, c in enumerate(order) if name in vars(c)) for name in ("forward", "aforward")}
    return first["forward"] < first["aforward"]


def spec_of(signature: Any) -> SignatureSpec | None:
    """A DSPy signature in redraft's form; None if a field's name has none there."""
    try:
        return Lenient(
            [Field(name, info.annotation, _desc(name, info)) for name, info in signature.input_fields.items()],
            [Field(name, info.annotation, _desc(name, info)) for name, info in signature.output_fields.items()],
            instructions=signature.instructions or "",
            name=signature.__name__,
        )
    except SignatureError:
        return None


class Lenient(SignatureSpec):
    """A signature that takes inputs as DSPy does: it only warns of missing and unknown ones."""

    __slots__ = ()

    def bind(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs as they are."""
        return dict(inputs)


def _desc(name: str, info: Any) -> str:
    said = (info.json_schema_extra or {}).get("desc", "")
    return "" if said == f"${{{name}}}" else str(said)
