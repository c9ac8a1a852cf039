"""The door to DSPy (`pip install 'redraft[dspy]'`): its programs in our strategies, our strategies in its programs.

    from redraft.integrations.dspy import Refine, BestOfN, RLM     # in place of dspy.Refine, dspy.BestOfN, dspy.RLM

`result_of(prediction)` is the receipt of what they return. `as_module(program)` makes any dspy.Module one of ours; plain
passing works as well: `redraft.Refine(dspy.ChainOfThought("question -> answer"), ...)`. `dspy_lm(model)` is a redraft
model for `dspy.configure(lm=...)`, `from_dspy(lm)` a DSPy model for redraft.
"""

from redraft.errors import ConfigError

try:
    import dspy as _  # noqa: F401
except ImportError as error:
    raise ConfigError("redraft.integrations.dspy needs the package dspy: pip install 'redraft[dspy]'") from error

from redraft.integrations.dspy.lms import dspy_lm, from_dspy
from redraft.integrations.dspy.program import as_module
from redraft.integrations.dspy.refine import BestOfN, Refine
from redraft.integrations.dspy.results import result_of
from redraft.integrations.dspy.rlm import RLM

__all__ = ["RLM", "BestOfN", "Refine", "as_module", "dspy_lm", "from_dspy", "result_of"]
