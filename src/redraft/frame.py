"""Where in a run the running code stands: its scope, its meter, the advice it is given.

Carried by a context variable through tasks and worker threads, so that a module called inside a user's module joins
the surrounding run: one meter, one journal.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redraft.budget import Meter
from redraft.journal import digest
from redraft.protocols import LM

if TYPE_CHECKING:
    from redraft.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What an attempt's modules are told beyond their inputs."""

    requirements: tuple[str, ...] = ()
    """What the checks will ask for, stated in the prompt (rung "tell")."""
    hint: str = ""
    """One short hint from an earlier attempt, in a fresh prompt."""
    temperature: float | None = None
    lm: LM | None = None
    """Overrides the modules' own model."""


NO_ADVICE = Advice()


@dataclass(slots=True)
class Frame:
    """One level of the call tree. Scope = attribute path + hash of inputs + occurrence; attempts by their index."""

    run: Run
    scope: str
    meter: Meter
    advice: Advice = NO_ADVICE
    owner: Any = None
    """The module whose code is running: its sub-modules are named by their path in it."""
    counts: Counter[str] = field(default_factory=Counter)
    paths: dict[int, str] | None = None

    def inner(self, module: Any, inputs: Mapping[str, Any]) -> Frame:
        """The frame in which a module works on these inputs."""
        name = f"{self._path(module)}:{digest(dict(inputs))}"
        self.counts[name] = nth = self.counts[name] + 1
        return Frame(
            run=self.run, scope=f"{self.scope}/{name}#{nth}", meter=self.meter, advice=self.advice, owner=module
        )

    def _path(self, module: Any) -> str:
        if self.paths is None:
            self.paths = {}
            if hasattr(self.owner, "named_modules"):
                self.paths = {id(m): path for path, m in self.owner.named_modules()}
        return self.paths.get(id(module)) or type(module).__name__


_frame: ContextVar[Frame | None] = ContextVar("redraft_frame", default=None)


def current_frame() -> Frame | None:
    """The frame of the running code; None outside any run."""
    return _frame.get()


@contextlib.contextmanager
def entered(frame: Frame | None) -> Iterator[Frame | None]:
    """Run a block inside a frame."""
    token = _frame.set(frame)
    try:
        yield frame
    finally:
        _frame.reset(token)
