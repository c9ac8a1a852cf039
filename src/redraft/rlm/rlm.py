"""RLM, a recursive language model (Zhang, Kraska and Khattab 2025, arXiv 2512.24601): the inputs are variables of a REPL, the
model sees only what they are, and writes code that looks at them, asks language models about pieces, and gives the answer.

Where ours differs: answers are typed and held to checks; every sub-call is bought through the Run, so that budgets hold
and a killed run goes on without buying or doing anything twice; the sandbox is closed by the system, and what is wrong
with it is an error, never an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from redraft.checks import Judgement
from redraft.errors import BudgetExceeded, InputError, LMError, ParseError
from redraft.frame import Frame, current_frame, entered
from redraft.modules.base import Module
from redraft.modules.predict import Predict
from redraft.modules.react import TRAJECTORY
from redraft.modules.toolbox import as_tools
from redraft.protocols import LM, Interpreter
from redraft.record import digest
from redraft.rlm.answers import Limit, LimitReached
from redraft.rlm.call import Call
from redraft.rlm.sandboxes import checked, sandbox
from redraft.rlm.submit import NAME
from redraft.rlm.variables import fingerprint, prepared
from redraft.scoring import as_prediction
from redraft.signature import Signature, SignatureSpec
from redraft.types import Prediction

RESERVED = frozenset(
    {NAME, "llm_query", "llm_query_batched", "rlm_query", "llm_map", "peek", "grep", "chunk", "print", "history"}
)
"""Names in the REPL that an input or a tool cannot have."""

BYPASS = 16_000
"""Characters of all inputs together up to which one direct call is made instead: below some 17,000 an RLM was never the cheaper
one (benchmarks/rlm).
"""


class RLM(Module):
    """Answer from inputs of any size: `RLM("logs, question -> answer: int")(logs=Path("app.log"), question="...")`.

    Inputs are texts, bytes, JSON values, tables (pandas, polars, Arrow) and `Path`s of files. `max_llm_calls` bounds the
    sub-calls of one call; `max_output_chars` what the model is shown of a cell. `tools` are functions that the code may
    call. `sub_lm` answers the sub-calls (by default the model itself). `interpreter` is the sandbox: a name ("auto", "jail"), a
    function or class that makes one for each call, or one object, which serves one call at a time. An answer has to
    pass `checks`. Inputs of up to `bypass` characters go to the model in one direct call (0: never). With `depth` > 1 the
    code may ask an RLM (`rlm_query`). `read_first`: an answer from a cell that also printed is asked for again, once, with
    that output in view. `max_history_chars`: older turns are shown in brief beyond that. `sampling` as in Predict.

    The prediction has the signature's outputs and `trajectory`: a dict a step with `reasoning`, `code`, `output`, `error`,
    `calls` (its sub-calls and tools), `usage` and `seconds`; `bypass` marks a direct call, `fallback` an answer that no
    code submitted. Raises `SandboxError` if the sandbox cannot be had or fails: then there is no answer. Raises
    `ParseError` if the model gives none, and what ends a run (its budget) where nothing was submitted before.
    """

    alone = True

    def __init__(  # noqa: PLR0917 - DSPy's order
        self,
        signature: str | type[Signature] | SignatureSpec,
        max_iterations: int = 20,
        max_llm_calls: int = 50,
        max_output_chars: int = 10_000,
        verbose: bool = False,
        tools: Iterable[Any] | None = None,
        sub_lm: LM | str | None = None,
        interpreter: Interpreter | Callable[[], Interpreter] | str | None = None,
        *,
        max_iters: int | None = None,
        interpreter_factory: Callable[[], Interpreter] | None = None,
        lm: LM | str | None = None,
        checks: Sequence[Any] = (),
        bypass: int = BYPASS,
        depth: int = 1,
        max_prompt_chars: int = 100_000,
        max_history_chars: int = 60_000,
        read_first: bool = True,
        system: str = "",
        **sampling: Any,
    ) -> None:
        plain = Predict(signature, lm=lm, system=system, **sampling)  # the same rules for the same options
        self.signature, self.lm, self.system = plain.signature, plain.lm, plain.system
        self.temperature, self.max_tokens, self.sampling = plain.temperature, plain.max_tokens, plain.sampling
        self.max_iterations = max_iterations if max_iters is None else max_iters
        self.max_llm_calls, self.max_output_chars = max_llm_calls, max_output_chars
        self.max_prompt_chars, self.max_history_chars = max_prompt_chars, max_history_chars
        self.bypass, self.depth, self.read_first, self.verbose = bypass, depth, read_first, verbose
        self.sub_lm = sub_lm
        self.tools = as_tools(tools or ())
        self.judgement = Judgement(checks)
        self.interpreter = checked(interpreter, interpreter_factory, depth=depth)
        self._check()

    def __call__(self, *unnamed: Any, **inputs: Any) -> Prediction:
        """Answer and wait. On an event loop, `await rlm.acall(...)` instead."""
        prediction: Prediction = super().__call__(*unnamed, **inputs)
        return prediction

    async def aforward(self, **inputs: Any) -> Prediction:
        """See `Module`."""
        return await self.within(inputs)

    async def within(self, inputs: Mapping[str, Any], around: Limit | None = None) -> Prediction:
        """The algorithm, in the running frame. `around`: the sub-calls of the RLM that asks this one."""
        frame = current_frame()
        assert frame is not None
        bound = self.signature.bind(inputs)
        call = Call(self, frame, await prepared(bound, self.bypass), around)
        if (answer := await call.direct(bound)) is not None:
            return answer
        async with sandbox(self.interpreter, frame) as interpreter:
            call.enter(interpreter, bound)
            try:
                return await self._answer(call, frame)
            except (BudgetExceeded, LMError, ParseError, LimitReached) as error:
                if (best := call.cut_off(error)) is None:
                    raise
                return best
            finally:
                await call.repl.close()

    async def _answer(self, call: Call, frame: Frame) -> Prediction:
        if not frame.run.journal.resumed:
            await call.repl.start()  # a sandbox that cannot be had costs nothing
        for _ in range(self.max_iterations):
            ending = call.last
            if (answer := await call.turn()) is not None:
                return call.answered(answer)
            if ending or call.stuck():
                break
        return await call.last_word()

    async def _within(self, inputs: dict[str, Any]) -> Prediction:
        frame = current_frame()
        assert frame is not None
        with entered(frame.inner(self, await fingerprint(inputs))):
            return as_prediction(await self._forward(inputs))

    def child(self, *, with_data: bool) -> RLM:
        """What `rlm_query` asks."""
        return RLM(
            "prompt, data -> answer" if with_data else "prompt -> answer",
            self.max_iterations,
            self.max_llm_calls,
            self.max_output_chars,
            self.verbose,
            list(self.tools.values()),
            self.sub_lm,
            self.interpreter,
            lm=self.sub_lm if self.sub_lm is not None else self.lm,
            bypass=self.bypass,
            depth=self.depth - 1,
            max_prompt_chars=self.max_prompt_chars,
            max_history_chars=self.max_history_chars,
        )

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The signature's."""
        return self.signature.outputs

    def _check(self) -> None:
        """Raises `InputError` for options that cannot be meant."""
        least = {"max_llm_calls": 0, "bypass": 0}
        for name in ("max_iterations", "max_output_chars", "max_prompt_chars", "max_history_chars", "depth", *least):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least.get(name, 1):
                raise InputError(f"{name}={value!r}: give a whole number, {least.get(name, 1)} or more")
        if not isinstance(self.sub_lm, str | LM | None):
            raise InputError(f"sub_lm={self.sub_lm!r}: give a model's name or an LM")
        if TRAJECTORY in self.signature.outputs:
            raise InputError(f"the output {TRAJECTORY!r} is RLM's own; give yours another name")
        for name in self.signature.inputs:
            if name in RESERVED - {"history"} or name in self.tools:
                raise InputError(f"the input {name!r} has the name of a function in the REPL; give it another one")
        for name in self.tools:
            if name in RESERVED or not name.isidentifier():
                raise InputError(f"a tool cannot be called {name!r} in Python code here: rename it, Tool(fn, name=...)")
        for check in self.judgement.checks:
            if check.field not in (None, *self.outputs):
                raise InputError(
                    f"check {check.name!r} looks at field {check.field!r}, but the output fields are: "
                    f"{', '.join(self.outputs)}"
                )

    def identity(self) -> str:
        """See `Module`."""
        return self._kind()

    def _kind(self) -> str:
        names = [getattr(lm, "name", lm) for lm in (self.lm, self.sub_lm)]
        parts = (self.signature, self.signature.instructions, *names, self.system, self.temperature, self.max_tokens)
        bounds = (self.max_iterations, self.max_llm_calls, self.max_output_chars, self.bypass, self.depth)
        told = digest([[tool.wire for tool in self.tools.values()], list(self.judgement.requirements())])
        return "|".join(map(str, (*parts, *bounds, told)))

    def __repr__(self) -> str:
        return f"RLM({str(self.signature)!r})"
