"""Which interpreter, by name."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from typing import Any

from redraft.config import say_once
from redraft.errors import SandboxError, UnknownNameError
from redraft.protocols import Interpreter
from redraft.registry import load
from redraft.sandbox.child.syscalls import ARCHES
from redraft.sandbox.jail import ADVICE

_KNOWN = {
    "jail": "redraft.sandbox.jail:Jail",
    "monty": "redraft.sandbox.monty:Monty",
    "unsafe_local": "redraft.sandbox.local:UnsafeLocal",
}


def interpreter(name: Any = "auto", **options: Any) -> Interpreter:
    """An interpreter by its name, with its own options; an instance is returned as it is, a factory is called.

    "auto" is the jail, where this system has what it is made of; else monty, if it is installed, which is said once. Where
    there is neither, `SandboxError` says what is missing and what to do. "unsafe_local", which holds nothing, comes by that
    name only.
    """
    if isinstance(name, str):
        if name == "auto":
            name = _fitting()
        if name not in _KNOWN:
            raise UnknownNameError(f"no interpreter {name!r}; known: auto, {', '.join(sorted(_KNOWN))}")
        name = load(_KNOWN[name])
    if not isinstance(name, type) and isinstance(name, Interpreter):
        return name
    made = name(**options)
    if not isinstance(made, Interpreter):
        raise SandboxError(f"{made!r} is no interpreter: it lacks a member of redraft.protocols.Interpreter")
    return made


def _fitting() -> str:
    """The name of the sandbox that "auto" is here. Raises `SandboxError`."""
    lacking = missing()
    if not lacking:
        return "jail"
    if importlib.util.find_spec("pydantic_monty") is None:
        raise SandboxError(f"no sandbox: {lacking}. {ADVICE}")
    say_once(f'redraft: {lacking}; code runs in monty, a smaller Python. interpreter="monty" says that you mean it.')
    return "monty"


def missing() -> str:
    """What this system lacks for a jail, as far as can be told without starting one; empty if nothing."""
    if not sys.platform.startswith("linux"):
        return f"the jail does not run on {sys.platform}"
    if os.uname().machine not in ARCHES:
        return f"the jail has no table of system calls for {os.uname().machine}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(444), None, ctypes.c_long(0), ctypes.c_long(1)) < 1:
        return "this kernel has no Landlock"
    if libc.prctl(21, 0, 0, 0, 0) < 0:  # PR_GET_SECCOMP
        return "this kernel has no seccomp"
    return ""
