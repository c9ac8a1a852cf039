"""redraft makes an LLM's answer meet its bar before anyone sees it: on any model, inside a hard budget, with a receipt.

Names are imported when first used: `import redraft` alone costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, the import of which would take twenty times as long as everything else here
if TYPE_CHECKING:
    from redraft import checks, errors, testing
    from redraft.batch import Batch, BatchItem
    from redraft.budget import Budget
    from redraft.checks import Check, check
    from redraft.config import configure, context
    from redraft.frame import Advice, in_run
    from redraft.judges import Critic, Pairwise
    from redraft.learn import BootstrapFewShot
    from redraft.modules import ChainOfThought, Module, Predict, ReAct, Tool, load
    from redraft.proactive import ProactiveDecoder
    from redraft.protocols import LM, Interpreter, Scorer, Store, Strategy
    from redraft.result import Result
    from redraft.rlm import RLM
    from redraft.run import Run
    from redraft.signature import InputField, OutputField, Signature
    from redraft.store import SqliteCache, SqliteStore
    from redraft.strategies import BestOfN, Refine, Reflect, Role, SelfRefine
    from redraft.types import Attempt, Completion, Critique, Issue, Prediction, Request, Score, StopReason, Usage

__version__ = "0.1.0"

_EXPORTS = {
    "Advice": "redraft.frame",
    "Attempt": "redraft.types",
    "Batch": "redraft.batch",
    "BatchItem": "redraft.batch",
    "BestOfN": "redraft.strategies",
    "BootstrapFewShot": "redraft.learn",
    "Budget": "redraft.budget",
    "ChainOfThought": "redraft.modules",
    "Check": "redraft.checks",
    "Completion": "redraft.types",
    "Critic": "redraft.judges",
    "Critique": "redraft.types",
    "InputField": "redraft.signature",
    "Interpreter": "redraft.protocols",
    "Issue": "redraft.types",
    "LM": "redraft.protocols",
    "Module": "redraft.modules",
    "OutputField": "redraft.signature",
    "Pairwise": "redraft.judges",
    "Predict": "redraft.modules",
    "Prediction": "redraft.types",
    "ProactiveDecoder": "redraft.proactive",
    "RLM": "redraft.rlm",
    "ReAct": "redraft.modules",
    "Refine": "redraft.strategies",
    "Reflect": "redraft.strategies",
    "Request": "redraft.types",
    "Result": "redraft.result",
    "Role": "redraft.strategies",
    "Run": "redraft.run",
    "Score": "redraft.types",
    "Scorer": "redraft.protocols",
    "SelfRefine": "redraft.strategies",
    "Signature": "redraft.signature",
    "SqliteCache": "redraft.store",
    "SqliteStore": "redraft.store",
    "StopReason": "redraft.types",
    "Store": "redraft.protocols",
    "Strategy": "redraft.protocols",
    "Tool": "redraft.modules",
    "Usage": "redraft.types",
    "check": "redraft.checks",
    "checks": "redraft.checks",
    "configure": "redraft.config",
    "context": "redraft.config",
    "errors": "redraft.errors",
    "in_run": "redraft.frame",
    "load": "redraft.modules",
    "testing": "redraft.testing",
}

__all__ = [
    "Advice",
    "Attempt",
    "Batch",
    "BatchItem",
    "BestOfN",
    "BootstrapFewShot",
    "Budget",
    "ChainOfThought",
    "Check",
    "Completion",
    "Critic",
    "Critique",
    "InputField",
    "Interpreter",
    "Issue",
    "LM",
    "Module",
    "OutputField",
    "Pairwise",
    "Predict",
    "Prediction",
    "ProactiveDecoder",
    "RLM",
    "ReAct",
    "Refine",
    "Reflect",
    "Request",
    "Result",
    "Role",
    "Run",
    "Score",
    "Scorer",
    "SelfRefine",
    "Signature",
    "SqliteCache",
    "SqliteStore",
    "StopReason",
    "Store",
    "Strategy",
    "Tool",
    "Usage",
    "__version__",
    "check",
    "checks",
    "configure",
    "context",
    "errors",
    "in_run",
    "load",
    "testing",
]


if not TYPE_CHECKING:  # to a type checker any name would do

    def __getattr__(name: str) -> object:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'redraft' has no attribute {name!r}")
        module = import_module(_EXPORTS[name])
        value = module if _EXPORTS[name] == f"redraft.{name}" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
