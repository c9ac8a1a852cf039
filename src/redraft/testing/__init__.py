"""For your tests and ours: scripted and faulty models, a server that breaks on demand, and the contracts of LMs and interpreters."""

from __future__ import annotations

from redraft.testing.contract import lm_contract
from redraft.testing.interpreter_contract import interpreter_contract
from redraft.testing.lms import FaultyLM, FunctionLM, ScriptedLM
from redraft.testing.replies import Reply
from redraft.testing.server import FaultServer

__all__ = ["FaultServer", "FaultyLM", "FunctionLM", "Reply", "ScriptedLM", "interpreter_contract", "lm_contract"]
