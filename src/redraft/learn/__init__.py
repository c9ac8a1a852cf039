"""Learning from refinement: what passed becomes examples that the plain program shows its model."""

from redraft.learn.bootstrap import BootstrapFewShot
from redraft.learn.report import BootstrapReport, Tried

__all__ = ["BootstrapFewShot", "BootstrapReport", "Tried"]
