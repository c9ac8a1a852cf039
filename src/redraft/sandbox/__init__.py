"""Sandboxes for code that a model wrote: implementations of `redraft.protocols.Interpreter`."""

from __future__ import annotations

from redraft.sandbox.choose import interpreter
from redraft.sandbox.jail import Jail, Probe, self_test

__all__ = ["Jail", "Probe", "interpreter", "self_test"]
