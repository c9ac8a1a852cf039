"""Modules: anything that turns named inputs into outputs."""

from redraft.modules.base import Module
from redraft.modules.predict import ChainOfThought, Predict

__all__ = ["ChainOfThought", "Module", "Predict"]
