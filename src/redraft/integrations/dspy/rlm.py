"""RLM as a dspy.Module: the constructor of `dspy.RLM`, redraft's REPL, sandbox and budget inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import dspy

from redraft import rlm, strategies
from redraft.errors import InputError
from redraft.integrations.dspy.lms import from_dspy
from redraft.integrations.dspy.program import spec_of
from redraft.integrations.dspy.refine import Options, Refine
from redraft.modules.toolbox import Tool

_OF_REFINE = ("budget",)


class RLM(Refine):
    """`dspy.RLM` with redraft inside: `RLM(signature, max_iters, max_llm_calls, max_output_chars, verbose, tools, sub_lm,
    interpreter_factory)`, `max_iterations` for `max_iters`, and the options of `redraft.RLM` by name (`checks`, `depth`,
    `bypass`, `interpreter`, ...), and `budget`.

    The model is that of `predict` (`rlm.set_lm(...)`), else DSPy's configured one. What an optimizer writes into the
    instructions of `predict` is what the author is told; demos are not used. `interpreter_factory` makes an interpreter of
    redraft's contract, not one of DSPy's. Inputs may be `Path`s of files.

    A call returns a `dspy.Prediction` with the outputs, `trajectory` (a list of steps) and `final_reasoning`;
    `result_of(prediction)` is its receipt. If there is no answer, an error is raised that says what was spent.
    """

    def __init__(  # noqa: PLR0917 - DSPy's order
        self,
        signature: Any,
        max_iters: int = 20,
        max_llm_calls: int = 50,
        max_output_chars: int = 10_000,
        verbose: bool = False,
        tools: Iterable[Any] | None = None,
        sub_lm: Any = None,
        interpreter_factory: Callable[[], Any] | None = None,
        **options: Any,
    ) -> None:
        dspy.Module.__init__(self)
        self.predict = dspy.Predict(signature)
        self.max_iters = options.pop("max_iterations", max_iters)
        self.max_llm_calls, self.max_output_chars, self.verbose = max_llm_calls, max_output_chars, verbose
        beside = {"tools": [_tool(tool) for tool in tools or ()], "sub_lm": sub_lm}
        if interpreter_factory is not None:
            beside["interpreter_factory"] = interpreter_factory
        self.options = Options({**options, **beside})
        self.strategy()  # a wrong option is known before anything is spent

    def strategy(self, *, awaits: bool = False) -> Any:
        """The strategy of one call: a single attempt."""
        del awaits
        spec = spec_of(self.predict.signature)
        if spec is None:
            raise InputError(f"{self.predict.signature} has a field whose name cannot be one of redraft's")
        settings = dict(self.options.settings)
        ours = {name: settings.pop(name) for name in _OF_REFINE if name in settings}
        lm = self.predict.lm or dspy.settings.lm
        made = rlm.RLM(
            spec,
            self.max_iters,
            self.max_llm_calls,
            self.max_output_chars,
            self.verbose,
            lm=from_dspy(lm) if isinstance(lm, dspy.BaseLM) else None,
            **settings,
        )
        return strategies.Refine(made, 1, **ours)

    def forward(self, *unnamed: Any, **inputs: Any) -> Any:
        """The answer's prediction."""
        return self._told(inputs, super().forward(*unnamed, **inputs))

    async def aforward(self, *unnamed: Any, **inputs: Any) -> Any:
        """The same, awaited."""
        return self._told(inputs, await super().aforward(*unnamed, **inputs))

    def _told(self, inputs: dict[str, Any], prediction: Any) -> Any:
        """The prediction as DSPy's own has it, and a step of the caller's trace."""
        reasons = [step["reasoning"] for step in prediction.trajectory if step["reasoning"]]
        prediction.final_reasoning = reasons[-1] if reasons else ""
        trace, most = dspy.settings.trace, dspy.settings.max_trace_size
        if trace is not None and most > 0:
            trace.append((self.predict, inputs, prediction))
            del trace[: max(0, len(trace) - most)]
        return prediction


def _tool(given: Any) -> Any:
    """A dspy.Tool as redraft's; anything else as it is."""
    if not isinstance(given, dspy.Tool):
        return given
    return Tool(given.func, name=given.name, description=given.desc or "")
