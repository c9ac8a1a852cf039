"""Proactive decoding: a text is mended while it is written (docs/proactive.md). Loads no torch; `redraft.proactive.torch_lm` does."""

from redraft.proactive.backtrack import DynamicBacktracker
from redraft.proactive.decoder import ProactiveDecoder
from redraft.proactive.signals import RandomSignal, RefinementSignal, Signal

__all__ = ["DynamicBacktracker", "ProactiveDecoder", "RandomSignal", "RefinementSignal", "Signal"]
