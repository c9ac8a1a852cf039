"""Modules: anything that turns named inputs into outputs."""

from redraft.modules.base import Module
from redraft.modules.predict import ChainOfThought, Predict
from redraft.modules.react import ReAct
from redraft.modules.state import load
from redraft.modules.toolbox import Tool

__all__ = ["ChainOfThought", "Module", "Predict", "ReAct", "Tool", "load"]
